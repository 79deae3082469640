"""The report page: the tables and figures of all runs, as one HTML file.

The page needs no network and no script. Each lab has a section, in which the runs of a sweep are below its question.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import re
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labs.lint import rules
from labs.lint.rules import brief
from labs.lint.tables import from_records
from labs.pages import plots, studies
from labs.results import ledger, noise, records, scaling
from labs.results.tables import FEW, Grid, grid
from labs.run import atomic, catalogue, sweeps
from labs.run.catalogue import Lab
from labs.run.errors import LabError
from labs.run.paths import format_path
from labs.run.text import plural, printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LINES, BARS = 8, 16
"""The most lines and the most bars that are legible in one plot."""
LEDGER, MEANS = "Where the seconds of an epoch go", "means over the repeats"
NEWEST = ("lab", "run", "size", "batch_size", "global_batch_size", "images_per_sec", "seconds_per_epoch",
          "test_accuracy", "warnings")
"""Columns of the table of the labs' newest runs."""
NOT_SHOWN = {"confusion", "ledger", "right"}
"""Tables of a record that are shown otherwise, or that have a row per round or per test image."""


@dataclasses.dataclass(frozen=True)
class Plot:
    """A plot, as a data URL, so that the page needs no other file."""

    title: str
    address: str
    note: str = ""


Item = Grid | Plot | str


def write(root: Path, output: Path) -> None:
    """Write the report of a results folder.

    Raises:
        LabError: The folder has no runs.
    """
    import jinja2

    runs = records.read_all(root=root)
    if not runs:
        raise LabError(f"there are no results in {printable(root)}; `labs run lab10_caltech --workers 2` makes some")
    with warnings.catch_warnings():  # Those of pandas and matplotlib may quote a record's text.
        warnings.simplefilter("ignore")
        page = _page(runs)
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True,
                                     trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.globals.update(kind=lambda item: type(item).__name__)
    template = environment.get_template("page.html")
    made = time.strftime("%Y-%m-%d %H:%M")
    atomic.write_text(output, template.render(page, made=made, folder=format_path(root.absolute())))


def _page(runs: list[records.Record]) -> dict[str, Any]:
    """Return the variables of the template: the machines, the newest runs, and each lab's warnings and questions."""
    by_lab, wrong = defaultdict(list), defaultdict(list)
    for run in runs:
        by_lab[run["lab"]].append(run)
    for finding in rules.judge(from_records(runs)):
        wrong[finding.where.partition("/")[0]].append(finding)
    machines = Counter(map(_machine, runs))
    newest = records.table([mine[-1] for _, mine in sorted(by_lab.items())])
    newest["warnings"] = [len(wrong[name]) for name in newest["lab"]]
    sections = []
    for name, mine in sorted(by_lab.items()):
        lab = catalogue.load_lab(name) if name in catalogue.lab_names() else None
        groups = [(question, [*notes, *_items(lab, some)]) for question, notes, some in _groups(name, lab, mine)]
        title = lab.title if lab else f"{name} (not a lab of this clone)"
        sections.append({"name": name, "title": title, "warnings": brief(wrong[name]), "groups": groups})
    return {"runs": plural(len(runs), "run"), "newest": grid("Each lab's newest run", newest, NEWEST),
            "machines": [f"{text}: {plural(count, 'run')}" for text, count in machines.most_common()],
            "sections": sections}


def _machine(run: records.Record) -> str:
    """Return the machine and the versions of a run as text."""
    machine = run["machine"]
    gpus = Counter(machine.get("gpus") or ())
    return ", ".join([machine.get("host", "an unknown machine"),
                      *([plural(machine["cores"], "core")] if "cores" in machine else ()),
                      *([f"{count} x {name}" for name, count in gpus.items()] or ["no GPU"]),
                      *(f"{name} {version}" for name, version in run.get("versions", {}).items())])


def _groups(name: str, lab: Lab | None,
            runs: list[records.Record]) -> Iterator[tuple[str, list[str], list[records.Record]]]:
    """Yield the question of each sweep that has runs, with notes and those runs; then the other runs."""
    used: set[str] = set()
    for preset, sweep in [(preset, sweep) for preset, several in (lab.sweeps if lab else {}).items()
                          for sweep in several]:
        cells = sweeps.cells([sweep], lab.presets[preset])  # type: ignore[union-attr]  # Without a lab, no sweep.
        names, planned = {cell.name for cell in cells}, {cell.name for cell in cells if not cell.skipped}
        if mine := [run for run in runs if run["run"] in names]:
            used |= names
            command = f"labs sweep {name} --only {sweep.name}{f' --preset {preset}' if preset != 'demo' else ''}"
            missing = f"{len(mine)} of {plural(len(planned), 'run')}; `{command}` makes the others"
            words = re.sub(r"([MCTAF]\d(\.\d)?(, )?)+: ", "", sweep.question)
            yield f"{words[:1].upper()}{words[1:]} ({preset})", [missing] * (len(mine) < len(planned)), mine
    if rest := [run for run in runs if run["run"] not in used]:
        yield "Other runs" if used else "", [], rest


def _items(lab: Lab | None, runs: list[records.Record]) -> list[Item]:
    """Return all that is shown of some runs of a lab, its own summary first."""
    own = studies.summary(lab.name, runs) if lab else ""
    return [*[own] * bool(own), *_measured(runs), *_curves(runs), *_tables(runs)]


def _measured(runs: list[records.Record]) -> Iterator[Item]:
    """Yield the throughputs and speedups, the ledger, the test metrics and the utilization."""
    frame, varying = scaling.frame(runs)
    for speeds in scaling.compare_speeds(frame, varying):
        yield (made := speeds.grid())
        table, by = speeds.table[speeds.table["speedup"].notna()], speeds.by
        if speeds.scaling and len(table[by].drop_duplicates() if by else ()) <= LINES:
            yield _plot(made.title, plots.scaling(table, by))
    by = [*varying, "size"]
    for table in _means(frame, by, list(ledger.COLUMNS)):
        yield grid(LEDGER, table.rename(columns=ledger.COLUMNS), [*by, *ledger.ENTRIES, "wall"], MEANS)
        if len(table) <= BARS:
            yield _plot(LEDGER, plots.ledger(table, by))
    yield from _tested(frame, by)
    for table in _means(frame, by, [name for name in frame if name.endswith("_percent") and name not in varying]):
        yield grid("Utilization, percent of the time", table, [*by, *table.columns[len(by):]], MEANS)


def _means(frame: pd.DataFrame, by: list[str], columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield a table of the means of some columns over the repeats, if there are values."""
    if not set(columns) <= set(frame):
        return
    frame = scaling.numbers(frame, columns).dropna(subset=columns, how="all")
    if columns and len(frame):
        yield frame.groupby(by, dropna=False)[[*columns]].mean().reset_index()


def _tested(frame: pd.DataFrame, by: list[str]) -> Iterator[Grid]:
    """Yield the test metrics: means over the seeds, their intervals, and whether a row differs from the first."""
    import pandas as pd

    measured = [name for name in frame if name.startswith("test_") and name not in ("test_images", *by,
                                                                                    *frame.attrs["config"])]
    frame = scaling.numbers(frame, measured)
    measured = [name for name in measured if frame[name].notna().any()]
    if not measured:
        return
    rows, first, groups = [], None, frame.groupby(by, dropna=False)
    for values, same in groups:
        same = same.drop_duplicates("seed", keep="last") if "seed" in same else same  # A seed run twice is no repeat.
        first = same if first is None else first
        row = dict(zip(by, values, strict=True)) | {"seeds": len(same)}
        for name in measured:
            low, high = noise.mean_interval(same[name].dropna())
            row |= {name: same[name].mean(), f"{name}_low": low, f"{name}_high": high}
            if same is not first:
                verdict = noise.compare(same.dropna(subset=name), first.dropna(subset=name), name, timed=False,
                                        comparisons=(len(groups) - 1) * len(measured))
                row[f"{name}_against_the_first_row"] = str(verdict).partition(":")[0]
        rows.append(row)
    verdicts = [f"{name}_against_the_first_row" for name in measured]
    yield grid("Test images, at the end", pd.DataFrame(rows), [*by, "seeds", *measured, *verdicts],
               f"mean over the seeds [95 % interval; {FEW}]; against the first row: within the seeds where both have "
               "them, all verdicts of the table together at 95 %")


def _curves(runs: list[records.Record]) -> Iterator[Plot]:
    """Yield the curves of the newest run of each number of workers."""
    newest = {run["layout"]["size"]: run for run in runs if len(run["history"]) > 1}
    if chosen := [newest[size] for size in sorted(newest)[:4]]:
        yield _plot("Loss and accuracy", plots.curves(chosen), "of the newest run of each number of workers: "
                    + ", ".join(run["run"] for run in chosen))


def _tables(runs: list[records.Record]) -> Iterator[Grid]:
    """Yield the tables in the records."""
    for name in sorted({name for run in runs for name, rows in run.get("tables", {}).items() if rows} - NOT_SHOWN):
        frame = records.rows_of(runs, name)
        frame = scaling.comparable(frame, frame.columns)
        own = {column for run in runs for row in run.get("tables", {}).get(name, []) for column in row}
        yield grid(name, frame, [column for column in frame if column in own or frame[column].nunique() > 1])


def _plot(title: str, drawn: Figure, note: str = "") -> Plot:
    import matplotlib as mpl

    file = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": title}):
        drawn.savefig(file, format="svg", metadata={"Date": None})
    return Plot(title, "data:image/svg+xml;base64," + base64.b64encode(file.getvalue()).decode(), note)
