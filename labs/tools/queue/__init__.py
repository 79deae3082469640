"""Slurm: this job's allocation, why a job waits, and a check before submission. Imports no TensorFlow."""
