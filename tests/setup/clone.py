"""A clone for tests of `make`, on a machine that has only the programs that a test adds."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
PINS = dict(line.split("==") for line in (ROOT / "setup/constraints.txt").read_text().split())


class Clone:
    """A clone with a PATH that holds only a few programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.venv = folder / ".venv"
        self.site = self.venv / "lib" / f"python{VERSION}" / "site-packages"
        self.bin = folder.parent / "bin"
        self.bin.mkdir()
        for name in ("Makefile", "setup", "pyproject.toml", "environment.yml", "labs/run/terminal.py",
                     "horovod_keras3/pyproject.toml"):
            self._copy(name)
        for name in ("awk", "bash", "cat", "make", "sort"):
            self.link(name, Path(shutil.which(name)))
        self.python = f"python{VERSION}"
        self.link(self.python, Path(sys.base_prefix) / "bin" / self.python)

    def _copy(self, name: str) -> None:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, self.folder / name)

    def link(self, name: str, program: Path) -> None:
        """Put a program on PATH."""
        (self.bin / name).symlink_to(program)

    def script(self, name: str, text: str) -> None:
        """Put a shell script on PATH."""
        path = self.bin / name
        path.unlink(missing_ok=True)  # Never write through a link to the real program.
        path.write_text(f"#!{self.bin}/bash\n{text}\n")
        path.chmod(0o755)

    def fake_python(self, name: str, version: tuple[int, ...], system: str = "linux") -> None:
        """Put a Python on PATH with another version or system; it prints its name instead of making an environment."""
        reported = f"sys.version_info = {version}; sys.platform = '{system}'"
        program = (f"import runpy, sys; {reported}; sys.argv[:1] = []; "
                   "runpy.run_path(sys.argv[0], run_name='__main__')")
        report, ask = 'echo "$0 $*"', f'exec {sys.executable} -c "{program}" "$@"'
        self.script(name, f"case $1 in *make_env.py) {report} ;; *) {ask} ;; esac")

    def stamp(self) -> Path:
        """Write the stamp of a successful `make env`."""
        self.site.mkdir(parents=True, exist_ok=True)
        stamp = self.venv / ".ready-default-own"
        stamp.write_text(f"{self.folder / '.venv'}\n{self.folder}\n")
        return stamp

    def make(self, *args: str) -> subprocess.CompletedProcess:
        """Run make without the environment variables of this process."""
        env = {"PATH": str(self.bin), "HOME": str(self.folder.parent), "LC_ALL": "C"}
        command = [str(self.bin / "make"), *args]
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=120)

    def obstacle(self, *args: str) -> str:
        """Run make, which must fail with exactly one error line, and return that line."""
        done = self.make(*args)
        assert done.returncode != 0
        assert "Traceback" not in done.stdout + done.stderr
        lines = [line for line in done.stderr.splitlines() if not line.startswith("make: ***")]
        assert len(lines) == 1, done.stderr
        return lines[0]
