"""Atomic writes: a file is there whole, or the old one is."""

import os
import signal
import stat
import subprocess
import sys

import pytest

from labs.run import atomic


def test_a_failed_write_keeps_the_old_and_leaves_nothing(tmp_path):
    atomic.write_text(tmp_path / "a", "old")
    with pytest.raises(RuntimeError), atomic.writing(tmp_path / "a", "w") as file:  # noqa: PT012
        file.write("half")
        raise RuntimeError
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) & 0o444 == 0o444, "other users may read it"


def test_a_writer_that_is_killed_never_leaves_half_a_file(tmp_path):
    program = ("from labs.run import atomic\nimport sys\n"
               "for n in range(10**9):\n"
               "    with atomic.writing(sys.argv[1], 'w') as f:\n"
               "        for _ in range(2000): f.write(f'{n % 10}' * 10)\n"
               "    print(n, flush=True)\n")
    for shot in range(5):
        writer = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "a")], stdout=subprocess.PIPE)
        for _ in range(3 + shot):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        text = (tmp_path / "a").read_text()
        assert len(text) == 20000
        assert len(set(text)) == 1
