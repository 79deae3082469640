"""A package of the npm registry that the site needs in a browser: fetched once, checked, unpacked, cached."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
import tempfile
from pathlib import Path

from labs.run import paths
from labs.run.atomic import make_folder_once
from labs.run.errors import LabError

MATHJAX = ("mathjax", "3.2.2", "1b9c0a1c44df864e915690558e72adb9cc5203360daefd385084ced3b6c64c09")


def fetch(name: str, version: str, sha256: str) -> Path:
    """Return the folder of a package in the cache, with what its archive holds under `package/`.

    Args:
        name: Its name in the registry.
        version: Its exact version.
        sha256: The checksum of its archive.

    Raises:
        LabError: No npm, no network, or another archive than expected.
    """
    def unpack(home: Path) -> None:
        with (tempfile.TemporaryDirectory() as download,
              tarfile.open(_pack(name, version, sha256, Path(download))) as archive):
            archive.extractall(home, filter="data")

    home = paths.data_dir() / ".cache" / "site" / f"{name}-{version}"
    return make_folder_once(home, f"downloading {name}", unpack) / "package"


def _pack(name: str, version: str, sha256: str, folder: Path) -> Path:
    command = ["npm", "pack", "--silent", f"{name}@{version}", "--pack-destination", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    except FileNotFoundError:
        raise LabError(f"the site needs npm once, to download {name}; install Node.js") from None
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise LabError(f"cannot download {name} {version}; `{' '.join(command[:4])}` shows why") from error
    archive = next(folder.glob("*.tgz"))
    if hashlib.sha256(archive.read_bytes()).hexdigest() != sha256:
        raise LabError(f"the checksum of {name} {version} is not the expected one; run make site again")
    return archive
