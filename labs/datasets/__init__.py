"""Data sets: what exists, where it comes from, how it is split, shared out and read."""
