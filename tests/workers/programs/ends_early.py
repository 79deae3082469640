"""A lab whose launcher ends at once, as the environment's LAUNCHER says, and starts no worker."""

import dataclasses
import os

from labs.run.catalogue import Lab
from labs.run.fields import Seed


@dataclasses.dataclass(frozen=True)
class Config:
    """What all workers must share."""

    seed: Seed = 1


PRESETS = {"demo": Config()}


def launcher(config, workers, folder):
    """Return a shell's command line: the program of the worker, which follows, is left aside."""
    return ["bash", "-c", os.environ["LAUNCHER"]]


def run(config, options):
    """Never called: there are no workers."""
    raise AssertionError


LAB = Lab(Config, PRESETS, run, launcher=launcher)
