"""solutions/exams.md: an agenda per lab that adds up, and exam questions with answers."""

from __future__ import annotations

import re

import pytest

from labs.run import catalogue
from labs.run.paths import ROOT

PAGE = ROOT / "solutions/exams.md"


@pytest.mark.skipif(not PAGE.is_file(), reason="the students' release has no solutions")
@pytest.mark.parametrize("lab", catalogue.lab_names())
def test_an_agenda_adds_up_and_every_question_has_an_answer(lab):
    section = re.split(r"(?m)^## Lab ", PAGE.read_text())[int(lab[3:5])]
    total, agenda = re.search(r"(?s)\*\*(\d+) minutes:\*\* (.*?)\n\n", section).groups()
    assert sum(map(int, re.findall(r"(?:^|;\s)(\d+)\s", agenda))) == int(total)
    assert len(re.findall(r"(?m)^\d\. \*[^*]+[?.]\*\s+\S", section)) == len(re.findall(r"(?m)^\d\. ", section)) == 2
