"""Training on several workers: start, fit, check, save."""
