"""Completion of the command line, in a real shell."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable

import pytest

from labs.cli import commands
from labs.datasets import registry
from labs.run import catalogue, command_line
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
    "labs re": ["results", "report"],
    "labs run lab1": [lab for lab in catalogue.lab_names() if lab.startswith("lab1")],
    "labs run lab10_caltech --ba": ["--batch-size", "--base-lr"],
    "labs run lab10 --workers 2 --no-a": ["--no-augment"],
    "labs sweep lab04 --sb": ["--sbatch"],
    "labs run lab02 --workers 2 --preset ": ["demo", "paper", "laptop"],
    "labs run lab09 --optimizer ": ["adam", "sgd"],
    "labs run lab10 --timel": ["--timeline"],
    "labs run lab2 --co": ["--code"],
    "labs sweep 2 --co": ["--code"],
    "labs run 02 --code ": ["kit", "textbook"],
    "labs run lab10 --workers 2 --code ki": [],
    "labs exercises lab0": [lab for lab in catalogue.lab_names() if lab.startswith("lab0")],
    "labs results lab02": ["lab02_horovod"],
    "labs data fetch ": list(registry.DATASETS),
    "labs data ve": ["verify"],
    ".venv/bin/labs results --c": ["--csv"],
    "labs queue --ch": ["--check"],
    "labs cluster ": ["up", "link", "run", "sweep", "shell", "status", "down"],
    "labs cluster s": ["sweep", "shell", "status"],
    "labs cluster up --sl": ["--slurm"],
    "labs cluster link --ba": ["--bandwidth"],
    "labs cluster run lab1": [lab for lab in catalogue.lab_names() if lab.startswith("lab1")],
    "labs cluster run lab10 --workers 2 --no-a": ["--no-augment"],
    "labs cluster sweep 2 --co": ["--code"],
    "labs completion ": ["bash"],
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


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """What bash offers after `labs run LAB -`, for each lab."""
    labs = catalogue.lab_names()
    return dict(zip(labs, map(set, bash(f"labs run {lab} -" for lab in labs)), strict=True))


@pytest.mark.parametrize("name", catalogue.lab_names())
def test_what_the_help_of_a_lab_names_is_completed(name, options, capsys):
    with pytest.raises(SystemExit):
        command_line.parse(catalogue.load_lab(name), ["--help"], launches=True)
    # An entry of tyro's help begins with its option, or with two: │ --resume, --no-resume
    entries = re.findall(r"^\W*?(--[a-z][a-z0-9-]*(?:, --[a-z0-9-]+)*)", capsys.readouterr().out, re.MULTILINE)
    named = {option for entry in entries for option in entry.split(", ")}
    assert named | {"-h", "--help", "--preset"} == options[name]
    assert len(named) > 10
