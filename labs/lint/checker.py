"""Check of results folders, and of tables typed by hand, by rules.

    labs lint                     the results folder
    labs lint RESULTS FILE.csv    another results folder, and a table typed by hand
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from labs.lint import run_rules, speedup_rules, tables
from labs.lint.rows import Finding, Row
from labs.results import ledger, noise, records
from labs.run.errors import LabError
from labs.run.text import plural

Rule = Callable[[list[Row]], speedup_rules.Found]
RULES: tuple[Rule, ...] = (
    speedup_rules.efficiency_above_1, speedup_rules.wrong_speedup, speedup_rules.speedup_below_1,
    speedup_rules.input_bound_baseline, speedup_rules.more_workers_longer, run_rules.steps_of_other_workers,
    run_rules.other_layout_than_asked, run_rules.missing_workers, run_rules.wrong_global_batch,
    run_rules.changed_learning_rate, run_rules.two_things_changed, run_rules.difference_within_noise,
    run_rules.busy_machine, run_rules.identical_clocks, run_rules.parts_that_do_not_sum,
    run_rules.bandwidth_above_the_machine, run_rules.loader_called_communication, run_rules.bytes_by_batch,
    run_rules.input_is_no_traffic,
)


def judge(rows: list[Row], rules: Collection[Rule] = RULES) -> list[Finding]:
    """Return what rules find in some rows, by row."""
    found = [Finding(about[0]["where"], tuple(row["line"] for row in about if row["line"]),
                     rule.__name__.replace("_", " "), text) for rule in rules for text, *about in rule(rows)]
    return sorted(found, key=lambda finding: (finding.where, finding.lines))


def check_table(path: Path) -> list[Finding]:
    """Return what is implausible in a table typed by hand.

    Raises:
        LabError: It cannot be read.
    """
    return judge(tables.read(path))


def check_records(runs: list[records.Record]) -> list[Finding]:
    """Return what is implausible in records."""
    return judge(recorded(runs))


def verdicts(paths: Collection[Path]) -> Iterator[tuple[str, list[Finding]] | LabError]:
    """Yield what was read and the findings of each path, or the LabError that says why there are none."""
    earlier: list[Row] = []  # Records of all folders so far, to find copies across students.
    for path in {path.resolve(): path for path in paths}.values():
        try:
            if not path.is_dir():
                rows = tables.read(path)
                yield f"{path.name}: {plural(len(rows), 'row')}", judge(rows)
            elif rows := recorded(records.read_all(root=path), f"{path}/" * (len(paths) > 1)):
                earlier += rows
                mine = {row["where"] for row in rows}
                copies = [each for each in judge(earlier, [run_rules.identical_clocks]) if each.where in mine]
                yield f"{path}: {plural(len(rows), 'record')}", [*dict.fromkeys([*judge(rows), *copies])]
            else:
                raise LabError(f"{path} holds no record; `labs run lab10_caltech --workers 2` makes one")
        except LabError as problem:
            yield problem


def recorded(runs: list[records.Record], folder: str = "") -> list[Row]:
    """Return records as rows."""
    computed_on = records.computed_on(runs)
    names = dict.fromkeys(name for run in runs for name in run["config"] if name not in ("seed", "batch_size"))
    rows = []
    for index, run in enumerate(runs):
        config, layout, last = run["config"], run["layout"], run["history"][-1] if run["history"] else {}
        gpus, parts = run["machine"].get("gpus"), ledger.read(run["metrics"])
        rows.append(Row({
            "where": f"{folder}{run['lab']}/{run['run']}", "line": 0,
            "settings": {"lab": run["lab"], **{name: str(config.get(name, "")) for name in names},
                         **{name: values[index] for name, values in computed_on.items()}},
            "size": layout["size"], "nodes": layout["nodes"], "global_batch_size": layout["global_batch_size"],
            "batch_size": config.get("batch_size"), "learning_rate": config.get("base_lr"), "seed": config.get("seed"),
            "model": config.get("model"), "device": " ".join(gpus) if gpus else "cpu" if gpus == [] else "",
            "images": last.get("images"), "steps_per_epoch": last.get("steps"), "clocks": _clocks(run),
            "images_per_sec": run["timings"]["images_per_sec"], "asked": _asked(run),
            "bandwidth_gb_per_sec": run["metrics"].get("busbw_gb_per_sec"), "seconds_per_epoch": parts.get("wall"),
            "disturbed": noise.disturbance(run), "warning": noise.warning(run),
            **{f"{part}_seconds": seconds for part, seconds in parts.items()},
        }))
    return rows


def _asked(run: records.Record) -> list[tuple[str, Any, Any]]:
    """Return what was asked for, by the run's name and Config, and what ran."""
    config, layout = run["config"], run["layout"]
    # The names that `labs run` and `labs sweep` give to runs.
    name = re.match(r"(?:\d{8}-\d{6}|sweep)-w(\d+)(?:-n(\d+))?", run["run"])
    asked = [("workers", name and name[1], layout["size"]), ("nodes", name and name[2], layout["nodes"]),
             ("threads", config.get("threads"), layout.get("threads"))]
    if {str(each.get("backend")).lower() for each in (config, layout)} <= {"mpi", "gloo", "nccl"}:
        asked.append(("backend", config["backend"], layout["backend"]))
    return [each for each in asked if each[1]]


def _clocks(run: records.Record) -> tuple[float, ...]:
    """Return the seconds of a run's epochs.

    Nothing if they are round, or those of the best trial of a search, or of an elastic run, whose workers change.
    """
    if {"events", "trials"} & run.get("tables", {}).keys():
        return ()
    seconds = [row.get("train_seconds") for row in run["history"]]
    measured = tuple(each for each in seconds if isinstance(each, float))
    return measured if any(each != round(each, 3) for each in measured) else ()
