"""A job that somebody is about to submit, read as sbatch reads it. Imports no TensorFlow and runs no command.

The command line goes before the environment (SBATCH_*), and that before the file's #SBATCH lines.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labs.run.errors import LabError
from labs.slurm import site

# sbatch's options that take a value: with them the job file is found behind them.
SHORT = {
    "account": "A", "array": "a", "begin": "b", "chdir": "D", "clusters": "M", "constraint": "C", "core-spec": "S",
    "cpus-per-task": "c", "dependency": "d", "distribution": "m", "error": "e", "exclude": "x",
    "extra-node-info": "B", "gpus": "G", "input": "i", "job-name": "J", "licenses": "L", "nodefile": "F",
    "nodelist": "w", "nodes": "N", "ntasks": "n", "output": "o", "partition": "p", "qos": "q", "time": "t",
}
VALUED = {*SHORT, *re.findall(r"\S+", """
    acctg-freq batch bb bbf cluster-constraint comment container cores-per-socket cpu-freq cpus-per-gpu deadline
    delay-boot export export-file gid gpu-bind gpu-freq gpus-per-node gpus-per-socket gpus-per-task gres gres-flags
    hint kill-on-invalid-dep mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network
    ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode power prefer priority profile
    reservation signal sockets-per-node switches thread-spec threads-per-core time-min tmp tres-per-task uid
    wait-all-nodes wckey wrap""")}
FLAGS = {
    "contiguous": "", "exclusive": "", "get-user-env": "", "help": "h", "hold": "H", "ignore-pbs": "", "nice": "",
    "no-kill": "k", "no-requeue": "", "overcommit": "O", "oversubscribe": "s", "parsable": "", "propagate": "",
    "quiet": "Q", "reboot": "", "requeue": "", "spread-job": "", "test-only": "", "usage": "", "use-min-nodes": "",
    "verbose": "v", "version": "V", "wait": "W",
}
LONG = {letter: name for name, letter in {**SHORT, **FLAGS}.items() if letter}
ENVIRONMENT = {
    "SBATCH_ACCOUNT": "account", "SBATCH_ARRAY_INX": "array", "SBATCH_ERROR": "error", "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node", "SBATCH_GPUS_PER_TASK": "gpus-per-task", "SBATCH_GRES": "gres",
    "SBATCH_JOB_NAME": "job-name", "SBATCH_MEM_PER_CPU": "mem-per-cpu", "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_OUTPUT": "output", "SBATCH_PARTITION": "partition", "SBATCH_TIMELIMIT": "time",
}
MARK = "#SBATCH"
UNITS = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}


@dataclass(frozen=True)
class Setting:
    """The value of an option, and where it was set."""

    value: str
    source: str


@dataclass(frozen=True)
class Request:
    """A job that somebody is about to submit."""

    file: Path | None
    settings: Mapping[str, Setting]
    words: tuple[str, ...]
    """What stands behind the file: the lab's own options."""

    def get(self, name: str, default: str = "") -> str:
        """Return the value of an option."""
        return self.settings[name].value if name in self.settings else default

    def told(self, name: str) -> str:
        """Return an option as a student wrote it, with where: what to change."""
        setting = self.settings.get(name, Setting("1", "sbatch's default"))
        return f"--{name}={setting.value} ({setting.source})"

    def number(self, name: str, default: int) -> int:
        """Return an option's whole number; what sbatch cannot read itself it will say itself."""
        match = re.match(r"(\d+)([kKmM]?)", self.get(name))
        return int(match[1]) * {"": 1, "k": 1024, "m": 1024**2}[match[2].lower()] if match else default

    @property
    def nodes(self) -> int:
        """The fewest nodes that it can run on; without --nodes Slurm takes as few as it can."""
        return self.number("nodes", 1)

    @property
    def spread(self) -> bool:
        """Whether Slurm chooses how many tasks a node gets: a number of tasks without a number of nodes."""
        return "ntasks" in self.settings and "nodes" not in self.settings

    @property
    def tasks_per_node(self) -> int:
        """Tasks, which are workers, on each node: the fewest, where Slurm chooses."""
        if self.spread:
            return 1
        if "ntasks" in self.settings:  # Goes before --ntasks-per-node, which then is only the most.
            share = -(-self.number("ntasks", 1) // self.nodes)
            return min(share, self.number("ntasks-per-node", share))
        if "ntasks-per-gpu" in self.settings and self.gpu_option != "gpus-per-task":
            return self.number("ntasks-per-gpu", 1) * self.gpus_per_node
        return self.number("ntasks-per-node", 1)

    @property
    def gpu_option(self) -> str:
        """The option that asks for GPUs, or an empty string."""
        names = ("gpus-per-node", "gpus-per-task", "gpus")
        named = next((name for name in names if name in self.settings), "")
        return named or ("gres" if site.gpus(self.get("gres")) else "")

    @property
    def gpus_per_node(self) -> int:
        """GPUs on each node."""
        name = self.gpu_option
        if name == "gres":
            return site.gpus(self.get(name))
        count = _typed(self.get(name)) if name else 0
        if name == "gpus":
            return -(-count // self.nodes)
        return count * self.tasks_per_node if name == "gpus-per-task" else count

    @property
    def cpus_per_node(self) -> int:
        """CPUs on each node."""
        return self.tasks_per_node * self.number("cpus-per-task", 1)

    @property
    def memory_mb(self) -> float:
        """MiB on each node; 0: what the site gives."""
        if "mem" in self.settings:
            return _megabytes(self.get("mem"))
        return _megabytes(self.get("mem-per-cpu", "0")) * self.cpus_per_node

    @property
    def limit(self) -> float | None:
        """The time limit in seconds; None: the partition's, or one that cannot be read."""
        try:
            return site.seconds(self.get("time"))
        except ValueError:
            return None


def read(words: Sequence[str], environ: Mapping[str, str] = os.environ) -> Request:
    """Return what `sbatch WORDS` asks for.

    Raises:
        LabError: The file is not there, or is none for sbatch.
    """
    asked, rest = options(words)
    file = Path(rest[0]) if rest and "wrap" not in asked else None
    if file is None and "wrap" not in asked:
        raise LabError("no job file to look at; type what you would type behind sbatch: "
                       "labs queue --check -N 2 jobs/lab10_caltech.sh")
    in_file = {name: Setting(value, file.name) for name, value in options(directives(file))[0].items()} if file else {}
    outside = {name: Setting(environ[variable], variable)
               for variable, name in ENVIRONMENT.items() if variable in environ}
    typed = {name: Setting(value, "command line") for name, value in asked.items()}
    return Request(file, {**in_file, **outside, **typed}, tuple(rest[1:]) if file else ())


def options(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split sbatch's words into its options, by long name, and what stands behind them."""
    found, left = {}, list(words)
    while left and left[0].startswith("-") and left[0] != "-":
        word = left.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
            name = _whole(name)
        else:
            name, value = LONG.get(word[1], word[1]), word[2:]
            given = value
            if value and name not in VALUED:  # Several flags behind one dash.
                left.insert(0, f"-{value}")
        if name in VALUED and not given:
            value = left.pop(0) if left else ""
        found[name] = value
    return found, left


def _whole(name: str) -> str:
    """Return the long option that a beginning stands for, as getopt does."""
    matches = [each for each in sorted({*VALUED, *FLAGS}) if each.startswith(name)]
    return matches[0] if len(matches) == 1 else name


def directives(file: Path) -> list[str]:
    """Return the words of a file's #SBATCH lines; sbatch reads them up to the first command.

    Raises:
        LabError: The file cannot be read, or is no script.
    """
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError as problem:
        raise LabError(f"cannot read the job file {file}: {problem.strerror}; sbatch's options stand before it, "
                       "the lab's behind it") from None
    if not lines or not lines[0].startswith("#!"):
        raise LabError(f"{file} is no script: its first line must be #!/bin/bash")
    return [word for line in header(lines) for word in shlex.split(line.removeprefix(MARK), comments=True)]


def header(lines: Sequence[str]) -> list[str]:
    """Return the #SBATCH lines that sbatch reads."""
    head = itertools.takewhile(lambda line: line.startswith("#") or not line.strip(), lines)
    return [line for line in head if line.startswith(MARK)]


def _megabytes(text: str) -> float:
    """Return sbatch's memory in MiB: "4G" is 4096."""
    match = re.fullmatch(r"(\d+)([KMGT]?)B?", text.upper())
    return int(match[1]) * UNITS[match[2] or "M"] if match else 0


def _typed(text: str) -> int:
    """Return the number of GPUs in "4", "a100:4" or "a100:2,v100:2"."""
    return sum(int(part.rpartition(":")[2]) for part in text.split(",") if part.rpartition(":")[2].isdigit())
