"""Write the tables of docs/five-reports.md from data/reference: what each report printed, and what its figures give.

    python notebooks/reports.py       `make notebooks` and `make notebook-run` also run it
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

import pandas as pd

from labs.lint import rules, tables
from labs.results.tables import Grid
from labs.run import atomic
from labs.run.paths import ROOT

PAGE = ROOT / "docs/five-reports.md"
MARKED = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def read(name: str) -> pd.DataFrame:
    """Return a table of data/reference."""
    return pd.read_csv(ROOT / f"data/reference/{name}.csv")


def figure(value: float | str, form: str = "") -> str:
    """Return a figure as text; nothing if there is none."""
    return "" if isinstance(value, float) and math.isnan(value) else format(value, form)


def cifar() -> pd.DataFrame:
    """Return report C's table with short names."""
    return read("lab04_speedup").rename(columns={
        "batch_size_per_worker": "b", "workers": "N", "seconds_per_epoch": "epoch", "speedup": "printed",
        "compute_seconds": "compute", "communication_seconds": "comm", "bandwidth_gb_per_sec": "GBps"})


def cifar_speedups() -> Iterator[dict[str, str]]:
    """Report C's speedups: the ratio that it printed, and the right one."""
    rows = cifar()
    epoch, smaller = rows.set_index(["b", "N"])["epoch"], {128: 32, 512: 128}
    for row in rows.itertuples():
        base = smaller.get(row.b, row.b)
        assert math.isclose(row.printed, epoch[base, row.N] / row.epoch, rel_tol=1e-4)
        speedup = epoch[row.b, 1] / row.epoch
        yield {"printed: b": str(row.b), "GPUs": str(row.N), "s per epoch": f"{row.epoch:.2f}",
               "speedup": f"{row.printed:.2f}", "its baseline's b": str(base),
               "computed: S": f"{speedup:.2f}", "E": f"{speedup / row.N:.2f}"}


def traffic() -> Iterator[dict[str, str]]:
    """Report T's bytes, divided by the steps of an epoch."""
    for row in read("lab07_transported_bytes").itertuples():
        steps = -(-60_000 // row.batch_size_per_worker)
        assert row.forward_bytes == 60_000 * 28 * 28 * 4
        per_step = {column: getattr(row, f"{column}_bytes") / steps for column in ("allreduce", "backward")}
        yield {"printed: batch": str(row.batch_size_per_worker), "forward bytes": f"{row.forward_bytes:,}",
               "backward bytes": f"{row.backward_bytes:,}",
               "all-reduce bytes": f"{row.allreduce_bytes:,}", "computed: steps": f"{steps:,}",
               "all-reduce bytes per step": figure(per_step["allreduce"], ",g"),
               "backward bytes per step": figure(per_step["backward"], "g")}


def nodes() -> Iterator[dict[str, str]]:
    """Report A's weak scaling: its speedups, and those of its images per second."""
    rows, printed = read("lab08_throughput"), read("lab08_speedup").query("experiment == 'weak scaling'")
    for row in printed.itertuples():
        mine = rows[(rows["device"] == row.device) & (rows["model"] == row.model)]
        one = mine[mine["nodes"] == 1]["images_per_sec"].iloc[-1]  # On CPUs that of the weak scaling itself.
        eight = mine[mine["nodes"] == 8]["images_per_sec"].item()
        speedup = eight / one
        yield {"printed: device": row.device, "network": row.model, "images/s, 1 node": f"{one:.2f}",
               "8 nodes": f"{eight:.2f}", "S(8)": f"{row.speedup:.2f}", "computed: S(8)": f"{speedup:.2f}",
               "E": f"{speedup / 8:.2f}" + " (impossible)" * bool(speedup > 8),
               "images/s of one node by the printed S": f"{eight / row.speedup:.1f}",
               "of a node among eight": f"{eight / 8:.1f}"}


def claims(report: str) -> Iterator[dict[str, str]]:
    """What a report says, with the lines of its text."""
    for row in read("claims").query("report == @report and kind == 'stated'").itertuples():
        yield {"line": row.line, "what it says": row.claim}


TABLES: dict[str, Callable[[], Iterator[dict[str, str]]]] = {
    program.__name__: program for program in (cifar_speedups, traffic, nodes)}
LINTED = {"F": ("lab09_fruits",), "M": ("lab02_mnist_accuracy",),
          "C": ("lab04_speedup", "lab04_large_batch_accuracy"), "T": ("lab07_transported_bytes",),
          "A": ("lab08_throughput", "lab08_speedup")}
"""Each report's tables in data/reference."""


def lint(report: str) -> str:
    """Say what `labs lint` finds in a report's tables."""
    found = dict.fromkeys(each.rule for name in LINTED[report]
                          for each in rules.judge(tables.read(ROOT / f"data/reference/{name}.csv")))
    return f"`labs lint` finds in `data/reference`: {', '.join(found)}."


def block(name: str) -> str:
    """Return what stands between a table's markers."""
    kind, _, report = name.partition("_")
    if kind == "lint":
        return lint(report)
    rows = list(claims(report) if kind == "claims" else TABLES[name]())
    return Grid(name, list(rows[0]), [list(row.values()) for row in rows]).markdown()


def page(text: str) -> str:
    """Return docs/five-reports.md with its tables made again."""
    return MARKED.sub(lambda match: f"{match[1]}\n{block(match[2])}\n\n{match[3]}", text)


if __name__ == "__main__":
    atomic.write_text(PAGE, page(PAGE.read_text(encoding="utf-8")))
