"""Launches: starts a run's workers with mpirun, supervises them, and runs sweeps. Imports no TensorFlow."""

from labs.run import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, {
    "local": ["Finished", "run"],
    "sweep": ["run_sweep"],
    "capacity": ["check_slots", "slots", "visible_gpus"],
}, submodules=["elastic", "resident"])
