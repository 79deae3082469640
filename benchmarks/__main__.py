"""The kit against what a student would use instead, on this machine: `make bench`.

    python -m benchmarks                            all questions, five rounds each (an hour on an idle machine)
    python -m benchmarks --only steps --rounds 3
    python -m benchmarks --show                     print the last results

Each question runs its contenders in turns, A B C A B C. Its table shows the kit's lead: the median of the rounds'
ratios, with a 95 % interval. PyTorch takes part if BENCH_TORCH_PYTHON names a Python that has it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import time
from pathlib import Path

import pandas as pd
import psutil

from benchmarks.questions import QUESTIONS
from labs.run import atomic
from labs.run.paths import ROOT

RESULTS = ROOT / "benchmarks/results"


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(QUESTIONS), default=list(QUESTIONS),
                        help="the questions to measure")
    parser.add_argument("--rounds", type=int, default=5,
                        help="valid rounds per question; a round that other processes disturbed is void")
    parser.add_argument("--show", action="store_true", help="measure nothing; print the last results")
    options = parser.parse_args()
    for name in options.only:
        file = RESULTS / f"{name}.json"
        if not options.show and (rows := QUESTIONS[name](options.rounds)):
            atomic.write_json(file, {"question": name, "date": time.strftime("%Y-%m-%d"), "machine": machine(),
                                      "rows": [dataclasses.asdict(row) for row in rows]})
        if file.exists():
            print(table(read(file)), flush=True)


def read(file: Path) -> pd.DataFrame:
    """Return the rows of a results file."""
    return pd.DataFrame(json.loads(file.read_text())["rows"])


def machine() -> dict:
    """Return a description of this machine."""
    with open("/proc/cpuinfo") as file:
        model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "unknown")
    return {"processor": model, "cores": psutil.cpu_count(), "memory_gib": round(psutil.virtual_memory().total / 2**30),
            "system": platform.platform(), "python": platform.python_version()}


def table(frame: pd.DataFrame) -> str:
    """Return the rows as text, with a verdict where a ratio is required or targeted."""
    interval = [f"[{low:.2f}, {high:.2f}]" for low, high in zip(frame["low"], frame["high"], strict=True)]
    shown = frame[["case", "against", "kit", "other", "unit", "ratio"]].assign(
        interval=interval, required=frame["required"], target=frame["target"],
        reached=[verdict(*row) for row in frame[["ratio", "required", "target"]].itertuples(index=False)])
    return f"\n{frame['question'].iloc[0]}\n{shown.to_string(index=False, float_format='{:.3g}'.format, na_rep='')}\n"


def verdict(ratio: float, required: float | None, target: float | None) -> str:
    """Return "target", "required" or "missed", or nothing if no ratio is required."""
    if required is not None and ratio < required:
        return "missed"
    if target is not None and ratio >= target:
        return "target"
    return "" if pd.isna(required) else "required"


if __name__ == "__main__":
    main()
