"""Hostile functions: what they try succeeds elsewhere and fails in the process that the kernel confines."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from labs.run.paths import ROOT
from labs.tools.grade import confinement, sandbox

SOURCE = (ROOT / "tests/tools/grade/attacks.py").read_text()


def test_this_computer_can_confine_functions():
    assert not confinement.missing(), "the tests of this file would test nothing"


@pytest.fixture
def target(tmp_path):
    """A folder, a port, and a process that a function may attack."""
    for name in ("secret", "old", "older", "long"):
        (tmp_path / name).write_text("another student's answer")
    with (socket.create_server(("127.0.0.1", 0)) as server,
          subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as victim):
        yield str(tmp_path), server.getsockname()[1], victim.pid
        victim.kill()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of three system calls are those of x86-64")
def test_whatever_succeeds_elsewhere_is_refused(target, tmp_path):
    program = f"{SOURCE}\nprint([name for name, did in attack(*{target!r}).items() if did != 'done'])"
    (tmp_path / "work").mkdir()
    elsewhere = subprocess.run([sys.executable, "-c", program], cwd=tmp_path / "work", capture_output=True, text=True,
                               check=True)
    assert elsewhere.stdout == "[]\n", "each attempt is a real one"
    for name in ("old", "older", "long"):
        (tmp_path / name).write_text("another student's answer")
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    with sandbox.opened(SOURCE, "attack") as function:
        outcomes = function(*target)
    assert not {name for name, did in outcomes.items() if did == "done"}
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_without_landlock_files_can_be_read_but_nothing_else_and_only_if_asked_for(target, monkeypatch):
    monkeypatch.setattr(confinement, "_landlock_version", lambda: -1)
    with pytest.raises(OSError, match="cannot be confined"), sandbox.opened(SOURCE, "attack"):
        pass
    with sandbox.opened(SOURCE, "attack", unsafe=True) as function:
        outcomes = function(*target)
    assert {name for name, did in outcomes.items() if did == "done"} <= {
        "read another hand-in", "list its folder", "read a process's variables"}


def test_solutions_and_home_are_hidden_and_the_kit_is_not(tmp_path):
    source = ("def f(path):\n    from labs import lab11_multinode\n    from scipy.special import stdtrit\n"
              "    return open(path).read(9)")
    with sandbox.opened(source, "f") as function:
        assert function(str(ROOT / "labs/course/laws.py")).startswith('"""')
        for hidden in (ROOT / "solutions/rubric.md", ROOT / "README.md", os.path.expanduser("~"), "/etc/passwd", "/"):
            with pytest.raises(PermissionError):
                function(str(hidden))


ENDS = {
    "an endless loop": ("while True: pass", "had not ended after 2 s"),
    "sleep": ("__import__('time').sleep(1000)", "had not ended after 2 s"),
    "an exit": ("__import__('os')._exit(0)", "it ended its process"),
    "a crash": ("__import__('ctypes').string_at(0)", r"it ended its process \(signal 11\)"),
    "a flood of answers": ("while True: [__import__('os').write(fd, b'x' * 65536) for fd in (3, 4, 5) if "
                           "__import__('select').select([], [fd], [], 0)[1]]", "more than 1 MiB"),
    "a large answer": ("return 'x' * (2 << 20)", "more than 1 MiB"),
    "a forged line": ("""[__import__('os').write(fd, b'{"right": "all is right"}\\n') for fd in (3, 4, 5) if """
                      """__import__('select').select([], [fd], [], 0)[1]]""", "something other than an answer"),
    "a class in place of data": ("""[__import__('os').write(fd, b'["array", "O", [1], "gASV", true]\\n') for fd in """
                                 """(3, 4, 5) if __import__('select').select([], [fd], [], 0)[1]]""",
                                 "something other than an answer"),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_function_that_does_not_answer_is_ended(name, monkeypatch):
    code, reason = ENDS[name]
    with sandbox.opened(f"def f(x):\n    {code}", "f") as function:
        monkeypatch.setattr(sandbox, "SECONDS", 2)
        function._deadline = time.monotonic() + 2
        for _ in range(2):
            with pytest.raises(sandbox.EndedError, match=reason):
                function(1)
        assert function._process.poll() is not None


def test_memory_and_output_are_limited(capfd):
    source = "def f(x):\n    for _ in range(1000):\n        print('x' * 10**6)\n    return len(bytearray(x))"
    with sandbox.opened(source, "f") as function:
        with pytest.raises(MemoryError):
            function(1 << 31)
        assert function(3) == 3
    assert capfd.readouterr() == ("", "")


def test_the_process_ends_with_the_grader():
    program = ("import os\nfrom labs.tools.grade import sandbox\n"
               "with sandbox.opened('def f(x): return 1', 'f') as f:\n"
               "    print(f._process.pid, flush=True)\n    os.kill(os.getpid(), 9)")
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{int(done.stdout)}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{int(done.stdout)}")


VALUES = [None, True, 3, -2**70, 1.5, float("inf"), "text", b"bytes", [1, (2, {3})], {1: {"a": [None]}, (1, 2): 0.1},
          np.float32(1.5), np.arange(6, dtype="int8").reshape(2, 3)]


def test_values_come_back_as_they_went_and_arguments_may_change():
    source = ("def f(values, array):\n    '''Remainder: drop'''\n    array[0] = 7\n    values.append(object())\n"
              "    return values[:-1]\n")
    with sandbox.opened(source, "f") as function:
        values, array = list(VALUES), np.zeros(2)
        returned = function(values, array)
        assert function.__doc__ == "Remainder: drop"
    for one, other in zip(VALUES, returned, strict=True):
        np.testing.assert_equal(one, other)
        assert type(one) is type(other)
    assert array[0] == 7
    assert repr(values[-1]) == "a object"


def test_a_function_may_call_a_function_of_the_grader_and_errors_pass_through():
    def half(value):
        if value < 0:
            raise ValueError("negative")
        return value / 2

    with sandbox.opened("def f(x, g):\n    return [g(x), g(2 * x)]", "f") as function:
        assert function(3, half) == [1.5, 3.0]
        with pytest.raises(ValueError, match=r"^negative$"):
            function(-1, half)


@pytest.mark.parametrize(("source", "reason"), [("def f(:", "SyntaxError"), ("import nothing", "ModuleNotFoundError"),
                                                ("f = 3", "defines no function f"), ("raise SystemExit", "SystemExit")])
def test_a_file_that_defines_no_function_is_named(source, reason):
    with pytest.raises(AssertionError, match=reason), sandbox.opened(source, "f"):
        pass


