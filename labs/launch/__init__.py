"""Launches: starts a run's workers with mpirun, and supervises them. Imports no TensorFlow."""

from typing import TYPE_CHECKING

from labs.run import lazy

if TYPE_CHECKING:
    from labs.launch import resident
    from labs.launch.local import run
    from labs.launch.mpirun import check_slots, slots, visible_gpus
else:
    __getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
