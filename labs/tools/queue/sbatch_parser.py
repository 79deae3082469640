"""Reads a job that is about to be submitted as sbatch reads it. Imports no TensorFlow and runs no command.

The command line overrides the environment (SBATCH_*), which overrides the file's #SBATCH lines.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labs.run import allocation, atomic, slurm
from labs.run.errors import LabError, quoted
from labs.tools.queue import site

# sbatch's options that take a value; to find the job file, the parser must know them all.
SHORT = {
    "account": "A", "array": "a", "begin": "b", "chdir": "D", "clusters": "M", "constraint": "C", "core-spec": "S",
    "cpus-per-task": "c", "dependency": "d", "distribution": "m", "error": "e", "exclude": "x",
    "extra-node-info": "B", "gpus": "G", "input": "i", "job-name": "J", "licenses": "L", "nodefile": "F",
    "nodelist": "w", "nodes": "N", "ntasks": "n", "output": "o", "partition": "p", "qos": "q", "time": "t",
}
LONG = {letter: name for name, letter in SHORT.items()}
VALUED = {*SHORT, *re.findall(r"\S+", """
    acctg-freq batch bb bbf cluster-constraint comment container cores-per-socket cpu-freq cpus-per-gpu deadline
    delay-boot export export-file gid gpu-bind gpu-freq gpus-per-node gpus-per-socket gpus-per-task gres gres-flags
    hint kill-on-invalid-dep mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network
    ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode power prefer priority profile
    reservation signal sockets-per-node switches thread-spec threads-per-core time-min tmp tres-per-task uid
    wait-all-nodes wckey wrap""")}
ENVIRONMENT = {
    "SBATCH_ACCOUNT": "account", "SBATCH_ARRAY_INX": "array", "SBATCH_ERROR": "error", "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node", "SBATCH_GPUS_PER_TASK": "gpus-per-task", "SBATCH_GRES": "gres",
    "SBATCH_JOB_NAME": "job-name", "SBATCH_MEM_PER_CPU": "mem-per-cpu", "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_OUTPUT": "output", "SBATCH_PARTITION": "partition", "SBATCH_TIMELIMIT": "time",
}
DIRECTIVE = "#SBATCH"
UNITS = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}


@dataclass(frozen=True)
class Setting:
    """The value of an option, and where it was set."""

    value: str
    source: str


@dataclass(frozen=True)
class Request:
    """What a job asks for."""

    file: Path | None
    settings: Mapping[str, Setting]
    lab_args: tuple[str, ...]
    """What follows the job file: the lab's options."""

    def get(self, name: str, default: str = "") -> str:
        """Return the value of an option."""
        return self.settings[name].value if name in self.settings else default

    def describe(self, name: str) -> str:
        """Return an option with its value and its source, so that a student knows what to change."""
        setting = self.settings.get(name, Setting("1", "sbatch's default"))
        return f"--{name}={setting.value} ({setting.source})"

    def number(self, name: str, default: int) -> int:
        """Return an option's whole number; sbatch itself reports a malformed one."""
        match = re.match(r"[0-9]{1,9}", self.get(name))
        return int(match[0]) if match else default

    @property
    def nodes(self) -> int:
        """The smallest number of nodes; without --nodes Slurm takes as few as it can."""
        return max(1, self.number("nodes", 1))

    @property
    def spread(self) -> bool:
        """Whether Slurm chooses how many tasks a node gets: a number of tasks without a number of nodes."""
        return "ntasks" in self.settings and "nodes" not in self.settings

    @property
    def tasks_per_node(self) -> int:
        """Tasks, which are workers, on each node; the smallest number if Slurm chooses."""
        if self.spread:
            return 1
        if "ntasks" in self.settings:  # Overrides --ntasks-per-node, which then is an upper bound.
            share = -(-self.number("ntasks", 1) // self.nodes)
            return min(share, self.number("ntasks-per-node", share))
        if "ntasks-per-gpu" in self.settings and self.gpu_option != "gpus-per-task":
            return self.number("ntasks-per-gpu", 1) * self.gpus_per_node
        return self.number("ntasks-per-node", 1)

    @property
    def gpu_option(self) -> str:
        """The option that requests GPUs, or an empty string."""
        names = ("gpus-per-node", "gpus-per-task", "gpus")
        option = next((name for name in names if name in self.settings), "")
        return option or ("gres" if slurm.gpus(self.get("gres")) else "")

    @property
    def gpus_per_node(self) -> int:
        """GPUs on each node."""
        name = self.gpu_option
        if name == "gres":
            return slurm.gpus(self.get(name))
        count = allocation.typed_gpus(self.get(name))
        if name == "gpus":
            return -(-count // self.nodes)
        return count * self.tasks_per_node if name == "gpus-per-task" else count

    @property
    def cpus_per_node(self) -> int:
        """CPUs on each node."""
        return self.tasks_per_node * self.number("cpus-per-task", 1)

    @property
    def memory_mb(self) -> float:
        """MiB on each node; 0: the site's default."""
        if "mem" in self.settings:
            return _megabytes(self.get("mem"))
        return _megabytes(self.get("mem-per-cpu", "0")) * self.cpus_per_node

    @property
    def limit(self) -> float | None:
        """The time limit in seconds; None: the partition's, or a malformed one."""
        try:
            return site.seconds(self.get("time"))
        except ValueError:
            return None


def read(args: Sequence[str], environ: Mapping[str, str] = os.environ, source: str = "command line") -> Request:
    """Return what `sbatch ARGS` asks for.

    Args:
        args: What follows `sbatch`.
        environ: The environment variables.
        source: Where the arguments were found.

    Raises:
        LabError: The job file does not exist, or is not a script.
    """
    typed, rest = split_options(args)
    file = Path(rest[0]) if rest and "wrap" not in typed else None
    if file is None and "wrap" not in typed:
        raise LabError("no job file to check; type what you would type after sbatch: "
                       "labs queue --check -N 2 jobs/lab10_caltech.sh")
    in_file = split_options(directives(file))[0] if file else {}
    settings = {name: Setting(value, file.name) for name, value in in_file.items() if file}
    settings |= {name: Setting(environ[variable], variable)
                 for variable, name in ENVIRONMENT.items() if variable in environ}
    settings |= {name: Setting(value, source) for name, value in typed.items()}
    return Request(file, settings, tuple(rest[1:]) if file else ())


def split_options(args: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split sbatch's arguments into options, by long name, and the rest from the job file on."""
    options, rest = {}, list(args)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, has_value, value = word[2:].partition("=")
        else:
            name, value = LONG.get(word[1], word[1]), word[2:]
            has_value = value
        if name in VALUED and not has_value:
            value = rest.pop(0) if rest else ""
        options[name] = value
    return options, rest


def directives(file: Path) -> list[str]:
    """Return the words of a file's #SBATCH lines; sbatch reads them up to the first command.

    Raises:
        LabError: The file cannot be read, or is not a script.
    """
    try:
        lines = atomic.read_text(file).splitlines()
    except OSError as problem:
        raise LabError(f"cannot read the job file {quoted(str(file))}: {problem.strerror}; sbatch's options come "
                       "before it, the lab's after it") from None
    if not lines or not lines[0].startswith("#!"):
        raise LabError(f"{file} is not a script: its first line must be #!/bin/bash")
    words = []
    for line in header(lines):
        try:
            words += shlex.split(line.removeprefix(DIRECTIVE), comments=True)
        except ValueError as problem:  # "No closing quotation", "No escaped character".
            raise LabError(f"{file}: {quoted(line)}: {str(problem).lower()}; complete the quoted or escaped text on "
                           "the same line") from None
    return words


def header(lines: Sequence[str]) -> list[str]:
    """Return the #SBATCH lines that sbatch reads."""
    head = itertools.takewhile(lambda line: line.startswith("#") or not line.strip(), lines)
    return [line for line in head if line.startswith(DIRECTIVE)]


def _megabytes(text: str) -> float:
    """Return sbatch's memory in MiB: "4G" is 4096."""
    match = re.fullmatch(r"([0-9]{1,15})([KMGT]?)B?", text.upper())
    return int(match[1]) * UNITS[match[2] or "M"] if match else 0
