"""Completion of the command line, asked of real shells."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from labs.cli import commands, completion
from labs.datasets import registry
from labs.run import catalogue, command_line
from labs.run.paths import ROOT

ASK = """
source <("$0" -m labs completion bash)
complete -p labs
while IFS= read -r COMP_LINE; do
    COMP_POINT=${#COMP_LINE}; _labs; echo "${COMPREPLY[*]}"
done
"""
ASKED = {
    "labs ": list(commands.COMMANDS),
    "labs re": ["results", "report"],
    "labs run lab1": ["lab10_caltech", "lab11_multinode", "lab12_elastic"],
    "labs run lab10_caltech --ba": ["--batch-size", "--base-lr"],
    "labs run lab10 --workers 2 --no-a": ["--no-augment"],
    "labs sweep lab04 --sb": ["--sbatch"],
    "labs run lab02 --workers 2 --preset ": ["demo", "paper"],
    "labs run lab09 --optimizer ": ["adam", "sgd"],
    "labs run lab10 --timel": ["--timeline"],
    "labs run lab2 --co": ["--code"],
    "labs sweep 2 --co": ["--code"],
    "labs run 02 --code ": ["kit", "textbook"],
    "labs run lab10 --workers 2 --code ki": [],
    "labs exercises lab1": ["lab10_caltech", "lab11_multinode", "lab12_elastic"],
    "labs results lab02": ["lab02_horovod"],
    "labs run lab10 --data ./so": [],
    "labs data fetch ": list(registry.DATASETS),
    "labs data ve": ["verify"],
    ".venv/bin/labs results --c": ["--csv"],
    "labs queue --ch": ["--check"],
    "labs lint da": [],
}


def test_bash_completes_what_help_names():
    done = subprocess.run(["bash", "--norc", "-c", ASK, sys.executable], input="\n".join(ASKED) + "\n", cwd=ROOT,
                          capture_output=True, text=True, timeout=60, check=False)
    registered, *answers = done.stdout.splitlines()
    assert registered == "complete -o default -F _labs labs", done.stderr
    assert dict(zip(ASKED, map(str.split, answers), strict=True)) == ASKED


@pytest.mark.parametrize("name", catalogue.lab_names())
def test_what_the_help_of_a_lab_names_is_completed(name, capsys):
    with pytest.raises(SystemExit):
        command_line.parse(catalogue.load_lab(name), ["--help"])
    # An entry of tyro's help begins with its option, or with two: │ --resume, --no-resume
    entries = re.findall(r"^\W*?(--[a-z][a-z0-9-]*(?:, --[a-z0-9-]+)*)", capsys.readouterr().out, re.MULTILINE)
    named = {option for entry in entries for option in entry.split(", ")}
    line = next(line for line in completion.script("bash").splitlines() if f'"run {name[:5]}"*" "*|' in line)
    assert named - set(shlex.split(line.split("choices=")[1])[0].split()) == set()
    assert len(named) > 10
