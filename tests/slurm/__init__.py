"""The jobs on a real Slurm cluster; cluster.py starts one, also by hand."""
