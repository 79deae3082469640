"""Lab 11's committed page: what is said of its figures is what they show."""

from __future__ import annotations

import re

import pytest

from labs.course import proportions
from labs.results import scaling
from tests.notebooks.committed import Page

PAGE = Page("lab11_multinode")


def test_the_prediction_for_each_network_comes_from_its_own_efficiencies():
    line = r"^(weak|strong) scaling over (.*): efficiency ([\d., ]+) on 2, 4, 8: (.*); the fastest"
    sentences = re.findall(line, PAGE.printed, re.M)
    assert len(sentences) == 2 * 3
    for kind, link, values, sentence in sentences:
        held = [1.0, *map(float, values.split(","))]
        assert scaling.trend([1, 2, 4, 8], held).partition(": ")[2].startswith(f"{sentence}; "), (kind, link)
    slow = next(values for kind, link, values, _ in sentences if (kind, link) == ("weak", "1 Gbit/s Ethernet"))
    assert sorted(slow.split(", "), reverse=True) == slow.split(", "), "the efficiency falls with every doubling"
    assert "eight reach too" not in PAGE.text


@pytest.mark.parametrize("pair", ["2 on 2 and 6 on 2", "2 on 2 and 8 on 2", "2 on 2 and 1 on 1"])
def test_what_is_noise_in_report_m_is_judged_by_standard_errors(pair):
    one, other, errors, verdict = re.search(
        rf"^{pair}: (\S+) and (\S+) differ by (\S+) standard errors: (.*)$", PAGE.printed, re.M).groups()
    assert ("within noise" in verdict) == (float(errors) <= proportions.NOISE)
    assert float(one) >= float(other) or pair == "2 on 2 and 6 on 2"


def test_labels_are_built_from_the_runs_they_stand_for():
    assert not re.search(r"what=\[\"|\[\"workers\"\] = \[1, 2, 4, 6\]", PAGE.code)


def test_nothing_is_concluded_that_does_not_follow():
    assert "three workers on each" not in re.sub(r"[*]", "", PAGE.text), "the steps tell the workers, not their nodes"
    (advice,) = re.findall(r"^\* .*2 x 4 or 8 x 1.*(?:\n  .*)*", PAGE.text, re.M)
    assert "Where whole nodes become free" in advice
    assert "fragmented" in advice
