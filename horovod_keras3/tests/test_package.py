"""The package as pip installs it: one module, without what surrounds its folder."""

import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]
FILES = ("pyproject.toml", "README.md", "LICENSE", "horovod_keras3.py")
pytest.importorskip("pip")
PIP = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
OFFLINE = ["--no-deps", "--no-build-isolation", "--no-index"]
TRY = """
import importlib.util
import horovod_keras3 as hvd
hvd.init()
print(hvd.__file__, hvd.size(), importlib.util.find_spec("labs"))
"""


def test_the_wheel_is_one_module_that_is_imported_without_the_kit_and_does_not_require_horovod(tmp_path):
    """pip would build a missing Horovod from source, where its build finds no TensorFlow."""
    folder, target = tmp_path / "package", tmp_path / "target"
    folder.mkdir()
    for name in FILES:  # A copy, since setuptools writes into the folder from which it builds.
        shutil.copy(PACKAGE / name, folder)
    subprocess.run([*PIP, "wheel", *OFFLINE, "--wheel-dir", folder, folder], check=True)
    (wheel,) = folder.glob("horovod_keras3-*.whl")
    file = zipfile.ZipFile(wheel)
    names = file.namelist()
    assert [name for name in names if ".dist-info/" not in name] == ["horovod_keras3.py"]
    assert [name for name in names if name.endswith("/LICENSE")]
    (metadata,) = [file.read(name).decode() for name in names if name.endswith("/METADATA")]
    required = re.findall(r"^Requires-Dist: ([^;\n]*)$", metadata, re.MULTILINE)
    assert required == ["tensorflow>=2.16", "keras>=3", "numpy"]
    subprocess.run([*PIP, "install", *OFFLINE, "--target", target, wheel], check=True)
    # -S: without .pth files, which put an editable install of this package, and the kit, on sys.path.
    path = f"{target}:{sysconfig.get_path('platlib')}:{sysconfig.get_path('purelib')}"
    env = {"PYTHONPATH": path, "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-S", "-c", TRY], cwd=tmp_path, env=env, capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.stdout.split() == [str(target / "horovod_keras3.py"), "1", "None"], done.stderr
