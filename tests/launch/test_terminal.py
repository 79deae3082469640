"""What a student sees of a run: a real terminal of 80 columns, replayed step by step."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyte
import pytest

from labs.run.paths import ROOT
from tests.results.test_records import record, write

BAR, LINE = re.compile(r"epoch \d+: +\d+%"), re.compile(r"epoch \d+/\d+  ")


def screens(command: Sequence[object], columns: int, may_fail: bool = False, **variables: str) -> Iterator[list[str]]:
    """Run a program in a terminal and yield the lines on its screen at each carriage return.

    The screen is wider than the program knows, so that a line that would be wrapped is seen whole.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environ = {name: value for name, value in os.environ.items() if name != "LABS_TERMINAL"}
    process = subprocess.Popen([str(word) for word in command], stdin=slave, stdout=slave, stderr=slave, cwd=ROOT,
                               start_new_session=True, env={**environ, "TERM": "xterm", **variables})
    os.close(slave)
    screen = pyte.Screen(300, 60)
    stream = pyte.ByteStream(screen)
    while written := _read(master):
        for piece in re.findall(rb"[^\r]*\r?", written):
            stream.feed(piece)
            yield "\n".join(line.rstrip() for line in screen.display).rstrip().split("\n")
    os.close(master)
    assert process.wait(60) == 0 or may_fail, screen.display


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # No process has the terminal open any more.
        return b""


LIVE = """
import sys
from labs.run.terminal import live, ticking
live.show("epoch 1:  50%" + "|" * 99, " 1/2")
live.write("epoch 1/2  loss 1.5\\n", sys.stdout)
with ticking("labs: running,"):
    pass
live.show("epoch 2:  50%")
"""


def test_lines_appear_above_the_live_line():
    *_, last = screens([sys.executable, "-c", LIVE], 40)
    assert last == ["epoch 1/2  loss 1.5", "epoch 2:  50%"]
    longest = max((lines[-1] for lines in screens([sys.executable, "-c", LIVE], 40)), key=len)
    assert longest == "epoch 1:  50%".ljust(35, "|") + " 1/2", "cut before its tail"


COMMANDS = ([], ["--help"], ["results"], ["data", "list"],
            ["check", "--only", "packages", "--only", "disk"], ["sweep", "lab04", "--list"], ["run", "lab10", "-h"])


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_line_of_a_command_is_wrapped(words, results):
    write(results, record("20261125-210024-w2"))
    for lines in screens([sys.executable, "-m", "labs", *words], 80, may_fail=True, LABS_RESULTS=str(results)):
        assert max(map(len, lines)) <= 80, lines
    assert lines != [""]
    if words == ["results"]:
        assert lines[-1].startswith("(too narrow for: nodes"), lines
        assert "20261125-210024-w2" in lines[-2]


@pytest.fixture
def results() -> Iterator[Path]:
    """A results folder whose path is short: no terminal can fold a path."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.workers
def test_a_run_leaves_a_clean_screen(results):
    """The bar is never on a line with anything else, no line is wrapped, and the commands at the end can be pasted."""
    bars = set()
    variables = {"LABS_RESULTS": str(results), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["labs", "run", "lab10", "--workers", "2", "--epochs", "2", "--image-size", "16", "--oversubscribe"]
    for lines in screens(command, 80, **variables):
        assert max(map(len, lines)) <= 80, lines
        assert not [line for line in lines if len(re.findall(r"epoch \d|labs: ", line)) > 1]
        assert len([line for line in lines if BAR.match(line)]) <= 1
        assert not any(BAR.match(line) for line in lines[:-1]), lines
        bars |= {line.partition("|")[0] for line in lines if BAR.match(line)}
    assert {bar.partition(":")[0] for bar in bars} == {"epoch 1", "epoch 2"}
    assert not [line for line in lines if BAR.match(line) or line.startswith("labs: running")], "it is gone at the end"
    assert len([line for line in lines if LINE.match(line)]) == 2
    report, _, again = [line.partition("  #")[0] for line in lines[lines.index("Next:") + 1 :]]
    assert again == "  labs run lab10_caltech --workers 1 --image-size 16 --epochs 2"
    subprocess.run(report, shell=True, cwd=ROOT, env={**os.environ, **variables}, check=True)
    assert (results / "report.html").exists()
