"""Check of a Python interpreter: whether `make env` or `make horovod` can use it.

    python setup/suitable.py env      # exit status 0 if it can, else 1; prints the reason unless it is the version

`make` runs this file with every Python that it finds, from the newest to the oldest. A Python that is too old to parse
the file also exits with 1.
"""

from __future__ import annotations

import importlib.util
import sys

OLDEST, TOO_NEW = (3, 11, 4), (3, 14, 0)  # TensorFlow 2.21's wheels; from 3.11.4 on tarfile has filter="data".

SYSTEMS = {"darwin": "macOS", "win32": "Windows", "cygwin": "Windows", "msys": "Windows"}


def another_system() -> str | None:
    """Return a message that names the alternatives if this system is not Linux, else None."""
    if sys.platform == "linux":
        return None
    system = SYSTEMS.get(sys.platform, sys.platform)
    wsl = "WSL 2, " if system == "Windows" else ""
    ways = f"{wsl}a container, GitHub Codespaces or a cluster (docs/setup.md)"
    return f"this is {system}, and the kit needs Linux: {ways}"


def obstacle() -> str | None:
    """Return why this Python cannot create virtual environments, or None if it can."""
    if importlib.util.find_spec("ensurepip"):
        return None
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    return f"{sys.executable} cannot create virtual environments; apt-get install {package}"


def main() -> int:
    """Return 0 if `make` can use this Python, else 1; print the reason unless it is the version."""
    if reason := another_system():  # Checked first: on a Mac no other Python helps.
        print(reason)
        return 1
    if not OLDEST <= sys.version_info[:3] < TOO_NEW:
        return 1
    if sys.argv[1] == "horovod" or not (reason := obstacle()):
        return 0
    print(reason)
    return 1


if __name__ == "__main__":
    sys.exit(main())
