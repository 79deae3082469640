"""Starts workers: on this machine and inside a Slurm allocation."""
