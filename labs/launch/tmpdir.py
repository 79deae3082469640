"""A temporary folder for each launch."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping

from labs.launch import mpirun
from labs.run.paths import temporary_dir


@contextlib.contextmanager
def private_tmpdir(environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Make a folder for the temporary files of a launcher and its workers; yield the variables that name it.

    It is removed after the block. In the common folder, Open MPI's launcher names its files by its process number.
    Those of a killed launcher stay, and if that number is used again, the next launcher does not start: "The PMIx
    server's listener thread failed to start". A killed worker leaves the code that TensorFlow has generated.

    Args:
        environ: The environment of the launcher; LABS_TMPDIR in it names the folder of files that runs share.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="labs-mpi-", ignore_cleanup_errors=True)
    except OSError:  # A full disk or missing rights: the launcher reports it for its own folder.
        yield {}
        return
    with folder as path:
        if mpirun.nodes() > 1:  # The workers' folder would have to exist on all nodes; the launcher's is on this one.
            yield {"PRTE_MCA_prte_local_tmpdir_base": path}
            return
        yield {"PRTE_MCA_prte_tmpdir_base": path, "OMPI_MCA_orte_tmpdir_base": path,  # Open MPI 5, and 4.
               "TMPDIR": path, "LABS_TMPDIR": environ.get("LABS_TMPDIR") or str(temporary_dir())}
