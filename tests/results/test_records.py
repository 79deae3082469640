"""Records of runs: read, refused, shown as a table, kept as reference runs."""

import json

import pandas as pd
import pytest

from labs.cli import commands
from labs.lint import tables as lint_tables
from labs.results import records, reference, run_record, scaling
from labs.run.errors import LabError
from tests.exercises.planted import write

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
        "format": run_record.FORMAT, "lab": "lab10_caltech", "run": run, "started": f"2026-01-01T00:00:0{size}+0000",
        "config": {"batch_size": 32, "seed": 1}, "layout": {"size": size, "nodes": 1, "global_batch_size": 32 * size},
        "versions": {}, "machine": {}, "history": HISTORY,
        "timings": run_record.epoch_timings(HISTORY),
        "metrics": {"test_accuracy": 0.61},
    }


def test_a_digest_shows_that_a_record_was_edited(tmp_path):
    # What JSON changes: NaN, keys that are numbers, floats without a fraction.
    sealed = json.loads(json.dumps(record() | {"metrics": {"loss": float("nan"), "lr": 1e22, "by": {10: 1, 9: 2.0}}}))
    sealed["digest"] = run_record.digest(sealed)
    write(tmp_path, sealed)
    assert records.digest_state(records.read(tmp_path / "lab10_caltech/a")) == "intact"
    edited = json.loads(json.dumps(sealed))
    edited["history"][1]["train_seconds"] = 1.9
    assert records.digest_state(edited) == "edited"
    assert records.digest_state(record()) == "none"


def test_runs_are_loaded_as_a_table_oldest_first(tmp_path):
    asked = record("a", 2) | {"config": {"batch_size": 32, "threads": 0, "seed": 1}}
    asked["layout"] |= {"threads": 2}
    write(tmp_path, asked, record("b", 1))
    runs = records.load("lab10_caltech", tmp_path)
    assert list(runs["run"]) == ["b", "a"]
    assert list(runs["images_per_sec"]) == [400, 400]
    assert runs.loc[1, ["threads", "asked_threads"]].tolist() == [2, 0], "what a Config asked for beside what it got"
    assert set(runs.attrs["config"]) == {"batch_size", "asked_threads", "seed"}


def test_labs_results_lists_the_runs_of_a_lab_or_all_of_them_as_csv(tmp_path, monkeypatch, capsys):
    bare = record("b") | {"config": {}, "metrics": {}}
    bare["timings"] = bare["timings"] | {"images_per_sec": None}
    write(tmp_path, record("a"), bare, record("c") | {"lab": "lab77_other"})
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    commands.dispatch(["results", "lab10"])
    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading.split("  ")[-1] == "test accuracy"
    assert first.split() == ["lab10_caltech", "a", "2", "1", "32", "64", "400", "3", "0.6", "0.61"]
    assert second.split() == ["lab10_caltech", "b", "2", "1", "64", "3", "0.6"], "blank where it is missing"
    commands.dispatch(["results", "--csv", str(tmp_path / "runs.csv")])
    assert list(pd.read_csv(tmp_path / "runs.csv")["run"]) == ["a", "b", "c"]
    assert ",32," in (tmp_path / "runs.csv").read_text(), "a count is a whole number, although one is missing"
    with pytest.raises(LabError, match=r"no runs of lab02_horovod in .*; `labs run lab02_horovod --workers 2` makes"):
        commands.dispatch(["results", "lab02"])


def test_the_closing_table_has_throughput_and_accuracies():
    heading, _, row = run_record.closing(record()).splitlines()
    assert "images/s" in heading
    assert row.split() == ["2", "64", "400", "3.00", "1.10", "0.6000", "0.6100"]


@pytest.mark.parametrize(("content", "message"), [
    (record("bad") | {"config": None}, "config: Expected `object`, got `null`"),
    (record("bad") | {"history": [{"loss": 1.0}]}, "history[0]: Object missing required field `epoch`"),
    (record("bad") | {"lab": "../../x"}, "lab: "),
    (record("bad") | {"format": 0}, "not a record of format 1"),
    (json.dumps(record("bad"))[:100], "damaged, not JSON"),
])
def test_a_bad_record_is_named_in_one_line_and_left_out(content, message, tmp_path, capsys):
    write(tmp_path, record("good"))
    (tmp_path / "lab10_caltech/bad").mkdir()
    path = tmp_path / "lab10_caltech/bad/record.json"
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text)
    assert [each["run"] for each in records.read_all(root=tmp_path)] == ["good"]
    line = capsys.readouterr().err
    assert line.startswith(f"labs: left out: {path}: {message}")
    assert line.count("\n") == 1


@pytest.mark.parametrize(("name", "machines", "values"), [
    ("onednn", ({"onednn": True}, {"onednn": False}, {}), ["on", "off", "not recorded"]),
    ("gpu", ({"gpus": ["B", "A", "A"]}, {"gpus": []}, {}), ["A, B", "none", "none"]),
    ("variables", ({"variables": {"XLA_FLAGS": "x", "TF_A": "1"}}, {"variables": {}}, {}),
     ["XLA_FLAGS=x TF_A=1", "none", "none"]),
])
def test_speeds_of_unlike_machinery_are_not_compared(name, machines, values):
    alike = [record("one", 1), record("two", 2)]
    assert scaling.frame(alike)[1] == [], "no column where all are alike"
    runs = [record() | {"machine": machine} for machine in machines]
    assert records.computed_on(runs) == {name: values}
    frame, varying = scaling.frame([record("base", 1) | {"machine": machines[0]}, *runs])
    assert varying == [name]
    table = scaling.speedups(frame).query("size == 2").set_index(name)
    assert table["speedup"].notna().to_dict() == {value: value == values[0] for value in values}
    assert [row["settings"][name] for row in lint_tables.from_records(runs)] == values


def test_runs_on_other_data_of_one_name_are_not_compared():
    """As in two folders called rgb, or in one that has changed; other labs have other data without any doubt."""
    def on(run: str, size: int, data_set: str, lab: str = "lab10_caltech") -> dict:
        return record(run, size) | {"lab": lab, "data": {"train": {"data_set": data_set}} if data_set else {}}

    alike = [on("one", 1, "aa"), on("two", 2, "aa"), on("older", 2, ""), on("digits", 1, "bb", "lab01_baseline")]
    assert records.computed_on(alike) == {}
    table = scaling.speedups(records.table([*alike, on("changed", 2, "cc")])).query("size == 2").set_index("data_set")
    assert table["speedup"].notna().to_dict() == {"aa": True, "cc": False, "not recorded": False}


def test_reference_runs_read_as_they_were_kept_and_a_damaged_line_is_named(tmp_path):
    reference.add([record("b"), record("a")], "here", tmp_path)
    reference.add([record("a") | {"metrics": {"test_accuracy": 0.5}}], "here", tmp_path)
    again = [record("a") | {"metrics": {"test_accuracy": 0.5}}, record("b")]
    assert reference.read_all("here", "lab10_caltech", tmp_path) == again
    with (tmp_path / "here" / "lab10_caltech.jsonl").open("a") as file:
        file.write('{"format": 1, "lab"')
    with pytest.raises(LabError, match=r"lab10_caltech\.jsonl, line 3: damaged"):
        reference.read_all("here", folder=tmp_path)
