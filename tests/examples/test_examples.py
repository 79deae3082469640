"""The examples: plain scripts that train the same on one worker and on two."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from labs.run import mpirun
from labs.run.paths import ROOT

RUNNER = Path(__file__).parent / "programs/run_examples.py"
pytestmark = pytest.mark.timeout(600)  # The first test of each number of workers waits for all files.

TWO = {"lab02_horovod": "--epochs 2", "lab09_fruits": "--epochs 2", "lab12_elastic": "--epochs 2 --checkpoint two"}
"""What two workers run."""
ONE = {"lab02_horovod": "--epochs 2 --batch-size 64 --base-lr 0.002",
       "lab12_elastic": "--epochs 2 --batch-size 128 --base-lr 0.002 --checkpoint one"}
"""What one worker runs to compute the same. In lab 9 it cannot: batch norm depends on the workers."""


def run(cases: dict[str, tuple[str, str]], size: int, folder: Path) -> dict[str, dict]:
    """Run examples, given as stem and arguments by name, in one launch, and return their results."""
    folder.mkdir(exist_ok=True)
    written = {name: (str(ROOT / f"examples/{stem}.py"), words.split()) for name, (stem, words) in cases.items()}
    (folder / "cases.json").write_text(json.dumps(written))
    complete([*mpirun.command(size), sys.executable, str(RUNNER), "cases.json", "."], folder)
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in cases}


def complete(command: list, folder: Path) -> str:
    """Run a command to its end, and return what it prints."""
    env = mpirun.environment() | {"PATH": f"{Path(sys.executable).parent}:{mpirun.environment()['PATH']}"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=550, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def weights(folder: Path, name: str) -> list[np.ndarray]:
    with np.load(folder / f"{name}.npz") as file:
        return [file[key] for key in file.files]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    parts = {f"part {epochs}": ("lab12_elastic", f"--epochs {epochs} --checkpoint parts") for epochs in (1, 2)}
    return folder, run({stem: (stem, words) for stem, words in TWO.items()} | parts, 2, folder)


@pytest.mark.everyday
@pytest.mark.workers
def test_two_workers_end_with_equal_weights_and_share_all_images(two):
    for outcome in two[1].values():
        assert outcome["weights are equal"]
        assert outcome["each image once"]
        assert outcome["steps"] == [outcome["steps"][0]] * 2


@pytest.mark.workers
def test_two_workers_compute_what_one_computes(two, tmp_path):
    one = run({stem: (stem, words) for stem, words in ONE.items()}, 1, tmp_path)
    for stem, outcome in one.items():
        assert outcome["steps"] == two[1][stem]["steps"][:1]
        for mine, theirs in zip(weights(two[0], stem), weights(tmp_path, stem), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-3, atol=2e-4)
        for name, values in two[1][stem]["history"].items():
            # Where the last step has more images on one worker, its accuracy is off by less than an image.
            slack = 2 / outcome["images"] if name == "accuracy" else 1e-5
            assert values == pytest.approx(outcome["history"][name], rel=1e-3, abs=slack), name


@pytest.mark.everyday
@pytest.mark.workers
def test_the_command_of_the_docstring_trains(tmp_path):
    docstring = ast.get_docstring(ast.parse((ROOT / "examples/lab02_horovod.py").read_text()))
    (line,) = (line.strip() for line in docstring.splitlines() if line.strip().startswith("horovodrun "))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    printed = complete(line.split(), tmp_path)
    (workers, accuracy), = re.findall(r"(\d) workers, .* test accuracy (\S+)", printed)
    assert (workers, float(accuracy) > 0.85) == ("2", True)
    assert len(re.findall(r"- loss: ", printed)) == 10, "one worker prints, once per epoch"
    assert [path.name for path in tmp_path.glob("*.keras")] == ["lab02_horovod.keras"]


@pytest.mark.workers
def test_the_all_reduce_is_measured(tmp_path):
    printed = complete([*mpirun.command(2), sys.executable, ROOT / "examples/lab05_allreduce.py",
                        "--largest-mb", "0.01"], tmp_path)
    table = np.loadtxt(tmp_path / "lab05_allreduce.csv", delimiter=",", skiprows=1)
    assert table[:, 0].tolist() == [4, 16, 64, 256, 1024, 4096]
    nbytes, seconds, algbw, busbw = table.T
    np.testing.assert_allclose(algbw, nbytes / seconds, rtol=1e-6)
    np.testing.assert_allclose(busbw, algbw, rtol=1e-6)  # 2 (n - 1) / n is 1 for two workers.
    assert len(printed.splitlines()) == 1 + len(table), "one worker prints"


@pytest.mark.workers
def test_a_training_goes_on_from_its_checkpoint(two):
    assert len(two[1]["part 2"]["history"]["loss"]) == 1
    for mine, theirs in zip(weights(two[0], "part 2"), weights(two[0], "lab12_elastic"), strict=True):
        np.testing.assert_array_equal(mine, theirs)
