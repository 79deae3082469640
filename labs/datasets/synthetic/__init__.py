"""Synthetic data sets: small images generated from seeds, in the layout of the real ones."""
