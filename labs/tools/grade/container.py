"""The bubblewrap container for students' functions: no network, no files of others, no other processes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from labs.exercises import fresh_process
from labs.run.errors import LabError
from labs.run.paths import ROOT

LARGEST = 64 << 20
"""Bytes that a function may write, in /tmp and in /dev/shm."""
SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")


def command() -> list[str]:
    """Return the command that runs another one in the container; LabError if this computer cannot make one."""
    readable = [*SYSTEM, sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix),
                *filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))]
    # Root needs no namespace of users, but to become another user: the kernel exempts root from limits.
    users = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if os.geteuid() == 0 else ["--unshare-user"]
    words = ["bwrap", *users, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts",
             "--unshare-cgroup-try", "--die-with-parent", "--new-session", "--proc", "/proc", "--dev", "/dev"]
    for folder in ("/tmp", "/dev/shm"):
        words += ["--perms", "1777", "--size", str(LARGEST), "--tmpfs", folder]
    for path in dict.fromkeys(readable):
        for parent in list(Path(path).parents)[-2::-1]:  # bubblewrap's own would be readable for root alone.
            words += ["--dir", str(parent)]
        words += ["--ro-bind-try", path, path]
    for name in ("labs", "solutions"):  # Where they are installed in Python's own folder.
        words += ["--tmpfs", str(ROOT / name)] * any(ROOT.is_relative_to(Path(path)) for path in readable)
    words += ["--ro-bind", str(fresh_process.CHILD), f"/{fresh_process.CHILD.name}", "--remount-ro", "/",
              "--remount-ro", "/dev", "--setenv", "HOME", "/tmp", "--chdir", "/tmp"]
    words += ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] * (os.geteuid() == 0)
    problem = "bubblewrap is not installed (apt install bubblewrap)"
    if shutil.which("bwrap"):
        done = subprocess.run([*words, sys.executable, "-c", ""], capture_output=True, text=True, check=False)
        if not done.returncode:
            return words
        problem = f"bubblewrap makes no container here ({done.stderr.strip().rpartition(chr(10))[2]})"
    raise LabError(f"{problem}, and students' functions run in one; grade on a computer where it does, or add --trust: "
                   "then the functions can do whatever you can")
