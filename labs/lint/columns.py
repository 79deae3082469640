"""Column names of a results table: what each one means, and its unit.

    meaning("Epoch time [ms]")    Column("epoch_seconds", "ms", 0.001)
    meaning("# GPUs")             Column("size")
    meaning("ideal speedup")      Column("")     A prediction: no rule may take it for a measurement.

A name is split into words, its unit is taken off, synonyms become one word, fillers are dropped, and what is left is
looked up. A name with a word that is not known is not guessed: the column is not used, and lint says so.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import unicodedata

from labs.lint.spellings import (
    FILLERS,
    MEANINGS,
    MEASURED,
    PARTS,
    QUALIFIERS,
    RATES,
    SAME,
    SECONDS,
    SHARES,
    SIZES,
    TIME,
    TIME_WORDS,
)

BYTES = re.compile(r"(?P<prefix>[kmgt]?)(?P<binary>i?)(?P<what>bytes|byte|bits|bit|b)"
                   r"(?P<per>(?:/| |p)?(?:s|sec|second))?", re.IGNORECASE)
"""GB/s, GiB, Mbit/s, gbps, kB ... A small b with a large prefix is a bit: Gb/s, as is ...bps without a capital B."""


@dataclasses.dataclass(frozen=True)
class Column:
    """What a column's name says."""

    name: str
    """The rules' name; empty if no rule uses the column."""
    unit: str = ""
    """As it is written in a message; empty if the name has none."""
    factor: float = 1.0
    """From the unit to that of the rules: seconds, bytes, GB/s, shares."""
    spread: bool = False
    """Whether it is the spread or the interval of another column."""
    measured: bool = False
    """Whether it has the unit of something measured, so that it does not tell configurations apart."""


@functools.cache
def meaning(name: str) -> Column:
    """Return what a column's name means."""
    text = unicodedata.normalize("NFKC", name).strip(" *`'\"$:").replace("\\", "")
    text = re.sub(r"[ _]as[ _]reported$", "", text)
    text = re.sub(r"(?<=\w)\s*±[^(\[]*", "", text)  # "speedup ± 95 % CI" is the speedup.
    if re.fullmatch(r"S", text):
        text = "speedup"
    text = re.sub(r"^([STE])\s*(\(\s*[nNpP]\s*\)|_\s*[nNpP]\b)",
                  lambda found: {"S": "speedup", "T": "time", "E": "efficiency"}[found[1]], text)
    brackets = re.findall(r"[(\[{<]([^)\]}>]*)[)\]}>]?", text)
    words, unit, factor = _units(_split(re.sub(r"[(\[{<][^)\]}>]*[)\]}>]?", " ", text)))
    aside: list[str] = []
    for part in (part for bracket in brackets for part in re.split(r"[,;]", bracket)):
        inner, inner_unit, inner_factor = _units(_split(part), bracketed=True)
        if inner_unit and not unit:
            unit, factor = inner_unit, inner_factor
        aside += _aside(inner)
    return _column(words, aside, unit, factor)


def _column(words: list[str], aside: list[str], unit: str, factor: float) -> Column:
    bag = [SAME.get(word.lower(), word.lower()) for word in words]
    bag = [word for word in bag if word not in FILLERS] + aside
    timed, sized = unit in TIME, bool(BYTES.fullmatch(unit))
    measured = bool(unit) and unit != "x"
    if {"predicted", "spread"} & set(bag):
        return Column("", unit, factor, "spread" in bag and "predicted" not in bag, True)
    if not bag and sized and "/" in unit:
        return Column("bandwidth", unit, factor)
    if timed and "time" not in bag and "throughput" not in bag:
        bag.append("time")
    if sized and "/" not in unit:
        found = _LOOK_UP.get(frozenset({*bag, "bytes"})) or _LOOK_UP.get(frozenset(bag))
        if found in SIZES | {"size"}:
            return Column("bytes" if found == "size" else found, unit, factor)
        plain = [word.lower() for word in words if word.lower() not in {"as", "reported", "of", "per", "step", "epoch"}]
        per = next((f"_per_{word}" for word in ("step", "epoch") if word in bag), "")
        return Column("_".join([*plain, "bytes"]) + per, unit, factor, measured=True)
    found = _LOOK_UP.get(frozenset(bag), "")
    if found in ("images_per_sec", "worker_images_per_sec"):
        return Column(found, f"images/{unit}" if timed else "", 1 / factor if timed else 1.0)
    wanted = (found in SECONDS and (timed or not unit)) or (found in RATES and (sized or not unit)) or (
        found in SHARES and unit in ("", "%", "x")) or (
        found not in SECONDS | RATES | SHARES and unit in ("", "x", "M", "k", "%"[:found == "speedup"]))
    if not wanted:
        return Column("", unit, factor, measured=measured or any(word in bag for word in MEASURED))
    return Column(found, unit, factor, measured=not found and any(word in bag for word in MEASURED))


def _split(text: str) -> list[str]:
    """Split a name into words; `per`, `number` and `percent` are written out."""
    text = re.sub(r"([a-zé])([A-Z][a-z])", r"\1 \2", text)
    text = text.replace("#", " number ").replace("%", " % ").replace("/", " per ").replace("±", " std ")
    text = re.sub(r"\b(pro|par)\b", "per", text)
    text = re.sub(r"\bBusbandbreite\b", "busbw", text, flags=re.IGNORECASE)
    text = re.sub(r"\b(Epochen?|Trainings?|Gesamt|Rechen|Schritt)(?=zeit|dauer)", r"\1 ", text, flags=re.IGNORECASE)
    text = re.sub(r"\ball[-_ ]?reduce\b", "allreduce", text, flags=re.IGNORECASE)
    text = re.sub(r"\bwall[-_ ]?clock\b", "wall", text, flags=re.IGNORECASE)
    text = re.sub(r"\b(images?|imgs?|samples?)(?=Per|per[A-Z_])", r"\1 ", text)
    text = re.sub(r"^(n|num|nb)_?(?=(gpus?|workers?|procs?|nodes?|ranks?|processes)\b)", "n ", text,
                  flags=re.IGNORECASE)
    return re.findall(r"[^\W\d_]+|\d+|%", text)


def _units(words: list[str], bracketed: bool = False) -> tuple[list[str], str, float]:
    """Take the unit off a name's words; return the others, the unit, and its factor."""
    low = [word.lower() for word in words]
    for place, word in enumerate(low):  # images per second, images per second per GPU
        if word == "per" and low[place + 1:place + 2] and low[place + 1] in TIME_WORDS and place and (
                low[place - 1] in SAME and SAME[low[place - 1]] == "image"):
            unit = TIME_WORDS[low[place + 1]]
            return words[:place] + words[place + 2:], unit, TIME[unit]
    if low and low[0] in TIME_WORDS and low[1:2] == ["per"]:  # s per epoch
        unit = TIME_WORDS[low[0]]
        return words[2:], unit, TIME[unit]
    if low[-2:-1] == ["per"] and SAME.get(low[-1], low[-1]) in ("step", "epoch", "batch"):  # bytes per step
        inner, unit, factor = _units(words[:-2])
        if unit:
            return [*inner, *words[-2:]], unit, factor
    for count in (3, 2, 1):
        if len(words) >= count and (found := _unit(words[-count:], bracketed or len(words) > count)):
            return words[:-count], *found
    if bracketed and low and low[0] in TIME_WORDS:  # (s, mean of 3)
        unit = TIME_WORDS[low[0]]
        return words[1:], unit, TIME[unit]
    return words, "", 1.0


def _unit(words: list[str], apart: bool) -> tuple[str, float] | None:
    """Return a unit and its factor, if these words are one.

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
        if words[0] in ("x", "X", "\u00d7"):
            return "x", 1.0
        if (apart and words[0] in ("M", "k", "K")) or low in ("millions", "million", "mio", "thousands"):
            return ("k", 1e3) if low in ("k", "thousands") else ("M", 1e6)
    found = BYTES.fullmatch(text)
    if not found or (low == "b" and not (apart and text == "B")) or (text.lower() in ("bs", "b s", "bps")):
        return None
    prefix, binary, what, per = found["prefix"].lower(), found["binary"], found["what"], found["per"] or ""
    bits = what.lower().startswith("bit") or (what == "b" and (found["prefix"].isupper() or per.startswith("p")))
    if bits and not per:
        return None
    scale = (1024.0 if binary else 1000.0) ** " kmgt".index(prefix or " ") / (8 if bits else 1)
    name = (prefix if prefix == "k" else prefix.upper()) + binary + ("bit" if bits else "B") + "/s" * bool(per)
    return name, scale / 1e9 if per else scale


def _aside(words: list[str]) -> list[str]:
    """Return what words in brackets add to a name: nothing, a qualifier, or that no rule may use the column."""
    bag = [SAME.get(word.lower(), word.lower()) for word in words]
    bag = [word for word in bag if word not in FILLERS - {"all"}]
    if {"predicted", "spread"} & set(bag):
        return [word for word in bag if word in ("predicted", "spread")]
    if "vs" in bag or "previous" in bag or "prev" in bag:
        own = set(bag) <= {"vs", "to", "1", "one", "worker", "baseline", "base", "node", "t"}
        return [] if own else ["predicted"]
    if bag and set(bag) <= QUALIFIERS:
        return [word for word in bag if word != "all"]
    return []


def _look_up() -> dict[frozenset[str], str]:
    """Return the rules' column of each set of words."""
    found = {}
    for name, spellings in MEANINGS.items():
        for spelling in spellings.split(";"):
            words = (SAME.get(word, word) for word in _split(spelling.strip()))
            bag = frozenset(word for word in words if word not in FILLERS)
            found[bag] = name
            if name in PARTS:
                found[bag | {"epoch"}] = name
                found[bag | {"step"}] = found[bag | {"batch"}] = f"step_{name}"
    return found


_LOOK_UP = _look_up()
