"""Completion of the command line, in a real shell."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

from labs.cli import commands
from labs.datasets import registry
from labs.run import catalogue
from labs.run.paths import ROOT

BASH = """
source <("$0" -m labs completion bash)
complete -p labs
while IFS= read -r line; do
    read -ra COMP_WORDS <<< "$line"
    [[ $line = *' ' ]] && COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _labs; echo "${COMPREPLY[*]}"
done
"""
"""Completes each line of standard input as bash does when Tab is typed after it."""
LINES = {
    "labs ": list(commands.summaries()),
    "labs run lab1": [lab for lab in catalogue.lab_names() if lab.startswith("lab1")],
    "labs run lab10_caltech --ba": ["--batch-size", "--base-lr"],
    "labs run lab10 --workers 2 --no-a": ["--no-augment"],
    "labs sweep 2 --co": ["--code"],
    "labs run lab02 --workers 2 --preset ": ["demo", "paper", "laptop"],
    "labs run lab10 --timel": ["--timeline"],
    "labs data fetch ": list(registry.DATASETS),
    ".venv/bin/labs results --c": ["--csv"],
    "labs cluster link --ba": ["--bandwidth"],
    "labs cluster run lab10 --workers 2 --no-a": ["--no-augment"],
}
FILES = {"labs run lab10 --data ./so": "solutions", "labs lint da": "data"}
"""Whatever has no completions is completed as a file's name."""


def bash(lines: Iterable[str]) -> list[list[str]]:
    """Return what bash offers for each line."""
    done = subprocess.run(["bash", "--norc", "-c", BASH, sys.executable], input="\n".join(lines) + "\n", cwd=ROOT,
                          capture_output=True, text=True, timeout=60, check=False)
    registered, *answers = done.stdout.splitlines()
    assert registered == "complete -o default -F _labs labs", done.stderr  # -o default: file names.
    return [answer.split() for answer in answers]


def test_bash_completes_what_help_names():
    assert dict(zip(LINES, bash(LINES), strict=True)) == LINES
    assert bash(FILES) == [[], []], "bash itself adds the names of files"
