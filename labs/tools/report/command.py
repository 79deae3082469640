"""Write all results as one HTML page: tables, plots, warnings."""

from __future__ import annotations

import argparse
import base64
import io
import re
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from labs.lint import rules
from labs.lint.rules import brief
from labs.lint.tables import from_records
from labs.pages import plots, studies
from labs.results import ledger, noise, records, scaling
from labs.results.tables import FEW, Grid, grid
from labs.run import atomic, catalogue, command_line, sweeps
from labs.run.catalogue import Lab
from labs.run.errors import LabError, plural, printable
from labs.run.paths import format_path, results_dir

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LINES, BARS = 8, 16  # The most that are legible in one plot.
NOT_SHOWN = {"confusion", "ledger", "right"}
"""Tables of a record that are shown otherwise, or that have a row per round or per test image."""


class Plot(NamedTuple):
    """A plot, as a data URL, so that the page needs no other file."""

    title: str
    address: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs report`."""
    parser.description = "Write all results as one HTML page that needs no network and no other file."
    parser.add_argument("--results", type=command_line.path, default=results_dir(),
                        help="the results folder, which gets the page report.html")


def main(args: argparse.Namespace) -> None:
    """Write the page and print its path and its address for a browser; raise LabError if there are no runs."""
    import jinja2

    runs, output = records.read_all(root=args.results), (args.results / "report.html").absolute()
    if not runs:
        raise LabError(f"there are no results in {printable(args.results)}; `labs run lab10_caltech --workers 2` makes "
                       "some")
    template = jinja2.Template(Path(__file__).with_name("page.html").read_text(), autoescape=True, trim_blocks=True,
                               lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    with warnings.catch_warnings():  # Those of pandas and matplotlib may quote a record's text.
        warnings.simplefilter("ignore")
        atomic.write_text(output, template.render(
            sections=_sections(runs), made=time.strftime("%Y-%m-%d %H:%M"), runs=plural(len(runs), "run"),
            folder=format_path(output.parent), kind=lambda item: type(item).__name__))
    print(format_path(output), output.as_uri(), sep="\n")


def _sections(runs: list[records.Record]) -> Iterator[dict[str, Any]]:
    """Yield each lab's title, warnings, and tables and plots by question."""
    by_lab, wrong = defaultdict(list), defaultdict(list)
    for run in runs:
        by_lab[run["lab"]].append(run)
    for finding in rules.judge(from_records(runs)):
        wrong[finding.where.partition("/")[0]].append(finding)
    for name, mine in sorted(by_lab.items()):
        lab = catalogue.load_lab(name) if name in catalogue.lab_names() else None
        yield {"title": lab.title if lab else f"{name} (not a lab of this clone)", "warnings": brief(wrong[name]),
               "groups": [(question, [*_items(lab, some)]) for question, some in _groups(lab, mine)]}


def _groups(lab: Lab | None, runs: list[records.Record]) -> Iterator[tuple[str, list[records.Record]]]:
    """Yield the question of each sweep that has runs, with those runs; then the other runs."""
    used: set[str] = set()
    for preset, sweep in ((preset, sweep) for preset, several in (lab.sweeps if lab else {}).items()
                          for sweep in several):
        names = {cell.name for cell in
                 sweeps.cells([sweep], lab.presets[preset])}  # type: ignore[union-attr]  # Without a lab, no sweep.
        if mine := [run for run in runs if run["run"] in names]:
            used |= names
            words = re.sub(r"([MCTAF]\d(\.\d)?(, )?)+: ", "", sweep.question)
            yield f"{words[:1].upper()}{words[1:]} ({preset})", mine
    if rest := [run for run in runs if run["run"] not in used]:
        yield "Other runs" if used else "", rest


def _items(lab: Lab | None, runs: list[records.Record]) -> Iterator[Grid | Plot | str]:
    """Yield a lab's own summary of some runs, their speedups, ledger, tests, curves and tables."""
    if own := studies.summary(lab.name, runs) if lab else "":
        yield own
    frame, varying = scaling.frame(runs)
    for made, table, by in scaling.compare_speeds(frame, varying):
        yield made
        if len(table) and len(table[by].drop_duplicates() if by else ()) <= LINES:
            yield _plot(made.title, plots.scaling(table, by))
    by = [*varying, "size"]
    if set(ledger.COLUMNS) <= set(frame):
        table = scaling.numbers(frame, [*ledger.COLUMNS]).dropna(subset=[*ledger.COLUMNS], how="all")
        table = table.groupby(by, dropna=False)[[*ledger.COLUMNS]].mean().reset_index()
        title = "Where the seconds of an epoch go"
        yield grid(title, table.rename(columns=ledger.COLUMNS), [*by, *ledger.ENTRIES, "wall"], "means")
        if len(table) <= BARS:
            yield _plot(title, plots.ledger(table, by))
    yield from _tested(frame, by)
    newest = {run["layout"]["size"]: run for run in runs if len(run["history"]) > 1}
    if chosen := [newest[size] for size in sorted(newest)[:4]]:
        yield _plot(f"Loss and accuracy of {', '.join(run['run'] for run in chosen)}", plots.curves(chosen))
    yield from _tables(runs)


def _tested(frame: pd.DataFrame, by: list[str]) -> Iterator[Grid]:
    """Yield the test metrics: means over the seeds, with their intervals."""
    import pandas as pd

    measured = [name for name in frame if name.startswith("test_") and name not in ("test_images", *by,
                                                                                    *frame.attrs["config"])]
    frame, rows = scaling.numbers(frame, measured), list[dict[str, Any]]()
    measured = [name for name in measured if frame[name].notna().any()]
    for values, same in frame.groupby(by, dropna=False):
        same = same.drop_duplicates("seed", keep="last") if "seed" in same else same  # A seed run twice is no repeat.
        row = dict(zip(by, values, strict=True)) | {"seeds": len(same)}
        for name in measured:
            low, high = noise.mean_interval(same[name].dropna())
            row |= {name: same[name].mean(), f"{name}_low": low, f"{name}_high": high}
        rows.append(row)
    if measured and rows:
        yield grid("Test images, at the end", pd.DataFrame(rows), [*by, "seeds", *measured],
                   f"mean over the seeds [95 % interval; {FEW}]")


def _tables(runs: list[records.Record]) -> Iterator[Grid]:
    """Yield the tables in the records."""
    for name in sorted({name for run in runs for name, rows in run.get("tables", {}).items() if rows} - NOT_SHOWN):
        frame = records.rows_of(runs, name)
        frame = scaling.comparable(frame, frame.columns)
        own = {column for run in runs for row in run.get("tables", {}).get(name, []) for column in row}
        yield grid(name, frame, [column for column in frame if column in own or frame[column].nunique() > 1])


def _plot(title: str, figure: Figure) -> Plot:
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return Plot(title, "data:image/svg+xml;base64," + base64.b64encode(file.getvalue()).decode())
