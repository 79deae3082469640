"""Environment variables that break a run, slow it down, or falsify what it measures."""

from __future__ import annotations

import os
import re
from pathlib import Path

from labs.run.environment import RULES, Rule, harmful
from labs.run.paths import ROOT
from labs.tools.check.findings import Finding, ok


def _sites() -> list[str]:
    return sorted(path.stem for path in (ROOT / "jobs" / "sites").glob("*.sh"))


OUTSIDE_A_RUN = [
    Rule("REQUESTS_CA_BUNDLE", "warn", "is not a file: `labs data fetch` trusts no server",
         lambda value: bool(value) and not Path(value).exists()),
    Rule("LABS_SITE", "fail", "names no file in jobs/sites: every job stops",
         lambda value: bool(value) and value not in _sites()),
    Rule("LABS_LAUNCHER", "fail", "is not a launcher (mpirun, srun): every job stops",
         lambda value: value not in ("", "mpirun", "srun")),
]
"""Variables that only downloads and the job files in jobs/ read."""


def variables() -> Finding | list[Finding]:
    """Return a finding for each harmful variable."""
    findings = [Finding(rule.state, f"={value} {rule.cause}", f"unset {rule.name}", rule.name)
                for rule, value in harmful(RULES + OUTSIDE_A_RUN)]
    if names := _of_a_run():
        left = "is left over from inside a run: a notebook's only worker would wait for others"
        findings.append(Finding("fail", left, f"unset {' '.join(names)}", names[0]))
    return findings or ok("none is known to break or slow down a run")


def cure(*prefixes: str) -> str:
    """Return the command that unsets variables that break a run, or an empty string.

    Args:
        prefixes: Beginnings of the names of variables that can be the reason.
    """
    findings = variables()
    return "; ".join(each.cure for each in (findings if isinstance(findings, list) else [])
                     if each.state == "fail" and each.name.startswith(prefixes))


def without(*names: str) -> str:
    """Return the command that unsets those of the variables that are set, or an empty string."""
    present = [name for name in names if os.environ.get(name)]
    return f"unset {' '.join(present)}" if present else ""


def _of_a_run() -> list[str]:
    """Return the variables that make a process act as a worker of a run; in a job, Slurm may set some of them."""
    from labs.launch import mpirun

    names = sorted(name for name in os.environ if mpirun.INSIDE.match(name))
    from_slurm = "SLURM_JOB_ID" in os.environ and all(re.match("PMIX_", name) for name in names)
    return [] if from_slurm else names
