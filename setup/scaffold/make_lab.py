"""Make a new lab from the templates in this folder: it trains, and all tests pass.

    make lab NAME=lab14_compression
"""

from __future__ import annotations

import importlib
import re
import shutil
import sys
import time
from pathlib import Path

import nbformat

from labs.course import exercises
from labs.run import atomic, catalogue
from labs.run.errors import ERROR_PREFIX, LabError, quoted
from labs.run.paths import ROOT, results_dir, shown
from notebooks import execute

TEMPLATES = ROOT / "setup/scaffold"
LONGEST_NAME = 40
ROWS = {
    "README.md": (
        r"(?:^\| lab\d\d_.*\n)+",
        "| {name} | {title}? | 1 h | [notebook](notebooks/{name}.ipynb) | `sbatch jobs/{name}.sh` | "
        '<img src="docs/pictures/{name}.png" width="150" alt="loss and accuracy over the epochs"> |\n'),
    "docs/course.md": (r"(?:^\| \d+ \| lab\d\d_.*\n)+", "| {number} | {name} | {title} | 1 h | {seconds} s | |\n"),
    "pyproject.toml": (r'\| lab\d\d_\w+(?=""",)', " \\\n    | {name}"),
}
"""Files in which a lab has a row, with the text that the row follows (a regular expression) and the row."""


def main(name: str) -> None:
    """Make a lab, or nothing: if a step fails, or on Ctrl-C, all that was written is removed.

    Args:
        name: The lab's number and subject, such as "lab14_compression".

    Raises:
        LabError: The name cannot be used, a file exists already, a row has no place, or the new notebook fails.
    """
    check_name(name)
    files = {ROOT / rename(name, str(path.relative_to(TEMPLATES))): rename(name, path.read_text())
             for path in TEMPLATES.rglob("*lab00*") if path.suffix != ".pyc"}
    picture, results = ROOT / f"docs/pictures/{name}.png", results_dir() / name
    made = [*sorted(files), picture]
    for path in (*made, results):
        if path.exists():
            raise LabError(f"{shown(path)} exists already; choose another name, or remove it")
    pages = {ROOT / page: (ROOT / page).read_text() for page in ROWS}
    rows_added(name, seconds=0)  # To find out before anything is written whether each row has its place.
    try:
        for path, text in files.items():
            atomic.write_text(path, text)
        write_questions(name)
        start = time.perf_counter()
        execute.main([name])
        for path, text in rows_added(name, round(time.perf_counter() - start)).items():
            atomic.write_text(path, text)
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
        for path, text in pages.items():
            if path.read_text() != text:  # An unchanged pyproject.toml keeps its time, on which `make env` depends.
                atomic.write_text(path, text)
        shutil.rmtree(results, ignore_errors=True)
        raise
    print(f"made {name}:", *map(shown, made), "and its rows in:", *map(shown, pages), sep="\n  ")


def check_name(name: str) -> None:
    """Refuse a name that is malformed or too long, or whose number is taken."""
    if not re.fullmatch(r"lab(?!00)[0-9]{2}(_[a-z0-9]+)+", name) or len(name) > LONGEST_NAME:
        raise LabError(f"{quoted(name)} cannot be the name of a lab; choose two digits and a subject in lower case, at "
                       f"most {LONGEST_NAME} characters, such as lab14_compression")
    labs = {lab[3:5]: lab for lab in catalogue.lab_names()}
    if name[3:5] in labs:
        free = min({f"{number:02}" for number in range(1, 100)} - labs.keys(), default="none")
        raise LabError(f"there is already a {labs[name[3:5]]}; the next free number is {free}")


def rename(name: str, text: str) -> str:
    """Return the text of a template with the new lab's name, number and title in place of the template's."""
    number, title = number_and_title(name)
    for old, new in (("lab00_template", name), ("Lab 0: template", f"Lab {number}: {title}"), ("lab00", name[:5]),
                     ("Lab 0", f"Lab {number}"), ("lab 0", f"lab {number}")):
        text = text.replace(old, new)
    return text


def write_questions(name: str) -> None:
    """Write the text of a new lab's questions into its notebook: the template has an empty cell for it."""
    importlib.invalidate_caches()  # The lab's modules are newer than what Python knows of their folders.
    path = ROOT / f"notebooks/{name}.ipynb"
    notebook = nbformat.read(path, 4)
    (questions,) = [cell for cell in notebook.cells
                    if cell.cell_type == "markdown" and "exercises" in cell.metadata.get("tags", [])]
    questions.source = exercises.markdown(name)
    atomic.write_text(path, nbformat.writes(notebook) + "\n")


def number_and_title(name: str) -> tuple[int, str]:
    """Return a lab's number and its subject in words."""
    return int(name[3:5]), name[6:].replace("_", " ")


def rows_added(name: str, seconds: int) -> dict[Path, str]:
    """Return the pages with the lab's rows.

    Args:
        name: The lab.
        seconds: How long its notebook takes.
    """
    number, title = number_and_title(name)
    pages = {}
    for page, (pattern, row) in ROWS.items():
        text = (ROOT / page).read_text()
        before = re.search(pattern, text, re.MULTILINE)
        if before is None:
            raise LabError(f"{page} has no row of a lab after which the new row can be inserted")
        row = row.format(name=name, number=number, title=title, seconds=seconds)
        pages[ROOT / page] = text[:before.end()] + row + text[before.end():]
    return pages


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except LabError as problem:
        sys.exit(f"{ERROR_PREFIX}{problem}")
    except KeyboardInterrupt:
        sys.exit("labs: interrupted; nothing is left of the new lab")
