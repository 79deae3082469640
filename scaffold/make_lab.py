"""Make a new lab from the templates in this folder: it trains, and all tests pass.

    make lab NAME=lab13_compression
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from labs.run import atomic, catalogue
from labs.run.errors import LabError, quoted

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
TEMPLATE = "lab00_template"
LONGEST_NAME = 40

Row = tuple[str, str, Callable[[str, str], str]]
ROWS: tuple[Row, ...] = (
    ("README.md", r"(?:^\| lab\d\d_\w+ \|.*\n)+", lambda rows, row: rows + row),
    ("docs/course.md", r"(?:^\| \d+ \| lab\d\d_\w+ \|.*\n)+", lambda rows, row: rows + row),
    ("CHANGELOG.md", r"^## .*\n\n", lambda heading, row: f"{heading}{row}\n"),
    ("pyproject.toml", r"\| lab\d\d_\w+(?=\"\"\",$)", lambda last, row: f"{last} \\\n    {row.strip()}"),
    ("tests/exercises/planted.py", r"^    \]\n", lambda end, row: row + end),
    ("tests/exercises/test_exercises.py", r"^WRONG = \[(?:.*\n)+?\]\n", lambda wrong, row: wrong[:-2] + row + "]\n"),
)
"""Files that get rows for a lab, in `rows/`: the text in which a row is inserted, by its pattern, and how."""


def main(name: str) -> None:
    """Make a lab; if anything fails, remove all of it.

    Args:
        name: Its number and subject, such as "lab13_compression".

    Raises:
        LabError: The name cannot be used, a file exists already, or the notebook of the template fails.
    """
    _check(name)
    files = {ROOT / _renamed(name, str(path.relative_to(FOLDER))): _renamed(name, path.read_text())
             for path in _templates()}
    picture = ROOT / f"docs/pictures/{name}.png"
    if existing := [path for path in (*files, picture) if path.exists()]:
        raise LabError(f"{existing[0].relative_to(ROOT)} exists already; choose another name, or remove it")
    _edited(name, 0)  # Raises before anything is written, if a row has no place.
    before = {path: path.read_text() for path in _edited(name, 0)}
    try:
        for path, text in files.items():
            atomic.write_text(path, text)
        _ask(name)
        began = time.perf_counter()
        if subprocess.run([sys.executable, str(ROOT / "notebooks/execute.py"), name], check=False).returncode:
            raise LabError(f"the notebook of {name} failed, as shown above; nothing is left of the new lab")
        for path, text in _edited(name, round(time.perf_counter() - began)).items():
            atomic.write_text(path, text)
    except BaseException:
        for path in (*files, picture):
            path.unlink(missing_ok=True)
        for path, text in before.items():
            atomic.write_text(path, text)
        raise
    print(f"{name}: made", *(str(path.relative_to(ROOT)) for path in (*files, picture)), sep="\n  ")
    print("with rows in", *(str(path.relative_to(ROOT)) for path in before), sep="\n  ")
    print(f"Try it: labs run {name} --workers 2")


def _check(name: str) -> None:
    """Refuse a name that is malformed, too long, or whose number is taken."""
    if not re.fullmatch(r"lab(?!00)\d\d(_[a-z0-9]+)+", name, re.ASCII) or len(name) > LONGEST_NAME:
        raise LabError(f"{quoted(name)} cannot be the name of a lab; choose two digits and a subject in lower case, at "
                       f"most {LONGEST_NAME} characters, as in lab13_compression")
    taken = [lab for lab in catalogue.lab_names() if lab.startswith(name[:6])]
    if taken:
        free = next(number for number in range(1, 100) if not list((ROOT / "labs").glob(f"lab{number:02}_*.py")))
        raise LabError(f"there is already a {taken[0]}; the next free number is {free:02}")


def _templates() -> list[Path]:
    return sorted(path for path in FOLDER.rglob("*lab00*") if path.is_file() and "__pycache__" not in path.parts)


def _renamed(name: str, text: str) -> str:
    """Return the text of a template, written for a lab."""
    number = str(int(name[3:5]))
    subject = name[6:].replace("_", " ")
    words = {TEMPLATE: name, "Lab 0: template": f"Lab {number}: {subject}", "lab00": name[:5], "Lab 0": f"Lab {number}",
             "lab 0": f"lab {number}"}
    for old, new in words.items():
        text = text.replace(old, new)
    return text


def _edited(name: str, seconds: int) -> dict[Path, str]:
    """Return the files that get a row, with it.

    Args:
        name: Of the lab.
        seconds: What the notebook takes.
    """
    edited = {}
    for file, pattern, insert in ROWS:
        text = (ROOT / file).read_text()
        (match, *others) = re.finditer(pattern, text, re.MULTILINE) or [None]
        edited[ROOT / file] = text
    return edited


def _ask(name: str) -> None:
    """Write the text of the judged questions into the notebook."""
    importlib.invalidate_caches()
    exercises = importlib.import_module("labs.exercises")
    notebook = ROOT / f"notebooks/{name}.ipynb"
    content = json.loads(notebook.read_text())
    content["cells"][-2]["source"] = exercises.markdown(name).splitlines(keepends=True)
    atomic.write_text(notebook, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except LabError as problem:
        sys.exit(f"labs: error: {problem}")
