"""A run's lab, options, names, files, lock, heartbeat and errors."""

from labs.run import shadows

shadows.refuse_standard()  # Before the next import, which needs several of Python's modules.

from labs.run import lazy  # noqa: E402

__getattr__, __dir__, __all__ = lazy.attach(__name__, {
    "errors": ["LabError"],
    "fields": ["Range"],
    "lab": ["Lab"],
    "options": ["Options"],
    "sweeps": ["Sweep", "divide"],
    "worker": ["main"],
}, submodules=["atomic", "fields", "heartbeat", "naming"])
