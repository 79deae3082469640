"""`make`: its help, and an environment that is built once and rebuilt after a change."""

from __future__ import annotations

import fcntl
import os
import subprocess

import pytest


@pytest.mark.parametrize("target", ["lab10", "test"])
def test_the_readmes_commands_make_the_environment_first(clone, target):
    steps = clone.make("-n", target).stdout
    assert "setup/make_env.py env --mpi 'own' --venv '.venv'" in steps.split(".venv/bin/", 1)[0]


class TestEnvironment:
    """`make -q` exits with 0 if nothing is to be done, with 1 if the environment is out of date."""

    @pytest.fixture(autouse=True)
    def _made(self, clone):
        self.clone = clone
        self.stamp = clone.stamp()
        for path in [*clone.folder.rglob("*"), clone.site]:
            os.utime(path, (1000, 1000))
        os.utime(self.stamp, (2000, 2000))

    def due(self, *words: str) -> bool:
        return self.clone.make("-q", "env", *words).returncode == 1

    def test_nothing_is_done_twice(self):
        assert not self.due()

    @pytest.mark.parametrize("name", ["setup/constraints.txt", "pyproject.toml", "setup/horovod.cmake"])
    def test_after_a_change(self, name):
        os.utime(self.clone.folder / name)
        assert self.due()

    def test_after_something_was_installed_or_the_clone_was_moved(self):
        (self.clone.site / "keras-3.5.0.dist-info").mkdir()
        assert self.due()
        self.stamp.write_text("/elsewhere/.venv\n/elsewhere\n")
        assert self.due()

    def test_the_choice_is_remembered(self):
        self.stamp.rename(self.stamp.with_name(".ready-default-system"))
        assert not self.due()
        assert self.due("MPI=own")
        assert "--mpi 'system'" in self.clone.make("-n", "-B", "env").stdout

class TestPython:
    """The newest Python that fits makes the environment."""

    @pytest.fixture(autouse=True)
    def _pythons(self, clone):
        (clone.bin / clone.python).unlink()
        for minor, micro in ((10, 9), (11, 4), (12, 0), (13, 5), (14, 0)):
            clone.fake_python(f"python3.{minor}", (3, minor, micro))
        clone.fake_python("python3", (3, 14, 0))
        self.clone = clone

    def chosen(self, *words: str) -> str:
        return self.clone.make("env", *words).stdout.splitlines()[-1].split()[0].rpartition("/")[2]

    def test_the_newest_that_fits(self):
        assert self.chosen() == "python3.13"
        (self.clone.bin / "python3.13").unlink()
        assert self.chosen() == "python3.12"

def test_who_has_waited_for_another_run_takes_its_result(clone):
    env = {"PATH": str(clone.bin), "HOME": str(clone.folder)}
    with (clone.folder / ".env-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [clone.bin / "make", "env"]
        second = subprocess.Popen(command, cwd=clone.folder, env=env, stdout=subprocess.PIPE, text=True)
        assert second.stdout.readline() == "waiting for another run that makes this environment\n"
        clone.stamp()
    assert second.wait(30) == 0
    assert not second.stdout.read()
    assert not (clone.folder / ".env-log").exists()


def test_clean_leaves_data_and_results(clone):
    clone.link("rm", "/bin/rm")
    clone.stamp()
    for name in ("data", "results", ".venv-site"):
        (clone.folder / name).mkdir()
    clone.make("clean")
    assert not list(clone.folder.glob(".venv*"))
    assert {"Makefile", "data", "results"} <= {path.name for path in clone.folder.iterdir()}
