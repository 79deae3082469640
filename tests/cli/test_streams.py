"""Standard output that is closed, full, or no longer read: no command ends with a traceback."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys

import pytest

from labs.launch import failure, supervisor
from tests.results.test_records import record
from tests.waiting import ends

COMMANDS = [[], ["results", "--help"], ["report"]]


def labs(arguments, **how) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "labs", *arguments], stderr=subprocess.PIPE, text=True, timeout=120,
                          check=False, **how)


@pytest.fixture(scope="module", autouse=True)
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    (root / "lab10_caltech/a").mkdir(parents=True)
    (root / "lab10_caltech/a/record.json").write_text(json.dumps(record()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABS_RESULTS", str(root))
        patch.delenv("PYTHONUNBUFFERED", raising=False)  # With it, argparse itself passes over what cannot be written.
        yield root


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_full_disk_is_reported_in_one_line_and_a_closed_pipe_is_silent(arguments):
    with open("/dev/full", "w") as full:
        done = labs(arguments, stdout=full)
    assert done.stderr == "labs: error: cannot write to standard output: No space left on device\n"
    assert done.returncode == 1
    reader, writer = os.pipe()
    os.close(reader)
    done = labs(arguments, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("arguments", [[], ["report"], ["nosuch"]], ids=" ".join)
def test_output_to_a_closed_standard_output_is_discarded(arguments, root):
    for closed in (">&-", "<&- >&-"):
        done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "labs", *arguments],
                              stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        wrong = arguments == ["nosuch"]
        assert (done.returncode, done.stderr.count("\n")) == (wrong, wrong), done.stderr
    if arguments == ["report"]:
        assert (root / "report.html").read_text().endswith("</html>"), "what is printed does not go into the page"


def test_another_full_disk_is_not_blamed_on_standard_output(tmp_path):
    """A file that may not grow stands for a disk that is full."""
    # No bytecode: Python would cut off the modules that it compiles here, for all later runs.
    program = ("import resource, signal, sys; sys.dont_write_bytecode = True; "
               "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
               "from labs import cli; sys.argv[0] = 'labs'; cli.main()")
    done = subprocess.run([sys.executable, "-c", program, "results", "--csv", str(tmp_path / "runs.csv")],
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"labs: error: cannot write {tmp_path}/runs.csv: File too large")
    assert list(tmp_path.iterdir()) == []


def test_a_run_does_not_wait_for_a_reader_that_is_gone():
    """The output of its workers is still read: else they would block on a full pipe, and wait for each other."""
    program = [sys.executable, "-c", "for line in range(20_000): print('step', line)"]
    code = None
    with contextlib.suppress(OSError), open("/dev/full", "w") as full, ends(30):  # Closing it tries once more.
        code = supervisor.supervise(program, os.environ, full, failure.Evidence(60.0), is_mpirun=False)
    assert code == 0
