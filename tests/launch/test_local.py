"""The temporary folder of a launch, whatever earlier ones have left."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from labs.launch import supervisor
from labs.run.paths import ROOT

LAUNCH = """
from labs.launch import supervisor
with supervisor.started(["bash", "-c", "touch $TMPDIR/__autograph_generated_file_.py; "
                         "echo $TMPDIR $OMPI_MCA_btl_sm_backing_directory; sleep 60"]) as one:
    print(one.stdout.readline().decode(), end="", flush=True)
    one.wait()
"""


def test_folders_of_killed_launches_are_removed_by_the_next_start_and_those_of_living_ones_are_not(tmp_path,
                                                                                                   monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)

    def launch() -> tuple[subprocess.Popen, list[Path]]:
        process = subprocess.Popen([sys.executable, "-c", LAUNCH], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        folders = [Path(folder) for folder in process.stdout.readline().split()]
        for folder in folders:
            os.utime(folder, (time.time() - 600,) * 2)
        return process, folders

    (killed, left), (living, held) = launch(), launch()
    killed.kill()
    killed.communicate()
    assert (left[0] / "__autograph_generated_file_.py").exists()
    assert left[1].parent == Path("/dev/shm")
    with supervisor.started(["true"]):
        assert not [folder for folder in left if folder.exists()]
    assert (held[0] / "__autograph_generated_file_.py").exists()
    assert held[1].exists()
    living.terminate()
    living.communicate()
