"""Resident workers: ranks inside a notebook, from their start to their end."""

import contextlib
import os
import re
import signal
import stat
import tempfile
import threading
from pathlib import Path

import psutil
import pytest
from jupyter_client.manager import KernelManager

from labs import lab04_speedup, lab05_allreduce, lab06_memory, lab12_elastic
from labs.run import local, resident
from labs.run.errors import LabError
from labs.run.paths import ROOT
from tests import listening
from tests.tools.cluster.client import until
from tests.workers.programs import checksums

pytestmark = [pytest.mark.workers, pytest.mark.slow]

INIT = "import os, numpy as np, tensorflow as tf, horovod.tensorflow as hvd; hvd.init()"
SUM = "print(hvd.allreduce(tf.constant([1., 2.] if hvd.rank() == 0 else [3., 4.]), op=hvd.Sum).numpy())"
SUMS = ["rank 0: [4. 6.]", "rank 1: [4. 6.]"]


@pytest.fixture
def workers():
    """Two workers on which Horovod runs."""
    with contextlib.redirect_stdout(None):
        two = resident.start(2)
        two.px(INIT)
    yield two
    two.stop()


def family(pid: int | None = None) -> list[psutil.Process]:
    """Return the processes that a process has started."""
    return psutil.Process(pid).children(recursive=True)


TIMES = {"started", "run", "timings", "digest"}


def lasting(record: dict) -> dict:
    """Return a record without what differs between two equal runs: times and names."""
    kept = {name: value for name, value in record.items() if name not in TIMES}
    kept["history"] = [{name: value for name, value in row.items() if "second" not in name and "per_sec" not in name}
                       for row in record["history"]]
    return kept


def test_cells_and_runs_of_labs_take_turns_on_the_ranks(workers, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    workers.px(f"{SUM}; mine = np.arange(2) + hvd.rank()\nmine")
    assert sorted(capfd.readouterr().out.splitlines()) == [
        *SUMS[:1], "rank 0: array([0, 1])", *SUMS[1:], "rank 1: array([1, 2])"]
    assert [list(each) for each in workers.pull("mine")] == [[0, 1], [1, 2]]
    processes = [psutil.Process(pid) for pid in workers.pull("os.getpid()")]
    until(lambda: {process.status() for process in processes} == {psutil.STATUS_STOPPED}, 10)
    with pytest.raises(resident.WorkerError, match=r"^rank 0: NameError: name 'nonsense' is not defined$"):
        workers.px("nonsense")
    # What a page may have done before: a model more on one rank, other seeds, Horovod at work.
    workers.px("if hvd.rank() == 0: tf.keras.Sequential([tf.keras.layers.Dense(3)]).build((None, 2))")
    workers.px(f"tf.keras.utils.set_random_seed(hvd.rank()); {SUM}")
    config = checksums.Config(seed=3)
    records = [workers.run(checksums, config), workers.run(checksums, config)]
    assert capfd.readouterr().out.count("epoch 2/2") == 2, "rank 0's output"
    records.append(local.run(checksums, config, workers=2))
    one, two, expected = map(lasting, records)
    assert expected["tables"]["checksums"]
    assert one == two == expected
    for lab, config in ((lab06_memory, lab06_memory.Config()), (lab12_elastic, lab12_elastic.Config()),
                        (lab04_speedup, lab04_speedup.Config(threads=7)), (lab05_allreduce, lab05_allreduce.Config())):
        with pytest.raises(LabError, match=r"than these|with 1 thread|for elastic|Horovod has"):
            workers.run(lab, config)
    assert len(list(tmp_path.rglob("record.json"))) == 3


@pytest.mark.parametrize(("fault", "cause"), [
    ("os.kill(os.getpid(), 9)", r"rank 1 .*killed by SIGKILL.*"),
    ("raise ValueError('burst')", "rank 1: ValueError: burst; rank 0 waited, so the workers were stopped"),
    ("1", "not all ranks have joined an exchange: .*; rank 0 waited, so the workers were stopped"),
], ids=["killed", "raises", "joins not"])
def test_the_rank_at_fault_is_named_although_the_other_waits_for_it(monkeypatch, fault, cause):
    monkeypatch.setattr(resident, "STALL_LIMITS", dict.fromkeys(resident.STALL_LIMITS, "2"))
    workers = resident.start(2)
    workers.px(INIT)
    with pytest.raises(LabError) as caught:
        workers.px(f"if hvd.rank() == 1:\n    {fault}\nelse:\n    {SUM}")
    assert re.fullmatch(rf"{cause}; resident\.start\(2\) starts new workers", str(caught.value))
    if "raise" in fault:
        text = "\n".join(caught.value._render_traceback_())
        assert fault in re.sub(r"\x1b\[[\d;]*m", "", text), "the rank's traceback"


def test_the_keys_are_private_all_listen_on_loopback_only_and_stop_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = {process.pid for process in family()}
    two = resident.start(2)
    two.px(f"{INIT}; {SUM}")
    mine = [process for process in family() if process.pid not in before]
    programs = [process for process in mine if not re.match("mpirun|prte", process.name())]
    assert listening.addresses(*programs) == {"127.0.0.1"}
    keys = list(tmp_path.rglob("ipcontroller-*.json"))
    assert len(keys) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in [*keys, *tmp_path.glob("labs-keys-*")]} == {0o600, 0o700}
    two.stop()
    with pytest.raises(LabError, match=r"^the workers have been stopped; resident\.start\(2\) starts new workers$"):
        two.px("1")
    assert not [each for each in mine if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    assert not list(tmp_path.iterdir())


class Kernel:
    """An IPython kernel, as JupyterLab starts it; `folder` is its working directory and home."""

    def __init__(self, folder: Path):
        self.manager = KernelManager(shutdown_wait_time=60)  # By default it kills the kernel after five seconds.
        env = os.environ | {"HOME": str(folder), "IPYTHONDIR": "", "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
        self.manager.start_kernel(cwd=str(folder), env=env)
        self.pid = self.manager.provisioner.pid
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def close(self) -> None:
        """Close the connections to the kernel, and kill it if it is still running."""
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=True)

    def run(self, code: str) -> tuple[str, list[str], list[str]]:
        """Run a cell; return its status, the lines that it printed and those of its error."""
        outputs = []
        reply = self.client.execute_interactive(code, timeout=120, output_hook=outputs.append)["content"]
        text = "".join(each["content"]["text"] for each in outputs if each["msg_type"] == "stream")
        lines = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(reply.get("traceback", []))).splitlines()
        return reply["status"], text.splitlines(), lines


@pytest.mark.parametrize("end", [KernelManager.shutdown_kernel, lambda manager: manager.signal_kernel(signal.SIGKILL)],
                         ids=["shut down", "killed"])
def test_cells_run_on_the_ranks_can_be_interrupted_and_a_kernel_that_ends_takes_all_with_it(tmp_path, end):
    kernel = Kernel(tmp_path)
    with contextlib.closing(kernel):
        kernel.run("from labs.run import resident")
        assert kernel.run("%%px\nprint(1)") == ("error", [], [
            "WorkerError: no workers yet; run the cell with resident.start(2) and, after a kernel restart, all %%px "
            "cells after it"])
        assert kernel.run("workers = resident.start(2)") == ("ok", ["starting 2 workers ..."], [])
        assert kernel.run(f"%%px\n{INIT}\n{SUM}") == ("ok", SUMS, [])
        status, _, error = kernel.run("%%px\nraise ValueError('burst')")
        assert (status, error[-1]) == ("error", "WorkerError: rank 0: ValueError: burst")
        assert not [line for line in error if "resident.py" in line], "the ranks' traceback, not that of the kit"

        def interrupt() -> None:
            until(lambda: len(list(tmp_path.glob("began*"))) == 2, 60)
            for _ in range(3):
                kernel.manager.interrupt_kernel()

        threading.Thread(target=interrupt).start()
        status, _, (line,) = kernel.run(f"%%px\nopen(f'began{{hvd.rank()}}', 'w')\nif hvd.rank() == 0:\n    {SUM}")
        cause = "the cell was interrupted, so the workers were stopped; resident.start(2) starts new workers"
        assert (status, line) == ("error", f"KeyboardInterrupt: {cause}")
        assert kernel.run(f"%%px\n{SUM}")[2][-1] == f"labs: error: {cause}"
        kernel.run("workers = resident.start(2)")
        mine = family(kernel.pid)
        end(kernel.manager)
        assert not psutil.wait_procs(mine, timeout=40)[1]
