"""What a run leaves behind and the pages made of many: records, figures, tables across runs, `labs report`."""

from labs.run import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, {
    "run_record": ["exchanged", "finish"],
}, submodules=["layouts", "memory_limits", "page", "plots", "transports"])
