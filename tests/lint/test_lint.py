"""`labs lint` names every mistake, and nothing in a right table."""

import re

import pytest

from labs.cli import commands
from labs.lint import rules, tables
from labs.run.paths import ROOT
from tests.results.test_records import record

REFERENCE = ROOT / "data/reference"


def each(rule: str, *lines: int) -> set[tuple[str, tuple[int, ...]]]:
    return {(rule, (line,)) for line in lines}


@pytest.mark.parametrize(("name", "mistakes"), {  # What the course reports got wrong, as far as their tables show it.
    "lab02_mnist_accuracy": each("steps of other workers", 8) | each("efficiency above 1", 8)
    | {("difference within noise", (3, 4)), ("difference within noise", (7, 8, 9, 10, 11))},
    "lab04_large_batch_accuracy": {("two things changed", (2, 3))},
    "lab04_speedup": each("wrong speedup", 3, 4, 5, 6, 7, 8, 9, 10) | each("efficiency above 1", 5, 8)
    | each("parts that do not sum", 3, 4, 6, 7, 9, 10),
    "lab07_transported_bytes": each("bytes by batch", 2, 3, 4),
    "lab08_speedup": each("efficiency above 1", 7),
    "lab08_throughput": each("efficiency above 1", 16),
    "lab09_fruits": each("changed learning rate", 3) | each("efficiency above 1", 4),
}.items())
def test_the_mistakes_of_the_course_reports_are_found(name, mistakes):
    assert {(found.rule, found.lines) for found in rules.judge(tables.read(REFERENCE / f"{name}.csv"))} == mistakes


RIGHT = {
    # Report M, redone: the run of 3120 steps was one of 6 workers; accuracies of several seeds.
    "accuracy": """epochs,nodes,workers,batch_size_per_worker,test_accuracy,train_seconds,steps,seed
40,1,1,128,0.9827,456.1,18750,1
40,1,2,128,0.9862,379.7,9375,1
40,1,4,128,0.9903,203.6,4688,1
40,2,6,128,0.9905,152.0,3120,1""",
    "accuracy only": """workers,test_accuracy
1,0.9727
2,0.9850
4,0.9903""",
    # Report C: speedups by their own base, a ledger that sums, bandwidths from the gradients of 391 and 196 steps.
    "speedup": """batch_size_per_worker,workers,seconds_per_epoch,speedup,scaling_efficiency,input_seconds,"""
    """compute_seconds,communication_seconds,other_seconds,images,bandwidth_gb_per_sec
128,1,27.22,1,1,3.1,23.5,0,0.62,50000,
128,2,20.92,1.30,0.65,3.0,12.0,5.3,0.62,50000,1.653
128,4,19.88,1.37,0.34,3.0,6.1,10.2,0.58,50000,0.644
512,1,25.94,1,1,2.0,23.3,0,0.64,50000,
512,2,15.66,1.66,0.83,2.0,11.7,1.4,0.56,50000,1.564""",
    "strong": """experiment,model,nodes,workers,batch_size_per_worker,global_batch_size,images_per_sec,speedup
strong scaling,ResNet50,1,1,128,128,100,1
strong scaling,ResNet50,2,2,64,128,180,1.8
strong scaling,ResNet50,4,4,32,128,290,2.9
weak scaling,ResNet50,2,2,128,256,195,1.95""",
    "learning rates": """workers,batch_size_per_worker,learning_rate,part,test_accuracy,seed
1,32,0.0005,none,0.95,1
1,32,0.0005,none,0.96,2
2,32,0.001,linear,0.96,1
4,32,0.001,square root,0.97,1
4,32,0.0005,none,0.93,1""",
}


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_found_in_a_right_table(name, tmp_path):
    (tmp_path / "right.csv").write_text(RIGHT[name])
    assert [str(finding) for finding in rules.judge(tables.read(tmp_path / "right.csv"))] == []


@pytest.mark.parametrize(("name", "old", "new", "rule", "lines", "words"), [
    ("accuracy", "40,2,6,128", "40,2,2,128", "steps of other workers", (5,), "6.01 workers ran"),
    ("accuracy only", "0.9850", "0.9898", "difference within noise", (3, 4), "0.9898, 0.9903"),
    ("speedup", "20.92,1.30", "20.92,0.77", "wrong speedup", (3,), "inverted: it is that of line 2 over that of"),
    ("speedup", "15.66,1.66", "15.66,1.34", "wrong speedup", (6,), "the wrong base: it is that of line 6 over"),
    ("speedup", "20.92,1.30", "20.92,1.37", "wrong speedup", (3,), "labels swapped: it is that of line 4 over"),
    ("speedup", "1.30,0.65,3.0,12.0", "1.30,0.65,3.0,2.0", "parts that do not sum", (3,), "(48%) are not accounted"),
    ("speedup", "1.30,0.65", "1.30,65", "efficiency above 1", (3,), "write 0.95 for 95 %"),
    ("strong", "128,256,195", "128,256,300", "efficiency above 1", (5,), "3 times the throughput"),
    ("speedup", ",1.653", ",1653", "bandwidth above the machine", (3,), "no all-reduce reaches 1,000"),
    ("learning rates", "2,32,0.001", "2,32,0.1", "changed learning rate", (4,), "0.1 against 0.0005 in line 2: 200"),
])
def test_a_mistake_in_a_table_is_found(name, old, new, rule, lines, words, tmp_path):
    assert RIGHT[name].count(old) == 1
    (tmp_path / "mistake.csv").write_text(RIGHT[name].replace(old, new))
    found = [finding.text for finding in rules.judge(tables.read(tmp_path / "mistake.csv"))
             if (finding.rule, finding.lines) == (rule, lines)]
    assert any(words in text for text in found), found


def sound(run: str, size: int, throughput: float, **config) -> dict:
    made = record(run, size)
    made["config"] = {"batch_size": 32, "seed": 1, "base_lr": 0.1, "threads": 1, "backend": "mpi", **config}
    made["layout"] |= {"threads": 1, "backend": "none" if size == 1 else "MPI"}
    made["timings"]["images_per_sec"] = throughput
    made["history"] = [row | {"steps": -(-1000 // (32 * size)), "train_seconds": row["train_seconds"] + throughput}
                       for row in made["history"]]
    return made


@pytest.mark.parametrize(("rule", "change"), [
    ("efficiency above 1: 2.5 times", {"timings": {"images_per_sec": 250.0}}),
    ("other workers than asked: 4 workers asked for, 2 ran", {"run": "sweep-w4-seed1"}),
    ("changed learning rate: 0.0005 against 0.1", {"config": {"base_lr": 0.0005}}),
    ("steps of other workers: 32 steps", {"history": [{"epoch": 1, "images": 1000, "steps": 32}]}),
    ("parts that do not sum: input 0", {"metrics": {
        "ledger_wall_seconds": 30.8, "ledger_compute_seconds": 17.7, "ledger_communication_seconds": 0.15,
        "ledger_input_seconds": 0.0, "ledger_other_seconds": 0.0}}),
    ("busy machine: b: 2 workers on a node took turns", {"layout": {"local_size": 2}, "machine": {"cores": 1}}),
    ("bandwidth above the machine: 234 GB/s", {"metrics": {"busbw_gb_per_sec": 234.0}, "machine": {"gpus": []}}),
    ("identical clocks: its 3 epochs took the same times as those of lab10_caltech/a",
     {"history": sound("a", 1, 100.0)["history"], "config": {"seed": 2, "batch_size": 16},
      "layout": {"global_batch_size": 32}}),
])
def test_a_mistake_in_a_record_is_found(rule, change):
    wrong = sound("b", 2, 180.0)
    for part, values in change.items():
        wrong[part] = wrong[part] | values if isinstance(values, dict) else values
    (found,) = map(str, rules.judge(tables.from_records([sound("a", 1, 100.0), wrong])))
    assert found.startswith(f"lab10_caltech/{wrong['run']}: {rule}")


@pytest.mark.parametrize(("two", "found"), [((160, 170, 165), 0), ((205, 235, 190), 0), ((250, 254, 251), 1)])
def test_an_efficiency_above_1_with_repeats_has_to_be_more_than_noise(two, found):
    runs = [sound(f"w{size}-{seed}", size, each, seed=seed) for size, values in ((1, (100, 101, 99)), (2, two))
            for seed, each in enumerate(values, 1)]
    assert len(rules.judge(tables.from_records(runs))) == found


# The command.

def test_the_template_is_a_table_to_fill_in_and_a_bad_path_does_not_hide_the_others(tmp_path, capsys):
    assert commands.dispatch(["lint", "--template"]) == 0
    names = capsys.readouterr().out.strip().split(",")
    rows = [{"workers": "1", "images_per_sec": "100"}, {"workers": "2", "images_per_sec": "190"},
            {"workers": "4", "images_per_sec": "600", "part": "warm cache, at night"}]
    lines = [",".join(f'"{row[name]}"' if name in row else "" for name in names) for row in rows]
    (tmp_path / "mine.csv").write_text("\n".join([",".join(names), *lines, "," * (len(names) - 1)]), "utf-8-sig")
    assert commands.dispatch(["lint", *map(str, (tmp_path / "none.csv", tmp_path, tmp_path / "mine.csv"))]) == 1
    out, err = capsys.readouterr()
    assert re.match(r"mine\.csv: 3 rows.*\nmine\.csv, line 4: efficiency above 1: 6 times", out)
    assert "No such file or directory; give a results folder, which `labs run lab10_caltech` makes, or" in err
    assert "holds no record" in err


@pytest.mark.parametrize(("text", "line"), [
    (b"\x89PNG\x00\xff", "is not a table; save it as CSV in UTF-8, with commas"),
    ("workers,model\n1,a\n", "holds no figures to check; give at least one of images_per_sec, seconds_per_epoch"),
    ("workers,sped_up\n1,1\n", "unknown column 'sped_up'; did you mean speedup?"),
    ("workers,images_per_sec,seconds_per_epoch,part\n1,100,5\n", "line 2: 3 cells under 4 columns; leave no cell out"),
    ("workers,test_accuracy\n1,98.5\n", "line 2: test_accuracy '98.5' is not a number from 0 to 1; write a decimal"),
    ("workers,speedup\n1,1\n\n2,1.9x\n", "line 4: speedup '1.9x' is not a number from 0"),
])
def test_what_is_no_such_table_is_refused_in_one_line_with_the_cure(text, line, tmp_path, capsys):
    (tmp_path / "typed.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert commands.dispatch(["lint", str(tmp_path / "typed.csv")]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("labs: error: typed.csv")
    assert line in err
