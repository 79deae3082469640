"""Environment variables and Keras settings that break a run, slow it down, or falsify its results.

`labs check` reports all of them; a run refuses those that break it before it starts.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labs.run import atomic, installed, shadows
from labs.run.errors import LabError, quoted
from labs.run.speed_settings import NUMBERS
from labs.run.text import printable


@dataclass(frozen=True)
class Rule:
    """A variable, and which of its values are harmful."""

    name: str
    state: str
    """"fail": a run refuses it; "warn": only `labs check` reports it."""
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


def _differs(pattern: str, value: str) -> bool:
    return bool(value) and not re.fullmatch(pattern, value)


RULES = [
    Rule("TF_USE_LEGACY_KERAS", "fail", "makes TensorFlow load the package tf_keras, which is not installed",
         lambda value: installed.legacy_keras() and not importlib.util.find_spec("tf_keras")),
    Rule("TF2_BEHAVIOR", "fail", "makes TensorFlow behave as version 1", lambda value: value == "0"),
    Rule("KERAS_BACKEND", "fail", "makes Keras use a backend other than TensorFlow",
         lambda value: value not in ("", "tensorflow")),
    Rule("KERAS_NNX_ENABLED", "fail", "makes Keras need JAX's package flax", _true),
    Rule("KERAS_MAX_EPOCHS", "fail", "makes Keras end training early", bool),
    Rule("KERAS_MAX_STEPS_PER_EPOCH", "fail", "makes Keras end an epoch early", bool),
    Rule("PYTHONWARNINGS", "fail", "turns warnings into errors, and TensorFlow warns when it loads",
         lambda value: "error" in value),
    Rule("PYTHONOPTIMIZE", "fail", "removes docstrings, without which TensorFlow does not load",
         lambda value: _number(value) >= 2),
    Rule("PYTHONDONTWRITEBYTECODE", "warn", "makes every start compile TensorFlow's Python code again, for 12 s", bool),
    Rule("HOROVOD_CPU_OPERATIONS", "fail", "crashes workers that are connected by MPI (some labs have --backend gloo)",
         lambda value: value.lower() == "gloo" and "HOROVOD_RANK" not in os.environ),  # horovodrun sets both.
    Rule("HOROVOD_CYCLE_TIME", "warn", "delays every message by that many milliseconds (Horovod's default: 1)",
         lambda value: _number(value) > 10),
    *(Rule(name, "fail", "is not a plain number: every run stops",
           functools.partial(_differs, plain)) for name, plain in NUMBERS.items()),
    Rule("HOROVOD_TIMELINE", "warn", "makes every run write all its messages into one file (for one run: "
         "--timeline)",
         bool),
    Rule("HOROVOD_AUTOTUNE", "warn", "changes Horovod's settings while a run is measured", _true),
    Rule("HOROVOD_STALL_CHECK_DISABLE", "warn", "lets workers wait forever for one that never comes", _true),
]


def harmful(rules: Sequence[Rule]) -> Iterator[tuple[Rule, str]]:
    """Yield each of these rules that a variable of this process breaks, with the variable's value."""
    for rule in rules:
        if rule.wrong(value := os.environ.get(rule.name, "")):
            yield rule, value


def refuse_harmful(horovod: bool = True) -> None:
    """Refuse an environment in which a run would end in a traceback or train something else.

    Args:
        horovod: Refuse what breaks Horovod as well.

    Raises:
        LabError: Names the variable, the setting, the package or the file, and the cure.
    """
    for rule, value in harmful(RULES):
        if rule.state == "fail" and (horovod or not rule.name.startswith("HOROVOD_")):
            raise LabError(f"{rule.name}={value} {rule.cause}; unset {rule.name}")
    _refuse_deleted_folder()
    shadows.refuse_packages()
    keras_settings()
    installed.refuse_numpy()
    installed.refuse_tensorflow()
    installed.refuse_keras()
    if horovod:
        installed.refuse_horovod()


RECORDED = re.compile(r"TF_(XLA_FLAGS|DETERMINISTIC_OPS|CUDNN_\w+|(EN|DIS)ABLE_(?!ONEDNN_OPTS)\w+)|XLA_FLAGS"
                      r"|NVIDIA_TF32_OVERRIDE|(ONEDNN|DNNL)_\w+")
"""Variables that may change what TensorFlow computes, or how fast, and that a record shows nowhere else. Other names
that begin with TF_ are Terraform's, and may hold secrets."""


def recorded() -> dict[str, str]:
    """Return the variables of this process that belong in a record."""
    return {name: printable(value) for name, value in sorted(os.environ.items()) if value and RECORDED.fullmatch(name)}


def _refuse_deleted_folder() -> None:
    try:
        os.getcwd()
    except FileNotFoundError:
        raise LabError("the working folder has been deleted, and mpirun needs one; `cd` to another") from None


KERAS_DEFAULTS: dict[str, Any] = {"floatx": "float32", "image_data_format": "channels_last", "epsilon": 1e-7}
"""The settings in keras.json that change what a model computes; KERAS_BACKEND overrides the backend."""
KERAS_CHOICES = {"floatx": ("float16", "float32", "float64"), "image_data_format": ("channels_last", "channels_first")}


def keras_file() -> Path:
    """Return Keras's settings file, found as Keras finds it."""
    home = os.path.expanduser("~")
    default = os.path.join(home if os.access(home, os.W_OK) else "/tmp", ".keras")
    return Path(os.path.expanduser(os.path.join(os.environ.get("KERAS_HOME", default), "keras.json")))


def keras_settings() -> dict[str, Any]:
    """Return the settings in keras.json that differ from KERAS_DEFAULTS; `restore_keras` sets them back.

    Raises:
        LabError: Keras would not load with this file.
    """
    file, cure = keras_file(), f"rm {'-r ' * keras_file().is_dir()}{keras_file()}"
    try:
        settings = json.loads(atomic.read_bytes(file, 2**20))
    except (FileNotFoundError, NotADirectoryError, ValueError):  # Keras ignores a file that is not JSON.
        return {}
    except (OSError, LabError) as problem:
        raise LabError(f"Keras cannot read {file}: {getattr(problem, 'strerror', 'it is not a regular file')}; {cure}"
                       ) from None
    if not isinstance(settings, dict):
        raise LabError(f"{file} does not hold a JSON object, which Keras needs; {cure}")
    different = {key: settings[key] for key, value in KERAS_DEFAULTS.items() if settings.get(key, value) != value}
    for key, value in different.items():
        if value not in KERAS_CHOICES.get(key, (value,)) or (key == "epsilon" and not isinstance(value, float)):
            raise LabError(f"{file} sets {key} to {quoted(str(value))}, which Keras refuses; {cure}")
    return different


def restore_keras(backend: Any) -> None:
    """Set Keras's settings to KERAS_DEFAULTS, which the labs' models need.

    Args:
        backend: `tf.keras.backend`.
    """
    for name, value in KERAS_DEFAULTS.items():
        getattr(backend, f"set_{name}")(value)
