"""Slurm's commands, run as a student would type them. Imports no TensorFlow."""

import os
import re
import subprocess
from pathlib import Path

from labs.run.errors import LabError

CURE = ("run this on a cluster's login node, or on one inside this machine: labs cluster up --slurm, then "
        "labs cluster shell -- labs queue")


class NoSlurmError(LabError):
    """This machine has no Slurm, or no cluster is set up."""


def run(*command: str, timeout: float = 60) -> tuple[int, str, str]:
    """Run one of Slurm's commands and return its exit code, output and error output."""
    if (conf := os.environ.get("SLURM_CONF")) and not Path(conf).is_file():  # Slurm would wait a minute for it.
        raise NoSlurmError(f"no Slurm cluster is set up here (SLURM_CONF={conf}); {CURE}")
    # A student's own settings for squeue and sinfo would change the columns that are read here.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SQUEUE_", "SINFO_"))}
    try:
        done = subprocess.run(command, env=env | {"SLURM_TIME_FORMAT": "standard"}, capture_output=True, text=True,
                              check=False, timeout=timeout, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise NoSlurmError(f"no {command[0]} on the PATH: this machine has no Slurm; {CURE}") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"{command[0]} has not answered for {timeout:.0f} s: Slurm is down or busy") from None
    if re.search(r"Could not establish a configuration|Unable to process configuration", done.stderr):
        raise NoSlurmError(f"no Slurm cluster is set up here (there is no slurm.conf); {CURE}")
    return done.returncode, done.stdout, done.stderr


def rows(*command: str) -> list[list[str]]:
    """Return the lines that one of Slurm's commands prints, each split at |; Slurm's last line if it refused."""
    code, out, errors = run(*command)
    if code:
        finished = "; finished jobs: sacct, or labs results" * (command[0] == "squeue")
        raise LabError(f"{command[0]} refused: {(errors.strip() or 'no reason given').splitlines()[-1]}{finished}")
    return [line.split("|") for line in out.splitlines()]
