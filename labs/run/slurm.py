"""Slurm's commands, run as a student would type them. Imports no TensorFlow."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from labs.run.errors import LabError

CURE = ("run this on a cluster's login node, or on one inside this machine: labs cluster up --slurm, then "
        "labs cluster shell -- labs queue")


class NoSlurmError(LabError):
    """This machine has no Slurm, or no cluster is set up."""


def run(*command: str, timeout: float = 60, cwd: Path | None = None) -> tuple[int, str, str]:
    """Run one of Slurm's commands and return its exit code, output and error output.

    Raises:
        NoSlurmError: This machine has no Slurm or no cluster.
        LabError: Slurm does not answer.
    """
    conf = os.environ.get("SLURM_CONF")
    nowhere = f"no Slurm cluster is set up here ({f'SLURM_CONF={conf}' if conf else 'there is no slurm.conf'}); {CURE}"
    if conf and not Path(conf).is_file():  # Slurm would wait a minute for it.
        raise NoSlurmError(nowhere)
    # A student's own settings for squeue and sinfo would change the columns that are read here.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SQUEUE_", "SINFO_"))}
    try:
        done = subprocess.run(command, env=env | {"SLURM_TIME_FORMAT": "standard"}, cwd=cwd, capture_output=True,
                              text=True, check=False, timeout=timeout, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise NoSlurmError(f"no {command[0]} on the PATH: this machine has no Slurm; {CURE}") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"{command[0]} has not answered for {timeout:.0f} s: Slurm is down or busy; "
                       "try again later") from None
    if re.search(r"Could not establish a configuration|Unable to process configuration", done.stderr):
        raise NoSlurmError(nowhere)
    if re.search(r"Unable to contact slurm|Connection refused", done.stderr):
        raise LabError(f"Slurm does not answer ({done.stderr.strip().splitlines()[-1]}); try again on the login node")
    return done.returncode, done.stdout, done.stderr


def rows(*command: str) -> list[list[str]]:
    """Return the lines that one of Slurm's commands prints, each split at |.

    Raises:
        LabError: The command cannot be run (see `run`), or Slurm refused; the message is Slurm's last line.
    """
    code, out, errors = run(*command)
    if code:
        finished = "; finished jobs: sacct, or labs results" * (command[0] == "squeue")
        raise LabError(f"{command[0]} refused: {(errors.strip() or 'no reason given').splitlines()[-1]}{finished}")
    return [line.split("|") for line in out.splitlines()]
