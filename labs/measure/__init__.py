"""Measurements: throughput, utilization, memory, bytes on the wire, and where an epoch's time goes."""

from labs.run import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, {
    "utilization": ["Utilization"],
    "wire": ["gradient_bytes"],
}, submodules=["collectives", "ledger", "memory", "network", "throughput", "timeline", "utilization", "wire"])
