"""Tables in terminals of several widths."""

from __future__ import annotations

import pytest

from labs.run import terminal

ROWS = [["batch", "workers", "images/s", "first epoch, s"],
        ["16", "1", "974 [872, 1,074]", "4.37"],
        ["16", "2", "1,388 [1,352, 1,417]", "4.56"]]


@pytest.mark.parametrize(("columns", "text"), [
    (46, """\
                                       first
                                      epoch,
batch  workers              images/s       s
-----  -------  --------------------  ------
   16        1      974 [872, 1,074]    4.37
   16        2  1,388 [1,352, 1,417]    4.56"""),
    (30, """\
workers              images/s
-------  --------------------
      1      974 [872, 1,074]
      2  1,388 [1,352, 1,417]
(too narrow for: first epoch,
s, batch)"""),
    (25, """\

         batch  16
       workers  1
      images/s  974 [872, 1,074]
first epoch, s  4.37

         batch  16
       workers  2
      images/s  1,388 [1,352, 1,417]
first epoch, s  4.56"""),
])
def test_a_table_fits_its_terminal_and_no_number_is_cut(columns, text, monkeypatch):
    monkeypatch.setenv("LABS_TERMINAL", f"{columns},0")
    assert terminal.table(ROWS) == text


def test_a_command_in_a_line_stays_whole(monkeypatch):
    monkeypatch.setenv("LABS_TERMINAL", "40,40")
    assert terminal.folded("no record yet of several workers; `labs sweep lab04_speedup` makes it", 2) == (
        "no record yet of several workers;\n  `labs sweep lab04_speedup` makes it")
    assert terminal.folded("absent  datasets  none of 5 -> labs data fetch NAME", 4) == (
        "absent  datasets  none of 5\n    -> labs data fetch NAME")
