"""The nodes that mpirun will use: those of Slurm's allocation, or of the host file that mpirun's variables name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from labs.run import allocation, atomic, paths, resources
from labs.run.errors import LabError

VARIABLES = ("PRTE_MCA_prte_default_hostfile", "PRTE_MCA_default_hostfile", "OMPI_MCA_orte_default_hostfile")
"""Where Open MPI 5 and 4 look for the default host file."""


_BLANK = r"[ \t\f\v]*"
_SLOTS = "(?:slots|cpu|count)"
_MOST = rf"(?:max[_-]{_SLOTS}|{_SLOTS}[_-]max)"
_COMMENT = re.compile(r"(?s:/\*.*?\*/)|#.*|//.*")
_LINE = re.compile(rf"{_BLANK}(?:[\w-]+@)?([\w.-]+|(?:[0-9A-Fa-f]*:){{2,}}[0-9A-Fa-f]+)"
                   rf"((?:[ \t\f\v]+(?:(?:{_SLOTS}|{_MOST}|port){_BLANK}={_BLANK}\d+"
                   rf"|user[_-]?name{_BLANK}={_BLANK}[\w-]+))*){_BLANK}", re.ASCII)


def slots(environ: Mapping[str, str] = os.environ) -> dict[str, int]:
    """Return how many workers mpirun's host file allows on each node; empty if no variable names such a file.

    Raises:
        LabError: The file cannot be read, or has a line that mpirun refuses.
    """
    variable = next((name for name in VARIABLES if name in environ), None)
    if variable is None:
        return {}
    file = environ[variable]
    try:
        text = atomic.read_text(paths.named(file, variable))  # Comments may be in any encoding.
    except OSError as problem:
        raise LabError(f"{variable} names {file}: {problem.strerror}; unset it, or name a host file") from None
    counts: dict[str, int] = {}
    given: set[str] = set()
    for number, line in enumerate(_COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text).split("\n"), 1):
        if line.strip(" \t\f\v"):
            try:
                _add(line, counts, given)
            except ValueError as problem:
                raise LabError(f"{file}, line {number}: {problem}; write HOST slots=N, once per host") from None
    # mpirun counts the cores of a host without slots: here those of this machine, as nodes are mostly equal.
    return {host: count if host in given else resources.cores() for host, count in counts.items()}


def _add(line: str, counts: dict[str, int], given: set[str]) -> None:
    """Add a line's host: a host that is listed again has one slot more, and `max_slots` alone is the number of slots.

    Raises:
        ValueError: mpirun refuses the line.
    """
    match = _LINE.fullmatch(line)
    if not match:
        raise ValueError(f"mpirun cannot read {line!r}")
    host = match[1] if re.fullmatch(r"[\d.]+", match[1]) else match[1].partition(".")[0]  # The domain does not count.
    counts[host], again = counts.get(host, 0) + 1, host in counts
    given |= {host} if again else set()
    slots, most = (re.findall(rf"[ \t\f\v]{name}{_BLANK}={_BLANK}(\d+)", match[2]) for name in (_SLOTS, _MOST))
    if len(slots) > 1 or (slots and again):
        raise ValueError(f"mpirun refuses {line!r}, a second number of slots for {host}")
    if slots or (most and not again):
        counts[host] = int((slots or most)[-1])
        given.add(host)


def nodes() -> int:
    """Return the number of nodes over which mpirun may spread the workers."""
    granted = allocation.current()
    return granted.nodes if granted else len(slots()) or 1
