"""Counted nouns, and text made safe for a terminal."""

from __future__ import annotations

import pytest

from labs.run.text import one_line, plural, printable, printable_lines


def test_one_is_singular():
    assert [plural(count, "core") for count in (0, 1, 2, 1000)] == ["0 cores", "1 core", "2 cores", "1,000 cores"]


@pytest.mark.parametrize(("text", "shown"), [
    ("größer, 写真", "größer, 写真"), ("\x1b[31m", r"\x1b[31m"), ("a\r\t\0", r"a\r\t\x00"), ("\x9b31m", r"\x9b31m"),
    ("\u202e", r"\u202e"), ("\ud800", r"\ud800"),
])
def test_what_a_terminal_would_obey_is_written_out(text, shown):
    assert printable(text) == shown
    assert printable_lines(f"{text}\nb") == f"{shown}\nb"


def test_a_message_is_one_line_with_cause_and_cure():
    assert one_line("a\nb" + "x" * 2000 + "cure").startswith("a bxx")
    assert one_line("a\nb" + "x" * 2000 + "cure").endswith("xcure")
