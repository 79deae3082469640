"""The jobs on a real Slurm cluster; client.py starts one."""
