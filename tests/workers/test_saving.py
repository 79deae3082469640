"""A run that is saved between two steps continues to the same end as an undisturbed run."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

CLOCKS = ("train_seconds", "val_seconds")


def outcome(folder) -> tuple[dict[str, np.ndarray], list[dict]]:
    """Return the last checkpoint's arrays, and the history without its clocks."""
    with np.load(folder / "checkpoints/epoch-00003.npz") as file:
        arrays = {name: file[name] for name in file.files if name != "meta"}
    history = json.loads((folder / "record.json").read_text())["history"]
    return arrays, [{name: row[name] for name in row if name not in CLOCKS} for row in history]


@pytest.fixture(scope="module")
def run(workers, tmp_path_factory):
    """Train on a number of workers to some end, and return the finished process and the run's folder."""
    results_root = tmp_path_factory.mktemp("store")

    def start(name: str, end: str, size: int = 2):
        return workers("stops.py", size, results_root, name, end, check=False), results_root / "stops" / name

    return start


@pytest.fixture(scope="module")
def undisturbed(run):
    """The end of an undisturbed run."""
    done, folder = run("undisturbed", "undisturbed")
    assert done.returncode == 0, done.stderr
    return outcome(folder)


@pytest.mark.parametrize("end", ["stopped", pytest.param("killed", marks=pytest.mark.everyday)])
def test_it_goes_on_between_two_steps(run, undisturbed, end):
    first, folder = run(end, end)
    assert first.returncode != 0
    saved = sorted(path.stem for path in (folder / "checkpoints").glob("*.npz"))[-1]
    result = re.fullmatch(r"epoch-00001-step-(\d+)", saved)
    assert result, saved
    if end == "stopped":
        assert f"asked to stop, and saved after step {int(result[1])} of epoch 2" in first.stderr
        fewer, _ = run(end, "resumed", size=1)
        assert f"'{end}' was started with --workers 2, not 1; omit what differs" in fewer.stderr
    again, _ = run(end, "resumed")
    assert f"resumed after epoch 1, step {int(result[1])}" in again.stdout, again.stderr
    (arrays, history), (expected, expected_history) = outcome(folder), undisturbed
    assert history == expected_history
    assert list(arrays) == list(expected)
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], expected[name], err_msg=name)
