"""What the pages compute and draw from the committed runs: a figure or a number per page would be noticed if wrong."""

import numpy as np
import pandas as pd
import pytest

from labs.pages import lab01, lab02, lab03, lab05, lab06, lab07, lab08, lab09, lab10, lab11, lab12, lab13
from labs.results import records, reference
from labs.run.paths import ROOT


def runs(lab: str, machine: str = "two-cores", **config) -> list[dict]:
    return [run for run in reference.read_all(machine, lab)
            if all(run["config"].get(name) == value for name, value in config.items())]


def line_values(axes) -> dict:
    """Return the y values of the labelled lines."""
    return {line.get_label(): np.asarray(line.get_ydata(), float) for line in axes.lines}


def test_page_1_a_busy_gpu_is_not_a_fast_one():
    gpu = records.table(runs("lab01_baseline", "h200", data="real")).set_index("batch_size").sort_index()
    left, right = lab01.busy_and_fast(gpu, pd.Series({128: 20, 1024: 54}), 512).axes
    assert line_values(left)["H200, measured"][[0, -1]] == pytest.approx([26.4, 54.2], abs=0.05)
    assert line_values(left)["formula: $b / (b + 512)$"][0] == pytest.approx(100 * 32 / 544)
    assert right.lines[0].get_ydata()[-1] == pytest.approx(262_077, abs=1)


def test_page_2_speedups_accuracies_and_wrong_shards():
    kept, report = runs("lab02_horovod"), lab02.report_m()
    ours = lab02.reference_table(kept)
    assert ours["speedup"].round(2).tolist() == [1, 1.45, 1.38, 1, 1.71, 1.5]
    assert report["speedup"][40].round(2).tolist() == [1, 1.2, 2.24], "T(4) / T(2) was printed as 0.53 times faster"
    left, *_ = lab02.speedup_figure(ours, report, kept, cores=2).axes
    assert left.containers[0].lines[2][0].get_segments()[1][:, 1].round(2).tolist() == [1.03, 2.03]
    orders = lab02.order_table(kept)
    assert orders["lost"].round(3)["unsharded", False] == 0.078
    assert orders["noise"].tolist() == [True, True, True, False, True, False]
    assert str(lab02.compare_accuracies(kept)[4]).startswith("not resolved: -0.004")
    pooled = lab02.pooled_speedups(kept)
    assert (round(pooled[2].value, 2), pooled[2].resolved) == (1.57, True)


def test_page_2_says_no_impossible_nor_disturbed_speedup():
    run = {"run": "mine", "layout": {"size": 2}, "machine": {}, "history": [
        {"epoch": epoch, "steps": 46, "train_seconds": 2.0} for epoch in (1, 2, 3)]}
    pair = {1: run, 2: run}
    assert "1.54 times as fast" in lab02.speedup_text(pair, {1: 2.0, 2: 1.3}, {1: 1.0, 2: 1.54}, {1: 1.0, 2: 0.77})
    bad = lab02.speedup_text(pair, {1: 2.0, 2: 0.9}, {1: 1.0, 2: 2.22}, {1: 1.0, 2: 1.11})
    assert "E > 1" in bad
    assert "as fast" not in bad
    run["history"][1]["train_seconds"] = 4.0
    assert "as fast" not in lab02.speedup_text(pair, {1: 2.0, 2: 1.3}, {1: 1.0, 2: 1.54}, {1: 1.0, 2: 0.77})


def test_page_3_the_more_accurate_rule():
    kept = runs("lab03_lr_scaling")
    table = lab03.study_table(kept, "rules", "sgd")
    ahead = {k: lab03.compare_rules(table, "linear", "square root", k, comparisons=10).direction for k in (2, 4, 8, 16)}
    assert ahead == {2: 0, 4: 1, 8: 1, 16: 0}
    (axes,) = lab03.accuracy_figure(table).axes
    assert line_values(axes)["linear"][-1] == pytest.approx(0.3829)
    photographs = lab03.compare_photographs(kept)
    assert photographs["val_accuracy"].round(3).tolist() == [0.637, 0.513, 0.484, 0.477, 0.195]
    assert all(each.direction < 0 for each in photographs["minus_one"].iloc[1:])
    assert lab03.mean_misses(kept)[8].mean().round(2).to_dict() == {0: 0.58, 1: 1.21, 3: 1.02}


def test_page_5_links_and_predicted_steps():
    links = runs("lab05_allreduce", "laptop-cluster", study="links")
    shares = lab05.link_shares(links)
    slow = shares[(shares["megabits"] <= 100) & (shares["backend"] == "MPI") & (shares["nodes"] == 2)]
    assert slow["share"].between(0.8, 1.02).all()
    assert slow["bytes_over_ring"].between(0.98, 1.1).all()
    steps = [run for lab in ("lab05_allreduce", "lab11_multinode") for run in
             runs(lab, "laptop-cluster", study="bandwidth")]
    table = lab05.predict_other_links(steps)
    assert table["nodes"].value_counts().to_dict() == {2: 12, 3: 12, 4: 12, 8: 12}
    median = table["error"].abs().groupby(table["nodes"]).median()
    assert (median[[2, 4, 8]] < 0.05).all()
    assert median[3] > 0.15, "the page says that the model fails there"
    exposed = (table["wire"] - table["window"]).clip(lower=0)
    assert (table["alone"] + table["processor"] + exposed).tolist() == pytest.approx(table["unseen_seconds"].tolist())


def test_page_6_workers_and_remedies():
    kept = runs("lab06_memory")
    both = lab06.compare_workers([run for run in kept if run["config"]["depth"] != 6])
    assert both.loc[(16, 16), ["speedup", "psnr", "apart"]].tolist() == pytest.approx([1.99, 20.45, 0.008], abs=0.005)
    remedies = lab06.remedy_table([run for run in kept if run["config"]["depth"] == 6],
                                  {"none": "none", "smaller": "batch / 4", "bfloat16": "bfloat16"})
    assert remedies.loc["batch / 4"].tolist() == ["2.12 (1.94 to 2.30)", "4.62 (3.42 to 5.82)"]


def test_page_7_the_second_node_and_both_transports():
    rows = lab07.step_table(runs("lab07_vit", "laptop-cluster", width=256))
    table = lab07.second_node_speedups(rows).query("B == 32").set_index("link")
    one = rows[(rows["N"] == 1) & (rows["B"] == 32)]["seconds"].median()  # One baseline, whatever its link.
    two = rows[(rows["N"] == 2) & (rows["B"] == 32) & (rows["disturbed"] == "")].groupby("link")["seconds"].median()
    assert table["speedup"].to_dict() == pytest.approx((one / two).to_dict(), rel=0.03)
    backends = lab07.compare_backends(runs("lab05_allreduce", "laptop-cluster", study="links"), 4 * 2**20)
    assert backends["Gloo / MPI"][:"1gbit"].between(0.9, 1.2).all()


def test_page_8_layouts_and_laws():
    report, nodes = pd.read_csv(ROOT / "data/reference/lab08_throughput.csv"), runs("lab11_multinode", "laptop-cluster")
    assert lab08.layout_table(runs("lab08_throughput"), report).loc["ResNet50"].tolist() == [
        "46", "37", "0.81 (0.64 to 1.03)", "5.41", "23.0"]
    cores = pd.DataFrame({1: [20.0, 21.0, 22.0], 4: [40.0, 41.0, 42.0]})
    _, right = lab08.batch_figure(cores, runs("lab08_throughput", "h200"), report).axes
    assert line_values(right)["VGG16"][-1] == pytest.approx(1446, abs=1)
    strong = lab08.needed_shares(nodes, "strong").query("link == '100mbit' and nodes > 1")
    assert [*strong["by_ring"].iloc[:1], *strong["share"]] == pytest.approx([21.6, 24.2, 34.1, 39.8], abs=0.05)
    for kind, off in (("strong", 0.31), ("weak", 4.77)):
        table = lab08.fit_table(nodes, runs("lab05_allreduce", "laptop-cluster"), kind)
        assert table["lab 5, residual"].abs().max() < 0.16
        assert table["law, residual"].abs().max() == pytest.approx(off, abs=0.01)


def test_page_9_rules_at_the_usual_rate():
    table = lab09.add_rules(records.table(runs("lab09_fruits", trials=0)))
    left, _ = lab09.rule_figure(table).axes
    means = {bars.get_label(): bars.lines[0].get_ydata()[-1] for bars in left.containers}
    assert means["linear: running statistics"] == pytest.approx(0.343, abs=5e-4)
    assert means["held, N times the epochs: recomputed statistics"] == pytest.approx(0.747, abs=5e-4)


def test_page_10_what_a_validation_split_costs():
    kept = runs("lab10_caltech")
    frame = records.table(kept).join(lab10.epoch_costs(kept)).query("size == 1")
    accuracy, time = lab10.split_figure(frame).axes
    means = line_values(accuracy)["test accuracy: mean of the seeds"]
    assert means == pytest.approx([0.557, 0.556, 0.527, 0.492], abs=5e-4)
    assert line_values(time)["validation: mean of the seeds"] == pytest.approx([0.063, 0.097, 0.164], abs=5e-4)


def test_page_11_large_batches_and_sleeping_nodes():
    (axes,) = lab11.batch_figure(lab11.batch_table(runs("lab11_multinode"))).axes
    ours, _ = axes.containers
    error = 2 * np.sqrt(0.9925 * 0.0075 / 10_000)
    assert ours.lines[2][0].get_segments()[3][:, 1] == pytest.approx([0.9925 - error, 0.9925 + error])
    table = lab11.sleep_table(runs("lab11_multinode", "laptop-cluster", study="sleep"))
    weak, strong = (lab11.sleep_speedups(table, kind).loc["1gbit"].round(2).tolist() for kind in ("weak", "strong"))
    assert (weak, strong) == ([1.76, 1.86, 1.81], [0.25, 0.28, 0.27])


def test_page_12_kills_a_job_and_elastic_runs():
    kept = runs("lab12_elastic")
    lives = lab12.kill_table(kept)
    assert lab12.model_constants(lives) == pytest.approx((0.01265, 1.0321, 0.15314), rel=1e-3)
    assert lab12.waste_table(lives)["wasted"].round(3).to_dict() == {0.03: 0.396, 0.12: 0.281, 0.5: 0.366, 2.0: 0.73}
    job = next(run for run in runs("lab12_elastic", "laptop-cluster") if run["run"] == "two-minutes")
    seconds = lab12.job_seconds(job)
    assert sum(seconds.values()) == pytest.approx(job["metrics"]["wall_seconds"])
    assert (round(seconds["useful steps"]), round(seconds["ending and queue"])) == (314, 600)
    events = lab12.elastic_events(runs("lab12_elastic", study="elastic")).groupby("kind").mean(numeric_only=True)
    assert events.loc["worker lost", ["pause", "repeated", "cost"]].tolist() == pytest.approx([0.159, 0.216, 0.375],
                                                                                             abs=5e-4)
    (gpu,) = runs("lab12_elastic", "h200")
    assert lab12.epoch_seconds(gpu, 1) == pytest.approx(0.237, abs=0.005)


def test_page_13_methods_frameworks_and_memory():
    kept = runs("lab13_elsewhere", study="methods")
    table = lab13.method_table(kept)
    assert table["exchange"][["plain", "SyncBN"]].tolist() == pytest.approx([0.578, 1.457], abs=5e-4)
    assert table["exchange_low"]["plain"] == pytest.approx(0.443, abs=5e-4)
    said = [lab13.compare_exchanges(kept, *pair, 4) for pair in (("fp16", "plain"), ("plain", "local SGD"))]
    assert said == ["not resolved", "longer"]
    ours = runs("lab13_elsewhere", study="frameworks")[0]
    skipped = {"framework": "JAX", "skipped": "not installed", "difference": None}
    mine = ours | {"tables": {"frameworks": [skipped]}}
    assert set(lab13.framework_table(mine, [ours])["from"]) == {"reference run"}
    texts = lab13.memory_figure(7e9, 8, 80e9).axes[0].texts
    assert [text.get_text() for text in texts] == ["112 GB", "63 GB", "38.5 GB", "14 GB"]
