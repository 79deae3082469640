"""What the committed page of lab 10 says about its runs is what its runs show."""

from __future__ import annotations

import re

import pytest

from labs.course import proportions
from tests.notebooks import committed as page

LOSSES = re.compile(r"^epoch \d+/\d+  accuracy \S+  loss (\S+)", re.MULTILINE)


@pytest.fixture(scope="module")
def cells():
    return page.cells("lab10_caltech")


def test_two_workers_that_share_a_batch_begin_on_the_curve_of_one(cells):
    one, two, half = (float(LOSSES.search(page.output(cells, code))[1])
                      for code in ("one = lab.run", "two = local.run", "half = local.run"))
    assert abs(half - one) < abs(two - one) / 10


def test_a_verdict_on_noise_is_that_of_the_accuracies_it_names(cells):
    output = page.output(cells, "proportions.compared(table")
    images = sum(map(int, re.findall(r"^\S+ +\d+ +\d+ +(\d+) +\d+%$", page.output(cells, "named = {"), re.MULTILINE)))
    sentence = r"(0\.\d+) and (0\.\d+) differ by (\S+) standard errors: (within noise|more than noise)"
    matches = re.findall(sentence, output)
    assert images > 150
    assert len(matches) == 2
    for one, other, errors, verdict in matches:
        # Printed accuracies have three digits.
        assert abs(proportions.difference(float(one), float(other), images)) == pytest.approx(float(errors), abs=0.1)
        assert (verdict == "within noise") == (float(errors) <= proportions.NOISE)


def test_no_prose_judges_noise_by_eye(cells):
    """Markdown cannot follow the figures of the next execution."""
    assert not re.findall(r"cannot tell|is noise\.|two workers learn", page.prose(cells))
