"""The one verdict on noise: right as often as it says, paired where it can be, and without the disturbed runs."""

import itertools

import numpy as np
import pytest
from scipy import stats

from labs.results import noise, records
from labs.run.errors import LabError


def run(name: str, seed: int, seconds: list[float], cores: int = 4, **metrics: float) -> records.Record:
    """Return the record of a run with these seconds of its epochs."""
    history = [{"epoch": epoch, "train_seconds": each, "steps": 10, "images": 1000}
               for epoch, each in enumerate(seconds, 1)]
    return {"lab": "lab04_speedup", "run": name, "started": f"2026-11-{seed:02}", "config": {"seed": seed},
            "layout": {"size": 2, "nodes": 1, "local_size": 2, "global_batch_size": 100}, "history": history,
            "timings": {"images_per_sec": 1000 / np.mean(seconds[1:]), "seconds_per_epoch": np.mean(seconds[1:])},
            "metrics": metrics, "machine": {"cores": cores}}


def test_equal_settings_are_called_different_as_rarely_as_stated():
    """A few hundred planted pairs and triples without a difference: at most one sentence in twenty is wrong."""
    rng, wrong = np.random.default_rng(1), {"paired": 0, "unpaired": 0, "three": 0, "three uncorrected": 0}
    for _ in range(600):
        seeds = rng.normal(0, 3, 5)  # What a seed does to both settings.
        one, *others = (dict(enumerate(100 + seeds + rng.normal(0, 1, 5))) for _ in range(4))
        wrong["paired"] += noise.compare(one, others[0]).resolved
        wrong["unpaired"] += noise.compare(rng.normal(100, 3, 5), rng.normal(100, 1, 8)).resolved
        wrong["three"] += any(noise.compare(one, each, ratio=True, comparisons=3).resolved for each in others)
        wrong["three uncorrected"] += any(noise.compare(one, each).resolved for each in others)
    assert all(12 <= wrong[name] <= 42 for name in ("paired", "unpaired")), wrong  # 30 of 600; 2 to 7 %.
    assert 6 <= wrong["three"] <= 42 < wrong["three uncorrected"], wrong


def test_seeds_are_paired_where_both_have_them_and_the_interval_is_students():
    one, other = {1: 1.10, 2: 2.14, 3: 3.09, 4: 9.0}, {3: 3.0, 1: 1.0, 2: 2.0}
    verdict = noise.compare(one, other, unit="s")
    known = stats.ttest_rel([1.10, 2.14, 3.09], [1.0, 2.0, 3.0]).confidence_interval()
    assert (verdict.low, verdict.high) == pytest.approx((known.low, known.high))
    assert str(verdict) == "more than noise: +0.11 s (0.04 to 0.18)"
    assert noise.compare(other, one).direction == -1


@pytest.mark.parametrize(("one", "other"), [
    ({1: 2.0, 2: 2.2, 3: 2.1}, {4: 1.0, 5: 1.3, 6: 1.1, 7: 1.4}),  # No seed in common.
    ({1: 2.0, 2: 2.2, 3: 2.1}, {1: 1.0, 2: 1.3, 5: 1.1, 6: 1.4}),  # Two: too few for a spread.
])
def test_without_common_seeds_a_ratio_has_welchs_interval_on_logarithms(one, other):
    verdict = noise.compare(one, other, ratio=True)
    logs = [np.log([*(each.values() if isinstance(each, dict) else each)]) for each in (one, other)]
    known = stats.ttest_ind(*logs, equal_var=False).confidence_interval()
    assert (verdict.low, verdict.high) == pytest.approx((np.exp(known.low), np.exp(known.high)))
    assert verdict.low < verdict.value < verdict.high


def test_a_disturbed_run_is_left_out_by_name():
    slow = run("sweep-seed3", 3, [2.0, 1.0, 1.0, 4.0])
    one = [run("a1", 1, [9.0, 1.00, 1.02]), run("a2", 2, [9.0, 1.02, 1.03]), slow]
    other = [run("b1", 1, [9.0, 1.20, 1.21]), run("b2", 2, [9.0, 1.22, 1.24]), run("b3", 3, [9.0, 1.21, 1.22])]
    for sides in ((one, other), (records.table(one), records.table(other))):
        verdict = noise.compare(*sides, "seconds_per_epoch", unit="s")
        assert verdict.direction == -1
        assert "left out, disturbed: sweep-seed3 (the slowest of 3 epochs took 4 times as long" in str(verdict)
        assert not noise.compare(*sides, "seconds_per_epoch", timed=False).resolved


def test_what_cannot_be_compared_says_why_or_is_refused():
    verdict = noise.compare([1.0, 9.0], [2.0, 2.1], ratio=True, comparisons=100)
    assert str(verdict) == "not resolved: 1.46, the runs are too few for an interval"
    for same in (([1.2, 1.2], [1.0, 1.0]), ({1: 1.2, 2: 2.2, 3: 3.2}, {1: 1.0, 2: 2.0, 3: 3.0})):
        assert "the runs do not vary" in str(noise.compare(*same)), "copies of one result"
    copies = [[run(f"{name}{number}", 1, [1.0] * 3, test_accuracy=share) for number in range(3)]
              for name, share in (("a", 0.95), ("b", 0.96))]
    assert "one run each decides nothing" in str(noise.compare(*copies, "test_accuracy", timed=False)), "the same seed"
    for value, ratio in ((float("nan"), False), (0.0, True)):
        with pytest.raises(LabError, match="cannot be compared"):
            noise.compare([1.0, value], [1.0, 2.0], ratio=ratio)


def test_a_disturbed_measurement_says_so_and_an_undisturbed_one_is_silent():
    assert noise.warning(run("quiet", 1, [9.0, 1.0, 1.4]), [0.010, 0.012, 0.011]) == ""
    assert "busy: the slowest of 2 epochs took 2 times as long" in noise.warning(run("busy", 1, [9.0, 1.0, 2.0]))
    assert noise.warning(run("short", 1, [0.9, 0.1, 0.2])) == "", "one moment of another program"
    assert "the slowest of 3 repeats took 2 times" in noise.warning([0.010, 0.020, 0.011])
    assert noise.warning([0.010] * 7 + [0.030]) == "", "one slow turn of eight moves no median"
    assert "the slowest of the middle 4 of 8 repeats took 2 times" in noise.warning([0.010] * 4 + [0.020] * 4)
    assert "2 workers on a node took turns on 1 core" in noise.warning(run("crowded", 1, [9.0, 1.0, 1.0], cores=1))


def test_two_models_on_the_same_images_are_compared_by_mcnemars_test():
    one, other = np.arange(100) < 70, (np.arange(100) >= 5) & (np.arange(100) < 60)
    both = noise.compare_answers(one, other)
    assert both.value == pytest.approx(0.15)
    assert noise.mcnemar(one, other) == pytest.approx(stats.binomtest(15, 15).pvalue)
    assert both.low == pytest.approx((2 * stats.binomtest(15, 15).proportion_ci().low - 1) * 15 / 100)
    for only_one, only_other in itertools.product(range(16), repeat=2):  # The interval excludes 0 where the test does.
        one = np.repeat([True, False, True], [only_one, only_other, 5])
        other = np.repeat([False, True, True], [only_one, only_other, 5])
        assert noise.compare_answers(one, other).resolved == (noise.mcnemar(one, other) < 0.05)


def test_accuracies_on_different_images_have_the_spread_of_simulated_ones():
    assert noise.standard_error(0.9, 400) == pytest.approx(0.015)
    rng, images = np.random.default_rng(1), 400
    shares = rng.binomial(images, 0.8, (600, 2)) / images
    assert 12 <= sum(noise.compare_shares(*pair, images).resolved for pair in shares) <= 42
    assert str(noise.compare_shares(0.735, 0.607, 196)) == "more than noise: +0.128 (0.036 to 0.220)"
    assert noise.compare_shares(1.0, 0.0, 10_000).direction == 1
    assert not noise.compare_shares(1.0, 1.0, 10).resolved
