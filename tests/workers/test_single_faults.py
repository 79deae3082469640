"""Any single fault ends all workers within seconds, and the last line says who, where, when and why.

What kills, freezes or interrupts a worker from outside is in test_faults.py; here it goes wrong by itself.
"""

import contextlib
import os
import re
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from labs.run import local
from labs.run.errors import LabError
from tests.workers.programs import single_fault

SECONDS_TO_END = 10
IN_EPOCH_2 = r"rank {} on \S+ \(epoch 2, step {}\): {}"
BEFORE = r"rank 0 on \S+ \(before the first step\): workers differ in {}; start all workers from the same clone, .*"
CASES = {
    "1 raises": IN_EPOCH_2.format(1, 3, "RuntimeError: the pipe has burst"),
    "0 raises": IN_EPOCH_2.format(0, 3, "RuntimeError: the pipe has burst"),
    "1 exits": IN_EPOCH_2.format(1, 3, r"exited before the run ended, with sys.exit\(0\)"),
    "1 vanishes": IN_EPOCH_2.format(1, 3, "exited before the run ended, with code 0 and no error message"),
    "0 breaks_down": IN_EPOCH_2.format(0, 3, "exited before the run ended, with code 3 and no error message"),
    "1 computes_nan": IN_EPOCH_2.format(1, r"\d+", r"the loss is not finite at epoch 2, step \d+, learning rate .*"),
    "1 allocates": IN_EPOCH_2.format(1, 3, "out of memory; lower --batch-size, or ask for more.*"),
    "1 other data": BEFORE.format(r"data: rank 0 has {'train': .*}, rank 1 has {'train': .*}"),
    "1 other config": BEFORE.format(r"config: rank 0 has {'seed': 1}, rank 1 has {'seed': 2}"),
    "0 keeps no record": r"the launcher ended with code 0 and no record: it gave no reason; .*; last heartbeats: .*",
    "1 other versions": BEFORE.format(r"versions: rank 0 has {'numpy': '[12][.\d]+'}, rank 1 has {'numpy': '9.9'}"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the run."""
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    return tmp_path / single_fault.LAB.name / "it"


def run(*arguments: str) -> dict:
    return local.run(single_fault, ["--name", "it", *arguments], workers=2, oversubscribe=True)


def left(folder) -> list[int]:
    """Return the processes of a run: by its results root, since orphans have no parent to know them by."""
    root, result = f"LABS_RESULTS={folder.parents[1]}", []
    for pid in psutil.pids():
        with contextlib.suppress(OSError):  # Another's, or it has ended meanwhile.
            result += [pid] * (root in Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0"))
    return result


@pytest.mark.parametrize("fault", [
    pytest.param(case, marks=[pytest.mark.everyday] * (case in ("1 raises", "1 computes_nan"))) for case in CASES])
def test_the_last_line_names_it_and_no_process_is_left(folder, monkeypatch, capfd, fault):
    monkeypatch.setenv("FAULT", fault)
    with pytest.raises(LabError) as caught:
        run()
    seconds = time.time() - float((folder / "fault").read_text())
    assert re.fullmatch(CASES[fault], str(caught.value)), caught.value
    assert not left(folder)
    if fault == "1 allocates":  # TensorFlow itself takes seconds to give up.
        assert not re.search("Traceback|ResourceExhausted", capfd.readouterr().err)
    else:
        assert seconds < SECONDS_TO_END


@pytest.mark.parametrize(("fault", "line"), [
    ("0 freezes", r"rank 0 on \S+ \(before the first step\): no progress for \d+ s, the others are waiting .*"),
    ("1 loops", IN_EPOCH_2.format(1, 2, r"no progress for \d+ s, the others are waiting .*")),
])
def test_a_worker_that_takes_no_step_is_named(folder, monkeypatch, fault, line):
    """Before its first step it may be silent for twice as long as when it trains."""
    monkeypatch.setenv("FAULT", fault)
    with pytest.raises(LabError, match=line):
        run("--stall-seconds", "6")
    assert not left(folder)


def test_a_full_disk_is_reported_in_one_line_and_the_run_goes_on_when_there_is_room(folder, monkeypatch, capfd):
    monkeypatch.setenv("FAULT", "0 has_no_room")
    with pytest.raises(LabError, match=IN_EPOCH_2.format(
            0, 40, r"cannot write \S+/epoch-00002.npz: File too large; free some space, or choose another --results")):
        run()
    assert "Traceback" not in capfd.readouterr().err
    assert not left(folder)
    assert os.listdir(folder / "checkpoints") == ["epoch-00001.npz"]
    with np.load(folder / "checkpoints/epoch-00001.npz") as saved:
        assert len(saved.files) > 4

    monkeypatch.delenv("FAULT")
    record = run("--resume")
    assert "resumed after epoch 1" in capfd.readouterr().out
    assert [row["epoch"] for row in record["history"]] == [1, 2, 3]


def outcome(folder, record: dict) -> tuple[list[dict], dict[str, np.ndarray]]:
    """Return a run's history without its clocks, and the arrays of its last checkpoint."""
    with np.load(folder / "checkpoints/epoch-00003.npz") as file:
        arrays = {name: file[name] for name in file.files if name != "meta"}
    return [{name: row[name] for name in row if "seconds" not in name} for row in record["history"]], arrays


@pytest.mark.everyday
def test_a_run_that_is_stopped_between_two_steps_comes_to_the_end_of_an_undisturbed_one(folder, monkeypatch, capfd):
    """To the last bit, also with dropout, batch norm, augmentation, micro-batches and an incomplete last step."""
    expected_history, expected = outcome(folder.with_name("other"), run("--name", "other"))
    monkeypatch.setenv("FAULT", "1 is_asked_to_stop")
    with pytest.raises(LabError, match="asked to stop, and saved after step 3 of epoch 2"):
        run()
    monkeypatch.delenv("FAULT")
    with pytest.raises(LabError, match="'it' was started with --workers 2, not 1; omit what differs"):
        local.run(single_fault, ["--name", "it", "--resume"], workers=1)
    history, arrays = outcome(folder, run("--resume"))
    assert "resumed after epoch 1, step 3" in capfd.readouterr().out
    assert history == expected_history
    assert list(arrays) == list(expected)
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], expected[name], err_msg=name)
