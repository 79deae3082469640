"""A run that nothing disturbs: who gets its name, where it listens, and what it does not write down."""

import contextlib
import os
import subprocess
import sys
import time

import psutil

import labs
from labs.results import records
from labs.run import environment, local
from tests import listening
from tests.waiting import ends
from tests.workers.programs import single_fault

STUDENT = "s1234"
WORDS = ["lab02", "--workers", "2", "--oversubscribe", "--epochs", "3", "--name", "it"]
FILES = [".lock", "checkpoints", "classes.json", "curves.png", "model.keras", "record.json", "run.json"]


def test_a_run_that_takes_longer_to_finish_than_it_may_stall_is_not_ended(tmp_path, monkeypatch):
    """Rank 0 writes its record long after the evaluation, and rank 1 has left by then."""
    monkeypatch.setenv("FAULT", "0 finishes late")
    record = local.run(single_fault, ["--name", "it", "--results", str(tmp_path), "--stall-seconds", "5"], workers=2,
                       oversubscribe=True)
    assert record["timings"]["total_seconds"] > 15


def test_an_ordinary_run(tmp_path, monkeypatch):
    env = {name: value for name, value in os.environ.items() if name not in labs.SETTINGS}
    env |= {"AWS_SECRET_ACCESS_KEY": "hunter2-of-the-cloud", "TOKEN": "hunter2-of-the-hub", "LABS_STUDENT": STUDENT,
            "MPLBACKEND": "Qt4Agg"}  # There is none; the curves are plotted when the training has ended.
    folder = tmp_path / "hunter2-in-the-command-line"
    run = psutil.Popen([sys.executable, "-m", "labs", "run", *WORDS, "--results", folder], env=env,
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
    assert len(workers) >= 2
    # Open MPI's launcher does listen, on one port, and has no parameter against it: see docs/reliability.md.
    assert all(address.startswith("127.") or address == "::1" for address in addresses), "no worker listens beyond"

    folder /= "lab02_horovod/it"
    assert sorted(os.listdir(folder)) == FILES, "what the next commands read"
    for path in folder.rglob("*"):
        assert path.is_dir() or b"hunter2" not in path.read_bytes(), "nothing of environment and command line"
    record = records.read(folder)
    assert (record["student"], record["config"]["seed"]) == (STUDENT, environment.personal_seed(STUDENT))
    assert records.digest_state(record) == "intact"
    machine = record["machine"]  # The fast settings; Horovod's own are 1 ms and 128 MiB.
    assert (machine["onednn"], machine["cycle_time_ms"], machine["fusion_threshold_mb"]) == (True, 0.1, 1)
