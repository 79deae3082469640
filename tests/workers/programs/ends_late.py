"""A small lab that lingers after it has written its record, so that a signal can come when all is done."""

from __future__ import annotations

import dataclasses
import time

from labs.run.catalogue import Lab
from labs.run.fields import Seed
from labs.run.options import Options
from labs.run.worker import main


@dataclasses.dataclass(frozen=True)
class Config:
    """What all workers must share."""

    seed: Seed = 1


PRESETS = {"demo": Config()}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train nothing, write the record, and stay."""
    from labs.results import run_record
    from labs.training import workers

    with workers.start(config, options) as job:
        record = run_record.finish(job, [])
        time.sleep(60)
        return record


LAB = Lab(Config, PRESETS, run)

if __name__ == "__main__":
    main()
