"""Synthetic data in the layout of the real data sets: digits, drawings, noise."""
