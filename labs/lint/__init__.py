"""Plausible figures: the rules of `labs lint`, for records and for tables typed by hand."""
