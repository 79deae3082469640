"""The instructor's pages: one per lab, with an agenda that adds up and questions that have answers."""

from __future__ import annotations

import re

import pytest

from labs.run import catalogue
from labs.run.paths import ROOT

FOLDER = ROOT / "site/instructor"


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the students' release has no site/instructor")
@pytest.mark.parametrize("lab", catalogue.lab_names())
def test_an_agenda_adds_up_and_every_question_has_an_answer(lab):
    text = (FOLDER / f"{lab}.md").read_text()
    minutes = [int(row) for row in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)]
    assert sum(minutes) == int(re.search(r"\*\*Time:\*\* (\d+) minutes", text)[1])
    answers = re.findall(r"^\d\. \*[^*]+[?.]\*\s+(\S.*)$", text, re.MULTILINE)
    assert 4 <= len(answers) == len(re.findall(r"^\d\. ", text, re.MULTILINE)) <= 6
    assert 250 <= len(text.split()) <= 460
