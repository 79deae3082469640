"""A run that nothing disturbs: who gets its name, where it listens, and what it does not write down."""

import contextlib
import json
import os
import subprocess
import sys
import time

import psutil
import pytest

import labs
from labs.results import records
from labs.run import environment, local
from tests import listening
from tests.waiting import ends
from tests.workers.programs import single_fault

SECRETS = {"AWS_SECRET_ACCESS_KEY": "hunter2-of-the-cloud", "TOKEN": "hunter2-of-the-hub"}
STUDENT = "s1234"
WORDS = ["lab02", "--workers", "2", "--oversubscribe", "--epochs", "3", "--name", "it"]


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """A run: its folder, and the number of its workers and the addresses on which they listened."""
    env = {name: value for name, value in os.environ.items() if name not in labs.SETTINGS} | SECRETS
    env["LABS_STUDENT"] = STUDENT
    env["MPLBACKEND"] = "Qt4Agg"  # There is none; the curves are plotted when the training has ended.
    results = tmp_path_factory.mktemp("hunter2-in-the-command-line")
    run = psutil.Popen([sys.executable, "-m", "labs", "run", *WORDS, "--results", results], env=env,
                       stdout=subprocess.DEVNULL)
    workers, addresses = set(), set()
    with ends(240):
        while run.poll() is None:
            for each in run.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if "OMPI_COMM_WORLD_RANK" in each.environ():
                        workers.add(each.pid)
                        addresses |= listening.addresses(each)
            time.sleep(0.3)
    return results / "lab02_horovod/it", workers, addresses


def test_a_run_that_takes_longer_to_finish_than_it_may_stall_is_not_ended(tmp_path, monkeypatch):
    """Rank 0 writes its record long after the evaluation, and rank 1 has left by then."""
    monkeypatch.setenv("FAULT", "0 finishes late")
    record = local.run(single_fault, ["--name", "it", "--results", str(tmp_path), "--stall-seconds", "5"], workers=2,
                       oversubscribe=True)
    assert record["timings"]["total_seconds"] > 15


def test_a_finished_run_leaves_what_the_next_commands_read(story):
    assert sorted(os.listdir(story[0])) == [".lock", "checkpoints", "classes.json", "curves.png",
                                            "model.keras", "record.json", "run.json"]


def test_the_record_names_the_student_has_their_seed_and_would_show_edits(story):
    record = records.read(story[0])
    assert (record["student"], record["config"]["seed"]) == (STUDENT, environment.personal_seed(STUDENT))
    assert records.digest_state(record) == "intact"


def test_the_fast_settings_are_the_defaults(story):
    """TensorFlow by itself has oneDNN on some processors only; Horovod's own are 1 ms and 128 MiB."""
    machine = json.loads((story[0] / "record.json").read_text())["machine"]
    assert machine["onednn"] is True
    assert (machine["cycle_time_ms"], machine["fusion_threshold_mb"]) == (0.1, 1)


def test_no_worker_listens_beyond_this_machine(story):
    """Open MPI's launcher does, on one port, and has no parameter against it: see docs/reliability.md."""
    _, workers, addresses = story
    assert len(workers) >= 2
    assert all(address.startswith("127.") or address == "::1" for address in addresses), addresses


def test_nothing_of_the_environment_or_the_command_line_is_written_down(story):
    for path in story[0].rglob("*"):
        assert path.is_dir() or b"hunter2" not in path.read_bytes(), path
