"""A typed table has the documented columns and plain numbers; anything else is refused in one line with the cure."""

from __future__ import annotations

import re

import pytest

from labs.cli import commands
from labs.run.paths import ROOT


def lint(path, capsys) -> tuple[int, str, str]:
    code = commands.dispatch(["lint", str(path)])
    return code, *capsys.readouterr()


def test_the_template_is_a_table_to_fill_in(tmp_path, capsys):
    assert commands.dispatch(["lint", "--template"]) == 0
    names = capsys.readouterr().out.strip().split(",")
    rows = [{"workers": "1", "images_per_sec": "100"}, {"workers": "2", "images_per_sec": "190"},
            {"workers": "4", "images_per_sec": "600", "part": "warm cache, at night"}]
    lines = [",".join(f'"{row[name]}"' if name in row else "" for name in names) for row in rows]
    (tmp_path / "mine.csv").write_text("\n".join([",".join(names), *lines, "," * (len(names) - 1)]), "utf-8-sig")
    code, out, err = lint(tmp_path / "mine.csv", capsys)
    assert (code, err) == (1, "")
    assert re.match(r"mine\.csv: 3 rows.*\nmine\.csv, line 4: efficiency above 1: 6 times", out)


@pytest.mark.parametrize(("text", "line"), [
    ("", "is not a table; save it as CSV in UTF-8, with commas"),
    ("workers,images_per_sec\n", "holds no figures"),
    ("workers,model\n1,a\n", "holds no figures to check; give at least one of images_per_sec, seconds_per_epoch"),
    ("#GPUs,speedup\n1,1\n", "unknown column '#GPUs'; fill in the table that `labs lint --template` prints"),
    ("workers,sped_up\n1,1\n", "unknown column 'sped_up'; did you mean speedup?"),
    ("workers;speedup\n1;1\n", "no commas between the cells; save it as CSV with commas"),
    ("workers,images_per_sec,seconds_per_epoch,part\n1,100,5\n", "line 2: 3 cells under 4 columns; leave no cell out"),
    ("workers,seconds_per_epoch\n1,-5\n", "line 2: seconds_per_epoch '-5' is below 0"),
    ("workers,speedup,speedup\n1,1,1\n", "the column 'speedup' stands there twice"),
    ("workers,test_accuracy\n1,98.5\n", "line 2: test_accuracy '98.5' is above 1; write 0.91 for 91 %"),
    ("workers,speedup\n1,1\n\n2,1.9x\n", "line 4: speedup '1.9x' is not a number; write it with a decimal point and"),
    ("workers,images\n1,\"60,000\"\n", "holds no figures"),
    ("workers,speedup\n1,inf\n", "line 2: speedup 'inf' is not a number"),
    ("workers,speedup\n1,2\n1,2,3\n", "line 3: 3 cells under 2 columns"),
    ("model,speedup\n\"a,1\n", "line 2: 1 cells under 2 columns"),
    (b"\x89PNG\x00\xff", "is not a table"),
])
def test_what_is_no_such_table_is_refused_in_one_line(text, line, tmp_path, capsys):
    (tmp_path / "typed.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    code, out, err = lint(tmp_path / "typed.csv", capsys)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("labs: error: typed.csv")
    assert line in err


def test_one_bad_path_does_not_hide_the_others(tmp_path, capsys):
    reference = ROOT / "data/reference/lab08_speedup.csv"
    assert commands.dispatch(["lint", *map(str, (tmp_path / "none.csv", tmp_path, reference))]) == 1
    out, err = capsys.readouterr()
    assert "No such file or directory; give a results folder, which `labs run lab10_caltech` makes, or" in err
    assert "holds no record" in err
    assert "lab08_speedup.csv, line 7: efficiency above 1: " in out
