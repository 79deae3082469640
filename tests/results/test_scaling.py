"""Speedups with their intervals, within one configuration; the laws of scaling."""

import math

import numpy as np
import pandas as pd
import pytest

from labs.pages import laws
from labs.results import scaling
from labs.run.errors import LabError


def runs(throughput, batch_sizes=(32, 128), sizes=(1, 2, 4), seeds=(1, 2, 3)) -> pd.DataFrame:
    """Return runs with the throughput `throughput(batch_size, size, seed)`."""
    frame = pd.DataFrame([
        {"lab": "lab04_speedup", "run": f"b{batch}-w{size}-s{seed}", "batch_size": batch, "seed": seed, "size": size,
         "nodes": 1, "global_batch_size": batch * size, "images_per_sec": throughput(batch, size, seed),
         "seconds_per_epoch": 1000 / throughput(batch, size, seed), "first_epoch_seconds": 99.0 + seed}
        for batch in batch_sizes for size in sizes for seed in seeds
    ])
    frame.attrs["config"] = ["batch_size", "seed"]
    return frame


def test_a_table_has_a_row_per_configuration_with_its_spread():
    frame = runs(lambda batch, size, seed: batch * size * (1, 2, 4)[seed - 1])
    frame.loc[17, "images_per_sec"] = None  # A run of one epoch has no throughput.
    table = scaling.speedups(frame)
    assert list(table["batch_size"]) == [32] * 3 + [128] * 3
    assert list(table["size"]) == [1, 2, 4] * 2
    assert table["repeats"].tolist() == [3, 3, 3, 3, 3, 2]
    # By hand: logs of 1, 2, 4 have mean log 2 and standard deviation log 2; t(0.975, 2) = 4.3027.
    half = math.exp(math.log(2) * 4.302652729911275 / math.sqrt(3))
    names = ["images_per_sec", "images_per_sec_low", "images_per_sec_high", "seconds_per_epoch", "first_epoch_seconds"]
    assert table.loc[0, names].tolist() == pytest.approx([64, 64 / half, 64 * half, 1000 / 64, 101])
    single = scaling.speedups(runs(lambda *_: 100.0, seeds=(1,)))
    assert single[["images_per_sec_low", "speedup_high"]].isna().all(axis=None)
    assert scaling.speedups(frame.assign(images_per_sec=None)).empty


def test_a_speedup_has_the_verdict_of_its_seeds():
    throughputs = {1: (100.0, 110.0, 121.0), 2: (180.0, 180.0, 180.0)}
    frame = runs(lambda batch, size, seed: throughputs[size][seed - 1], (32,), (1, 2))
    one, two = scaling.speedups(frame).to_dict("records")
    assert one["speedup"] == one["scaling_efficiency"] == 1
    assert math.isnan(one["speedup_low"])
    # By hand: the logs of the ratios have s = log 1.1 and 2 degrees of freedom.
    half = math.exp(math.log(1.1) * 4.302652729911275 / math.sqrt(3))
    assert [two[name] for name in ("speedup", "speedup_low", "scaling_efficiency_high")] == pytest.approx(
        [180 / 110, 180 / 110 / half, 180 / 220 * half])
    assert two["direction"] == 1


def test_a_table_names_the_disturbed_run_that_it_leaves_out_and_corrects_its_verdicts_for_all_rows():
    steady = {1: (100.0, 101.0, 102.0), 2: (180.0, 183.0, 30.0), 4: (104.5, 106.0, 104.5)}
    frame = runs(lambda batch, size, seed: steady[size][seed - 1], (32,))
    frame["disturbed"] = ["busy" if name == "b32-w2-s3" else "" for name in frame["run"]]
    table = scaling.speedups(frame).set_index("size")
    assert table["speedup"][2] == pytest.approx(1.80, abs=0.01), "not the disturbed third seed"
    assert table["note"][2] == "left out, disturbed: b32-w2-s3 (busy)"
    alone = scaling.speedups(frame[frame["size"] != 2]).set_index("size")
    assert alone["speedup_low"][4] > 1 > table["speedup_low"][4], "a reader picks one of two rows"
    assert table["direction"].tolist() == [0, 1, 0]
    assert alone["direction"].tolist() == [0, 1]
    frame["disturbed"] = ["busy" if size == 2 else "" for size in frame["size"]]
    row = scaling.speedups(frame).set_index("size").loc[2]  # All are disturbed: the figure, and no verdict.
    assert row["speedup"] > 0 == row["direction"]
    assert math.isnan(row["speedup_low"])
    assert row["note"].startswith("disturbed, measure again: b32-w2-s1 (busy)")


def test_a_row_is_compared_with_its_own_configuration_alone():
    frame = runs(lambda batch, size, seed: batch * size)
    frame = frame[~((frame["batch_size"] == 128) & (frame["size"] == 1))]
    table = scaling.speedups(frame).set_index(["batch_size", "size"])
    assert table.loc[(32, 4), "speedup"] == pytest.approx(4)
    assert table.loc[[128], "speedup"].isna().all()
    assert table.loc[[128], "note"].eq("no run of 1 worker of this configuration to compare with").all()
    frame.attrs = {}
    with pytest.raises(LabError, match="name them: by="):
        scaling.speedups(frame)


@pytest.mark.parametrize(("throughputs", "note"), [
    ({1: [768 / 0.950], 2: [768 / 0.426]}, "E > 1: the baseline is suspect, measure it again"),  # Once lab 4's own.
    ({1: [100.0, 80.0, 120.0], 2: [205.0] * 3}, "E > 1, but its interval includes 1"),
    ({1: [100.0, 100.0, 101.0], 2: [190.0] * 3}, ""),
])
def test_an_efficiency_above_1_is_marked(throughputs, note):
    seeds = range(1, len(throughputs[1]) + 1)
    table = scaling.speedups(runs(lambda batch, size, seed: throughputs[size][seed - 1], (16,), (1, 2), seeds))
    assert table["note"].tolist() == ["", note]


def test_strong_scaling_holds_the_global_batch():
    throughput = {(128, 1): 100.0, (64, 2): 180.0, (32, 4): 240.0}
    frame = pd.concat([runs(lambda *at: throughput[at[:2]], (batch,), (size,)) for batch, size in throughput])
    frame.attrs["config"] = ["batch_size", "seed"]
    strong = scaling.speedups(frame, scaling="strong")
    assert strong["global_batch_size"].eq(128).all()
    assert strong["speedup"].tolist() == pytest.approx([1, 1.8, 2.4])
    assert scaling.speedups(frame)["speedup"].notna().sum() == 1, "weak: only the one-worker run has a base"


def test_as_many_workers_on_more_nodes_are_another_row_with_a_speedup_of_their_own():
    throughputs = {(1, 1): 100.0, (4, 4): 200.0, (4, 2): 300.0, (4, 1): 360.0, (8, 2): 640.0}
    frame = pd.concat([runs(lambda batch, size, seed, equal=equal: equal, (32,), (size,)).assign(nodes=nodes)
                       for (size, nodes), equal in throughputs.items()])
    frame.attrs["config"] = ["batch_size", "seed"]
    table = scaling.speedups(frame).set_index(["size", "nodes"])
    assert table["speedup"].to_dict() == pytest.approx({index: each / 100 for index, each in throughputs.items()})


def test_the_laws_at_points_that_are_known():
    assert laws.fit_amdahl([1, 2, 8, 64], laws.amdahl([1, 2, 8, 64], 0.3)) == pytest.approx(0.3)
    assert laws.amdahl(np.inf, 0.05) == 20
    assert laws.gustafson(1024, 0.004) == pytest.approx(1019.9, abs=0.1), "Gustafson 1988: 1020 of 1024"
