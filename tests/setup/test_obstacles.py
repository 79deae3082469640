"""Obstacles on a machine: each is one line with cause and cure, before anything is installed."""

import subprocess
import sys


def test_no_python_and_another_system(clone):
    (clone.bin / clone.python).unlink()
    clone.fake_python("python3", (3, 11, 2))
    line = clone.obstacle("env")
    assert line.startswith("env: error: no Python from 3.11.4 to 3.13 "
                           "(looked at: python3.13 python3.12 python3.11 python3 python)")
    assert "PYTHON=/path/to/python3.1" in line
    for system, name, ways in (("darwin", "macOS", ""), ("win32", "Windows", "WSL 2, ")):
        clone.fake_python("python3", (3, 9, 6), system=system)  # That of Apple's developer tools.
        assert clone.obstacle("env") == (f"env: error: this is {name}, and the kit needs Linux: {ways}a container, "
                                         "GitHub Codespaces or a cluster (docs/setup.md)")


def test_no_compiler_and_no_mpi_of_the_site(clone):
    assert clone.obstacle("env") == (
        "env: error: there is no C++ compiler (g++) for Horovod; apt-get install g++ or set CXX"
    )
    assert not clone.venv.exists()
    assert "no mpicxx on PATH; load the site's MPI" in clone.obstacle("env", "MPI=system")


def test_a_folder_with_other_files_is_left_alone(clone):
    (clone.folder / "thesis").mkdir()
    (clone.folder / "thesis" / "chapter1.tex").touch()
    command = [sys.executable, "-m", "venv", "--without-pip"]
    subprocess.run([*command, clone.folder / "mine"], check=True)
    subprocess.run([*command, "--prompt", "labs", clone.folder / "kits"], check=True)
    for folder in ("thesis", "mine", "."):
        assert "holds other files, which would be deleted; name a new folder" in clone.obstacle("env", f"VENV={folder}")
    assert (clone.folder / "thesis" / "chapter1.tex").exists()
    assert "no C++ compiler" in clone.obstacle("env", "VENV=kits")
