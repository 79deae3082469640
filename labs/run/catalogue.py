"""The labs of this clone, and how each is found by its number or name."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Sequence
from types import ModuleType

from labs.run.errors import LabError, quoted
from labs.run.paths import ROOT


def lab_names() -> list[str]:
    """Return the labs that this clone has, by number."""
    return sorted(path.stem for path in (ROOT / "labs").glob("lab[0-9][0-9]_*.py"))


def lab_name(lab: ModuleType) -> str:
    """Return a lab's name."""
    return lab.__name__.removeprefix("labs.")


def title(lab: ModuleType) -> str:
    """Return the line that says what a lab is about."""
    return (lab.__doc__ or "").partition("\n")[0]


def resolve(name: str) -> str:
    """Return a lab's full name, without importing it: from its number ("lab2", "02", "2") or a unique prefix.

    A number is exact: "lab1" is lab 1, though lab10 begins with the same letters.

    Raises:
        LabError: No lab, or more than one, has that name.
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
    """Return "; did you mean lab10_caltech?" if a lab's name, or its part behind the number, is similar."""
    parts = {part: lab for lab in labs for part in (lab, lab.partition("_")[2])}
    close = difflib.get_close_matches(name.lower(), parts, n=1, cutoff=0.75)
    return f"; did you mean {parts[close[0]]}?" if close else ""


def load_lab(name: str) -> ModuleType:
    """Import a lab by its name, its number or a unique prefix.

    Raises:
        LabError: No lab, or more than one, has that name.
    """
    return importlib.import_module(f"labs.{resolve(name)}")
