"""Attempts of a hostile function, each of which returns "done" unless it is stopped."""

import os
import signal
import socket
import time


def attack(folder, port, victim, solutions):
    """Try everything on a folder of another student, a listening port, a process, and the solutions."""
    secret = folder + "/secret"

    def processes():
        started = []
        try:
            for _ in range(100):
                if (process := os.fork()) == 0:
                    time.sleep(60)
                    os._exit(0)
                started.append(process)
        finally:
            for process in started:
                os.kill(process, signal.SIGKILL)

    def disk():
        for number in range(3):
            with open(f"{number}", "wb") as file:
                file.write(bytes(40 << 20))

    attempts = {
        "read another hand-in": lambda: open(secret).close(),
        "list its folder": lambda: os.listdir(folder),
        "read the solutions": lambda: os.listdir(solutions),
        "read a process's variables": lambda: open(f"/proc/{victim}/environ", "rb").close(),
        "overwrite": lambda: open(secret, "r+").close(),
        "write beside it": lambda: open(folder + "/new", "w").close(),
        "delete": lambda: os.unlink(folder + "/old"),
        "change the mode": lambda: os.chmod(secret, 0o600),
        "connect": lambda: socket.create_connection(("127.0.0.1", port), 5).close(),
        "signal": lambda: os.kill(victim, signal.SIGCONT),
        "write in the root folder": lambda: (open("/labs-was-here", "w").close(), os.unlink("/labs-was-here")),
        "fill the disk": disk,
        "a hundred processes": processes,
    }
    return {name: outcome(attempt) for name, attempt in attempts.items()}


def outcome(attempt):
    """Return "done", or the error that stopped an attempt."""
    try:
        attempt()
    except BaseException as stopped:
        return type(stopped).__name__
    return "done"
