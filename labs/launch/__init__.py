"""Launches: starts a run's workers with mpirun, supervises them, and runs sweeps. Imports no TensorFlow."""

from typing import TYPE_CHECKING

from labs.run import lazy

if TYPE_CHECKING:
    from labs.launch import elastic_hosts, resident
    from labs.launch.local import run
    from labs.launch.mpirun import check_slots, slots, visible_gpus
    from labs.launch.sweep import run_sweep
else:
    __getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
