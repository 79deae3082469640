"""The report: every lab's questions, answered from the results store, as one page of HTML and as Markdown.

    labs report
    labs report --results DIR --output report.html --markdown report.md

The page needs no network and no script. What a lab shows follows from what its records hold: rates become a table of
speedups, a ledger becomes bars, rows with `bytes` and `busbw` become curves. A sweep's question stands above its runs,
and between them what the lab's function `summary(records) -> str` says of them, if it has one.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import io
import multiprocessing
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labs.lint import checker, rules
from labs.lint.findings import Finding, brief
from labs.measure import ledger_columns
from labs.report import course, plots
from labs.results import records, scaling, speed_tables, statistics
from labs.results.tables import Grid, grid, markdown
from labs.run import atomic, catalogue
from labs.run.errors import LabError
from labs.run.lab import Lab
from labs.run.paths import shown
from labs.run.text import plural, printable_lines

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LINES = 8
"""Lines, at most, that one plot can hold and be read."""
BARS = 16
BAD_RUNS = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)
"""What a lab's own functions raise of records that fit the schema and are not that lab's: they must not cost the page
of all others."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A plot for a page."""

    title: str
    svg: bytes
    note: str = ""

    @property
    def address(self) -> str:
        """The plot itself, as an address that needs no other file."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode()


@dataclasses.dataclass(frozen=True)
class Part:
    """What answers one question."""

    heading: str
    items: list[Grid | Picture | str]


@dataclasses.dataclass(frozen=True)
class Section:
    """One lab."""

    name: str
    title: str
    runs: int
    parts: list[Part]
    findings: list[str]
    course: list[tuple[Grid, list[str]]]


def write(root: Path, output: Path, markdown: Path | None = None) -> None:
    """Write the report of a results store.

    Args:
        root: The store.
        output: The HTML file.
        markdown: The Markdown file, if one is wanted; its plots go into a folder beside it.

    Raises:
        LabError: There is no store.
    """
    if not root.is_dir():
        raise LabError(f"there are no results in {root}; `labs run lab10_caltech --workers 2` makes some")
    page = _page(root)
    atomic.write_text(output, _template("page.html").render(page))
    if markdown:
        folder = markdown.parent / f"{markdown.stem}_plots"
        for name, picture in _pictures(page["sections"]):
            with atomic.writing(folder / name) as file:
                file.write(picture.svg)
        names = {id(picture): f"{folder.name}/{name}" for name, picture in _pictures(page["sections"])}
        atomic.write_text(markdown, _template("page.md").render(page, file=lambda picture: names[id(picture)]))


def _template(name: str):
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=name.endswith("html"), trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    )
    environment.globals.update(kind=lambda item: type(item).__name__, plural=plural)
    environment.filters.update(md=markdown, md_code=functools.partial(markdown, code=True),
                               lines=printable_lines)
    return environment.get_template(name)


def _pictures(sections: Iterable[Section]) -> Iterator[tuple[str, Picture]]:
    for section in sections:
        items = [item for part in section.parts for item in part.items if isinstance(item, Picture)]
        yield from ((f"{section.name}-{place}.svg", item) for place, item in enumerate(items, start=1))


def _page(root: Path) -> dict[str, Any]:
    found = defaultdict(list)
    for record in records.read_all(root=root):
        found[record["lab"]].append(record)
    everything = [record for runs in found.values() for record in runs]
    judged = _beside(_judged, everything)
    parts = {name: list(_parts(name, found[name])) for name in sorted({*catalogue.lab_names(), *found})}
    wrong = judged()
    return {
        "made": time.strftime("%Y-%m-%d %H:%M"), "store": shown(root.absolute()), "runs": len(everything),
        "machines": _machines(everything), "versions": _versions(everything),
        "sections": [Section(name, _title(name), len(found[name]), parts[name], brief(wrong[name]), course.tables(name))
                     for name in parts],
    }


def _beside(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """Call a function in a copy of this process, and return what waits for its result: only that must be sent."""
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe(duplex=False)
    fork.Process(target=lambda: there.send(function(*arguments)), daemon=True).start()
    there.close()
    return here.recv


def _judged(found: list[records.Record]) -> dict[str, list[Finding]]:
    """Return what cannot be right in the records, by lab."""
    wrong = defaultdict(list)
    for finding in rules.judge(checker.recorded(found), rules.RECORDED) if found else ():
        wrong[finding.where.partition("/")[0]].append(finding)
    return wrong


def _machines(found: list[records.Record]) -> list[str]:
    """Describe the machines of all runs, the busiest first."""
    def describe(machine: dict) -> str:
        gpus = Counter(machine.get("gpus") or ())
        parts = [machine.get("host", "an unknown machine")]
        parts += [plural(machine["cores"], "core") if machine.get("cores") else "an unknown number of cores"]
        parts += [f"{machine['memory_bytes'] / 2**30:.0f} GiB"] if machine.get("memory_bytes") else []
        parts += [f"{count} x {name}" for name, count in gpus.items()] or ["no GPU"]
        return ", ".join(parts)

    count = Counter(describe(record["machine"]) for record in found)
    return [f"{machine}: {plural(runs, 'run')}" for machine, runs in count.most_common()]


def _versions(found: list[records.Record]) -> list[str]:
    count = Counter(", ".join(f"{name} {version}" for name, version in (record.get("versions") or {}).items())
                    for record in found)
    return [f"{versions}: {plural(runs, 'run')}" for versions, runs in count.most_common() if versions]


def _lab(name: str) -> Lab | None:
    return catalogue.load_lab(name) if name in catalogue.lab_names() else None


def _title(name: str) -> str:
    lab = _lab(name)
    return lab.title if lab else f"{name} (not a lab of this clone)"


def _parts(name: str, runs: list[records.Record]) -> Iterator[Part]:
    """Yield the answers: of each sweep that has runs, then of all other runs; then the questions without any."""
    lab, answered, used = _lab(name), set(), set()
    sweeps = list(_sweeps(lab, named=bool(runs))) if lab else []
    for preset, sweep, cells in sweeps:
        names, possible = {cell.name for cell in cells}, {cell.name for cell in cells if not cell.skipped}
        mine = [record for record in runs if record["run"] in names]
        if mine:
            answered.add(sweep.question)
            used |= names
            how = f"`labs sweep {name} --only {sweep.name}{f' --preset {preset}' if preset != 'demo' else ''}`"
            few = len(mine) < len(possible)
            missing = [f"{len(mine)} of {plural(len(possible), 'run')}; {how} makes the others"] if few else []
            own: list[Grid | Picture | str] = [*_told(lab, mine), *_drawn(lab, mine)]
            yield Part(f"{sweep.question} ({preset})", [*missing, *own, *_answers(mine)])
    if rest := [record for record in runs if record["run"] not in used]:
        yield Part("Other runs" if used else "", [*_told(lab, rest), *_drawn(lab, rest), *_answers(rest)])
    for sweep in {sweep.question: sweep for _, sweep, _ in sweeps if sweep.question not in answered}.values():
        yield Part(sweep.question, [f"no run yet; `labs sweep {name} --only {sweep.name}` makes them"])
    if not runs and not sweeps:
        lines = [line.strip() for line in lab.description.splitlines()] if lab else []
        how = next((line for line in lines if line.startswith("labs ")), f"labs run {name}")
        yield Part("", [f"no run of {name}; `{how}` makes one"])


def _sweeps(lab: Lab, named: bool) -> Iterator[tuple[str, Any, list[Any]]]:
    """Yield a lab's sweeps with their preset and, where runs are to be found by their names, their cells."""
    from labs.run import sweeps

    for preset, asked in lab.sweeps.items():
        for sweep in asked:
            yield preset, sweep, sweeps.cells([sweep], lab.presets[preset]) if named else []


def _told(lab: Lab | None, runs: list[records.Record]) -> list[str]:
    """Return the lab's summary of some runs of a sweep, if it has one."""
    try:
        return [text] if lab and lab.summary and (text := lab.summary(runs)) else []
    except BAD_RUNS as problem:
        return [f"no summary: {_odd(problem)}"]


def _drawn(lab: Lab | None, runs: list[records.Record]) -> Iterator[Picture | str]:
    """Yield the lab's figures of some runs of a sweep."""
    try:
        for title, figure in lab.figures(runs) if lab else ():
            yield _picture(title, figure, "")
    except BAD_RUNS as problem:
        yield f"no plot: {_odd(problem)}"


def _odd(problem: Exception) -> str:
    return f"a run is not as runs of this lab are ({type(problem).__name__}: {problem})"


def _answers(runs: list[records.Record]) -> list[Grid | Picture | str]:
    """Return whatever can be shown of some runs of one lab."""
    frame, varying = speed_tables.frame(runs)
    shows = (_speed, _ledger, _quality, _utilization)
    items = [item for show in shows for item in show(frame, varying)]
    return [*items, *_curves(runs), *(item for name in _tables(runs) for item in _rows(name, runs))]


def _speed(frame: pd.DataFrame, varying: list[str]) -> Iterator[Grid | Picture]:
    """Yield tables of speeds, those of speedups with their plot."""
    for found in speed_tables.compared(frame, varying):
        yield found.grid()
        if found.held:
            yield from _scaling_plot(frame["lab"].iloc[0], found)


def _scaling_plot(lab: str, found: speed_tables.Speeds) -> Iterator[Picture]:
    table, by = found.table[found.table["speedup"].notna()], found.by
    if len(table[by].drop_duplicates() if by else ()) > LINES:
        return
    reference = course.speedups(lab, by) if found.held == "weak" else None
    yield _picture(found.title, plots.scaling(table, by, reference),
                   "dashed and hollow: the course report" if reference is not None else "")


def _ledger(frame: pd.DataFrame, varying: list[str]) -> Iterator[Grid | Picture]:
    columns = list(ledger_columns.COLUMNS)
    if ledger_columns.WALL not in frame or frame[ledger_columns.WALL].isna().all():
        return
    by = [*(name for name in varying if name in frame and name not in columns), "size"]
    if not set(columns) <= set(frame):
        return
    table = scaling.numbers(frame, columns).dropna(subset=columns)
    table = table.groupby(by, dropna=False)[columns].median().reset_index()
    short = {column: ledger_columns.entry(column) for column in columns}
    yield grid("Where the seconds of an epoch go", table.rename(columns=short), [*by, *short.values()],
               "medians over the repeats; other is what is left of the wall time, and never hidden")
    if len(table) <= BARS:
        yield _picture("Where the seconds of an epoch go", plots.ledger(table, by))


def _quality(frame: pd.DataFrame, varying: list[str]) -> Iterator[Grid]:
    """Yield the test metrics: means over the repeats with their intervals."""
    measured = [name for name in frame if name.startswith("test_") and name not in ("test_images", *varying)]
    frame, rows = scaling.numbers(frame, measured), []
    measured = [name for name in measured if frame[name].notna().any()]
    if not measured:
        return
    by = [*varying, "size"]
    for values, same in frame.groupby(by, dropna=False):
        same = same.drop_duplicates("seed", keep="last") if "seed" in same else same  # One seed twice is no repeat.
        row = dict(zip(by, values, strict=True)) | {"seeds": len(same)}
        for name in measured:
            row[name] = same[name].mean()
            row[f"{name}_low"], row[f"{name}_high"] = statistics.mean_interval(same[name].dropna())
        rows.append(row)
    import pandas as pd

    yield grid("Test images, at the end", pd.DataFrame(rows), [*by, "seeds", *measured],
               "mean over the seeds [95 % interval; none: one seed]; where intervals overlap, no difference is certain")


def _utilization(frame: pd.DataFrame, varying: list[str]) -> Iterator[Grid]:
    busy = [name for name in frame if name.endswith("_percent") and name not in varying]
    frame = scaling.numbers(frame, busy)
    busy = [name for name in busy if frame[name].notna().any()]
    if busy:
        by = [*(name for name in varying if name in frame), "size"]
        table = frame.groupby(by, dropna=False)[busy].median().reset_index()
        yield grid("How busy it was", table, [*by, *busy], "percent of the time, medians over the repeats")


def _curves(runs: list[records.Record]) -> Iterator[Picture]:
    """Yield the curves of the newest run of each number of workers."""
    newest = {run["layout"]["size"]: run for run in runs if len(run["history"]) > 1}
    if newest:
        chosen = [newest[size] for size in sorted(newest)[:4]]
        yield _picture("Loss and accuracy", plots.curves(chosen), "of the newest run of each number of workers: "
                       + ", ".join(run["run"] for run in chosen))


def _tables(runs: list[records.Record]) -> list[str]:
    """Return the names of the runs' tables, less the rounds of the ledger, whose sum is shown."""
    return sorted({name for run in runs for name, rows in run.get("tables", {}).items() if rows} - {"ledger"})


def _rows(name: str, runs: list[records.Record]) -> Iterator[Grid | Picture]:
    """Yield a named table of the runs; of collectives, their curves too."""
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
            yield _picture(f"{name}: bus bandwidth of {collective}", plots.busbw(rows, lines))
    yield grid(name, frame, [*by, *(column for column in own if not column.endswith(("_low", "_high")))])


def _picture(title: str, figure: Figure, note: str = "") -> Picture:
    import matplotlib as mpl

    file = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": title}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return Picture(title, file.getvalue(), note)
