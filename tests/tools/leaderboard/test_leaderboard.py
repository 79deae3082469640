"""`labs leaderboard`: who scales best, and whose runs do not count."""

from __future__ import annotations

import pytest

from labs.cli import commands
from labs.run.errors import LabError
from tests.course.plausibility.test_lint import sound
from tests.results.test_records import write

CLOCKS = {"anna": 2.1234, "bert": 2.3456, "carl": 2.5678, "dora": 2.7891}


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Four students: Bert is the best, Carl's speedup is impossible, Dora has no baseline with her settings."""
    monkeypatch.chdir(tmp_path)
    for name, speedup in (("anna", 1.6), ("bert", 1.8), ("carl", 2.5), ("dora", 1.9)):
        for workers in (1, 2):
            run = sound(f"w{workers}", workers, 100.0 if workers == 1 else 100.0 * speedup)
            run["history"] = [row | {"train_seconds": CLOCKS[name] + workers + 0.1 * row["epoch"]}
                              for row in run["history"]]
            if (name, workers) == ("dora", 2):
                run["config"]["base_lr"] = 0.2
            write(tmp_path / name, run)
    return ["anna", "bert", "carl", "dora"]


def ranking(capsys, *words: str) -> tuple[list[list[str]], str]:
    """Return the rows and what is below them."""
    commands.dispatch(["leaderboard", "lab10", *words])
    table, _, below = capsys.readouterr().out.partition("left out: ")
    return [line.split()[:4] for line in table.splitlines()[3:]], below


def test_efficiency_ranks_and_what_lint_flags_is_left_out_with_its_reason(folders, capsys):
    rows, below = ranking(capsys, *folders, "--workers", "2")
    assert rows == [["1", "bert", "0.9", "180"], ["2", "anna", "0.8", "160"]]
    assert "carl/lab10_caltech/w2: efficiency above 1: 2.5 times" in below
    assert "dora: no plausible runs on 1 and 2 workers with the same settings" in " ".join(below.split())


def test_a_copied_record_counts_for_neither(folders, tmp_path, capsys):
    (tmp_path / "eve").mkdir()
    (tmp_path / "bert/lab10_caltech").rename(tmp_path / "eve/lab10_caltech")
    (tmp_path / "bert/lab10_caltech").symlink_to(tmp_path / "eve/lab10_caltech")
    rows, below = ranking(capsys, *folders, "eve")
    assert rows == [["1", "anna", "0.8", "160"]]
    for name in ("bert", "eve"):
        assert f"{name}/lab10_caltech/w2: identical clocks" in below


def test_where_nobody_can_be_ranked_the_command_is_named(folders):
    with pytest.raises(LabError, match=r"plausible runs of lab10_caltech on 1 and 4 workers.*`labs sweep lab10_"):
        commands.dispatch(["leaderboard", "lab10", *folders, "--workers", "4"])
