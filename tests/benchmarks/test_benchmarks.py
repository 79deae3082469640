"""The benchmarks run on this stack, a ratio above 1 is for the kit, and the page counts their results."""

import pandas as pd
import pytest
from PIL import Image

from benchmarks import programs, questions, rounds, table
from benchmarks.__main__ import RESULTS, read
from labs.run.paths import ROOT


@pytest.fixture
def quick(monkeypatch):
    """One network, two steps per epoch, on a machine that may be busy."""
    monkeypatch.setenv("BENCH_QUICK", "1")
    monkeypatch.setattr(questions, "STEPS", {"mlp": 2})
    monkeypatch.setattr(rounds, "_others", lambda *_: 0.0)


@pytest.mark.workers
@pytest.mark.slow
def test_all_contenders_of_a_step_run_on_this_stack(quick):
    measured = questions.steps(rounds=1)
    against = {"two single workers at once", "plain Horovod script", "MultiWorkerMirroredStrategy"}
    assert {row.against for row in measured if row.case == "mlp, batch 32"} >= against


@pytest.mark.slow
def test_all_readers_of_photos_run_on_this_stack(tmp_path):
    for label in ("a", "b"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(40):
            Image.new("RGB", (40, 30), (number, 0, 0)).save(tmp_path / f"photos/{label}/{number}.jpg")
    for name in ("kit", "ImageDataGenerator", "image_dataset_from_directory", "pure decode"):
        measured = programs.contender("pictures", name, tmp_path / "photos", 32, TMPDIR=str(tmp_path))
        assert {"first epoch, 32 px"} <= set(measured) <= {"first epoch, 32 px", "later epochs, 32 px"}, name


def test_above_1_the_kit_is_ahead():
    taken = [{"kit": {"a": 200.0, "b": 10.0}, "other": {"a": 100.0, "b": 20.0}},
             {"kit": {"a": 330.0, "b": 10.0}, "other": {"a": 110.0, "b": 20.0}},
             {"kit": {"a": 250.0, "b": 10.0}, "other": {"a": 100.0, "b": 20.0}}]
    fast, slow = table.rows("q", "images/s", taken, {"other": (2.0, 3.0), ("other", "b"): (0.4, 0.9)})
    assert (fast.ratio, fast.kit, fast.other, fast.rounds) == (2.5, 250.0, 100.0, 3)
    assert (fast.required, fast.target) == (2.0, 3.0)
    assert fast.low < 2.5 < fast.high
    assert (slow.ratio, slow.required) == (0.5, 0.4)
    assert table.rows("q", "s", taken, {}, smaller_is_better=True)[0].ratio == 0.4


def test_the_page_counts_what_the_results_meet():
    frames = [read(path) for path in RESULTS.glob("*.json")]
    counts = []
    for bound in ("required", "target"):
        met = [ratio >= least for frame in frames for ratio, least in zip(frame["ratio"], frame[bound], strict=True)
               if pd.notna(least)]
        counts.append(f"{sum(met)} of {len(met)}")
    page = (ROOT / "docs/speed.md").read_text()
    assert f"the kit meets {counts[0]} required ratios and {counts[1]} targets" in page
