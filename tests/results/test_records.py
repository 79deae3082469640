"""Records of runs."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from labs.cli import commands
from labs.lint import checker
from labs.measure import throughput
from labs.pages import plots
from labs.results import records, run_record, scaling, schema, speed_tables
from labs.run.errors import LabError

HISTORY = [
    {"epoch": 1, "loss": 2.0, "accuracy": 0.2, "val_loss": 1.9, "val_accuracy": 0.25, "images": 1000,
     "train_seconds": 9.0, "val_seconds": 1.0},
    {"epoch": 2, "loss": 1.0, "accuracy": 0.6, "val_loss": 1.2, "val_accuracy": 0.55, "images": 1000,
     "train_seconds": 2.0, "val_seconds": 0.5},
    {"epoch": 3, "loss": 0.5, "accuracy": 0.8, "val_loss": 1.1, "val_accuracy": 0.60, "images": 1000,
     "train_seconds": 3.0, "val_seconds": 0.5},
]


def record(run: str = "a", size: int = 2) -> dict:
    return {
        "format": records.FORMAT, "lab": "lab10_caltech", "run": run, "started": f"2026-01-01T00:00:0{size}+0000",
        "config": {"batch_size": 32, "seed": 1}, "layout": {"size": size, "nodes": 1, "global_batch_size": 32 * size},
        "versions": {}, "machine": {}, "history": HISTORY,
        "timings": {"images_per_sec": throughput.images_per_sec(HISTORY),
                    "seconds_per_epoch": throughput.seconds_per_epoch(HISTORY)},
        "metrics": {"test_accuracy": 0.61},
    }


def test_rates_leave_the_first_epoch_out():
    assert throughput.images_per_sec(HISTORY) == 2000 / 5.0
    assert throughput.seconds_per_epoch(HISTORY) == 3.0
    assert throughput.images_per_sec(HISTORY[:1]) is None


def write(root: Path, *records_of: dict) -> None:
    """Write records, as runs do."""
    for each in records_of:
        folder = root / each["lab"] / each["run"]
        folder.mkdir(parents=True)
        (folder / "record.json").write_text(json.dumps(each))


def test_a_digest_shows_that_a_record_was_edited(tmp_path):
    # What JSON changes: infinities, keys that are numbers, floats without a fraction.
    sealed = json.loads(json.dumps(record() | {"metrics": {"loss": float("nan"), "lr": 1e22, "by": {10: 1, 9: 2.0}}}))
    sealed["digest"] = schema.digest(sealed)
    write(tmp_path, sealed)
    assert records.digest_state(records.read(tmp_path / "lab10_caltech/a")) == "intact"
    edited = json.loads(json.dumps(sealed))
    edited["history"][1]["train_seconds"] = 1.9
    assert records.digest_state(edited) == "edited"
    assert records.digest_state(record()) == "none"


def test_runs_are_loaded_as_a_table_oldest_first(tmp_path):
    write(tmp_path, record("a", 2), record("b", 1))
    runs = records.load("lab10_caltech", tmp_path)
    assert list(runs["run"]) == ["b", "a"]
    assert list(runs["size"]) == [1, 2]
    assert list(runs["images_per_sec"]) == [400, 400]
    assert records.load("lab99", tmp_path).empty


def test_all_that_is_known_comes_as_csv(tmp_path, monkeypatch, capsys):
    write(tmp_path, record("a", 2), record("b", 1))
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    commands.dispatch(["results", "lab10_caltech", "--csv", str(tmp_path / "runs.csv")])
    written = pd.read_csv(tmp_path / "runs.csv")
    pd.testing.assert_frame_equal(written.drop(columns=["val_accuracy", "disturbed"]),
                                  records.load("lab10_caltech").drop(columns="disturbed"),  # "" is read as NaN.
                                  check_dtype=False)
    assert list(written["val_accuracy"]) == [0.6, 0.6], "of the last epoch"
    assert capsys.readouterr().out == f"{tmp_path}/runs.csv: 2 runs, {len(written.columns)} columns\n"
    with pytest.raises(LabError, match=r"cannot write .*/runs.csv: File exists; choose another --csv"):
        commands.dispatch(["results", "--csv", str(tmp_path / "runs.csv/runs.csv")])


def test_closing_table():
    heading, rule, row = run_record.closing(record()).splitlines()
    for column in ("workers", "images/s", "validation accuracy", "test accuracy"):
        assert column in heading
    assert row.split() == ["2", "64", "400", "3.00", "1.10", "0.6000", "0.6100"]
    assert len(heading) == len(rule) == len(row)
    one_epoch = {"timings": {"images_per_sec": None, "seconds_per_epoch": 1.0}}
    assert "not measured" in run_record.closing(record() | one_epoch)


def test_curves_have_labels_units_and_the_reports_figure():
    figure = plots.curves([record(size=1), record()], reference={"report F": 0.9869})
    loss, accuracy = figure.axes
    assert (loss.get_xlabel(), loss.get_ylabel()) == ("epoch", "loss")
    labels = [text.get_text() for text in accuracy.get_legend().get_texts()]
    parts = ("training", "validation")
    expected = [f"{workers}, {part}" for workers in ("1 worker", "2 workers") for part in parts]
    assert labels == [*expected, "report F"]


@pytest.mark.parametrize(("part", "value", "message"), [
    ("config", None, "config: Expected `object`, got `null`"),
    ("layout", {"size": "two"}, "layout.size: Expected `int`, got `str`"),
    ("history", [{"loss": 1.0}], "history[0]: Object missing required field `epoch`"),
    ("timings", {"images_per_sec": "fast"}, "timings.images_per_sec: Expected `int | float | null`, got `str`"),
])
def test_a_record_with_a_malformed_part_is_named_and_left_out(part, value, message, tmp_path, capsys):
    write(tmp_path, record("good"), record("bad") | {part: value})
    assert list(records.load(root=tmp_path)["run"]) == ["good"]
    line = f"labs: left out: {tmp_path}/lab10_caltech/bad/record.json: {message}\n"
    assert capsys.readouterr().err == line


def test_what_a_config_asked_for_stands_beside_what_it_got():
    wanted = record() | {"config": {"batch_size": 32, "threads": 0, "seed": 1}}
    wanted["layout"] |= {"threads": 2}
    frame = records.table([wanted])
    assert frame.loc[0, ["threads", "asked_threads"]].tolist() == [2, 0]
    assert frame.attrs["config"] == ("batch_size", "asked_threads", "seed")


@pytest.mark.parametrize(("name", "machines", "values"), [
    ("onednn", ({"onednn": True}, {"onednn": False}, {}), ["on", "off", "not recorded"]),
    ("gpu", ({"gpus": ["B", "A", "A"]}, {"gpus": []}, {}), ["A, B", "none", "none"]),
    ("variables", ({"variables": {"XLA_FLAGS": "x", "TF_A": "1"}}, {"variables": {}}, {}),
     ["XLA_FLAGS=x TF_A=1", "none", "none"]),
])
def test_speeds_of_unlike_machinery_are_not_compared(name, machines, values):
    alike = [record("one", 1), record("two", 2)]
    assert speed_tables.frame(alike)[1] == [], "no column where all are alike"
    assert scaling.speedups(records.table(alike))["speedup"].notna().all()
    runs = [record() | {"machine": machine} for machine in machines]
    assert records.computed_on(runs) == {name: values}
    frame, varying = speed_tables.frame([record("base", 1) | {"machine": machines[0]}, *runs])
    assert varying == [name]
    table = scaling.speedups(frame).query("size == 2").set_index(name)
    assert table["speedup"].notna().to_dict() == {value: value == values[0] for value in values}
    assert [row["settings"][name] for row in checker.recorded(runs)] == values


def test_runs_on_other_data_of_one_name_are_not_compared():
    """As in two folders called rgb, or in one that has changed; other labs have other data without any doubt."""
    def on(run: str, size: int, data_set: str, lab: str = "lab10_caltech") -> dict:
        return record(run, size) | {"lab": lab, "data": {"train": {"data_set": data_set}} if data_set else {}}

    alike = [on("one", 1, "aa"), on("two", 2, "aa"), on("older", 2, ""), on("digits", 1, "bb", "lab01_baseline")]
    assert records.computed_on(alike) == {}
    runs = [*alike, on("changed", 2, "cc")]
    table = scaling.speedups(records.table(runs)).query("size == 2").set_index("data_set")
    assert table["speedup"].notna().to_dict() == {"aa": True, "cc": False, "not recorded": False}
