"""Environment variables that break a run, slow it down, or falsify what it measures."""

from __future__ import annotations

import functools
import importlib.util
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
    """A variable, and which of its values are harmful."""

    name: str
    state: str
    cause: str
    """What it does; follows NAME=value in the line."""
    wrong: Callable[[str], bool]


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0


def _true(value: str) -> bool:
    return value.lower() in ("1", "true", "yes", "on")


def legacy_keras() -> bool:
    """Return whether TensorFlow loads Keras 2 from the package tf_keras, as in NVIDIA's containers."""
    return os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")


def _sites() -> list[str]:
    return sorted(path.stem for path in (ROOT / "jobs" / "sites").glob("*.sh"))


def _differs(pattern: str, value: str) -> bool:
    return bool(value) and not re.fullmatch(pattern, value)


RULES = [
    Rule("TF_USE_LEGACY_KERAS", "fail", "makes TensorFlow load the package tf_keras, which is not installed",
         lambda value: legacy_keras() and not importlib.util.find_spec("tf_keras")),
    Rule("KERAS_BACKEND", "fail", "makes Keras compute with another library than TensorFlow",
         lambda value: value not in ("", "tensorflow")),
    Rule("PYTHONWARNINGS", "fail", "turns warnings into errors, and TensorFlow warns when it loads",
         lambda value: "error" in value),
    Rule("PYTHONOPTIMIZE", "fail", "removes docstrings, without which TensorFlow does not load",
         lambda value: _number(value) >= 2),
    Rule("PYTHONDONTWRITEBYTECODE", "warn", "makes every start compile TensorFlow's Python code again, for 12 s", bool),
    Rule("HOROVOD_CPU_OPERATIONS", "fail", "crashes workers that are connected by MPI (some labs have --backend gloo)",
         lambda value: value.lower() == "gloo"),
    Rule("HOROVOD_CYCLE_TIME", "warn", "delays every message by that many milliseconds (Horovod's default: 1)",
         lambda value: _number(value) > 10),
    *(Rule(name, "fail", "is not a plain number: every run stops",
           functools.partial(_differs, plain)) for name, plain in NUMBERS.items()),
    Rule("HOROVOD_TIMELINE", "warn", "makes every run write all its messages into one file (for one run: "
         "--timeline)",
         bool),
    Rule("HOROVOD_AUTOTUNE", "warn", "changes Horovod's settings while a run is measured", _true),
    Rule("HOROVOD_STALL_CHECK_DISABLE", "warn", "lets workers wait forever for one that never came", _true),
    Rule("REQUESTS_CA_BUNDLE", "warn", "is not a file: `labs data fetch` trusts no server",
         lambda value: bool(value) and not Path(value).exists()),
    Rule("LABS_SITE", "fail", "names no file in jobs/sites: every job stops",
         lambda value: bool(value) and value not in _sites()),
    Rule("LABS_LAUNCHER", "fail", "is not a launcher (mpirun, srun): every job stops",
         lambda value: value not in ("", "mpirun", "srun")),
]


def variables() -> Finding | list[Finding]:
    """Return a finding for each harmful variable."""
    harmful = [Finding(rule.state, f"={os.environ[rule.name]} {rule.cause}", f"unset {rule.name}", rule.name)
               for rule in RULES if rule.wrong(os.environ.get(rule.name, ""))]
    if names := _of_a_run():
        harmful.append(Finding("fail", "is left over from inside a run: a notebook's only worker would wait for others",
                               f"unset {' '.join(names)}", names[0]))
    return harmful or ok("none is known to break or slow down a run")


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
