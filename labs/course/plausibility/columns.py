"""Column names of a results table: what each one means, and its unit.

    meaning("Epoch time [ms]")    Column("epoch_seconds", "ms", 0.001)
    meaning("# GPUs")             Column("size")
    meaning("ideal speedup")      Column("")     A prediction, which no rule may take for a measurement.

A name is split into words. The unit is taken off, synonyms become one word, fillers are dropped, and the rest is looked
up in `spellings.MEANINGS`. A name with an unknown word is not guessed: lint says that the column is not used.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Iterable

from labs.course.plausibility.spellings import (
    BANDWIDTHS,
    FILLERS,
    MEANINGS,
    MEASURED,
    PARTS,
    QUALIFIERS,
    SAME,
    SECONDS,
    SHARES,
    SIZES,
    TIME,
    TIME_WORDS,
)

BYTES = re.compile(r"(?P<prefix>[kmgt]?)(?P<binary>i?)(?P<what>bytes|byte|bits|bit|b)"
                   r"(?P<per>(?:/| |p)?(?:s|sec|second))?", re.IGNORECASE)
"""GB/s, GiB, Mbit/s, gbps, kB. A small b after a capital prefix is a bit (Gb/s), and so is the b of "bps"."""

BRACKETS = r"[(\[{<]([^)\]}>]*)[)\]}>]?"
FORMULA = re.compile(r"^([STE])\s*(\(\s*[nNpP]\s*\)|_\s*[nNpP]\b)")
FORMULAS = {"S": "speedup", "T": "time", "E": "efficiency"}


@dataclasses.dataclass(frozen=True)
class Column:
    """What a column's name says."""

    name: str
    """The rules' name; empty if no rule uses the column."""
    unit: str = ""
    """As it is written in a message; empty if the name has none."""
    factor: float = 1.0
    """Converts the unit to that of the rules: seconds, bytes, GB/s, shares."""
    spread: bool = False
    """Whether it is the spread or the interval of another column."""
    measured: bool = False
    """Whether it holds measurements, which do not tell configurations apart."""


@functools.cache
def meaning(name: str) -> Column:
    """Return what a column's name means."""
    text = unicodedata.normalize("NFKC", name).strip(" *`'\"$:").replace("\\", "")
    text = re.sub(r"[ _]as[ _]reported$", "", text)
    text = re.sub(r"(?<=\w)\s*±[^(\[]*", "", text)  # "speedup ± 95 % CI" is the speedup.
    text = "speedup" if text == "S" else FORMULA.sub(lambda match: FORMULAS[match[1]], text)
    words, unit, factor = _units(_split(re.sub(BRACKETS, " ", text)))
    aside: list[str] = []
    for part in (part for bracket in re.findall(BRACKETS, text) for part in re.split(r"[,;]", bracket)):
        inner, inner_unit, inner_factor = _units(_split(part), bracketed=True)
        if inner_unit and not unit:
            unit, factor = inner_unit, inner_factor
        aside += _aside(inner)
    return _column(words, aside, unit, factor)


def _column(words: list[str], aside: list[str], unit: str, factor: float) -> Column:
    """Return the column of a name: its words, those in brackets that count, its unit and the unit's factor."""
    bag = _plain(words) + aside
    timed, sized = unit in TIME, bool(BYTES.fullmatch(unit))
    if {"predicted", "spread"} & set(bag):
        return Column("", unit, factor, "spread" in bag and "predicted" not in bag, True)
    if not bag and sized and "/" in unit:
        return Column("bandwidth", unit, factor)
    if timed and "time" not in bag and "throughput" not in bag:
        bag.append("time")
    if sized and "/" not in unit:
        name = _looked_up(*bag, "bytes") or _looked_up(*bag)
        if name in SIZES | {"size"}:
            return Column("bytes" if name == "size" else name, unit, factor)
        plain = [word.lower() for word in words if word.lower() not in {"as", "reported", "of", "per", "step", "epoch"}]
        per = next((f"_per_{word}" for word in ("step", "epoch") if word in bag), "")
        return Column("_".join([*plain, "bytes"]) + per, unit, factor, measured=True)
    name = _looked_up(*bag)
    if name in ("images_per_sec", "worker_images_per_sec"):
        return Column(name, f"images/{unit}" if timed else "", 1 / factor if timed else 1.0)
    if name and _fits(name, unit):
        return Column(name, unit, factor)
    return Column("", unit, factor, measured=unit not in ("", "x", "M", "k") or not MEASURED.isdisjoint(bag))


def _fits(name: str, unit: str) -> bool:
    """Return whether a column of the rules can have a unit."""
    if name in SECONDS:
        return not unit or unit in TIME
    if name in BANDWIDTHS:
        return not unit or bool(BYTES.fullmatch(unit))
    if name in SHARES:
        return unit in ("", "x", "%")
    return unit in ("", "x", "M", "k") or (unit == "%" and name == "speedup")


def _plain(words: Iterable[str], fillers: set[str] = FILLERS) -> list[str]:
    """Return words in lower case, with one word for all synonyms and without fillers."""
    return [word for word in (SAME.get(word.lower(), word.lower()) for word in words) if word not in fillers]


def _split(text: str) -> list[str]:
    """Split a name into words; `per`, `number`, `std` and `%` become words."""
    text = re.sub(r"([a-z])([A-Z][a-z])", r"\1 \2", text)
    text = re.sub(r"\b(images?|imgs?|samples?)(?=Per|per[A-Z_])", r"\1 ", text)
    text = text.replace("#", " number ").replace("%", " % ").replace("/", " per ").replace("±", " std ")
    for pattern, instead in (
            (r"\bpro\b", "per"),
            (r"\b(Epochen?|Trainings?|Gesamt|Rechen|Schritt)(?=zeit|dauer)", r"\1 "),
            (r"(?<![^\W_])(all|wall|speed)[-_ ]?(reduce|clock|up)(?![^\W_])", r"\1\2"),
            (r"^(n|num|nb)_?(?=(gpus?|workers?|procs?|nodes?|ranks?|processes)\b)", "n ")):
        text = re.sub(pattern, instead, text, flags=re.IGNORECASE)
    return re.findall(r"[^\W\d_]+|\d+|%", text)


def _units(words: list[str], bracketed: bool = False) -> tuple[list[str], str, float]:
    """Take the unit off a name's words; return the others, the unit, and its factor."""
    low = [word.lower() for word in words]

    def time(index: int, *others: str) -> tuple[list[str], str, float]:
        unit = TIME_WORDS[low[index]]
        return list(others), unit, TIME[unit]

    for index in range(1, len(low) - 1):  # images per second, images per second per GPU
        if low[index] == "per" and low[index + 1] in TIME_WORDS and SAME.get(low[index - 1]) == "image":
            return time(index + 1, *words[:index], *words[index + 2:])
    if low and low[0] in TIME_WORDS and low[1:2] == ["per"]:  # s per epoch
        return time(0, *words[2:])
    if low[-2:-1] == ["per"] and SAME.get(low[-1], low[-1]) in ("step", "epoch", "batch"):  # bytes per step
        inner, unit, factor = _units(words[:-2])
        if unit:
            return [*inner, *words[-2:]], unit, factor
    for count in (3, 2, 1):
        if len(words) >= count and (unit_factor := _unit(words[-count:], bracketed or len(words) > count)):
            return words[:-count], *unit_factor
    if bracketed and low and low[0] in TIME_WORDS:  # (s, mean of 3)
        return time(0, *words[1:])
    return words, "", 1.0


def _unit(words: list[str], apart: bool) -> tuple[str, float] | None:
    """Return the unit that some words are, and its factor; None if they are not one.

    Args:
        words: The last words of a name.
        apart: Whether the name has other words, or these stand in brackets: single letters are units only there.
    """
    low, text = words[-1].lower(), " ".join(words).replace(" per ", "/")
    if len(words) == 1:
        if low in TIME_WORDS and (apart or len(low) > 1):
            return TIME_WORDS[low], TIME[TIME_WORDS[low]]
        if low in ("%", "percent", "pct", "percentage", "prozent"):
            return "%", 0.01
        if low in ("x", "\u00d7"):
            return "x", 1.0
        if (apart and words[0] in ("M", "k", "K")) or low in ("millions", "million", "mio", "thousands"):
            return ("k", 1e3) if low in ("k", "thousands") else ("M", 1e6)
    match = BYTES.fullmatch(text)
    if not match or (low == "b" and not (apart and text == "B")) or (text.lower() in ("bs", "b s", "bps")):
        return None
    prefix, binary, what, per = match["prefix"].lower(), match["binary"], match["what"], match["per"] or ""
    bits = what.lower().startswith("bit") or (what == "b" and (match["prefix"].isupper() or per.startswith("p")))
    if bits and not per:
        return None
    scale = (1024.0 if binary else 1000.0) ** " kmgt".index(prefix or " ") / (8 if bits else 1)
    name = (prefix if prefix == "k" else prefix.upper()) + binary + ("bit" if bits else "B") + "/s" * bool(per)
    return name, scale / 1e9 if per else scale


def _aside(words: list[str]) -> list[str]:
    """Return what words in brackets add to a name: nothing, qualifiers, or that no rule may use the column."""
    bag = _plain(words, FILLERS - {"all"})
    if special := [word for word in bag if word in ("predicted", "spread")]:
        return special
    if {"vs", "previous", "prev"} & set(bag):
        of_one = set(bag) <= {"vs", "to", "1", "one", "worker", "baseline", "base", "node", "t"}
        return [] if of_one else ["predicted"]
    if bag and set(bag) <= QUALIFIERS:
        return [word for word in bag if word != "all"]
    return []


def _spellings() -> list[tuple[str, set[str], set[str]]]:
    """Return the names of `MEANINGS`: the rules' column, the words that must be there, and those that may be."""
    names = [(column, name.split()) for column, names in MEANINGS.items() for name in names.split(";")]
    return [(column, set(_plain(word for word in words if "?" not in word)),
             set(_plain(word.rstrip("?") for word in words))) for column, words in names]


SPELLINGS = _spellings()


def _looked_up(*words: str) -> str:
    """Return the rules' column that some words name, or ""."""
    bag = set(words)
    for column, required, possible in SPELLINGS:
        if required <= bag <= possible:
            return column
    for column, required, possible in SPELLINGS:  # "Compute time per epoch".
        if column in PARTS and "epoch" in bag and required <= bag - {"epoch"} <= possible:
            return column
    return ""
