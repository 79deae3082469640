"""Typed tables of results: a CSV file as the rules of lint want it, in their names, units and numbers.

Spreadsheets of many countries and habits are understood: commas, semicolons, tabs or bars between the cells; 1,905x;
91 % beside 0.91; 60,000 and 60.000 and 60 000; 52.5 s, 1:23, 2 min; "4 GPUs". What was read as what is told in
`Table.reading`, with the columns and cells that were not used.
"""

from __future__ import annotations

import csv
import math
import os
import re
import stat
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from labs.lint import columns
from labs.lint.columns import Column
from labs.lint.findings import Row, Table, size
from labs.run.errors import LabError

Lines = list[tuple[int, list[str]]]
"""Cells, with the number of their line in the file."""
LARGEST = 4 * 2**20
"""Bytes of a file that is still read as a table."""
MOST_ROWS = 2_000
COURSE: dict[str, dict[str, Any]] = {
    "lab02_mnist_accuracy": {"images": 60_000, "test_images": 10_000},  # MNIST
    "lab04_speedup": {"images": 50_000, "gradient_bytes": 44.7e6},  # CIFAR-10, ResNet-18
    "lab07_transported_bytes": {"images": 60_000},  # MNIST
}
"""What the course reports' tables do not say of themselves; columns of these names say it in any other table."""

NOTES = {
    "note", "notes", "comment", "comments", "remark", "remarks", "date", "time_stamp", "timestamp", "host",
    "hostname", "node_name", "job", "jobid", "job_id", "run", "who", "name", "student", "id", "description",
    "status", "state", "bemerkung", "bemerkungen", "kommentar", "observation", "observations", "remarque",
    "hosts", "lab", "part", "source", "question", "rule", "scaling_rule", "where_the_inputs_are_from", "run_id",
    "line", "row",
}
"""Columns that describe a row and are no part of its configuration."""
CONFIG = {
    "model", "device", "dataset", "data", "optimizer", "precision", "dtype", "backend", "library", "framework",
    "hardware", "gpu", "gpus", "machine", "cluster", "partition", "interconnect", "network", "fabric", "link",
    "collective", "threads", "epochs", "batch_size", "processes_per_node", "image_size", "resolution",
    "compression", "xla", "placement", "transport", "data_set", "gpu_type", "gpu_model", "accelerator",
    "system", "platform", "setup", "mode", "bytes",
}
"""Columns that always tell configurations apart, however seldom their values repeat."""
SMALL = {"size", "nodes", "processes_per_node", "threads", "epochs", "epoch", "seed", "repeats", "batch_size",
         "worker_batch_size", "global_batch_size", "cores"}
WHOLE = {"images", "test_images", "steps", "steps_per_epoch", "parameters"}
RATIOS = {"speedup", "scaling_efficiency", "test_accuracy", "train_accuracy", "test_loss", "train_loss", "utilization",
          "learning_rate", "base_lr"}


def read_csv(path: Path) -> Table:
    """Read a typed table: columns by the names that the rules use, `row` the line in the file.

    Raises:
        LabError: It cannot be read, is no table, or has no column that a rule uses.
    """
    names, lines, between = _long(*_lines(path))
    heading = _heading([columns.meaning(name) for name in names], names)
    cells = {place: [line[place] for _, line in lines] for place in range(len(names))}
    marks = _decimal_marks(text for texts in cells.values() for text in texts)
    read: dict[int, list[_Figure]] = {}
    for place, column in enumerate(heading):
        figures = _figures(column, cells[place], marks, between)
        if any(figure.known for figure in figures):
            read[place] = figures
        elif column.name not in columns.TEXT or all(map(CELL.fullmatch, filter(None, cells[place]))) or any(
                re.search(r"(?i)\d ?G|ethernet|infiniband|nvlink|pcie", text) for text in cells[place]):
            # Its name promised figures, and there are none; or words, and there are figures; or a network is a link.
            heading[place] = Column("", measured=False)
    left_out = _left_out(names, heading, cells, read, lines)
    summaries = _summaries(cells, read, heading)
    rows = []
    for index, (line, texts) in enumerate(lines):
        if index not in summaries:
            rows.append(_row(path, line, index, names, heading, texts, read))
    known = {column.name for column in heading if column.name}
    known |= {"spread"} if any(column.spread for column in heading) else set()
    known |= {"local"} if any(columns.meaning(name).name == "worker_batch_size" for name in names) else set()
    known |= {"bus"} if any(column.name == "bandwidth" and "bus" in name.lower()
                            for name, column in zip(names, heading, strict=True)) else set()
    rows, known = _completed(rows, known)
    course = COURSE.get(path.stem, {})
    rows = [course | row for row in rows]
    config = _config(names, heading, rows, known)
    if not rows or not (known - {"spread", "local"}):
        raise LabError(f"{path.name}: nothing could be checked: no column that a rule uses among {', '.join(names)}; "
                       "known are gpus, batch_size, epoch_time_s, images/s, speedup and many others "
                       "(labs/lint/columns.py)")
    reading = _reading(names, heading, config, left_out, [lines[index][0] for index in sorted(summaries)])
    return Table(rows, frozenset(known | set(course) | set(config)), config, reading)


WIDE = re.compile(r"(?i)(?<![a-z0-9.])(\d{1,4}|one|single|two|four|eight)[ _-]*"
                  r"(gpus?|workers?|process(es)?|procs?|ranks?)(?![a-z0-9])")


def _long(names: list[str], lines: Lines, between: str) -> tuple[list[str], Lines, str]:
    """Return a table with a row per number of workers, if it has a column for each: "1 GPU (s), 2 GPUs (s)"."""
    groups: dict[str, dict[int, int]] = defaultdict(dict)
    for place, name in enumerate(names):
        if not columns.meaning(name).name and (found := WIDE.search(name)):  # "Speedup vs 1 GPU" is one column.
            rest = " ".join((name[:found.start()] + " " + name[found.end():]).strip(" _-:@,").split())
            rest = rest if columns.meaning(rest).name and rest[0] not in "([" else f"time {rest}"
            groups[rest].setdefault(ONES.get(found[1].lower()) or int(found[1]), place)
    groups = {rest: places for rest, places in groups.items() if columns.meaning(rest).name
              and (columns.meaning(rest).unit or not rest.startswith("time "))}
    if max(map(len, groups.values()), default=0) < 2 or any(columns.meaning(name).name == "size" for name in names):
        return names, lines, between
    moved = {place for places in groups.values() for place in places.values()}
    kept = [place for place in range(len(names)) if place not in moved]
    rows = [(line, [*(cells[place] for place in kept), str(count),
                    *(cells[places[count]] if count in places else "" for places in groups.values())])
            for line, cells in lines for count in sorted({count for places in groups.values() for count in places})]
    return [*(names[place] for place in kept), "workers", *groups], rows, between


# The file.

def _text(path: Path) -> str:
    """Return a table's text.

    Raises:
        LabError: It is no regular file, too large, or no text.
    """
    try:
        # Not to wait for a FIFO's writer; what the path is, is asked of what was opened.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise LabError(f"{path} is not a regular file; give a results folder or a CSV file")
            content = file.read(LARGEST + 1)
    except OSError as problem:
        raise LabError(f"{path}: {problem.strerror}; give a results folder or a CSV file") from None
    if len(content) > LARGEST:
        raise LabError(f"{path.name} is larger than {LARGEST // 2**20} MiB; a table of results is smaller")
    for encoding in ("utf-16",) if content[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig", "cp1252"):
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if not re.search(r"[\x00-\x08\x0e-\x1f]", text):
            return text
    raise LabError(f"{path.name} is no table of text; save it as CSV in UTF-8")


def _lines(path: Path) -> tuple[list[str], Lines, str]:
    """Return the heading, the other lines with their numbers, and the character between cells."""
    text = _text(path)
    if not any(line.strip() for line in text.splitlines()):
        raise LabError(f"{path.name} holds no rows; its first line names the columns, the others are the results")
    try:
        between, lines = max(((mark, _split(text, mark)) for mark in ",;\t|"), key=lambda found: _regular(found[1]))
    except csv.Error as problem:
        raise LabError(f"{path.name} is no table of text: {problem}; save it as CSV in UTF-8") from None
    start = next((index for index, (_, cells) in enumerate(lines) if sum(map(bool, cells)) > 1), 0)  # After a title.
    (_, names), rows = lines[start], lines[start + 1:]
    rows = [(line, cells) for line, cells in rows
            if cells != names and not (cells[0].startswith("#") and not any(cells[1:]))]
    while names and not names[-1] and not any(any(cells[len(names) - 1:]) for _, cells in rows):
        names = names[:-1]
    if rows and _is_units(rows[0][1]):
        names = [f"{name} ({unit})" if unit else name for name, unit in zip(names, rows.pop(0)[1], strict=False)]
    if not rows:
        raise LabError(f"{path.name} holds no rows; its first line names the columns, the others are the results")
    if len(rows) > MOST_ROWS:
        raise LabError(f"{path.name} holds {len(rows):,} rows; a table of results has at most {MOST_ROWS:,}")
    return names, [(line, _fitted(path, line, cells, names)) for line, cells in rows], between


def _split(text: str, between: str) -> list[tuple[int, list[str]]]:
    """Return the lines that hold something as cells, with their numbers."""
    source = text.splitlines()
    if between == "|":
        source = [re.sub(r"^[\s|:=-]+$", "", line).strip().strip("|") for line in source]
    reader = csv.reader(source, delimiter=between, skipinitialspace=True)
    lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    return [(number, cells) for number, cells in lines if any(cells)]


def _regular(lines: list[tuple[int, list[str]]]) -> tuple[int, int]:
    """Return how many lines have the most frequent number of cells, if they are several, and that number."""
    width, count = Counter(len(cells) for _, cells in lines).most_common(1)[0]
    return (count, width) if width > 1 else (0, 1)


def _is_units(cells: list[str]) -> bool:
    """Whether a line below the heading holds the columns' units."""
    units = [cell for cell in cells if cell]
    return bool(units) and not re.search(r"\d", " ".join(units)) and all(
        columns.meaning(f"time ({unit.strip('()[]')})").unit for unit in units if unit not in "-x")


def _fitted(path: Path, line: int, cells: list[str], names: list[str]) -> list[str]:
    if any(cells[len(names):]):
        raise LabError(f"{path.name}, line {line}: {len(cells)} values for {len(names)} columns; "
                       "put a value that holds a comma into quotes")
    return (cells + [""] * len(names))[:len(names)]


# Columns.

def _heading(found: list[Column], names: list[str]) -> list[Column]:
    """Return what each column is; of two that mean the same only one is used."""
    own = [column.name for column in found]
    low = {name.lower().strip() for name in names}
    taken: set[str] = set()
    heading = []
    for column, name in zip(found, names, strict=True):
        stem, _, last = name.lower().strip().rpartition("_")
        extreme = last == "min" and {f"{stem}_{other}" for other in ("max", "mean", "avg", "median", "std")} & low
        if (column.name == "cores" and "size" in own) or column.name in taken or extreme:
            column = Column("", measured=True)
        elif column.name == "cores":
            column = Column("size")
        elif column.name == "worker_batch_size":
            column = Column("batch_size") if "batch_size" not in taken else Column("", measured=True)
        taken |= {column.name} - {""}
        heading.append(column)
    collective = {"bytes"} & taken and {"bandwidth", "algbw", "collective"} & taken
    if collective and "total_seconds" in taken:  # The time of an all-reduce, no run's.
        place = [column.name for column in heading].index("total_seconds")
        heading[place] = Column("seconds", heading[place].unit, heading[place].factor)
    if "step_seconds" in taken and "epoch_seconds" not in taken:  # Parts of a step, then.
        heading = [Column(f"step_{column.name}", column.unit, column.factor) if column.name in columns.PARTS else column
                   for column in heading]
    return heading


def _config(names: list[str], heading: list[Column], rows: list[Row], known: set[str]) -> tuple[str, ...]:
    """Return the columns that tell the rows' configurations apart."""
    chosen = []
    for place, column in enumerate(heading):
        name = column.name or _label(place, names)
        plain = re.sub(r"\W+", "_", names[place].lower()).strip("_")
        if column.name in ("size", "nodes") or (column.name and column.name not in CONFIG) or column.measured or (
                plain == "experiment"):
            continue
        values = [row.get(name) for row in rows]
        numbers = [value for value in values if isinstance(value, float)]
        note = plain in NOTES or plain.endswith(("notes", "note", "comment"))
        repeated = all(values) and len(set(values)) < len(values) and all(value == int(value) for value in numbers)
        if name in CONFIG or (plain in CONFIG and not numbers) or (repeated and not note):
            chosen.append(name)
    return tuple(name for name in chosen if name != "bytes" or "collective" in known or {"bandwidth", "algbw"} & known)


def _label(place: int, names: list[str]) -> str:
    """Return the key of a column that no rule knows."""
    plain = re.sub(r"\W+", "_", names[place].lower()).strip("_")
    return plain if plain in CONFIG and names.index(names[place]) == place and plain not in columns.MEANINGS else (
        f"label_{place}")


def _reading(names: list[str], heading: list[Column], config: tuple[str, ...], left_out: list[str],
             summaries: list[int]) -> str:
    """Say what was read as what, and what was not used."""
    used, apart, unused = [], [], []
    for place, (name, column) in enumerate(zip(names, heading, strict=True)):
        if column.name:
            part = column.name.removeprefix("step_") if column.name.removeprefix("step_") in columns.PARTS else ""
            word = columns.WORDS.get(part or column.name, column.name.replace("_", " "))
            word += " of a step" * (part != column.name and bool(part))
            told = not column.unit or column.unit in word or f"[{column.unit}]" in name
            unit = "" if told else f" [{column.unit}]"
            used.append(name if name.lower().replace("_", " ") == word else f"{name} as {word}{unit}")
        elif _label(place, names) in config:
            apart.append(name)
        elif name:
            unused.append(name)
    parts = [f"read {', '.join(used)}"] if used else []
    parts += [f"told apart by {', '.join(apart)}"] if apart else []
    parts += [f"not used: {', '.join(unused)}"] if unused else []
    more = f" and {len(left_out) - 5} more" * (len(left_out) > 5)
    parts += [f"no figures, left out: {', '.join(left_out[:5])}{more}"] if left_out else []
    parts += [f"summaries, left out: line{'s' * (len(summaries) > 1)} {', '.join(map(str, summaries[:9]))}"
              ] if summaries else []
    return "; ".join(parts)


# Cells.

class _Figure:
    """A cell as a number; `known` is false where it holds none."""

    __slots__ = ("known", "percent", "rounding", "value")

    def __init__(self, value: float = math.nan, rounding: float = 0.0, percent: bool = False):
        self.value, self.rounding, self.percent = value, rounding, percent
        self.known = not math.isnan(value)


NUMBER = r"[+\-\u2212]?(?:\d[\d.,'\u2019 \u00a0\u202f\u2009_]*\d|\d|[.,]\d+)(?:[eE][+-]?\d+)?"
CELL = re.compile(rf"(?:[~\u2248]|ca\.?|approx\.?|about)?\s*[x\u00d7]?\s*(?P<number>{NUMBER})\s*(?P<rest>.*)",
                  re.DOTALL)
GROUPED = re.compile(r"\d{1,3}([ '\u2019\u00a0\u202f\u2009_]\d{3})+(?=$|[.,])")
CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2}(?:[.,]\d+)?)")
SPOKEN = re.compile(r"(?:(\d+) ?h(?:ours?)?)? ?(?:(\d+) ?m(?:in(?:utes?)?)?)? ?"
                    r"(?:(\d+(?:[.,]\d+)?) ?s(?:ec(?:onds?)?)?)?")
ONES = {"single": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
EMPTY = re.compile(r"[\s\-\u2013\u2014./?]*|n/?a|nan|none|null|nil|no data|baseline|base|ref(erence)?|tbd|missing"
                   r"|\(?empty\)?", re.IGNORECASE)
SUMMARY = re.compile(r"(grand )?(total|sum|summe|mean|average|avg|median|std|sd|stdev|min|max|overall|mittelwert"
                     r"|geomean|moyenne|durchschnitt|best|worst|ci95|95 ?% ?ci)[.: ]*", re.IGNORECASE)


def _figures(column: Column, texts: list[str], marks: set[str], between: str) -> list[_Figure]:
    """Return a column's cells as numbers in the rules' units."""
    name = column.name
    if name in columns.TEXT:
        return [_Figure() for _ in texts]
    own = _decimal_marks(texts)
    figures = [_figure(column, text, own, marks, between) for text in texts]
    if name == "size" and max((figure.value for figure in figures if figure.known), default=0) > 100_000:
        return [_Figure() for _ in texts]  # Bytes, as in the output of nccl-tests.
    if name in ("bandwidth", "algbw") and not column.unit and all(
            figure.value > 1e4 or not figure.value for figure in figures if figure.known):
        for figure in figures:  # The kit's own tables have bytes per second.
            figure.value, figure.rounding = figure.value / 1e9, figure.rounding / 1e9
    if name in columns.SHARES:
        _as_shares(name, column.unit == "%", figures)
    return figures


def _as_shares(name: str, percent: bool, figures: list[_Figure]) -> None:
    """Turn percents into shares, cell by cell: 0.91 and 91 in one column are the same figure."""
    percent = percent or any(figure.value > 2 and not figure.percent for figure in figures)
    limit = 1.0 if name.endswith("accuracy") and percent else 2.0
    for figure in figures:
        if figure.value > limit and not figure.percent:
            figure.value, figure.rounding = figure.value / 100, figure.rounding / 100


def _figure(column: Column, text: str, own: set[str], marks: set[str], between: str) -> _Figure:
    """Return one cell as a number."""
    if EMPTY.fullmatch(text):
        return _Figure()
    text = text.strip("*_` \"'")
    if column.name in columns.SECONDS and (clock := CLOCK.fullmatch(text)):
        hours, minutes, seconds = (float((part or "0").replace(",", ".")) for part in clock.groups())
        return _Figure(3600 * hours + 60 * minutes + seconds, 0.5)
    if column.name in columns.SECONDS and (spoken := SPOKEN.fullmatch(text)) and sum(map(bool, spoken.groups())) > 1:
        hours, minutes, seconds = (float((part or "0").replace(",", ".")) for part in spoken.groups())
        return _Figure(3600 * hours + 60 * minutes + seconds, 0.5)
    if column.name in ("size", "nodes") and (count := _count(text)):
        return _Figure(float(count))
    found = CELL.fullmatch(text)
    if not found:
        return _Figure()
    rest = re.sub(r"(±|\+/-|\+-).*|\([^)]*\)$|\[\w*\]$|[*†‡^]+$", "", found["rest"]).strip()
    if rest and not column.name:
        return _Figure()
    scale = _scale(column, rest)
    number = _number(found["number"], column, own, marks, between)
    if scale is None or number is None or not math.isfinite(number[0]):
        return _Figure()
    if rest == "%":
        return _Figure(number[0] / 100, number[1] / 100, True) if column.name in columns.SHARES else _Figure()
    factor = scale if rest else 1.0 if column.name in columns.SHARES else column.factor
    return _Figure(number[0] * factor, number[1] * factor)


def _count(text: str) -> int:
    """Return the workers of "two GPUs", "2 x 4 GPUs", "8x H100", "1 GPU (baseline)"; 0 if the text names none."""
    low = text.lower()
    word = re.match(r"(\w+)[ -](?=gpu|worker|process|rank|node)", low)
    if word and word[1] in ONES:
        return ONES[word[1]]
    product = re.match(r"(\d+)\s*(?:nodes?|hosts?)?\s*[x\u00d7*]\s*(\d+)\b", low)
    if product:
        return int(product[1]) * int(product[2])
    single = re.match(r"(\d+)\s*(?:[x\u00d7]\s*)?(?=[a-z])(?!e\d)", low)
    return int(single[1]) if single else 0


COUNTED = {"worker", "node", "image", "epochs", "epoch", "steps", "step", "cores", "nodes", "threads", "per", "runs"}


def _scale(column: Column, rest: str) -> float | None:
    """Return the factor of what stands behind a number; None if that makes it no number."""
    if not rest or rest == "%" or rest.lower() in ("x", "\u00d7", "times", "fach", "-fach", "times faster", "x faster"):
        return column.factor
    plain = re.sub(r"\s*(/|per) ?(epoch|step|run)$", "", rest)
    unit = columns.meaning(f"time ({plain})") if plain else Column("")
    if column.name in columns.SECONDS:
        return unit.factor if unit.unit in columns.TIME else None
    if column.name in columns.RATES | columns.SIZES or column.name.endswith("_bytes"):
        is_rate = column.name in columns.RATES
        return unit.factor if unit.unit and unit.unit not in columns.TIME and ("/" in unit.unit) == is_rate else None
    if rest in ("k", "K", "M"):
        return 1e6 if rest == "M" else 1e3
    if column.name == "images_per_sec":
        other = columns.meaning(rest)
        return other.factor if other.name == "images_per_sec" else None
    nouns = [columns.SAME.get(word, word) for word in re.findall(r"[a-z]+", rest.lower())]
    return column.factor if nouns and set(nouns) <= COUNTED else None


def _decimal_marks(texts: Any) -> set[str]:
    """Return the marks that can only be decimal ones in some cell."""
    marks = set()
    for text in texts:
        if (found := CELL.fullmatch(text)) and re.search("[.,]", found["number"]):
            plain = GROUPED.sub("", found["number"].lstrip("+-\u2212"))
            plain = re.sub(r"[eE].*", "", plain)
            kinds = set(re.findall("[.,]", plain))
            if len(kinds) == 2:
                marks.add(max(kinds, key=plain.rfind))
            elif kinds and len(re.findall("[.,]", plain)) > 1:
                marks |= {".", ","} - kinds
            elif kinds and not re.fullmatch(r"[1-9]\d{0,2}[.,]\d{3}", plain):
                marks |= kinds
    return marks


def _number(text: str, column: Column, own: set[str], marks: set[str], between: str) -> tuple[float, float] | None:
    """Return a number as somebody typed it, and half a unit of its last digit; None if it is none.

    Args:
        text: Digits, with marks.
        column: Whose meaning decides where a mark may be a decimal one or stand between thousands: 1.905, 60.000.
        own: The decimal marks of its column.
        marks: Those of the whole table.
        between: What stands between the table's cells.
    """
    text = text.replace("\u2212", "-")
    if grouped := GROUPED.search(text):
        text = text.replace(grouped[0], re.sub(r"\D", "", grouped[0]))
    plain, _, exponent = text.lower().partition("e")
    found = re.findall("[.,]", plain)
    if len(set(found)) == 2:
        decimal = max(".,", key=plain.rfind)
    elif len(found) > 1:
        decimal = "," if found[0] == "." else "."
    elif found and re.fullmatch(r"[+-]?[1-9]\d{0,2}[.,]\d{3}", plain):
        decimal = found[0] if _is_decimal(found[0], plain, column, own, marks, between) else " "
    else:
        decimal = found[0] if found else "."
    other = {".": ",", ",": "."}.get(decimal)
    plain = plain.replace(other, "") if other else re.sub("[.,]", "", plain)
    plain = plain.replace(decimal, ".")
    try:
        value = float(f"{plain}e{exponent}" if exponent else plain)
        digits = len(plain.partition(".")[2])
        return value, 0.5 * 10.0 ** (int(exponent or 0) - digits)
    except (ValueError, OverflowError):
        return None


def _is_decimal(mark: str, plain: str, column: Column, own: set[str], marks: set[str], between: str) -> bool:
    """Whether a mark before exactly three digits is a decimal one."""
    known = own or marks
    if column.name in RATIOS:  # No speedup is 1905.
        return True
    if column.name in WHOLE or (column.name == "bytes" and column.unit in ("", "B")):
        return mark in own
    if column.name in SMALL:
        return plain.endswith("000") and (known == {mark} or (not known and mark == "."))
    if len(known) == 1:
        return mark in known
    return mark == "." or between == ";"


def _left_out(names: list[str], heading: list[Column], cells: dict[int, list[str]], read: dict[int, list[_Figure]],
              lines: list[tuple[int, list[str]]]) -> list[str]:
    """Name the cells of columns of figures that hold none, and are not empty."""
    found = []
    for place, figures in read.items():
        for index, figure in enumerate(figures):
            text = cells[place][index]
            if heading[place].name and not figure.known and not EMPTY.fullmatch(text) and not SUMMARY.fullmatch(text):
                found.append(f"line {lines[index][0]} {text[:20]!r}")
    return found


def _summaries(cells: dict[int, list[str]], read: dict[int, list[_Figure]], heading: list[Column]) -> set[int]:
    """Return the rows that sum others up: a total, a mean over the repeats above."""
    found: set[int] = set()
    for place in sorted(cells)[:3]:
        if any(figure.known for figure in read.get(place, ())) or place not in read:
            told = [index for index, text in enumerate(cells[place]) if SUMMARY.fullmatch(text)]
            if len(told) < len(cells[place]):
                found |= set(told)
            else:  # A column "statistic": the means are the figures.
                found |= {index for index in told if not re.match("(?i)mean|av|median|mittel|moy", cells[place][index])}
    return found if len(found) < len(next(iter(cells.values()))) else set()


def _row(path: Path, line: int, index: int, names: list[str], heading: list[Column], texts: list[str],
         read: dict[int, list[_Figure]]) -> Row:
    """Return a row: figures by the rules' columns, other cells by labels."""
    row: Row = {"row": line, "id": index, "where": path.name, "rounding": {}}
    for place, column in enumerate(heading):
        name, figure = column.name or _label(place, names), read.get(place, [_Figure()] * (index + 1))[index]
        if column.name and column.name not in columns.TEXT:
            row[name] = figure.value if figure.known else None
            row["rounding"][name] = figure.rounding
        else:
            row[name] = figure.value if figure.known and not column.name else texts[place] or None
            if figure.known and not column.name and not column.spread:
                unread = f"unread_{'time_' * (column.unit in columns.TIME)}{place}"
                row[unread], row["rounding"][unread] = figure.value, figure.rounding
    row["words"] = " ".join(text for text in texts if re.search(r"[^\W\d]", text))
    return row


def _completed(rows: list[Row], known: set[str]) -> tuple[list[Row], set[str]]:
    """Add what follows from a table's own words: workers named in a text, images/s of all from those of one worker."""
    if "size" not in known and not {"nodes"} & known:
        for name in sorted({name for row in rows for name in row if name.startswith("label_")} | {"setup"}):
            counts = [_count(str(row.get(name) or "")) for row in rows]
            named = all(re.search(r"(?i)gpu|worker|process|rank", str(row.get(name))) for row in rows)
            if rows and all(counts) and named:
                rows = [row | {"size": float(count)} for row, count in zip(rows, counts, strict=True)]
                known = known | {"size"}
                break
    if {"nodes", "processes_per_node"} <= known and "size" not in known and any(
            size(row) == 1 for row in rows):  # 1 x 1, 1 x 4, 2 x 4: the base is one worker, not one node.
        rows, known = [row | {"size": size(row) if size(row) > 0 else None} for row in rows], known | {"size"}
    if "worker_images_per_sec" in known and "images_per_sec" not in known and "size" in known:
        for row in rows:
            each, count = row.get("worker_images_per_sec"), row.get("size")
            row["images_per_sec"] = each * count if each and count else None
            row["rounding"]["images_per_sec"] = row["rounding"]["worker_images_per_sec"] * (count or 1)
        known = known | {"images_per_sec"}
    return rows, known
