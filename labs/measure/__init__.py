"""Measuring: how fast, and where the time goes."""
