"""`labs queue`: why a Slurm job waits, and a check before submission. Imports no TensorFlow."""
