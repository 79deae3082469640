"""What a student sees of a run: a real terminal of 80 columns, replayed step by step."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence

import pyte
import pytest

from labs.run.paths import ROOT

BAR, LINE = re.compile(r"epoch \d+: +\d+%"), re.compile(r"epoch \d+/\d+  ")


def screens(command: Sequence[object], **variables: str) -> Iterator[list[str]]:
    """Run a program in a terminal and yield the lines on its screen at each carriage return."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
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
    assert process.wait(60) == 0, screen.display


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # No process has the terminal open any more.
        return b""


@pytest.mark.workers
def test_the_progress_is_on_a_line_below_all_others_and_gone_at_the_end(tmp_path):
    bars = set()
    command = [sys.executable, "-m", "labs", "run", "lab10", "--workers", "2", "--epochs", "2", "--image-size", "16",
               "--oversubscribe"]
    for lines in screens(command, LABS_RESULTS=str(tmp_path)):
        assert not [line for line in lines if len(re.findall(r"epoch \d|labs: ", line)) > 1]
        assert not any(BAR.match(line) for line in lines[:-1]), lines
        bars |= {line.partition(":")[0] for line in lines if BAR.match(line)}
        assert not [line for line in lines if BAR.match(line) and len(line) > 80]
    assert bars == {"epoch 1", "epoch 2"}
    assert not any(map(BAR.match, lines))
    assert len(list(filter(LINE.match, lines))) == 2
