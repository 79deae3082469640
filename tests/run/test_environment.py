"""Harmful surroundings: variables, keras.json, and files that hide modules. A run refuses them in one line, or is the
same run."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from labs.cli import commands
from labs.launch import capacity
from labs.run import paths
from labs.run.errors import LabError
from tests.labs.test_own_data import classes

TINY = ["--epochs", "1", "--image-size", "16", "--batch-size", "8", "--validation-split", "0"]
FOREIGN_SETTINGS = {"floatx": "float64", "image_data_format": "channels_first", "epsilon": 0.5, "backend": "torch",
                    "nnx_enabled": True}
TRAINS = "from labs import training\nimport tensorflow\n"
VARIABLES = [("TF_USE_LEGACY_KERAS", "1"), ("KERAS_BACKEND", "jax"), ("KERAS_MAX_EPOCHS", "1"),
             ("PYTHONWARNINGS", "error"), ("HOROVOD_CPU_OPERATIONS", "gloo"), ("PYTHONOPTIMIZE", "2"),
             ("HOROVOD_CYCLE_TIME", "1ms"), ("HOROVOD_FUSION_THRESHOLD", "64MB")]


def refusal(monkeypatch, results, *words) -> str:
    """Return the one line with which `labs run lab10` ends before it starts anything."""
    monkeypatch.setattr(sys, "argv", ["labs", "run", "lab10", "--results", str(results), *words])
    with pytest.raises(SystemExit) as end:
        commands.main()
    assert not list(results.iterdir())
    line = str(end.value.code)
    assert line.isprintable()
    return line


@pytest.mark.parametrize(("name", "value"), VARIABLES)
def test_a_run_refuses_a_harmful_variable(name, value, tmp_path, monkeypatch):
    monkeypatch.setenv(name, value)
    line = refusal(monkeypatch, tmp_path)
    assert line.startswith(f"labs: error: {name}={value} ")
    assert line.endswith(f"; unset {name}")


def test_a_run_refuses_a_keras_json_that_holds_no_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home/keras.json").write_text("[]")
    (tmp_path / "results").mkdir()
    assert refusal(monkeypatch, tmp_path / "results").endswith(f"; rm {tmp_path}/home/keras.json")


def test_a_run_refuses_a_folder_that_has_been_deleted(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "the working folder has been deleted" in refusal(monkeypatch, tmp_path / "results")
    for words in (["lint", "table.csv"], ["sweep", "lab02"], ["launch", "2", "train.py"]):
        with pytest.raises(LabError, match="the working folder has been deleted; `cd` to another"):
            commands.dispatch(words)


@pytest.mark.parametrize(("file", "words", "on_path", "line"), [
    ("random.py", ["train.py"], False, "{file} hides the Python module random; rename it"),
    ("keras.py", ["train.py"], False, "{file} hides the environment's keras; rename it"),
    ("numpy/__init__.py", ["-m", "labs", "run", "lab02"], True,
     "{file} hides the environment's numpy; unset PYTHONPATH"),
    ("", ["train.py"], False, "KERAS_BACKEND=jax makes Keras use a backend other than TensorFlow; "
                              "unset KERAS_BACKEND"),
])
def test_what_hides_a_module_or_breaks_a_script_is_named_in_one_line(file, words, on_path, line, tmp_path):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / (file or "other.py")).write_text("raise RuntimeError\n")
    (tmp_path / "train.py").write_text(TRAINS)
    variables = {"PYTHONPATH": str(tmp_path) if on_path else ""} | ({} if file else {"KERAS_BACKEND": "jax"})
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=os.environ | variables, capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 1
    path = str(tmp_path / file).removesuffix("/__init__.py")
    assert done.stderr == f"labs: error: {line.format(file=path)}\n"


@pytest.mark.slow
def test_a_run_in_foreign_surroundings_is_the_same_run(tmp_path):
    data, here, keras = tmp_path / "d\u00fc", tmp_path / "here", tmp_path / "keras"
    classes(data)
    for folder in (here / "labs", keras):
        folder.mkdir(parents=True)
    for name in ("random.py", "keras.py", "numpy.py", "labs/__init__.py"):
        (here / name).write_text("raise RuntimeError\n")
    (keras / "keras.json").write_text(json.dumps(FOREIGN_SETTINGS))
    foreign = {"KERAS_HOME": str(keras), "CUDA_VISIBLE_DEVICES": "0,1,2,3", "PYTHONIOENCODING": "ascii",
               "KERAS_BACKEND": "", "TF_DETERMINISTIC_OPS": "1", "TF_VAR_token": "secret"}
    for folder, name, variables in ((here, "foreign", foreign), (tmp_path, "plain", {})):
        command = [sys.executable, "-P", "-m", "labs", "run", "lab10", *TINY, "--data", data, "--name", name,
                   "--results", tmp_path / "r\u00fc"]
        done = subprocess.run(command, cwd=folder, env=os.environ | variables, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
    foreign, plain = (json.loads((tmp_path / "r\u00fc" / "lab10_caltech" / name / "record.json").read_text())
                      for name in ("foreign", "plain"))
    assert foreign["metrics"] == plain["metrics"]
    assert foreign["layout"]["size"] == (capacity.visible_gpus() or 1)
    assert foreign["machine"]["variables"] == {"TF_DETERMINISTIC_OPS": "1"}


def test_an_empty_entry_of_pythonpath_is_no_working_folder(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ":/elsewhere:")
    assert paths.python_path() in ("/elsewhere", f"{paths.ROOT}:{paths.ROOT}/horovod_keras3:/elsewhere")
