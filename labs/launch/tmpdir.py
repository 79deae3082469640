"""Temporary folders for each launch; folders that killed launches left behind are removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from filelock import Timeout

from labs.launch import mpirun
from labs.run.lock import Lock
from labs.run.paths import temporary_dir

PREFIX = "labs-mpi-"
"""How the folders' names begin."""
SETTLED_SECONDS = 60.0
"""A younger folder may not be locked yet."""


@contextlib.contextmanager
def private_tmpdir(environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Make a folder for the temporary files of a launcher and its workers; yield the variables that name it.

    It is removed after the block. In the common folder, Open MPI's launcher names its files by its process number.
    Those of a killed launcher stay, and if that number is used again, the next launcher does not start: "The PMIx
    server's listener thread failed to start". A killed worker leaves the code that TensorFlow has generated. The memory
    that the workers of a machine share lies in a second such folder, because a killed launcher does not free it.

    Args:
        environ: The environment of the launcher; LABS_TMPDIR in it names the folder of files that runs share.
    """
    with _folder(tempfile.gettempdir()) as path, _folder("/dev/shm") as memory:
        if path is None:
            yield {}
        elif mpirun.nodes() > 1:  # The workers' folders would have to exist on all nodes; the launcher's is here.
            yield {"PRTE_MCA_prte_local_tmpdir_base": path}
        else:
            yield {"PRTE_MCA_prte_tmpdir_base": path, "OMPI_MCA_orte_tmpdir_base": path,  # Open MPI 5, and 4.
                   "TMPDIR": path, "LABS_TMPDIR": environ.get("LABS_TMPDIR") or str(temporary_dir()),
                   **({"OMPI_MCA_btl_sm_backing_directory": memory} if memory else {})}


@contextlib.contextmanager
def _folder(parent: str) -> Iterator[str | None]:
    """Make a folder that is locked and is removed after the block; None on a full disk or for missing rights."""
    _remove_abandoned(parent)
    try:
        folder = tempfile.TemporaryDirectory(prefix=PREFIX, dir=parent, ignore_cleanup_errors=True)
    except OSError:  # The launcher reports it for its own folder.
        yield None
        return
    with folder as path, Lock(Path(path) / "lock").hold():
        yield path


def _remove_abandoned(parent: str) -> None:
    """Remove this user's folders of killed launches: a living launch holds the lock in its folder."""
    for folder in Path(parent).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, Timeout):
            status = folder.lstat()
            if status.st_uid == os.getuid() and time.time() - status.st_mtime > SETTLED_SECONDS:
                with Lock(folder / "lock").hold():
                    shutil.rmtree(folder, ignore_errors=True)
