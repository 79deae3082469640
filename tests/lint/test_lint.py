"""`labs lint` names every mistake, and nothing in a right table."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from labs.lint import checker
from labs.run.paths import ROOT
from tests.results.test_records import record

REFERENCE = ROOT / "data/reference"


def findings(path) -> set[tuple[str, tuple[int, ...]]]:
    return {(finding.rule, finding.lines) for finding in checker.check_table(path)}


def check_folder(root) -> list[str]:
    """Return the findings in a results folder, which has to be one that can be checked."""
    [(_, found)] = checker.verdicts([root])
    return [str(finding) for finding in found]


def each(rule: str, *lines: int) -> set[tuple[str, tuple[int, ...]]]:
    return {(rule, (line,)) for line in lines}


MISTAKES = {  # What the course reports got wrong, as far as their tables show it.
    "lab02_mnist_accuracy": each("steps of other workers", 8) | each("efficiency above 1", 8)
    | {("difference within noise", (3, 4)), ("difference within noise", (7, 8, 9, 10, 11))},
    "lab04_large_batch_accuracy": {("two things changed", (2, 3))},
    "lab04_speedup": each("wrong speedup", 3, 4, 5, 6, 7, 8, 9, 10) | each("efficiency above 1", 5, 8)
    | each("parts that do not sum", 3, 4, 6, 7, 9, 10) | each("loader called communication", 3, 4, 6, 7, 9, 10),
    "lab07_transported_bytes": each("bytes by batch", 2, 3, 4) | each("input is no traffic", 2, 3, 4),
    "lab08_speedup": each("efficiency above 1", 7),
    "lab08_throughput": each("efficiency above 1", 16) | {("input bound baseline", (6, 7))},
    "lab09_fruits": each("changed learning rate", 3) | each("missing workers", 3)
    | each("more workers longer", 4) | each("efficiency above 1", 4),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_of_the_course_reports_is_found(name):
    assert findings(REFERENCE / f"{name}.csv") == MISTAKES[name]


@pytest.mark.parametrize(("table", "figures"), [
    ("lab02_mnist_accuracy", r"line 8: .*60,000 images are 468\.8 batches of 128, .* = 6\.01, so 6 workers ran"),
    ("lab04_speedup", r"line 6: wrong speedup: 1\.473 is not .*line 5, 1\.30; the wrong base: .*that of line 3"),
    ("lab04_speedup", r"line 3: loader called communication: .* are 178 MB, as in every row, .*of the data set"),
    ("lab08_throughput", r"input bound baseline: ResNet50 66\.11 and VGG16 63\.88 images/s"),
])
def test_a_finding_has_the_figures_and_what_they_should_be(table, figures):
    assert any(re.search(figures, str(finding)) for finding in checker.check_table(REFERENCE / f"{table}.csv"))


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
    """compute_seconds,communication_seconds,other_seconds,gradient_bytes,images,bandwidth_gb_per_sec
128,1,27.22,1,1,3.1,23.5,0,0.62,44700000,50000,
128,2,20.92,1.30,0.65,3.0,12.0,5.3,0.62,44700000,50000,1.653
128,4,19.88,1.37,0.34,3.0,6.1,10.2,0.58,44700000,50000,0.644
512,1,25.94,1,1,2.0,23.3,0,0.64,44700000,50000,
512,2,15.66,1.66,0.83,2.0,11.7,1.4,0.56,44700000,50000,1.564""",
    "strong": """experiment,model,nodes,workers,batch_size_per_worker,global_batch_size,images_per_sec,speedup
strong scaling,ResNet50,1,1,128,128,100,1
strong scaling,ResNet50,2,2,64,128,180,1.8
strong scaling,ResNet50,4,4,32,128,290,2.9
weak scaling,ResNet50,2,2,128,256,195,1.95""",
    "bytes": """batch_size_per_worker,workers,allreduce_bytes
32,1,21288
64,1,21288
128,1,21288""",
    "throughput": """device,model,nodes,processes_per_node,threads_per_process,batch_size_per_worker,"""
    """global_batch_size,images_per_sec
cpu,ResNet50,1,4,7,32,128,22.84
cpu,ResNet50,8,4,7,32,1024,156.33
cpu,VGG16,1,4,7,32,128,8.82
cpu,VGG16,8,4,7,32,1024,66.25
gpu,ResNet50,1,1,,64,64,219
gpu,ResNet50,8,1,,64,512,1734
gpu,VGG16,1,1,,64,64,154
gpu,VGG16,8,1,,64,512,1081
gpu,InceptionV3,1,1,,64,64,142""",
    "learning rates": """workers,batch_size_per_worker,learning_rate,part,test_accuracy,seed
1,32,0.0005,none,0.95,1
1,32,0.0005,none,0.96,2
2,32,0.001,linear,0.96,1
4,32,0.001,square root,0.97,1
4,32,0.0005,none,0.93,1""",
    "fruits": """part,workers,learning_rate,total_seconds,seconds_per_epoch,test_accuracy
single GPU,1,0.0005,581,56,0.97
four GPUs,4,0.002,174,15,0.987""",
    "slower on two": """model,workers,seconds_per_epoch,speedup
tiny,1,2.0,1
tiny,2,2.6,0.77""",
    "rounded up steps": """workers,batch_size_per_worker,steps,images_per_sec
1,32,97,100
1,256,13,110
1,1024,4,120
2,32,49,190
2,256,7,200""",
    "images grow": """workers,batch_size_per_worker,images,seconds_per_epoch,speedup
1,32,1000,10,1
2,32,2000,10.5,1.9""",
    "two figures": """model,workers,images_per_sec,seconds_per_epoch
a,1,100,
a,2,190,
b,1,,10
b,4,,2.7""",
}


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_found_in_a_right_table(name, tmp_path):
    (tmp_path / "right.csv").write_text(RIGHT[name])
    assert [str(finding) for finding in checker.check_table(tmp_path / "right.csv")] == []


SEEDED = [  # Table, what stood there, what stands there now, rule, lines, words of the text.
    ("accuracy", "40,2,6,128", "40,2,2,128", "steps of other workers", (5,), "so 6 workers ran"),
    ("accuracy", "379.7,9375,1\n40,1,4,128,0.9903,203.6,", "203.63,9375,1\n40,1,4,128,0.9903,203.63,",
     "identical clocks", (3, 4), "train_seconds 203.63 in 2 runs"),
    ("accuracy only", "0.9850", "0.9898", "difference within noise", (3, 4), "0.9898, 0.9903"),
    ("speedup", "20.92,1.30", "20.92,0.77", "wrong speedup", (3,), "inverted: it is that of line 2 over that of"),
    ("speedup", "19.88,1.37", "19.88,1.05", "wrong speedup", (4,), "the wrong base: it is that of line 4 over"),
    ("speedup", "15.66,1.66", "15.66,1.34", "wrong speedup", (6,), "that of line 3 (batch 128, 2 workers)"),
    ("speedup", "20.92,1.30", "20.92,1.37", "wrong speedup", (3,), "labels swapped: it is that of line 4 over"),
    ("speedup", "20.92,1.30", "20.92,1.00", "wrong speedup", (3,), "used as its own baseline"),
    ("speedup", "15.66,1.66", "15.66,3.33", "wrong speedup", (6,), "no ratio of this table gives it"),
    ("speedup", "1.30,0.65,3.0,12.0", "1.30,0.65,3.0,2.0", "parts that do not sum", (3,), "(48%) are not accounted"),
    ("speedup", "1.30,0.65", "1.30,65", "efficiency above 1", (3,), "write 0.95 for 95 %"),
    ("two figures", "b,4,,2.7", "b,4,,1", "efficiency above 1", (5,), "10 times the throughput"),
    ("speedup", ",1.653", ",1653", "bandwidth above the machine", (3,), "no all-reduce reaches 500"),
    ("strong", "64,128,180", "64,256,180", "wrong global batch", (3,), "256 is not 64 x 2 workers = 128"),
    ("bytes", "64,1,21288\n128,1,21288", "64,1,10644\n128,1,5322", "bytes by batch", (3,), "same for every batch"),
    ("bytes", "32,1,21288", "32,1,188160000", "input is no traffic", (2,), "60,000 x 28 x 28 x 4"),
    ("throughput", "64,64,154", "64,64,214", "input bound baseline", (6, 8), "the input was the limit"),
    ("learning rates", "2,32,0.001", "2,32,0.1", "changed learning rate", (4,), "0.1 against 0.0005 in line 2: 200"),
    ("fruits", "four GPUs,4", "several GPUs,", "missing workers", (3,), "no speedup follows"),
    ("slower on two", "2.6,0.77", ",0.5", "speedup below 1", (3,), "T(1) / T(n) = 2.00"),
]


@pytest.mark.parametrize(("name", "old", "new", "rule", "lines", "words"), SEEDED)
def test_a_seeded_mistake_is_found(name, old, new, rule, lines, words, tmp_path):
    assert RIGHT[name].count(old) == 1
    (tmp_path / "mistake.csv").write_text(RIGHT[name].replace(old, new))
    result = [finding for finding in checker.check_table(tmp_path / "mistake.csv") if finding.rule == rule]
    assert lines in [finding.lines for finding in result]
    assert any(words in finding.text for finding in result if finding.lines == lines)
    assert all(str(finding).count("\n") == 0 for finding in result)


@st.composite
def right_tables(draw) -> pd.DataFrame:
    """Draw a table in which every figure follows from the others."""
    sizes = draw(st.sampled_from([(1, 2), (1, 2, 4), (1, 2, 4, 8, 64)]))
    images, gradient_bytes = draw(st.sampled_from([(50_000, 44.7e6), (60_000, 4e5), (1_000_000, 5.5e8)]))
    serial, link = draw(st.floats(0.01, 0.5)), draw(st.floats(1, 50))
    rows = []
    for batch in draw(st.sampled_from([(32,), (32, 128), (64, 128, 512)])):
        alone = draw(st.floats(10, 1000))
        for size in sizes:
            steps = -(-images // (batch * size))
            epoch = alone * (serial + (1 - serial) / size)
            ring = 2 * (size - 1) / size
            busbw = link * draw(st.floats(0.3, 0.95))
            communication = gradient_bytes * steps * ring / busbw / 1e9
            rows.append({
                "workers": size, "nodes": -(-size // 4), "epochs": 3,
                "batch_size_per_worker": batch, "global_batch_size": batch * size,
                "images": images, "steps": 3 * steps, "learning_rate": 0.1 * size, "link_gb_per_sec": link,
                "seconds_per_epoch": epoch + communication, "input_seconds": 0.1 * epoch,
                "compute_seconds": 0.8 * epoch,
                "communication_seconds": communication, "other_seconds": 0.1 * epoch,
                "bandwidth_gb_per_sec": busbw if size > 1 else None, "gradient_bytes": gradient_bytes,
                "images_per_sec": images / (epoch + communication), "test_accuracy": 0.9, "seed": 1,
            })
    table = pd.DataFrame(rows)
    own = table["images_per_sec"] / table.groupby("batch_size_per_worker")["images_per_sec"].transform("first")
    assume(own.min() > 0.05)  # Rounding to three decimals changes a smaller one by more than lint allows.
    table["speedup"], table["scaling_efficiency"] = own.round(3), (own / table["workers"]).round(4)
    return table


@settings(max_examples=40, deadline=None)
@given(right_tables())
def test_nothing_is_found_in_any_right_table(tmp_path_factory, table):
    path = tmp_path_factory.mktemp("right") / "table.csv"
    table.to_csv(path, index=False)
    assert [str(finding) for finding in checker.check_table(path)] == []


def write_runs(root, *runs: dict):
    for run in runs:
        folder = root / run["lab"] / run["run"]
        folder.mkdir(parents=True)
        (folder / "record.json").write_text(json.dumps(run))
    return root


def sound(run: str, size: int, throughput: float, **config) -> dict:
    made = record(run, size)
    made["config"] = {"batch_size": 32, "seed": 1, "base_lr": 0.1, **config}
    made["layout"] |= {"threads": 1, "backend": "none" if size == 1 else "MPI"}
    made["timings"]["images_per_sec"] = throughput
    steps = -(-1000 // (32 * size))
    made["history"] = [row | {"steps": steps} for row in made["history"]]
    return made


def test_nothing_is_found_in_sound_records(tmp_path):
    runs = [sound(f"sweep-w{size}-seed{seed}", size, 100 * size**0.8 + seed, seed=seed, threads=1, backend="mpi")
            for size in (1, 2, 4) for seed in (1, 2, 3)]
    assert check_folder(write_runs(tmp_path, *runs)) == []


@pytest.mark.parametrize(("rule", "change"), [
    ("efficiency above 1: 2.5 times", {"timings": {"images_per_sec": 250.0}}),
    ("other layout than asked: 4 workers asked for, 2 ran", {"run": "sweep-w4-seed1"}),
    ("other layout than asked: gloo backend asked for, MPI ran", {"config": {"backend": "gloo"}}),
    ("wrong global batch: 32 is not 32 x 2 workers = 64", {"layout": {"global_batch_size": 32}}),
    ("changed learning rate: 0.0005 against 0.1", {"config": {"base_lr": 0.0005}}),
    ("steps of other workers: 32 steps", {"history": [{"epoch": 1, "images": 1000, "steps": 32}]}),
    ("parts that do not sum: input 0", {"metrics": {
        "ledger_wall_seconds": 30.8, "ledger_compute_seconds": 17.7, "ledger_communication_seconds": 0.15,
        "ledger_input_seconds": 0.0, "ledger_other_seconds": 0.0}}),
    ("busy machine: b: 2 workers on a node took turns", {"layout": {"local_size": 2}, "machine": {"cores": 1}}),
])
def test_a_seeded_mistake_in_a_record_is_found(rule, change, tmp_path):
    wrong = sound("b", 2, 180.0, threads=1, backend="mpi")
    for part, values in change.items():
        wrong[part] = wrong[part] | values if isinstance(values, dict) else values
    (found,) = check_folder(write_runs(tmp_path, sound("a", 1, 100.0, threads=1, backend="mpi"), wrong))
    assert found.startswith(f"lab10_caltech/{wrong['run']}: {rule}")


@pytest.mark.parametrize(("two", "found"), [((205, 235, 190), 0), ((250, 254, 251), 1)])
def test_an_efficiency_above_1_with_repeats_has_to_be_more_than_noise(two, found, tmp_path):
    runs = [sound(f"w{size}-{seed}", size, each, seed=seed) for size, values in ((1, (100, 101, 99)), (2, two))
            for seed, each in enumerate(values, 1)]
    assert len(check_folder(write_runs(tmp_path, *runs))) == found


def clocked(run: str, size: int, seconds: list[float], **about) -> dict:
    """Return a record whose epochs took these seconds."""
    made = sound(run, size, 100.0 * size)
    rows = [{"epoch": epoch, "images": 1000, "steps": made["history"][0]["steps"], "train_seconds": each}
            for epoch, each in enumerate(seconds, 1)]
    return made | {"history": rows} | about


@pytest.mark.parametrize(("seconds", "uneven"), [
    ([30.0, 10.0, 10.4, 16.0], True), ([30.0, 10.0, 10.4, 14.9], False), ([10.0, 30.0], False),
    ([10.0, 0.0, 1.0], False),
])
def test_epochs_of_one_run_that_differ_are_a_busy_machine(seconds, uneven, tmp_path):
    assert check_folder(write_runs(tmp_path, clocked("a", 1, seconds))) == [
        "lab10_caltech/a: busy machine: a: the slowest of 3 epochs took 1.6 times as long as the fastest. Measure "
        "again; these figures allow no conclusion."] * uneven


def test_identical_clocks_in_one_folder_and_in_two(tmp_path):
    first, second = [31.7182818, 10.1415926, 10.5772156], [31.7182818, 10.1415926, 10.5772157]
    write_runs(tmp_path / "anna", clocked("a", 1, first), clocked("b", 1, first), clocked("c", 1, second))
    assert check_folder(tmp_path / "anna") == [
        "lab10_caltech/b: identical clocks: its 3 epochs took the same times as those of lab10_caltech/a, to the last "
        "digit: copied, not measured"]
    write_runs(tmp_path / "ben", clocked("mine", 1, second), clocked("own", 1, [31.2, 10.1234567, 10.2]))
    (tmp_path / "alias").symlink_to(tmp_path / "ben")
    assert check_folder(tmp_path / "ben") == []
    anna, ben = checker.verdicts([tmp_path / "anna", tmp_path / "alias", tmp_path / "ben"])
    assert len(anna[1]) == 1
    assert [str(finding) for finding in ben[1]] == [
        f"{tmp_path}/ben/lab10_caltech/mine: identical clocks: its 3 epochs took the same times as those of "
        f"{tmp_path}/anna/lab10_caltech/c, to the last digit: copied, not measured"]


def test_epochs_and_clocks_that_may_be_as_they_are(tmp_path):
    """A search has its best trial's history, elastic epochs have other workers, and short epochs no exact time."""
    seconds = [31.7182818, 10.1415926, 10.5772156]
    search = clocked("search", 1, seconds, tables={"trials": [{"run": "trial"}]})
    write_runs(tmp_path, clocked("trial", 1, seconds), search,
               clocked("elastic", 2, [9.123, 5.456, 15.789], tables={"events": [{"event": "lost"}]}),
               clocked("short", 1, [1.0, 0.0312345, 0.0612345]))
    assert check_folder(tmp_path) == []


@pytest.mark.parametrize(("gpus", "busbw", "limit"), [
    (["NVIDIA H200"], 475.0, ""), (["NVIDIA B200"], 832.0, ""), (["Tesla T4"], 120.0, "64"), ([], 234.0, "100"),
    (["an unknown GPU"], 524.0, "500"),
])
def test_a_recorded_bandwidth_is_held_against_the_recorded_hardware(gpus, busbw, limit, tmp_path):
    run = sound("a", 8, 800.0) | {"machine": {"gpus": gpus}}
    run["metrics"] = {"busbw_gb_per_sec": busbw}
    found = check_folder(write_runs(tmp_path, run))
    assert len(found) == bool(limit)
    assert all(f"machine: {busbw:.0f} GB/s; no all-reduce reaches {limit} " in text for text in found)
