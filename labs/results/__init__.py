"""Results: the records of runs, tables of them, and the arithmetic of scaling."""
