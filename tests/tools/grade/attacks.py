"""Attempts of a hostile function, each of which returns "done" unless it is stopped."""

import ctypes
import mmap
import os
import resource
import signal
import socket
import subprocess
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)


def called(*args):
    """Make a system call."""
    if LIBC.syscall(*args) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def attack(folder, port, victim):
    """Try everything on a folder of another student, a listening port, and a process; return what happened."""
    secret = folder + "/secret"

    def child():
        if os.fork() == 0:
            os._exit(0)
        os.wait()

    def through_proc():
        with open(f"/proc/{victim}/environ", "rb") as file:
            file.read()

    attempts = {
        "read another hand-in": lambda: open(secret).close(),
        "list its folder": lambda: os.listdir(folder),
        "read a process's variables": through_proc,
        "overwrite": lambda: open(secret, "r+").close(),
        "write beside it": lambda: open(folder + "/new", "w").close(),
        "write in the current folder": lambda: open("mine", "w").close(),
        "delete": lambda: os.unlink(folder + "/old"),
        "rename": lambda: os.rename(folder + "/older", folder + "/other"),
        "link": lambda: os.symlink("/", folder + "/link"),
        "truncate": lambda: os.truncate(folder + "/long", 0),
        "change the mode": lambda: os.chmod(secret, 0o600),
        "change the time": lambda: os.utime(secret),
        "fork": child,
        "start a program": lambda: subprocess.run(["/bin/true"], check=True),
        "spawn a daemon": lambda: os.posix_spawn("/bin/true", ["true"], {}),
        "connect": lambda: socket.create_connection(("127.0.0.1", port)).close(),
        "listen": lambda: socket.create_server(("127.0.0.1", 0)).close(),
        "signal": lambda: os.kill(victim, signal.SIGCONT),
        "signal the parent": lambda: os.kill(os.getppid(), signal.SIGCONT),
        "limit a process": lambda: resource.prlimit(victim, resource.RLIMIT_CORE, (0, 0)),
        "slow a process down": lambda: os.setpriority(os.PRIO_PROCESS, victim, 1),
        "own a signal": lambda: __import__("fcntl").fcntl(0, 8, victim),
        "memory in a file": lambda: os.memfd_create("x"),
        "shared memory": lambda: called(29, 0, 4096, 0o1600),  # shmget on x86-64.
        "a new namespace": lambda: called(272, 0x10000000),  # unshare
        "an io_uring": lambda: called(425, 1, ctypes.create_string_buffer(120)),
        "leave the session": lambda: os.setsid() if os.getsid(0) != os.getpid() else os.setpgid(0, 0),
        "map memory beyond the limit": lambda: mmap.mmap(-1, 3 << 30).close(),
        # The last: a process with two threads may not make a namespace, even where nothing is confined.
        "start a thread": lambda: threading.Thread(target=time.sleep, args=(0,)).start(),
    }
    return {name: outcome(attempt) for name, attempt in attempts.items()}


def outcome(attempt):
    try:
        attempt()
    except BaseException as stopped:
        return type(stopped).__name__
    return "done"
