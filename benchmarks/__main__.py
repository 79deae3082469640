"""The kit against what a student would use instead, on this machine: `make bench`.

    python -m benchmarks                            all questions, five rounds each (an hour; leave the machine alone)
    python -m benchmarks --only steps --rounds 3
    python -m benchmarks --show                     what was measured last

Each question runs its arms in turns, A B C A B C, and its table says by how much the kit is ahead: the median of the
rounds' ratios, with a 95 % interval. PyTorch is compared with where BENCH_TORCH_PYTHON names a Python that has it.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import time
from typing import Literal, get_args

import pandas as pd
import psutil
import tyro

from benchmarks.questions import QUESTIONS
from labs.run import atomic
from labs.run.paths import ROOT

RESULTS = ROOT / "benchmarks/results"


Question = Literal["steps", "scaling", "allreduce", "pictures", "fit", "start", "growth", "memory"]


@dataclasses.dataclass(frozen=True)
class Asked:
    """What to measure."""

    only: tuple[Question, ...] = get_args(Question)
    """These questions."""
    rounds: int = 5
    """That must count, of each question; one that others disturbed is void."""
    show: bool = False
    """Measure nothing; print what was measured last."""


def main() -> None:
    asked = tyro.cli(Asked, prog="python -m benchmarks", description=__doc__)
    for name in asked.only:
        file = RESULTS / f"{name}.json"
        if not asked.show and (found := QUESTIONS[name](asked.rounds)):
            atomic.write_json(file, {"question": name, "date": time.strftime("%Y-%m-%d"), "machine": machine(),
                                      "rows": [dataclasses.asdict(row) for row in found]})
        if file.exists():
            print(table(pd.DataFrame(json.loads(file.read_text())["rows"])), flush=True)


def machine() -> dict:
    """Describe this machine."""
    with open("/proc/cpuinfo") as file:
        model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "unknown")
    return {"processor": model, "cores": psutil.cpu_count(), "memory_gib": round(psutil.virtual_memory().total / 2**30),
            "system": platform.platform(), "python": platform.python_version()}


def table(frame: pd.DataFrame) -> str:
    """Return the rows as text, with a verdict where there is a bound."""
    interval = [f"[{low:.2f}, {high:.2f}]" for low, high in zip(frame["low"], frame["high"], strict=True)]
    shown = frame[["case", "against", "kit", "other", "unit", "ratio"]].assign(
        interval=interval, must=frame["must"], aim=frame["aim"],
        reached=[verdict(*row) for row in frame[["ratio", "must", "aim"]].itertuples(index=False)])
    return f"\n{frame['question'].iloc[0]}\n{shown.to_string(index=False, float_format='{:.3g}'.format, na_rep='')}\n"


def verdict(ratio: float, must: float | None, aim: float | None) -> str:
    """Return what a ratio reached: "aim", "must", or "missed"; nothing where nothing is asked for."""
    if must is not None and ratio < must:
        return "missed"
    if aim is not None and ratio >= aim:
        return "aim"
    return "" if pd.isna(must) else "must"


if __name__ == "__main__":
    main()
