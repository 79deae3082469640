"""A machine to break: what `labs check` finds on this one when its environment, folders and programs are others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from labs.run.paths import ROOT
from tests.setup.clone import VERSION, pretend_installed

SITE = Path(sysconfig.get_path("purelib"))
FOREIGN = ("LABS_", "HOROVOD_", "OMPI_", "PMIX_", "PRTE_", "SLURM_", "SBATCH_", "TF_", "PYTHON", "MPLBACKEND", "KERAS_",
           "TMPDIR", "REQUESTS_", "CUDA_", "LD_")


class Machine:
    """This machine with a separate home, results and data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = Path(sys.executable)
        self.program = ["-m", "labs"]
        self.before: list[str] = []
        """What stands before the command: unshare, setpriv ..."""
        self._group: Path | None = None
        self.results, self.data = folder / "results", folder / "data"
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        self.env |= {"LABS_RESULTS": str(self.results), "LABS_DATA": str(self.data), "HOME": str(folder),
                     "PYTHONPATH": str(ROOT)}
        for each in (self.results, self.data):
            each.mkdir()

    def check(self, *words: str) -> subprocess.CompletedProcess:
        """Type `labs check ...`."""
        command = [*self.before, self.python, *self.program, "check", *words]
        return subprocess.run(command, env=self.env, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)

    def findings(self, name: str) -> list[dict[str, str]]:
        """Return the lines of one check; the command's status must say the same as they do."""
        done = self.check("--json", "--only", name)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.returncode == int(any(line["state"] == "fail" for line in lines)), done.stdout + done.stderr
        assert lines, done.stderr
        return lines

    def overlay(self, name: str, version: str) -> None:
        """Lay a package over the environment's, as PYTHONPATH does."""
        layer = self.folder / "overlay"
        package = layer / name
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        pretend_installed(layer, name, version)
        self.env["PYTHONPATH"] = f"{layer}:{ROOT}"

    def environment(self, *without: str) -> Path:
        """Make a separate virtual environment, whose packages are the real ones less some; return their folder."""
        prefix = self.folder / ".venv"
        site = prefix / "lib" / f"python{VERSION}" / "site-packages"
        site.mkdir(parents=True)
        for entry in SITE.iterdir():
            if not entry.name.startswith(without or "-"):
                (site / entry.name).symlink_to(entry)
        base = Path(sys.executable).resolve()
        (prefix / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
        (prefix / "bin").mkdir()
        self.python = prefix / "bin" / "python"
        self.python.symlink_to(base)
        return site

    def script(self, name: str, text: str) -> None:
        """Put a program before all others on the PATH."""
        program = self.folder / "programs" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        self.env["PATH"] = f"{program.parent}:{self.env['PATH']}"

    def apart(self, flag: str, script: str) -> None:
        """Run the check in a new namespace (`unshare`), in which a script has run before."""
        apart = ["unshare", *(["--map-root-user"] if os.geteuid() else []), flag]
        if subprocess.run([*apart, "sh", "-ec", script], capture_output=True, check=False).returncode:
            pytest.skip(f"`{' '.join(apart)}` needs more rights here")
        self.before = [*apart, "sh", "-ec", f'{script}\nexec "$@"', "sh"]

    def student(self) -> None:
        """Take root's right to write and read what the permissions of a file forbid."""
        if os.geteuid() == 0:
            self.before = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]

    def part(self, *names: str) -> Path:
        """Make a separate folder of the environment's packages, with links to its contents, and return it."""
        site = self.folder / ".venv" / "lib" / f"python{VERSION}" / "site-packages"
        if not site.exists():
            self.environment()
        folder, real = site.joinpath(*names), SITE.joinpath(*names)
        folder.unlink()
        folder.mkdir()
        for entry in real.iterdir():
            (folder / entry.name).symlink_to(entry)
        return folder

    def group(self, *limits: tuple[str, str]) -> None:
        """Put the check into a control group below one that has a limit.

        Args:
            limits: The file that sets it and its content, for each version of control groups.
        """
        for file, limit in limits:
            path = Path("/sys/fs/cgroup", file)
            self._group = path.parent / f"labs-check-{os.getpid()}"
            try:
                (self._group / "inner").mkdir(parents=True)
                (self._group / path.name).write_text(limit)
            except OSError:
                self.repair()
                continue
            self.before = ["sh", "-c", f'echo $$ > {self._group}/inner/cgroup.procs && exec "$@"', "sh"]
            return
        pytest.skip("no control group can be made here")

    def repair(self) -> None:
        """End and remove what a breakage has left outside of its folder."""
        for group in (self._group / "inner", self._group) if self._group else ():
            group.exists() and group.rmdir()
        self.results.is_dir() and self.results.chmod(0o755)
