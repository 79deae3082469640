"""A run: its lab, options, files and lock; the launch of its workers, its supervision and its errors."""

from typing import TYPE_CHECKING

from labs.run import lazy

if TYPE_CHECKING:
    from labs.run import atomic, fields, heartbeat
    from labs.run.catalogue import Lab
    from labs.run.errors import LabError
    from labs.run.fields import Range
    from labs.run.options import Options
    from labs.run.sweeps import Sweep, divide
    from labs.run.worker import main
else:
    __getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
