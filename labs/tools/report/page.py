"""The report page: every lab's questions, answered from the results folder, as HTML and as Markdown.

    labs report
    labs report --results DIR --output report.html --markdown report.md

The page needs no network and no script. A lab's section depends on what its records hold: throughputs become a table of
speedups, a ledger becomes bars, rows with `bytes` and `busbw` become curves. The runs of a sweep are shown below its
question, headed by the lab's own summary and figures if it has them.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import io
import re
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labs.course import plots, reports, studies
from labs.lint import checker
from labs.lint.rows import Finding, brief
from labs.measure import ledger_columns
from labs.results import confusion, noise, records, scaling, speed_tables, tolerant
from labs.results.tables import FEW, Grid, cell, grid, markdown
from labs.results.tables import figure as figure_of
from labs.run import atomic, catalogue, sweeps
from labs.run.catalogue import Lab
from labs.run.errors import LabError
from labs.run.paths import shown
from labs.run.text import plural, printable, printable_lines, short

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LINES = 8
"""The most lines that are legible in one plot."""
BARS = 16
"""The most bars that are legible in one plot."""
OTHER = "Other runs"
"""Heading of the runs that belong to no question."""
TABLE = "newest"
"""Id of the table of the labs' newest runs."""


@dataclasses.dataclass(frozen=True)
class Plot:
    """A plot for a page."""

    title: str
    svg: bytes
    note: str = ""

    @property
    def address(self) -> str:
        """The plot as a data URL, so that the page needs no other file."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode()


@dataclasses.dataclass(frozen=True)
class Headline:
    """A figure for the summary at the page's head; the largest ones are shown."""

    kind: str
    """The row of the summary."""
    value: float
    text: str


@dataclasses.dataclass(frozen=True)
class Answer:
    """What answers one question, under the question as heading."""

    heading: str
    items: list[Grid | Plot | Headline | str]
    runs: bool = True
    """Whether there are runs to answer it."""


@dataclasses.dataclass(frozen=True)
class Section:
    """One lab."""

    name: str
    title: str
    runs: int
    newest: list[str]
    """Cells of the overview; empty without runs."""
    answers: list[Answer]
    wrong: int
    """The number of lint's findings."""
    findings: list[str]
    course: list[tuple[Grid, list[str]]]


OVERVIEW = ("lab", "runs", "newest run", "workers", "batch per worker", "global batch", "images/s", "s/epoch",
            "accuracy", "lint")
"""Columns of the table on the first screen."""
EFFICIENCY, LIMIT = "best efficiency", "what limits"
MOST_HEADLINES = 3
"""The most figures in one row of the summary."""


def write(root: Path, output: Path, markdown: Path | None = None) -> None:
    """Write the report of a results folder.

    Args:
        root: The results folder.
        output: The HTML file.
        markdown: The Markdown file, if one is wanted; its plots go into a folder beside it.

    Raises:
        LabError: The folder does not exist.
    """
    if root.exists() and not root.is_dir():
        raise LabError(f"{printable(root)} is a file; name a results folder")
    if not root.is_dir():
        raise LabError(f"there are no results in {root}; `labs run lab10_caltech --workers 2` makes some")
    with warnings.catch_warnings():  # Those of pandas and matplotlib may quote a record's text.
        warnings.simplefilter("ignore")
        page = _page(root)
    atomic.write_text(output, _template("page.html").render(page))
    if markdown:
        folder, names = markdown.parent / f"{markdown.stem}_plots", {}
        for name, plot in _plots(page["sections"]):
            names[id(plot)] = f"{folder.name}/{name}"
            with atomic.writing(folder / name) as file:
                file.write(plot.svg)
        atomic.write_text(markdown, _template("page.md").render(page, file=lambda plot: names[id(plot)]))


def _template(name: str):
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=name.endswith("html"), trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    )
    environment.globals.update(kind=lambda item: type(item).__name__, plural=plural)
    environment.filters.update(code=_code, md=markdown, md_code=functools.partial(markdown, code=True),
                               lines=printable_lines)
    return environment.get_template(name)


def _code(text: str) -> str:
    """Return text as HTML, with the commands between backticks as code."""
    import markupsafe  # jinja2's.

    return markupsafe.Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(markupsafe.escape(text))))


def _plots(sections: Iterable[Section]) -> Iterator[tuple[str, Plot]]:
    """Yield all plots with the names of their files."""
    for section in sections:
        items = [item for answer in section.answers for item in answer.items if isinstance(item, Plot)]
        yield from ((f"{section.name}-{number}.svg", item) for number, item in enumerate(items, start=1))


def _page(root: Path) -> dict[str, Any]:
    """Return the variables of the templates."""
    everything, by_lab = records.read_all(root=root), defaultdict(list)
    for record in everything:
        by_lab[record["lab"]].append(record)
    wrong = _implausible(everything)
    sections = [_section(name, by_lab[name], wrong[name]) for name in sorted({*catalogue.lab_names(), *by_lab})]
    return {
        "made": time.strftime("%Y-%m-%d %H:%M"), "folder": shown(root.absolute()), "runs": len(everything),
        "machines": _counted(_machine(record["machine"]) for record in everything),
        "versions": _counted(_versions(record.get("versions") or {}) for record in everything),
        "sections": sorted(sections, key=lambda section: not section.runs), "overview": OVERVIEW,
        "summary": _head(sections) if everything else {},
    }


def _head(sections: Iterable[Section]) -> dict[str, list[tuple[str, str]]]:
    """Return the rows of the summary: what each is about, and its texts with the ids of what they lead to."""
    ran = [section for section in sections if section.runs]
    asked = [answer.runs for section in ran for answer in section.answers if answer.heading not in ("", OTHER)]
    wrong = [section.wrong for section in ran if section.wrong]
    rows = {"runs": [(f"{plural(sum(section.runs for section in ran), 'run')} of {plural(len(ran), 'lab')}", TABLE)],
            "asked": [(f"{sum(asked)} of these labs' {plural(len(asked), 'question')} have runs", TABLE)]}
    for kind, missing in ((EFFICIENCY, "no run on several workers with a run to compare it with: `labs sweep lab04`"),
                          (LIMIT, "not measured: `labs sweep lab04` measures where the seconds of an epoch go")):
        found = sorted(((item.value, f"{section.name}: {item.text}", section.name) for section in ran
                        for answer in section.answers for item in answer.items
                        if isinstance(item, Headline) and item.kind == kind), reverse=True)
        rows[kind] = [(text, name) for _, text, name in found[:MOST_HEADLINES]] or [(missing, "")]
    lint = f"{plural(sum(wrong), 'finding')} in {plural(len(wrong), 'lab')}" if wrong else "finds nothing implausible"
    return rows | {"lint": [(lint, TABLE)]}


def _implausible(runs: list[records.Record]) -> dict[str, list[Finding]]:
    """Return what lint finds in the records, by lab."""
    wrong = defaultdict(list)
    for finding in checker.check_records(runs):
        wrong[finding.where.partition("/")[0]].append(finding)
    return wrong


def _counted(texts: Iterable[str]) -> list[str]:
    """Return the different texts with their numbers of runs, the most frequent first."""
    return [f"{text}: {plural(count, 'run')}" for text, count in Counter(filter(None, texts)).most_common()]


def _machine(machine: dict) -> str:
    cores, memory, gpus = machine.get("cores"), machine.get("memory_bytes"), Counter(machine.get("gpus") or ())
    return ", ".join([
        machine.get("host", "an unknown machine"),
        plural(cores, "core") if cores else "an unknown number of cores",
        *([f"{memory / 2**30:.0f} GiB"] if memory else []),
        *([f"{count} x {name}" for name, count in gpus.items()] or ["no GPU"]),
    ])


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _section(name: str, runs: list[records.Record], wrong: list[Finding]) -> Section:
    lab = catalogue.load_lab(name) if name in catalogue.lab_names() else None
    title = lab.title if lab else f"{name} (not a lab of this clone)"
    newest = _newest(runs, len(wrong)) if runs else []
    return Section(name, title, len(runs), newest, list(_answers(name, lab, runs)), len(wrong), brief(wrong),
                   reports.tables(name))


def _newest(runs: list[records.Record], findings: int) -> list[str]:
    """Return the cells of the overview after the lab's name."""
    newest, last = runs[-1], (runs[-1]["history"] or [{}])[-1]
    layout, timings = newest["layout"], newest["timings"]
    cells = [len(runs), newest["run"], layout["size"], newest["config"].get("batch_size"), layout["global_batch_size"],
             timings["images_per_sec"], timings["seconds_per_epoch"],
             newest["metrics"].get("test_accuracy", last.get("val_accuracy"))]
    return [*map(figure_of, cells), plural(findings, "finding") if findings else "clean"]


def _question(text: str) -> tuple[str, list[str]]:
    """Return a sweep's question without the codes of the course reports, and a line on the meaning of these codes."""
    codes = re.findall(reports.CODE, text)
    words = re.sub(f"{reports.CODE}(, {reports.CODE})*: ", "", text)
    stand_for = " ".join(f"{code}: {reports.questions()[code]}" for code in codes)
    return words[:1].upper() + words[1:], [f"In the course reports, {stand_for}"] if codes else []


def _answers(name: str, lab: Lab | None, runs: list[records.Record]) -> Iterator[Answer]:
    """Yield the answers: of each sweep that has runs, then of all other runs; then the questions without runs."""
    planned = [(sweep, preset, lab.presets[preset]) for preset, several in lab.sweeps.items()
               for sweep in several] if lab else []
    unanswered, used = {sweep.question: sweep for sweep, *_ in planned}, set()
    for sweep, preset, config in planned if runs else ():
        cells = sweeps.cells([sweep], config)
        names = {cell.name for cell in cells}
        if mine := [record for record in runs if record["run"] in names]:
            unanswered.pop(sweep.question, None)
            used |= names
            planned_runs = len({cell.name for cell in cells if not cell.skipped})
            command = f"labs sweep {name} --only {sweep.name}{f' --preset {preset}' if preset != 'demo' else ''}"
            missing = [f"{len(mine)} of {plural(planned_runs, 'run')}; `{command}` makes the others"]
            words, codes = _question(sweep.question)
            yield Answer(f"{words} ({preset})", [*codes, *missing[:len(mine) < planned_runs], *_items(lab, mine)])
    if rest := [record for record in runs if record["run"] not in used]:
        yield Answer(OTHER if used else "", _items(lab, rest))
    for sweep in unanswered.values():
        words, codes = _question(sweep.question)
        yield Answer(words, [*codes, f"no run yet; `labs sweep {name} --only {sweep.name}` makes them"], runs=False)
    if not runs and not planned:
        lines = [line.strip() for line in lab.description.splitlines()] if lab else []
        command = next((line for line in lines if line.startswith("labs ")), f"labs run {name}")
        yield Answer("", [f"no run of {name}; `{command}` makes one"], runs=False)


def _items(lab: Lab | None, runs: list[records.Record]) -> list[Grid | Plot | Headline | str]:
    """Return everything to show for some runs of one lab: its own summary and figures, then tables and plots.

    A run that a part cannot read is left out of that part and reported once.
    """
    # The rounds of the ledger are left out: their sum is shown.
    names = sorted({name for run in runs for name, rows in run.get("tables", {}).items() if rows} - {"ledger"})
    own = [functools.partial(part, lab) for part in (_summary, _figures)] if lab else []
    unreadable: dict[str, Exception] = {}
    items: list[Grid | Plot | Headline | str] = []
    for part in (*own, _tables, _curves, *(functools.partial(_rows, name) for name in names)):
        shown, bad = tolerant.read(part, runs)
        items += shown
        unreadable = {run["run"]: problem for run, problem in bad} | unreadable
    return [*(_unfit(name, problem) for name, problem in unreadable.items()), *items]


def _unfit(run: str, problem: Exception) -> str:
    """Return a note that a run is missing from a part of the page, and print it to standard error."""
    text = f"{run} is left out where it does not fit this lab ({type(problem).__name__}: {short(problem, 200)})"
    print(f"labs: {printable(text)}", file=sys.stderr)
    return text


def _summary(lab: Lab, runs: list[records.Record]) -> Iterator[str]:
    """Yield the lab's own summary of some runs, if it has one."""
    if text := studies.summary(lab.name, runs):
        yield text


def _figures(lab: Lab, runs: list[records.Record]) -> Iterator[Plot]:
    """Yield the lab's own figures of some runs."""
    for title, figure in studies.figures(lab.name, runs):
        yield _plot(title, figure)


def _tables(runs: list[records.Record]) -> Iterator[Grid | Plot | Headline]:
    """Yield the tables and plots that every lab's runs may have."""
    frame, varying = speed_tables.frame(runs)
    for show in (_speed, _ledger, _quality, _utilization):
        yield from show(frame, varying)


def _speed(frame: pd.DataFrame, varying: list[str]) -> Iterator[Grid | Plot | Headline]:
    """Yield tables of throughputs, each with a plot and its best efficiency if it has speedups."""
    for speeds in speed_tables.compared(frame, varying):
        yield speeds.grid()
        if best := max((row for row in speeds.table.to_dict("records") if row["size"] > speeds.base
                        and row["speedup"] > 0), key=lambda row: row["scaling_efficiency"], default=None):
            text = f"{cell(best, 'scaling_efficiency')} on {plural(best['size'], 'worker')}, {speeds.scaling} scaling"
            yield Headline(EFFICIENCY, best["scaling_efficiency"], text)
        table, by = speeds.table[speeds.table["speedup"].notna()], speeds.by
        if speeds.scaling and len(table[by].drop_duplicates() if by else ()) <= LINES:
            reference = reports.speedups(frame["lab"].iloc[0], by) if speeds.scaling == "weak" else None
            yield _plot(speeds.title, plots.scaling(table, by, reference),
                           "dashed and hollow: the course report" if reference is not None else "")


def _ledger(frame: pd.DataFrame, varying: list[str]) -> Iterator[Grid | Plot | Headline]:
    """Yield where the time of an epoch goes, as a table and as bars, and what takes most beside the computation."""
    columns = list(ledger_columns.COLUMNS)
    if not set(columns) <= set(frame):
        return
    frame = scaling.numbers(frame, columns).dropna(subset=columns)
    if frame.empty:
        return
    by = [*(name for name in varying if name not in columns), "size"]
    table = frame.groupby(by, dropna=False)[columns].mean().reset_index()
    short = {column: ledger_columns.entry(column) for column in columns}
    most = table.loc[table["size"].idxmax()]
    shares = {short[column]: most[column] / most[ledger_columns.WALL] for column in ledger_columns.entries(columns)}
    limit = max(shares.keys() - {"compute"}, key=lambda entry: shares[entry])
    yield Headline(LIMIT, shares[limit], f"{limit}: {shares[limit]:.0%} of an epoch on "
                                         f"{plural(int(most['size']), 'worker')}")
    yield grid("Where the seconds of an epoch go", table.rename(columns=short), [*by, *short.values()],
               "means over the repeats; other: the rest of the wall time")
    if len(table) <= BARS:
        yield _plot("Where the seconds of an epoch go", plots.ledger(table, by))


def _quality(frame: pd.DataFrame, varying: list[str]) -> Iterator[Grid]:
    """Yield the test metrics: means over the seeds with their intervals, and whether a row differs from the first."""
    others = ("test_images", *frame.attrs["config"])
    measured = [name for name in frame if name.startswith("test_") and name not in others]
    frame, rows = scaling.numbers(frame, measured), []
    measured = [name for name in measured if frame[name].notna().any()]
    if not measured:
        return
    by, first = [*varying, "size"], None
    groups = frame.groupby(by, dropna=False)
    for values, same in groups:
        same = same.drop_duplicates("seed", keep="last") if "seed" in same else same  # A seed run twice is no repeat.
        first = same if first is None else first
        row = dict(zip(by, values, strict=True)) | {"seeds": len(same)}
        for name in measured:
            row[name] = same[name].mean()
            row[f"{name}_low"], row[f"{name}_high"] = noise.mean_interval(same[name].dropna())
            if same is not first:
                verdict = noise.compare(same.dropna(subset=name), first.dropna(subset=name), name, timed=False,
                                        comparisons=(len(groups) - 1) * len(measured))
                row[f"{name}_against_the_first_row"] = str(verdict).partition(":")[0]
        rows.append(row)
    import pandas as pd

    table = pd.DataFrame(rows)
    verdicts = [name for name in table if str(name).endswith("_against_the_first_row")]
    yield grid("Test images, at the end", table, [*by, "seeds", *measured, *verdicts],
               f"mean over the seeds [95 % interval; {FEW}]" + "; against the first row: within the seeds where both "
               "have them, all verdicts of the table together at 95 %" * bool(verdicts))


def _utilization(frame: pd.DataFrame, varying: list[str]) -> Iterator[Grid]:
    """Yield how busy processors and GPUs were."""
    busy = [name for name in frame if name.endswith("_percent") and name not in varying]
    frame = scaling.numbers(frame, busy)
    busy = [name for name in busy if frame[name].notna().any()]
    if busy:
        by = [*varying, "size"]
        table = frame.groupby(by, dropna=False)[busy].median().reset_index()
        yield grid("Utilization", table, [*by, *busy], "percent of the time, medians over the repeats")


def _curves(runs: list[records.Record]) -> Iterator[Plot]:
    """Yield the curves of the newest run of each number of workers."""
    newest = {run["layout"]["size"]: run for run in runs if len(run["history"]) > 1}
    if newest:
        chosen = [newest[size] for size in sorted(newest)[:4]]
        yield _plot("Loss and accuracy", plots.curves(chosen), "of the newest run of each number of workers: "
                       + ", ".join(run["run"] for run in chosen))


def _rows(name: str, runs: list[records.Record]) -> Iterator[Grid | Plot]:
    """Yield a named table of the runs (of confusions, the newest run's); for collectives also plots of bandwidth."""
    if name == "confusion":
        yield from filter(None, [confusion.by_class(runs[-1])])
        return
    if name == "right":
        return  # A mark for each test image, for paired tests.
    frame = records.rows_of(runs, name)
    frame = scaling.comparable(frame, frame.columns)
    own = list(dict.fromkeys(column for run in runs for row in run.get("tables", {}).get(name, []) for column in row))
    others = [column for column in frame if column not in (*own, "lab", "run", "seed")]
    by = [column for column in others if frame[column].map(str).nunique() > 1]
    if {"collective", "bytes", "busbw"} <= set(own):
        for collective, rows in frame.groupby("collective"):
            lines = [column for column in ("library", *by) if column in frame]
            if len(rows[lines].drop_duplicates()) > LINES:
                lines = ["library", "size"]
            yield _plot(f"{name}: bus bandwidth of {collective}", plots.busbw(rows, lines))
    yield grid(name, frame, [*by, *(column for column in own if not column.endswith(("_low", "_high")))])


def _plot(title: str, figure: Figure, note: str = "") -> Plot:
    import matplotlib as mpl

    file = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": title}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return Plot(title, file.getvalue(), note)
