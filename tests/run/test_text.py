"""Counted nouns, and text made safe for a terminal."""

from __future__ import annotations

import pytest

from labs.launch import capacity
from labs.run import allocation
from labs.run.text import plural, printable, printable_lines
from labs.tools.check import machine
from labs.tools.report import page


def test_one_is_singular():
    assert [plural(count, "core") for count in (0, 1, 2, 1000)] == ["0 cores", "1 core", "2 cores", "1,000 cores"]


@pytest.mark.parametrize(("text", "shown"), [
    ("plain, größer, 写真", "plain, größer, 写真"), ("\x1b[31m", r"\x1b[31m"), ("a\nb\r\t\0", r"a\nb\r\t\x00"),
    ("\x9b31m", r"\x9b31m"), ("\u202e", r"\u202e"), ("\ud800", r"\ud800"),
])
def test_what_a_terminal_would_obey_is_written_out(text, shown):
    assert printable(text) == shown
    assert printable_lines(f"{text.replace(chr(10), '')}\nb").endswith("\nb")


def test_one_core_is_not_several(monkeypatch):
    monkeypatch.setattr(capacity, "slots", lambda: 1)
    with pytest.raises(Exception, match="2 workers on 1 core would"):
        capacity.check_slots(2)
    granted = allocation.Allocation("7", "node1", (1,), 1, 0)
    monkeypatch.setattr(allocation, "current", lambda: granted)
    monkeypatch.setattr(allocation, "check_step", lambda: None)
    assert machine.cores().message == "1 task of 1 on 1 node (job 7)"
    assert page._counted([page._machine({"host": "vm", "cores": 1})]) == ["vm, 1 core, no GPU: 1 run"]
