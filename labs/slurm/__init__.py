"""Slurm: what it granted to this job, why a job waits, and a job before it is submitted. Imports no TensorFlow."""
