"""What the pages' cells draw and compute, a module a page; plots, scaling laws, a model of large runs."""
