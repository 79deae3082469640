"""Cells as numbers: decimal marks of many countries, percents, units, clocks, counted nouns."""

from __future__ import annotations

import math
import re
from typing import Any

from labs.lint import columns, spellings
from labs.lint.columns import Column


class Figure:
    """A cell as a number; `known` is false where it holds none."""

    __slots__ = ("known", "percent", "rounding", "value")

    def __init__(self, value: float = math.nan, rounding: float = 0.0, percent: bool = False):
        self.value, self.rounding, self.percent = value, rounding, percent
        self.known = not math.isnan(value)


SMALL = {"size", "nodes", "processes_per_node", "threads", "epochs", "epoch", "seed", "repeats", "batch_size",
         "worker_batch_size", "global_batch_size", "cores"}


WHOLE = {"images", "test_images", "steps", "steps_per_epoch", "parameters"}


RATIOS = {"speedup", "scaling_efficiency", "test_accuracy", "train_accuracy", "test_loss", "train_loss", "utilization",
          "learning_rate", "base_lr"}


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


COUNTED = {"worker", "node", "image", "epochs", "epoch", "steps", "step", "cores", "nodes", "threads", "per", "runs"}


def figures_of(column: Column, texts: list[str], marks: set[str], between: str) -> list[Figure]:
    """Return a column's cells as numbers in the rules' units."""
    name = column.name
    if name in spellings.TEXT:
        return [Figure() for _ in texts]
    own = decimal_marks(texts)
    figures = [_figure(column, text, own, marks, between) for text in texts]
    if name == "size" and max((figure.value for figure in figures if figure.known), default=0) > 100_000:
        return [Figure() for _ in texts]  # Bytes, as in the output of nccl-tests.
    if name in ("bandwidth", "algbw") and not column.unit and all(
            figure.value > 1e4 or not figure.value for figure in figures if figure.known):
        for figure in figures:  # The kit's own tables have bytes per second.
            figure.value, figure.rounding = figure.value / 1e9, figure.rounding / 1e9
    if name in spellings.SHARES:
        _as_shares(name, column.unit == "%", figures)
    return figures


def _as_shares(name: str, percent: bool, figures: list[Figure]) -> None:
    """Turn percents into shares, cell by cell: 0.91 and 91 in one column are the same figure."""
    percent = percent or any(figure.value > 2 and not figure.percent for figure in figures)
    limit = 1.0 if name.endswith("accuracy") and percent else 2.0
    for figure in figures:
        if figure.value > limit and not figure.percent:
            figure.value, figure.rounding = figure.value / 100, figure.rounding / 100


def _figure(column: Column, text: str, own: set[str], marks: set[str], between: str) -> Figure:
    """Return one cell as a number."""
    if EMPTY.fullmatch(text):
        return Figure()
    text = text.strip("*_` \"'")
    if column.name in spellings.SECONDS and (clock := CLOCK.fullmatch(text)):
        hours, minutes, seconds = (float((part or "0").replace(",", ".")) for part in clock.groups())
        return Figure(3600 * hours + 60 * minutes + seconds, 0.5)
    if column.name in spellings.SECONDS and (spoken := SPOKEN.fullmatch(text)) and sum(map(bool, spoken.groups())) > 1:
        hours, minutes, seconds = (float((part or "0").replace(",", ".")) for part in spoken.groups())
        return Figure(3600 * hours + 60 * minutes + seconds, 0.5)
    if column.name in ("size", "nodes") and (count := worker_count(text)):
        return Figure(float(count))
    found = CELL.fullmatch(text)
    if not found:
        return Figure()
    rest = re.sub(r"(±|\+/-|\+-).*|\([^)]*\)$|\[\w*\]$|[*†‡^]+$", "", found["rest"]).strip()
    if rest and not column.name:
        return Figure()
    scale = _scale(column, rest)
    number = _number(found["number"], column, own, marks, between)
    if scale is None or number is None or not math.isfinite(number[0]):
        return Figure()
    if rest == "%":
        return Figure(number[0] / 100, number[1] / 100, True) if column.name in spellings.SHARES else Figure()
    factor = scale if rest else 1.0 if column.name in spellings.SHARES else column.factor
    return Figure(number[0] * factor, number[1] * factor)


def worker_count(text: str) -> int:
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


def _scale(column: Column, rest: str) -> float | None:
    """Return the factor of what stands behind a number; None if that makes it no number."""
    if not rest or rest == "%" or rest.lower() in ("x", "\u00d7", "times", "fach", "-fach", "times faster", "x faster"):
        return column.factor
    plain = re.sub(r"\s*(/|per) ?(epoch|step|run)$", "", rest)
    unit = columns.meaning(f"time ({plain})") if plain else Column("")
    if column.name in spellings.SECONDS:
        return unit.factor if unit.unit in spellings.TIME else None
    if column.name in spellings.RATES | spellings.SIZES or column.name.endswith("_bytes"):
        is_rate = column.name in spellings.RATES
        return unit.factor if unit.unit and unit.unit not in spellings.TIME and ("/" in unit.unit) == is_rate else None
    if rest in ("k", "K", "M"):
        return 1e6 if rest == "M" else 1e3
    if column.name == "images_per_sec":
        other = columns.meaning(rest)
        return other.factor if other.name == "images_per_sec" else None
    nouns = [spellings.SAME.get(word, word) for word in re.findall(r"[a-z]+", rest.lower())]
    return column.factor if nouns and set(nouns) <= COUNTED else None


def decimal_marks(texts: Any) -> set[str]:
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
