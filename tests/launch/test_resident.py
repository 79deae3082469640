"""Resident workers: ranks inside a notebook, from their start to their end."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import stat
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest
from jupyter_client.channels import HBChannel
from jupyter_client.manager import KernelManager

from labs import lab04_speedup, lab05_allreduce, lab06_memory, lab12_elastic
from labs.launch import local, resident
from labs.run.errors import LabError
from labs.run.paths import ROOT
from tests import listening
from tests.tools.cluster.client import until
from tests.workers.programs import checksums, single_fault

pytestmark = [pytest.mark.workers, pytest.mark.slow]

INIT = "import os, numpy as np, tensorflow as tf, horovod.tensorflow as hvd; hvd.init()"
SUM = "print(hvd.allreduce(tf.constant([1., 2.] if hvd.rank() == 0 else [3., 4.]), op=hvd.Sum).numpy())"
SUMS = ["rank 0: [4. 6.]", "rank 1: [4. 6.]"]
SECONDS_TO_END = 40


@pytest.fixture
def workers():
    """Two workers on which Horovod runs: those of the last test, if they still live."""
    two = _workers()
    with contextlib.redirect_stdout(None):
        try:
            two.px(INIT)
        except LabError:
            _workers.cache_clear()
            two = _workers()
            two.px(INIT)
    return two


@functools.cache
def _workers():
    with contextlib.redirect_stdout(None):
        return resident.start(2)


@pytest.fixture(scope="module", autouse=True)
def _stop_at_the_end():
    yield
    stop()


def stop() -> None:
    """Stop the workers of this process, if there are any."""
    if _workers.cache_info().currsize:
        _workers().stop()
        _workers.cache_clear()


def family(pid: int | None = None) -> list[psutil.Process]:
    """Return the processes that a process has started."""
    return psutil.Process(pid).children(recursive=True)


def engines(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return those that are workers; the launcher has their command line, too."""
    return [each for each in processes if "labs.launch.engine" in each.cmdline() and "prte" not in each.name()]


def printed(capsys) -> list[str]:
    return capsys.readouterr().out.splitlines()


# What the ranks compute.

def test_ranks_compute_together_show_their_results_and_rest_between_calls(workers, capsys):
    workers.px(f"{SUM}; mine = np.arange(2) + hvd.rank()\nmine")
    expected = [*SUMS, "rank 0: array([0, 1])", "rank 1: array([1, 2])"]
    assert sorted(printed(capsys)) == sorted(expected)
    assert [list(each) for each in workers.pull("mine")] == [[0, 1], [1, 2]]
    assert workers.pull("(hvd.rank(), hvd.local_rank(), hvd.size())") == [(0, 0, 2), (1, 1, 2)]
    processes = [psutil.Process(pid) for pid in workers.pull("os.getpid()")]
    until(lambda: {process.status() for process in processes} == {psutil.STATUS_STOPPED}, 10)


TIMES = {"started", "run", "timings", "digest"}


def lasting(record: dict) -> dict:
    """Return a record without what differs between two equal runs: times and names."""
    kept = {name: value for name, value in record.items() if name not in TIMES}
    kept["history"] = [{name: value for name, value in row.items() if "second" not in name and "per_sec" not in name}
                       for row in record["history"]]
    return kept


def test_a_run_has_the_record_of_a_run_with_workers_of_its_own(workers, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    config = checksums.Config(seed=3)
    # What a page may have done before: a model more on one rank, other seeds, Horovod at work.
    workers.px("if hvd.rank() == 0: tf.keras.Sequential([tf.keras.layers.Dense(3)]).build((None, 2))")
    workers.px(f"tf.keras.utils.set_random_seed(hvd.rank()); {SUM}")
    capfd.readouterr()
    records = [workers.run(checksums, config), workers.run(checksums, config)]
    assert capfd.readouterr().out.count("epoch 2/2") == 2, "rank 0's output"
    workers.px(SUM)
    assert capfd.readouterr().out.splitlines() == SUMS
    records.append(local.run(checksums, config, workers=2))
    one, two, expected = map(lasting, records)
    assert expected["tables"]["checksums"]
    assert expected["layout"]["size"] == 2
    assert one == two == expected


def test_a_run_that_needs_other_workers_is_refused(workers, tmp_path, monkeypatch):
    """For its environment, its launcher, its threads or Horovod's settings."""
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    for lab, config in ((lab06_memory, lab06_memory.Config()), (lab12_elastic, lab12_elastic.Config()),
                        (lab04_speedup, lab04_speedup.Config(threads=7)), (lab05_allreduce, lab05_allreduce.Config())):
        with pytest.raises(LabError, match=f"{lab.LAB.name} needs other .*; use labs.launch.local.run"):
            workers.run(lab, config)
    assert not list(tmp_path.rglob("*.json"))


def test_a_second_start_ends_the_first_workers(workers):
    first = [psutil.Process(pid) for pid in workers.pull("os.getpid()")]
    _workers.cache_clear()
    second = _workers()
    assert psutil.wait_procs(first, timeout=10)[1] == []
    with pytest.raises(LabError, match="have been stopped"):
        workers.px("1")
    assert len(second.pull("1")) == 2


# Mistakes.

def test_a_worker_that_dies_is_named(workers):
    with pytest.raises(LabError, match=r"^rank 1 .*killed by SIGKILL.*; resident\.start\(2\) starts new workers$"):
        workers.px(f"if hvd.rank() == 1:\n    os.kill(os.getpid(), 9)\n{SUM}")


def test_a_rank_that_raises_is_named_although_the_other_waits_for_it(workers):
    with pytest.raises(resident.WorkerError) as caught:
        workers.px(f"if hvd.rank() == 1:\n    raise ValueError('burst')\n{SUM}")
    assert str(caught.value) == ("rank 1: ValueError: burst; rank 0 waited, so the workers were stopped; "
                                 "resident.start(2) starts new workers")
    assert "raise ValueError('burst')" in re.sub(r"\x1b\[[\d;]*m", "", "\n".join(caught.value._render_traceback_()))


def test_an_error_of_all_ranks_is_one_and_they_go_on(workers, capsys):
    with pytest.raises(resident.WorkerError, match=r"^rank 0: NameError: name 'nonsense' is not defined$"):
        workers.px("nonsense")
    workers.px(SUM)
    assert printed(capsys)[-2:] == SUMS


def test_an_exchange_that_a_rank_does_not_join_ends(monkeypatch):
    for name in resident.STALL_LIMITS:
        monkeypatch.setitem(resident.STALL_LIMITS, name, "2")
    workers = resident.start(2)
    workers.px(INIT)
    with pytest.raises(resident.WorkerError, match=r"^not all ranks have joined an exchange: .*; rank 0 waited, so"):
        workers.px(f"if hvd.rank() == 0:\n    {SUM}")


def test_a_run_that_fails_on_one_rank_names_it(workers, tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    workers.px("os.environ['FAULT'] = '1 computes_nan'")
    with pytest.raises(resident.WorkerError, match=r"^rank 1: .*the loss is not finite at epoch 2") as caught:
        workers.run(single_fault)
    assert len(caught.value._render_traceback_()) == 1, "a lab's own explanation is one line"


# What is left, and who can listen.

def test_the_keys_are_private_all_listen_on_loopback_only_and_stop_leaves_nothing(tmp_path, monkeypatch):
    stop()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = {process.pid for process in family()}
    two = resident.start(2)
    two.px(f"{INIT}; {SUM}")
    mine = [process for process in family() if process.pid not in before]
    assert len(engines(mine)) == 2
    programs = [process for process in mine if not re.match("mpirun|prte", process.name())]
    assert listening.addresses(*programs) == {"127.0.0.1"}
    keys = list(tmp_path.rglob("ipcontroller-*.json"))
    assert len(keys) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in [*keys, *tmp_path.glob("labs-keys-*")]} == {0o600, 0o700}
    shared = {each.path for process in mine for each in process.memory_maps() if each.path.startswith("/dev/shm/")}
    assert shared, "the workers exchange gradients through shared memory"
    two.stop()
    with pytest.raises(LabError, match=r"^the workers have been stopped; resident\.start\(2\) starts new workers$"):
        two.px("1")
    assert not [process for process in mine if process.is_running()]
    assert not list(tmp_path.iterdir())
    assert not [path for path in shared if os.path.exists(path)]


class Kernel:
    """An IPython kernel, as JupyterLab and papermill start it; `folder` is its working directory and home."""

    def __init__(self, folder: Path):
        self.manager = KernelManager(shutdown_wait_time=60)  # By default it kills the kernel after five seconds.
        env = os.environ | {"HOME": str(folder), "IPYTHONDIR": "", "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(
            filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
        self.manager.start_kernel(cwd=str(folder), env=env)
        self.pid = self.manager.provisioner.pid
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def close(self) -> None:
        """Close the connections to the kernel, and kill it if it is still running.

        A client whose kernel has died tries to reconnect ten times a second. If the system later gives the kernel's
        port to a Gloo worker, Gloo mistakes the client for the other worker, and `hvd.init` aborts.
        """
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=True)
        # A channel for heartbeats is a thread, which would go on connecting.
        assert not [thread for thread in threading.enumerate() if isinstance(thread, HBChannel)]

    def run(self, code: str, seconds: float = 120) -> tuple[str, list[str], list[str]]:
        """Run a cell; return its status, the lines that it printed and those of its error."""
        outputs = []
        reply = self.client.execute_interactive(code, timeout=seconds, output_hook=outputs.append)["content"]
        text = "".join(each["content"]["text"] for each in outputs if each["msg_type"] == "stream")
        lines = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(reply.get("traceback", []))).splitlines()
        return reply["status"], text.splitlines(), lines


@pytest.fixture
def kernel(tmp_path):
    """A kernel with two workers, in an empty folder; other workers of this process are stopped."""
    stop()
    kernel = Kernel(tmp_path)
    try:
        kernel.run("from labs.launch import resident")
        assert kernel.run("%%px\nprint(1)") == ("error", [], [
            "WorkerError: no workers yet; run the cell with resident.start(2) and, after a kernel restart, all %%px "
            "cells after it"])
        assert kernel.run("workers = resident.start(2)") == ("ok", ["starting 2 workers ..."], [])
        assert kernel.run(f"%%px\n{INIT}") == ("ok", [], [])
        yield kernel
    finally:
        kernel.close()


def test_cells_run_on_the_ranks_and_a_kernel_that_ends_takes_all_with_it(kernel, tmp_path):
    assert kernel.run(f"%%px\n{SUM}") == ("ok", SUMS, [])
    status, _, error = kernel.run("%%px --targets 1\nprint(hvd.rank())")
    assert (status, error[-1]) == ("error", "WorkerError: %%px runs on all ranks and has no options; choose one with "
                                            "`if hvd.rank() == 1:`")
    status, _, error = kernel.run("%%px\nraise ValueError('burst')")
    assert (status, error[-1]) == ("error", "WorkerError: rank 0: ValueError: burst")
    assert not [line for line in error if "resident.py" in line], "the ranks' traceback, not that of the kit"
    mine = family(kernel.pid)
    kernel.manager.shutdown_kernel()
    assert not psutil.wait_procs(mine, timeout=SECONDS_TO_END)[1]
    assert not list(tmp_path.glob("labs-keys-*"))
    assert not [path for path in tmp_path.rglob("*") if "ipcontroller" in path.name]


def test_a_cell_that_never_ends_can_be_interrupted(kernel, tmp_path):
    def interrupt() -> None:
        until(lambda: len(list(tmp_path.glob("began*"))) == 2, 60)
        time.sleep(1)  # The exchange is the next statement.
        for _ in range(3):
            kernel.manager.interrupt_kernel()

    threading.Thread(target=interrupt).start()
    status, _, (line,) = kernel.run(f"%%px\nopen(f'began{{hvd.rank()}}', 'w')\nif hvd.rank() == 0:\n    {SUM}")
    cause = "the cell was interrupted, so the workers were stopped; resident.start(2) starts new workers"
    assert (status, line) == ("error", f"KeyboardInterrupt: {cause}")
    assert kernel.run(f"%%px\n{SUM}")[2][-1] == f"labs: error: {cause}"
    kernel.run(f"workers = resident.start(2)\nworkers.px({INIT!r})")
    assert kernel.run(f"%%px\n{SUM}") == ("ok", SUMS, [])


def test_when_the_kernel_is_killed_nothing_goes_on(kernel):
    mine = family(kernel.pid)
    assert len(engines(mine)) == 2
    os.kill(kernel.pid, signal.SIGKILL)
    assert not psutil.wait_procs(mine, timeout=SECONDS_TO_END)[1]
