"""Reports: the record and figures of a run, tables over many runs, and the page that `labs report` writes."""

from labs.run import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, {
    "run_record": ["exchanged", "finish"],
}, submodules=["drawings", "layouts", "memory_limits", "over_links", "page", "plots", "transports"])
