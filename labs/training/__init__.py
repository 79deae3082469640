"""Training on several workers: start, fit, evaluate, checkpoints, learning rates, Horovod."""
