"""Horovod's layer for Keras 3 on real workers: its cases are in programs/horovod_keras3.py, and run in one launch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata

import pytest

from labs.launch import elastic, mpirun
from tests.workers.conftest import PROGRAMS

pytestmark = pytest.mark.skipif(int(metadata.version("keras").split(".")[0]) < 3,
                                reason="Keras 2 has Horovod's own layer")

CASES = [
    # Two workers end bit-equal, and where one worker with the whole batch ends.
    "sgd", "momentum", "nesterov", "adam", "adamw_clipped", "accumulation_of_keras", "ema", "schedule",
    "embedding_first", "embedding_last", "embedding_as_dense", "eager", "ten_steps_per_execution", "groups", "sum",
    "fp16_compression", "passes",
    # Other promises of the optimizer.
    "listed_groups", "passes_communicate_once", "passes_after_a_restore", "infinite_sums_are_forgotten",
    "mixed_float16", "two_optimizers", "gradients_of_other_types",
    "local_variables", "save_and_load", "operations",
    "each_gradient_when_it_is_ready",
    "few_bytes_are_one_message",
    # Callbacks and state.
    "one_model_more", "broadcast_when_one_worker_is_new", "broadcast_leaves_local_variables",
    "broadcast_leaves_dropout", "metrics_of_an_own_train_step",
    "a_model_that_is_not_built_on_all", "loaded_on_one_worker", "metrics_are_weighted_by_samples",
    "warmup_with_momentum", "schedule_callbacks", "auto_jit", "elastic_state", "elastic_callbacks",
]
STALLED = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "20", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "40"}
"""A case in which one worker waits for another ends the program."""


def run(cases: list[str], size: int, folder) -> dict[str, list[str]]:
    """Return the failures of each case, one per worker that failed."""
    done = subprocess.run(
        [*mpirun.command(size), sys.executable, str(PROGRAMS / "horovod_keras3.py"), ",".join(cases),
         str(folder / "results.json")],
        env=mpirun.environment() | STALLED, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return json.loads((folder / "results.json").read_text())


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run(CASES, 2, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("case", CASES)
def test_on_two_workers(results, case):
    assert not results[case], "\n".join(results[case])


def test_all_cases_are_run():
    program = (PROGRAMS / "horovod_keras3.py").read_text()
    assert set(re.findall(r"^def case_(\w+)", program, re.MULTILINE)) == {*CASES, "process_set"}


def test_a_process_set_of_two_among_three_workers(tmp_path):
    assert run(["process_set"], 3, tmp_path) == {"process_set": []}


def test_elastic_training_goes_on_with_one_worker_and_with_two_again(tmp_path):
    """A worker is killed in epoch 2 of 5; the other one goes on from the last commit, until a new one joins it."""
    program = [sys.executable, str(PROGRAMS / "horovod_keras3_elastic.py"), str(tmp_path)]
    done = subprocess.run([*elastic.horovodrun(2, tmp_path), *program], env=mpirun.environment(),
                          capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    result = json.loads((tmp_path / "results.json").read_text())
    sizes = [size for index, (*_, size) in enumerate(result["log"])
             if not index or size != result["log"][index - 1][2]]
    assert sizes == [2, 1, 2]
    # Every batch was committed once; the one that was in flight is repeated, and its first try is forgotten.
    expected = [(epoch, batch) for epoch in range(5) for batch in range(1, 7)]
    assert [tuple(each[:2]) for each in result["log"]] == expected
    assert result["iterations"] == 5 * 6
    assert result["equal"]
