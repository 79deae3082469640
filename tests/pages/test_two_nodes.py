"""Lab 11's figures, from made records: large batches, and nodes whose computation is a sleep."""

from __future__ import annotations

import pytest

from labs.pages import two_nodes
from labs.run.errors import LabError

LINKS = {"100mbit": 1e8, "1gbit": 1e9}
BYTES = 4_799_528


def compute(images: float) -> float:
    return 0.003 + 0.00075 * images


def predicted(kind: str, n: float, bits: float) -> float:
    own = 32 if kind == "weak" else 32 / n
    return (n if kind == "weak" else 1) * compute(32) / (compute(own) + 2 * (n - 1) / n * 8 * BYTES / bits)


@pytest.fixture(scope="module")
def points():
    """Runs that take exactly what is predicted."""
    runs = []
    for n in (1, 2, 8):
        for seed in (1, 2):
            rows = [{"bandwidth": link, "kind": kind,
                     "step_seconds": (n if kind == "weak" else 1) * compute(32) / predicted(kind, n, bits)}
                    for link, bits in LINKS.items() for kind in ("weak", "strong")]
            runs.append({"layout": {"size": n}, "config": {"seed": seed}, "metrics": {"gradient_bytes": BYTES},
                         "tables": {"sleep": rows}})
    return two_nodes.slept(runs)


def test_a_speedup_is_over_one_node(points):
    for row in points.to_dict("records"):
        assert row["speedup"] == pytest.approx(predicted(row["kind"], row["nodes"], row["link"]))
    speedups = two_nodes.speedups(points, "weak")
    assert list(speedups) == ["100mbit", "1gbit"], "from slow to fast"
    assert speedups["1gbit"] == pytest.approx(3 * (predicted("weak", 8, 1e9),)), "the runs do not differ"
    assert two_nodes.listed({"1gbit": (2.5, 2.4, 2.61)}) == "S = 2.50 (2.40 to 2.61) at 1 Gbit/s"


def test_each_link_has_a_line_and_its_runs(points):
    figure = two_nodes.scaling_figure(points, predicted)
    assert [axes.get_title() for axes in figure.axes] == ["weak scaling", "strong scaling"]
    for axes in figure.axes:
        dots = [line for line in axes.lines if line.get_marker() == "o"]
        assert [len(line.get_xdata()) for line in dots] == [6, 6]


def record(workers: int, seed: int) -> dict:
    return {"layout": {"global_batch_size": 128 * workers}, "history": [{"images": 1000, "steps": 8}],
            "config": {"seed": seed, "epochs": 2, "base_batch_size": 128},
            "metrics": {"test_images": 100, "best_epoch": 2, "best_val_accuracy": 0.9 + 0.01 * workers,
                        "test_accuracy_at_best": 0.9}}


def test_a_bar_is_two_standard_errors():
    table = two_nodes.large_batches([record(workers, seed) for workers in (8, 1) for seed in (1, 2)])
    assert table["workers"].tolist() == [1, 1, 8, 8]
    (axes,) = two_nodes.batch_figure(table).axes
    test, report = axes.containers
    assert test.get_label() == "test, that epoch"
    (bars,) = test.lines[2]
    assert [end[:, 1].tolist() for end in bars.get_segments()] == 4 * [pytest.approx([0.84, 0.96])]
    assert len(report.lines[0].get_xdata()) == 1, "report M has no run of one worker in its table of two nodes"


def test_missing_runs_are_named_with_their_command():
    with pytest.raises(LabError, match="--only sleep"):
        two_nodes.slept([])
    with pytest.raises(LabError, match="labs sweep lab11 --preset laptop"):
        two_nodes.large_batches([])


def test_the_drawing_counts_all_workers():
    texts = [text.get_text() for text in two_nodes.layout_figure(2, 3).axes[0].texts]
    assert "hvd.size() = 2 x 3 = 6 workers" in texts
    assert "steps per epoch = 60,000 / 768, rounded up = 79" in texts
    assert sum(text.startswith("rank ") for text in texts) == 6
