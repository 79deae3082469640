"""Environment variables that are known to break a run, to slow it, or to falsify what it measures."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from labs.checks.findings import Finding, ok
from labs.run.fast import NUMBERS
from labs.run.paths import ROOT


@dataclass(frozen=True)
class Rule:
    """A variable, and which of its values do harm."""

    name: str
    state: str
    cause: str
    """What it does, behind NAME=value."""
    wrong: Callable[[str], bool]


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0


def _true(value: str) -> bool:
    return value.lower() in ("1", "true", "yes", "on")


def _lacks_plot_backend(name: str) -> bool:
    try:
        from matplotlib import rcsetup

        rcsetup.validate_backend(name)
    except ValueError:
        return True
    except ImportError:  # Told by `packages`.
        pass
    return False


def _sites() -> list[str]:
    return sorted(path.stem for path in (ROOT / "jobs" / "sites").glob("*.sh"))


def _differs(pattern: str, value: str) -> bool:
    return bool(value) and not re.fullmatch(pattern, value)


RULES = [
    Rule("TF_USE_LEGACY_KERAS", "fail", "has TensorFlow ask for the package tf_keras, which is not the labs' Keras",
         lambda value: value in ("1", "true", "True")),
    Rule("PYTHONWARNINGS", "fail", "makes errors of warnings, which TensorFlow gives when it loads",
         lambda value: "error" in value),
    Rule("PYTHONOPTIMIZE", "fail", "drops docstrings, without which TensorFlow does not load",
         lambda value: _number(value) >= 2),
    Rule("PYTHONDONTWRITEBYTECODE", "warn", "has every start compile TensorFlow's Python code anew, for 12 s", bool),
    Rule("MPLBACKEND", "fail", "is a plot backend that matplotlib does not have",
         lambda value: bool(value) and _lacks_plot_backend(value)),
    Rule("HOROVOD_CPU_OPERATIONS", "fail", "crashes workers that meet over MPI (the labs that can: --backend gloo)",
         lambda value: value.lower() == "gloo"),
    Rule("HOROVOD_CYCLE_TIME", "warn", "has every message wait for so many milliseconds (Horovod's own: 1)",
         lambda value: _number(value) > 10),
    *(Rule(name, "fail", "is no plain number: every run stops",
           functools.partial(_differs, plain)) for name, plain in NUMBERS.items()),
    Rule("HOROVOD_TIMELINE", "warn", "has every run write all its messages into one file (one run: --timeline)",
         bool),
    Rule("HOROVOD_AUTOTUNE", "warn", "changes Horovod's settings while a run is measured", _true),
    Rule("HOROVOD_STALL_CHECK_DISABLE", "warn", "lets workers wait for ever for one that never came", _true),
    Rule("REQUESTS_CA_BUNDLE", "warn", "is no file: `labs data fetch` trusts no server",
         lambda value: bool(value) and not Path(value).exists()),
    Rule("LABS_SITE", "fail", "names no file of jobs/sites: every job stops",
         lambda value: bool(value) and value not in _sites()),
    Rule("LABS_LAUNCHER", "fail", "is no launcher: every job stops (mpirun, srun)",
         lambda value: value not in ("", "mpirun", "srun")),
]


def variables() -> Finding | list[Finding]:
    """Look for all of them: a line for each that does harm."""
    harmful = [Finding(rule.state, f"={os.environ[rule.name]} {rule.cause}", f"unset {rule.name}", rule.name)
               for rule in RULES if rule.wrong(os.environ.get(rule.name, ""))]
    if names := _of_a_run():
        harmful.append(Finding("fail", "is left from inside a run: a notebook's only worker would wait for the others",
                               f"unset {' '.join(names)}", names[0]))
    return harmful or ok("none that is known to break or to slow a run")


def cure(*prefixes: str) -> str:
    """Return what unsets the variables that break something, or "": what they break is no fault of its own.

    Args:
        prefixes: How the names begin that can be the reason.
    """
    found = variables()
    return "; ".join(each.cure for each in (found if isinstance(found, list) else [])
                     if each.state == "fail" and each.name.startswith(prefixes))


def without(*names: str) -> str:
    """Return what unsets those of some variables that are set, or ""."""
    there = [name for name in names if os.environ.get(name)]
    return f"unset {' '.join(there)}" if there else ""


def _of_a_run() -> list[str]:
    """Return the variables by which a process takes itself for a worker; in a job Slurm sets some of them rightly."""
    from labs.launch import mpirun

    names = sorted(name for name in os.environ if mpirun.INSIDE.match(name))
    right = "SLURM_JOB_ID" in os.environ and all(re.match("PMIX_", name) for name in names)
    return [] if right else names
