"""Recorded runs: the records and their schema, tables, and the statistics of scaling."""

from labs.run import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, {
    "records": ["load", "read", "read_all"],
}, submodules=[
    "at_scale", "cost_model", "laws", "over_links", "proportions", "records", "reference", "scaling", "seeds",
    "speed_tables", "statistics", "step_cost", "tables",
])
