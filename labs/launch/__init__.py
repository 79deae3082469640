"""Launching: start a lab's workers with mpirun or horovodrun, supervise them, and run sweeps."""

from labs.run import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, {
    "capacity": ["visible_gpus"],
    "local": ["run"],
}, submodules=["elastic", "local", "sweep"])
