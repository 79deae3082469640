"""The labs of this clone, and how to find one by its number or name."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Sequence
from types import ModuleType

from labs.run.errors import LabError, quoted
from labs.run.lab import Lab
from labs.run.paths import ROOT


def lab_names() -> list[str]:
    """Return the names of the labs in this clone, by number."""
    return sorted(path.stem for path in (ROOT / "labs").glob("lab[0-9][0-9]_*.py"))


def resolve(name: str) -> str:
    """Return the full name of a lab from its number ("lab2", "02", "2") or a unique prefix, without importing the lab.

    Numbers match exactly: "lab1" is lab 1, although "lab10" begins with the same letters.

    Raises:
        LabError: No lab matches, or more than one does.
    """
    labs = lab_names()
    number = re.fullmatch(r"(?:lab)?([0-9]+)", name)
    stem = f"lab{number[1].lstrip('0'):0>2}_" if number else ""
    matches = [lab for lab in labs if lab == name or (stem and lab.startswith(stem))]
    matches = matches or [lab for lab in labs if name and lab.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise LabError(f"more than one lab begins with {quoted(name)}: {', '.join(matches)}")
    raise LabError(f"no lab is called {quoted(name)}{_similar(name, labs)}; there are: {', '.join(labs)}")


def _similar(name: str, labs: Sequence[str]) -> str:
    """Return "; did you mean lab10_caltech?" if the name resembles a lab's, or the part after its number."""
    known = {word: lab for lab in labs for word in (lab, lab.partition("_")[2])}
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.75)
    return f"; did you mean {known[close[0]]}?" if close else ""


def load_lab(lab: str | ModuleType | Lab) -> Lab:
    """Return the Lab of a name, a number, a unique prefix or a module.

    Raises:
        LabError: No lab matches the name, or more than one does.
    """
    if isinstance(lab, Lab):
        return lab
    return (importlib.import_module(f"labs.{resolve(lab)}") if isinstance(lab, str) else lab).LAB
