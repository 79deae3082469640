"""Cells as numbers: decimal marks of many countries, percents, units, clock times, counted nouns."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from labs.course.plausibility import columns, spellings
from labs.course.plausibility.columns import Column


class Figure(NamedTuple):
    """A cell as a number."""

    value: float
    rounding: float
    """Half a unit of the last digit that was typed."""
    percent: bool = False
    """Whether the cell has a percent sign; the value is a share."""

    def times(self, factor: float) -> Figure:
        """Return the figure in another unit."""
        return self._replace(value=self.value * factor, rounding=self.rounding * factor)


class Style(NamedTuple):
    """How a column's cells were typed."""

    column: Column
    own_marks: set[str]
    """The marks that can only be decimal marks in some cell of the column."""
    table_marks: set[str]
    """The same for all cells of the table."""
    delimiter: str
    """The character between cells."""


SMALL = {"size", "nodes", "processes_per_node", "threads", "epochs", "epoch", "seed", "repeats", "batch_size",
         "worker_batch_size", "global_batch_size", "cores"}
"""Whole numbers that are hardly above 999."""
WHOLE = {"images", "test_images", "steps", "steps_per_epoch", "parameters"}
"""Whole numbers that are often above 999."""
RATIOS = {"speedup", "scaling_efficiency", "test_accuracy", "train_accuracy", "test_loss", "train_loss", "utilization",
          "learning_rate", "base_lr"}
"""Numbers that are hardly above 999 and mostly have decimals."""

NUMBER = r"[+\-\u2212]?(?:\d[\d.,'\u2019 \u00a0\u202f\u2009_]*\d|\d|[.,]\d+)(?:[eE][+-]?\d+)?"
CELL = re.compile(rf"(?:[~\u2248]|ca\.?|approx\.?|about)?\s*[x\u00d7]?\s*(?P<number>{NUMBER})\s*(?P<rest>.*)",
                  re.DOTALL)
GROUPED = re.compile(r"\d{1,3}([ '\u2019\u00a0\u202f\u2009_]\d{3})+(?=$|[.,])")
AMBIGUOUS = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")
"""1.905 or 60.000: the mark may be a decimal mark or separate thousands."""
CLOCKS = (re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2}(?:[.,]\d+)?)"),  # 1:02:30
          re.compile(r"(?:(\d+) ?h(?:ours?)?)? ?(?:(\d+) ?m(?:in(?:utes?)?)?)? ?"
                     r"(?:(\d+(?:[.,]\d+)?) ?s(?:ec(?:onds?)?)?)?"))  # 1 h 2 min 30 s
ONES = {"single": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
EMPTY = re.compile(r"[\s\-\u2013\u2014./?]*|n/?a|nan|none|null|nil|no data|baseline|base|ref(erence)?|tbd|missing"
                   r"|\(?empty\)?", re.IGNORECASE)
SUMMARY = re.compile(r"(grand )?(total|sum|summe|mean|average|avg|median|std|sd|stdev|min|max|overall|mittelwert"
                     r"|geomean|durchschnitt|best|worst|ci95|95 ?% ?ci)[.: ]*", re.IGNORECASE)
COUNTED = {"worker", "node", "image", "epochs", "epoch", "steps", "step", "cores", "nodes", "threads", "per", "runs"}


def read_figures(column: Column, texts: list[str], table_marks: set[str], delimiter: str) -> list[Figure | None]:
    """Return a column's cells as numbers in the rules' units; None for a cell that is not a number."""
    name = column.name
    if name in spellings.TEXT:
        return [None for _ in texts]
    style = Style(column, decimal_marks(texts), table_marks, delimiter)
    figures = [_figure(text, style) for text in texts]
    known = [figure for figure in figures if figure]
    if name == "size" and any(figure.value > 100_000 for figure in known):
        return [None for _ in texts]  # Bytes, as in the output of nccl-tests.
    if name in ("bandwidth", "algbw") and not column.unit and all(
            figure.value > 1e4 or not figure.value for figure in known):
        return [figure and figure.times(1e-9) for figure in figures]  # The kit's own tables have bytes per second.
    if name in spellings.SHARES:
        # Some cells of a column may be percents and others shares: 91 and 0.91 are the same figure.
        percent = column.unit == "%" or any(figure.value > 2 and not figure.percent for figure in known)
        limit = 1.0 if name.endswith("accuracy") and percent else 2.0
        return [figure.times(0.01) if figure and figure.value > limit and not figure.percent else figure
                for figure in figures]
    return figures


def _figure(text: str, style: Style) -> Figure | None:
    """Return a cell as a number; None if it is not one."""
    if EMPTY.fullmatch(text):
        return None
    column, text = style.column, text.strip("*_` \"'")
    for pattern in CLOCKS if column.name in spellings.SECONDS else ():
        if (clock := pattern.fullmatch(text)) and sum(map(bool, clock.groups())) > 1:
            hours, minutes, seconds = (float((part or "0").replace(",", ".")) for part in clock.groups())
            return Figure(3600 * hours + 60 * minutes + seconds, 0.5)
    if column.name in ("size", "nodes") and (count := worker_count(text)):
        return Figure(float(count), 0.0)
    match = CELL.fullmatch(text)
    if not match:
        return None
    rest = re.sub(r"(±|\+/-|\+-).*|\([^)]*\)$|\[\w*\]$|[*†‡^]+$", "", match["rest"]).strip()
    factor, figure = _factor(column, rest), _number(match["number"], style)
    if factor is None or figure is None or (rest and not column.name):
        return None
    if rest == "%":
        return figure.times(0.01)._replace(percent=True) if column.name in spellings.SHARES else None
    return figure.times(1.0 if column.name in spellings.SHARES and not rest else factor)


def worker_count(text: str) -> int:
    """Return the workers of "two GPUs", "2 x 4 GPUs", "8x H100" or "1 GPU (baseline)"; 0 if the text has none."""
    low = text.lower()
    word = re.match(r"(\w+)[ -](?=gpu|worker|process|rank|node)", low)
    if word and word[1] in ONES:
        return ONES[word[1]]
    product = re.match(r"(\d+)\s*(?:nodes?|hosts?)?\s*[x\u00d7*]\s*(\d+)\b", low)
    if product:
        return int(product[1]) * int(product[2])
    single = re.match(r"(\d+)\s*(?:[x\u00d7]\s*)?(?=[a-z])(?!e\d)", low)
    return int(single[1]) if single else 0


def _factor(column: Column, rest: str) -> float | None:
    """Return the factor of the text behind a number; None if the cell is then not a number of its column."""
    if rest.lower() in ("", "%", "x", "\u00d7", "times", "fach", "-fach", "times faster", "x faster"):
        return column.factor
    plain = re.sub(r"\s*(/|per) ?(epoch|step|run)$", "", rest)
    unit = columns.meaning(f"time ({plain})")
    if column.name in spellings.SECONDS:
        return unit.factor if unit.unit in spellings.TIME else None
    per_second = column.name in spellings.BANDWIDTHS
    if per_second or column.name in spellings.SIZES or column.name.endswith("_bytes"):
        sized = unit.unit and unit.unit not in spellings.TIME and ("/" in unit.unit) == per_second
        return unit.factor if sized else None
    if rest in ("k", "K", "M"):
        return 1e6 if rest == "M" else 1e3
    if column.name == "images_per_sec":
        throughput = columns.meaning(rest)
        return throughput.factor if throughput.name == "images_per_sec" else None
    nouns = {spellings.SAME.get(word, word) for word in re.findall(r"[a-z]+", rest.lower())}
    return column.factor if nouns and nouns <= COUNTED else None


def decimal_marks(texts: Iterable[str]) -> set[str]:
    """Return the marks that can only be decimal marks in some cell."""
    cells = (CELL.fullmatch(text) for text in texts)
    return {_sure_mark(_digits(cell["number"])[0]) for cell in cells if cell} - {""}


def _digits(text: str) -> tuple[str, str]:
    """Return a typed number without the spaces and quotes between its thousands, and its exponent."""
    text = text.replace("\u2212", "-").lower()
    if grouped := GROUPED.search(text):
        text = text.replace(grouped[0], re.sub(r"\D", "", grouped[0]))
    plain, _, exponent = text.partition("e")
    return plain, exponent


def _sure_mark(plain: str) -> str:
    """Return the mark that can only be the number's decimal mark; "" if there is none, or if it is ambiguous."""
    marks = re.findall("[.,]", plain)
    if len(set(marks)) == 2:
        return max(".,", key=plain.rfind)
    if len(marks) > 1:  # 1.281.167
        return "," if marks[0] == "." else "."
    return "" if not marks or AMBIGUOUS.fullmatch(plain) else marks[0]


def _number(text: str, style: Style) -> Figure | None:
    """Return a number as it was typed; None if it is not one."""
    plain, exponent = _digits(text)
    mark = _sure_mark(plain)
    if AMBIGUOUS.fullmatch(plain):
        (typed,) = re.findall("[.,]", plain)
        mark = typed if _is_decimal(typed, plain, style) else ""
    plain = "".join("." if letter == mark else letter for letter in plain if letter == mark or letter not in ".,")
    try:
        value = float(f"{plain}e{exponent or 0}")
        rounding = 0.5 * 10.0 ** (int(exponent or 0) - len(plain.partition(".")[2]))
    except (ValueError, OverflowError):
        return None
    return Figure(value, rounding) if math.isfinite(value) else None


def _is_decimal(mark: str, plain: str, style: Style) -> bool:
    """Return whether a mark before exactly three digits is a decimal mark."""
    name, known = style.column.name, style.own_marks or style.table_marks
    if name in RATIOS:  # No speedup is 1905.
        return True
    if name in WHOLE or (name == "bytes" and style.column.unit in ("", "B")):
        return mark in style.own_marks
    if name in SMALL:
        return plain.endswith("000") and (known == {mark} or (not known and mark == "."))
    if len(known) == 1:
        return mark in known
    return mark == "." or style.delimiter == ";"
