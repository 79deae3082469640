"""A small lab that lingers after it has written its record, so that a signal can come when all is done."""

from __future__ import annotations

import dataclasses
import time

from labs.command import Options, main


@dataclasses.dataclass(frozen=True)
class Config:
    """What all workers must share."""

    seed: int = 1


PRESETS = {"demo": Config()}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train nothing, write the record, and stay."""
    from labs.report import records
    from labs.training import workers

    with workers.start("tests.workers.programs.ends_late", config, options) as job:
        record = records.finish(job, [])
        time.sleep(60)
        return record


if __name__ == "__main__":
    main()
