"""`make env`: an environment that is built once, and again after a change."""

import os


def test_the_environment_is_made_first_once_and_after_a_change(clone):
    """`make -q` exits with 0 if nothing is to be done, with 1 if the environment is out of date."""
    for target in ("lab10", "test"):
        steps = clone.make("-n", target).stdout
        assert "setup/make_env.py env --mpi 'own' --venv '.venv'" in steps.split(".venv/bin/", 1)[0]
    stamp = clone.stamp()

    def due(*words: str) -> bool:
        return clone.make("-q", "env", *words).returncode == 1

    def settle() -> None:
        for path in [*clone.folder.rglob("*"), clone.site]:
            os.utime(path, (1000, 1000))
        os.utime(stamp, (2000, 2000))

    for name in ("setup/constraints.txt", "pyproject.toml", "setup/horovod.cmake"):
        settle()
        assert not due()
        os.utime(clone.folder / name)
        assert due(), name
    settle()
    (clone.site / "keras-3.5.0.dist-info").mkdir()
    assert due(), "something was installed"
    settle()
    stamp = stamp.rename(stamp.with_name(".ready-default-system"))
    assert not due()
    assert due("MPI=own")
    assert "--mpi 'system'" in clone.make("-n", "-B", "env").stdout, "the choice is remembered"
    settle()
    stamp.write_text("/elsewhere/.venv\n/elsewhere\n")
    assert due(), "the clone was moved"


def test_the_newest_python_that_fits(clone):
    (clone.bin / clone.python).unlink()
    for minor, micro in ((10, 9), (11, 4), (12, 0), (13, 5), (14, 0)):
        clone.fake_python(f"python3.{minor}", (3, minor, micro))
    for newest in ("python3.13", "python3.12"):
        assert clone.make("env").stdout.splitlines()[-1].split()[0].rpartition("/")[2] == newest
        (clone.bin / newest).unlink()


def test_clean_leaves_data_and_results(clone):
    clone.link("rm", "/bin/rm")
    clone.stamp()
    for name in ("data", "results", ".venv-site"):
        (clone.folder / name).mkdir()
    clone.make("clean")
    assert not list(clone.folder.glob(".venv*"))
    assert {"Makefile", "data", "results"} <= {path.name for path in clone.folder.iterdir()}
