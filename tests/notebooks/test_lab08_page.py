"""Lab 8's committed page: equal results for one global batch, laws fitted only where several points test them."""

from __future__ import annotations

import re

from tests.notebooks.committed import Page

PAGE = Page("lab08_throughput")


def test_one_global_batch_gives_one_result_however_it_is_divided():
    maes = {name: float(mae) for name, mae in re.findall(r"^(\d x \d.*): test MAE (\S+) years", PAGE.printed, re.M)}
    assert set(maes) >= {"1 x 2", "2 x 1, strong"}
    assert max(maes.values()) < 1.01 * min(maes.values())


def test_no_law_is_fitted_to_one_point_nor_beyond_it():
    sentences = re.findall(r"^(report \w, .*|report M|here, .*): ((?:Amdahl|Gustafson|S\().*)$", PAGE.printed, re.M)
    assert {who for who, _ in sentences} >= {"report M", "report C, batch 512", "report A, VGG16 on gpu",
                                             "here, small network, weak", "here, small network, strong"}
    for who, sentence in sentences:
        points = sentence.partition("; the fit")[0].count("at n = ")
        assert ("the fit" in sentence) == (points >= 2), who
    assert "10.51 is above 8: no serial share explains it" in dict(sentences)["report A, VGG16 on gpu"]


def test_speedups_without_a_baseline_in_the_table_are_not_explained():
    assert not re.search(r"^report A, (ResNet50|InceptionV3) on gpu: ", PAGE.printed, re.M)


def test_no_table_is_empty_and_no_bar_stands_on_a_log_axis():
    assert "Empty DataFrame" not in PAGE.printed
    assert not re.search(r"barh?\(.*log[xy]=True", PAGE.code)


def test_the_three_networks_run_on_the_page():
    for name in ("resnet50", "inception_v3", "vgg16"):
        assert re.search(rf"^{name} +\d+\.\d +\d+\.\d +\d+\.\d$", PAGE.printed, re.M)


def test_two_of_three_networks_scale_on_the_gpu_as_their_arithmetic_does():
    """0.67 and 0.97 on the GPU are said beside 0.72 and 0.26 by multiplications."""
    (table,) = PAGE.tables("by multiplications")
    inception, _, expected = _last_three(table, "InceptionV3")
    vgg, p100, few = _last_three(table, "VGG16")
    assert abs(inception / expected - 1) < 0.1
    assert vgg > 3 * few
    assert f"InceptionV3 agrees: {inception:.2f} of ResNet50's throughput, against {expected:.2f}" in PAGE.text
    assert f"VGG16 at {p100:.2f} of ResNet50's" in PAGE.text
    assert "came out alike" not in PAGE.text


def _last_three(table: str, name: str) -> list[float]:
    """Return what stands in the last columns of a row; pandas prints a wide table in blocks."""
    return [float(value) for row in re.findall(rf"^{name} (.*)$", table, re.M) for value in row.split()][-3:]
