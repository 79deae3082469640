"""Words that have left the code and the pages, each with the word to use instead.

Notebooks' prose and CHANGELOG.md are exempt. So are names that users type or that records hold: options, check and
rule names, keys of records.
"""

from __future__ import annotations

import functools
import io
import json
import keyword
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from labs.run.paths import ROOT

FOLDERS = ("labs", "jobs", "setup", "benchmarks", "solutions", "docs", "notebooks", "tests", "scaffold",
           "debugging", "examples")
PAGES = ("README.md", "CONTRIBUTING.md", "data/README.md", "Makefile", "environment.yml", "pyproject.toml")
SUFFIXES = {".py", ".sh", ".md", ".html", ".cmake", ".ipynb"}


class Word(NamedTuple):
    """A word that has left."""

    pattern: str
    instead: str
    allowed: str = "(?!)"
    """Where it stays: a regular expression that "path: text of the line" contains."""


MODULES = {
    "claims": "run.run_lock", "command": "run.command_line", "completion": "cli.completion", "durable": "run.atomic",
    "errors": "run.errors", "notebook": "cli.notebook", "places": "run.heartbeat", "text": "run.text",
    "usage": "run.usage", "checks.loading": "checks.import_probe", "checks.programs": "launch.supervisor",
    "checks.proof": "checks.smoke_test", "checks.screen": "checks.runner",
    "datasets.divided": "datasets.predefined_split", "datasets.embedded": "datasets.synthetic",
    "datasets.images": "datasets.image_cache", "datasets.parts": "datasets.splits",
    "datasets.pictures": "datasets.decode", "datasets.shapes": "datasets.synthetic.polygons",
    "launch.queue": "slurm.queue", "launch.reasons": "slurm.reasons", "launch.request": "slurm.precheck",
    "launch.sbatch": "slurm.sbatch_parser", "launch.site": "slurm.site", "launch.slurm": "slurm.allocation",
    "report.records": "results.records", "report.results": "results.listing", "report.scaling": "results.scaling",
    "training.horovod_keras": "training.hvd_ops", "training.meeting": "training.rendezvous",
    "training.stack": "training.hvd_ops", "training.stop": "run.stop", "training.watch": "run.heartbeat",
}
"""Modules of `labs` by their old names, and what they are called now."""

SUBSETS = r"^(?!labs/(datasets|training|models|lab\d)).*: |path\.parts|\.parts\b"
NAMES = [
    Word("aim", "target"), Word("must", "required"), Word("arms?", "contender"), Word("asked", "args or options"),
    Word("called", "lab_name, or label"), Word("claims?", "lock"), Word("drawn", "figures"),
    Word("draw|luck", "random_params", r"ImageDraw|draw\.polygon|draw\(st\.|\(draw\)"),
    Word("durable", "atomic"), Word("enough", "stop_when"),
    Word("found", "records, rows, matches, or what was found"),
    Word("mark", "config_hash", r"^labs/lint/|pytest\.mark"), Word("meeting", "rendezvous"),
    Word("parts?", "splits, subset", SUBSETS), Word("Parts", "Splits"),
    Word("pieces", "micro_batches", "^labs/datasets/low_discrepancy"), Word("Place", "Beat"),
    Word("places?", "path, index, position or heartbeats"),
    Word("rates?", "images_per_sec, throughput", r"(?i)learning|dropout|schedule|optimizers"),
    Word("said", "output or message"), Word("spell(?:ed)?", "to_argv"),
    Word("store", "results_root"), Word("supply", "input_rate"), Word("told", "message"),
    Word("Watch", "Heartbeat"), Word("watch", "heartbeat", r"tape\.watch"),
]
"""Names in Python code: variables, arguments, attributes, functions, classes."""

PHRASES = [
    # Inverted and translated phrases.
    Word("whence", "from which"), Word("for want of", "because there is no, or out of"), Word("anew", "again"),
    Word("be (?:it|they)(?: good| bad)?(?= )", "whether", r"(?:can|may|must|will|should|could|would) be (?:it|they)"),
    Word("hangs? on", "depends on"), Word("(?:no|any)body(?:'s)?", "no one, anyone, or the passive"),
    Word("played", "simulated"), Word("that (?:is|are) none", "not a", "strong scaling that is none"),
    Word("(?:that|which) (?:is|are) no(?= (?:number|crash|regular|record|folder))", "that is not a"),
    Word("so many", "that many, or the number of", "so many that"),
    Word("of (?:its|their|one's) own", "its own, or separate"),
    Word("(?:is|are|was|were|been|be) told(?! apart| from)", "is reported, or gets"),
    Word("who is where|tells? who", "the name of the owner, or where each worker is"),
    Word("without a word", "silently, or printed nothing"), Word("and no crash", "not a crash"),
    Word("cheap moment", "cheapest"), Word("dealt out", "divided, or padded"), Word("is the reason for", "because of"),
    Word("the surer", "the likelier"), Word("flatters?", "is biased upwards"), Word("gradients travel", "exchange"),
    Word("what is compared with what|whatever was divided", "the baseline"), Word("the input among them", "including"),
    # Words of the private language.
    Word("stand-?ins?", "synthetic data"), Word("drawn", "synthetic, or plotted", "MATLAB 5.0 MAT-file"),
    Word("rooms?", "package, or space"), Word("claims?", "lock, or says"), Word("whole or not", "atomic"),
    Word("durabl[ey]", "atomic"),
    Word("(?:results|whole|the|a|one|every|its|their|another) stores?", "results folder"),
    Word("(?:its|the|a) (?:config(?:'s)? )?mark(?= of)", "config hash"), Word("meeting", "rendezvous"),
    Word("the report (?:has|had|says|said|measured|states)|the report's (?:figure|table|number)s?", "report F, M"),
    Word("must and aim|musts|aims", "required, targets"), Word("arms", "contenders"),
    Word("images/s rate|rate\\(n\\)|rate of (?:one|a) worker", "throughput", "(?i)learning rate of"),
]
"""Words and phrases of docstrings, comments, messages and pages."""


class Line(NamedTuple):
    """A line of a file: where it is, its text, the prose in it, and the names of its code."""

    path: str
    number: int
    text: str
    prose: str
    names: frozenset[str]


@functools.cache
def lines() -> list[Line]:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))
             if path.suffix in SUFFIXES and path != Path(__file__)]
    return [line for path in [*paths, *(ROOT / page for page in PAGES)] for line in read(path)]


def read(path: Path) -> Iterator[Line]:
    """Yield the lines of a file: of a notebook its code, of CONTRIBUTING not the last column of the table of names."""
    name, text = str(path.relative_to(ROOT)), path.read_text()
    if name == "CONTRIBUTING.md":
        text = re.sub(r"\|[^|\n]*\|$", "|", text, flags=re.MULTILINE)
    if path.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
    prose, names = parse(text) if path.suffix in (".py", ".ipynb") else (dict(enumerate(text.splitlines(), 1)), {})
    for number, line in enumerate(text.splitlines(), 1):
        yield Line(name, number, line, prose.get(number, ""), frozenset(names.get(number, ())))


def parse(program: str) -> tuple[dict[int, str], dict[int, set[str]]]:
    """Return a Python program's texts and comments, and its names, by line."""
    prose: dict[int, str] = {}
    names: dict[int, set[str]] = {}
    for token in tokenize.generate_tokens(io.StringIO(program).readline):
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            names.setdefault(token.start[0], set()).add(token.string)
        elif token.type in (tokenize.STRING, tokenize.COMMENT):
            for number, text in enumerate(token.string.splitlines(), token.start[0]):
                prose[number] = f"{prose.get(number, '')} {text}"
    return prose, names


def uses(word: Word, of_names: bool) -> list[str]:
    """Return the lines that still have a word."""
    pattern = re.compile(rf"\b(?:{word.pattern})\b", 0 if of_names else re.IGNORECASE)
    return [f"{line.path}:{line.number}: {line.text.strip()[:120]}" for line in lines()
            if (any(map(pattern.fullmatch, line.names)) if of_names else pattern.search(line.prose))
            and not re.search(word.allowed, f"{line.path}: {line.text}")]


def test_the_files_are_read():
    assert len({line.path for line in lines()}) > 150
    assert any("read_beats" in line.names for line in lines())
    assert any("heartbeat" in line.prose for line in lines())


@pytest.mark.parametrize("word", NAMES, ids=lambda word: word.pattern)
def test_a_name_has_left(word):
    left = uses(word, of_names=True)
    assert not left, f"use {word.instead}:\n" + "\n".join(left)


@pytest.mark.parametrize("word", PHRASES, ids=lambda word: word.pattern)
def test_a_phrase_has_left(word):
    left = uses(word, of_names=False)
    assert not left, f"use {word.instead}:\n" + "\n".join(left)


@pytest.mark.parametrize(("old", "new"), MODULES.items())
def test_a_module_is_called_by_its_new_name(old, new):
    package, _, name = f"labs.{old}".rpartition(".")
    path = rf"\b{re.escape(f'labs.{old}')}\b|labs/{old.replace('.', '/')}\.py"
    import_ = rf"from {re.escape(package)} import (?:[\w ]+, )*{name}\b(?! as _)"
    pattern = re.compile(f"{path}|{import_}")
    left = [f"{line.path}:{line.number}: {line.text.strip()}" for line in lines() if pattern.search(line.text)]
    assert not left, f"use labs.{new}:\n" + "\n".join(left)
