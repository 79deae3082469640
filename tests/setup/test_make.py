"""`make`: its help, and an environment that is built once and rebuilt after a change."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess

import pytest

from tests.setup.clone import ROOT


def test_make_alone_explains_every_target(clone):
    printed = clone.make().stdout
    targets = re.search(r"^\.PHONY: (.*) FORCE$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    assert [line.split()[1] for line in printed.splitlines()] == targets
    assert len(targets) >= 10


@pytest.mark.parametrize("target", ["lab10", "test"])
def test_the_readmes_commands_make_the_environment_first(clone, target):
    steps = clone.make("-n", target).stdout
    assert "setup/make_env.py env --mpi own" in steps.split(".venv/bin/", 1)[0]


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

    def test_without_a_stamp(self):
        self.stamp.unlink()
        assert self.due()

    @pytest.mark.parametrize("name", ["constraints.txt", "pyproject.toml", "setup/proof.py", "setup/horovod.cmake"])
    def test_after_a_change(self, name):
        os.utime(self.clone.folder / name)
        assert self.due()

    def test_after_something_was_installed(self):
        (self.clone.site / "keras-3.5.0.dist-info").mkdir()
        assert self.due()

    def test_in_a_clone_that_was_moved(self):
        self.stamp.write_text("/elsewhere")
        assert self.due()

    def test_with_another_mpi(self):
        assert self.due("MPI=system")

    def test_the_choice_of_mpi_is_remembered(self):
        self.stamp.rename(self.stamp.with_name(".ready-system"))
        assert not self.due()
        assert self.due("MPI=own")


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
    for name in ("data", "results"):
        (clone.folder / name).mkdir()
    clone.make("clean")
    assert not clone.venv.exists()
    assert {"Makefile", "data", "results"} <= {path.name for path in clone.folder.iterdir()}
