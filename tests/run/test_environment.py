"""The environment of a run: what breaks it is refused in one line; what only differs does not change it."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest
from PIL import Image

from labs.cli import commands
from labs.run import catalogue, command_line, environment, paths, resources
from labs.run.errors import LabError

TINY = ["--epochs", "1", "--image-size", "16", "--batch-size", "8", "--validation-split", "0"]
FOREIGN_SETTINGS = {"floatx": "float64", "image_data_format": "channels_first", "epsilon": 0.5, "backend": "torch",
                    "nnx_enabled": True}
VARIABLES = {"TF_USE_LEGACY_KERAS": "1", "KERAS_BACKEND": "jax", "KERAS_MAX_EPOCHS": "1", "PYTHONOPTIMIZE": "2",
             "KERAS_MAX_STEPS_PER_EPOCH": "1", "HOROVOD_CPU_OPERATIONS": "gloo", "HOROVOD_AUTOTUNE": "1"}
LAB = catalogue.load_lab("lab02")


@pytest.mark.parametrize("name", VARIABLES)
def test_a_run_refuses_a_harmful_variable(name, tmp_path, monkeypatch):
    monkeypatch.setenv(name, VARIABLES[name])
    with pytest.raises(LabError, match=f"^{name}={VARIABLES[name]} .*; unset {name}$"):
        commands.dispatch(["run", "lab10", "--results", str(tmp_path)])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_in_a_foreign_environment_is_the_same_run(tmp_path):
    """With another keras.json, files named as modules in the working folder, and names that are not ASCII."""
    data, here, keras = tmp_path / "d\u00fc", tmp_path / "here", tmp_path / "keras"
    for name, colour in (("cat", 40), ("dog", 160)):
        (data / name).mkdir(parents=True)
        for number in range(12):
            Image.new("RGB", (24, 24), (colour + number,) * 3).save(data / name / f"{number:02d}.png")
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
    assert foreign["layout"]["size"] == (len(resources.gpus()) or 1)
    assert foreign["machine"]["variables"] == {"TF_DETERMINISTIC_OPS": "1"}


IMPORT = """
import sys
import labs
labs.run.environment.TensorFlowImport.hidden = hidden = sys.argv[2:]
exec(sys.argv[1])
assert not [name for name in hidden if name in sys.modules]
import keras, matplotlib, sklearn, tensorflow
assert keras is sys.modules["keras"]
assert hidden or keras.wrappers.SKLearnClassifier(keras.Sequential()), "a student's script has all of Keras"
"""


@pytest.mark.slow
@pytest.mark.parametrize(("imports", "hidden"), [
    ("import tensorflow", environment.UNUSED), ("from keras import layers", ())])
def test_a_worker_imports_tensorflow_quietly_and_only_what_it_needs(imports, hidden):
    done = subprocess.run([sys.executable, "-c", IMPORT, imports, *hidden], cwd=paths.ROOT, capture_output=True,
                          text=True, check=True)
    assert done.stdout + done.stderr == ""


def seed(*words: str) -> int:
    return command_line.parse(LAB, words)[0].seed


def test_the_default_seed_is_the_students_own_and_one_that_is_given_stays(monkeypatch):
    assert seed() == 1
    monkeypatch.setenv("LABS_STUDENT", "s1234")
    mine = seed()
    assert mine == seed("--preset", "paper") == seed("--batch-size", "7"), "the same in every run"
    for given in (1, 7):
        config = dataclasses.replace(LAB.presets["demo"], seed=given)
        assert seed("--seed", str(given)) == given
        assert command_line.parse(LAB, command_line.to_argv(config))[0] == config, "of a notebook or a sweep"
    monkeypatch.setenv("LABS_STUDENT", "s1235")
    assert len({seed(), mine, 1}) == 3
    for name in ("Jan M\u00fcller", "../x", "=1+1", "-x", "a\nb"):
        monkeypatch.setenv("LABS_STUDENT", name)
        with pytest.raises(LabError, match=r"LABS_STUDENT=.* is not an id"):
            seed()
