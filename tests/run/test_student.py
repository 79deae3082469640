"""A student's id: what it changes in a run's settings, and what it does not."""

from __future__ import annotations

import dataclasses

import pytest

from labs.run import catalogue, command_line, environment
from labs.run.errors import LabError

LAB = catalogue.load_lab("lab02")


def seed(*words: str) -> int:
    return command_line.parse(LAB, words)[0].seed


@pytest.fixture
def student(monkeypatch):
    return lambda name: monkeypatch.setenv("LABS_STUDENT", name)


def test_the_default_seed_is_the_students_own(student):
    assert seed() == 1
    student("s1234")
    mine = seed()
    assert mine == seed("--preset", "paper") == seed("--batch-size", "7"), "the same in every run"
    student("s1235")
    assert len({seed(), mine, 1}) == 3
    assert command_line.parse(LAB, ["--epochs", "3"])[0] == dataclasses.replace(LAB.presets["demo"], epochs=3,
                                                                               seed=seed())
    student("")
    assert seed() == 1


@pytest.mark.parametrize("given", [1, 7])
def test_a_seed_that_is_given_stays(student, given):
    config = dataclasses.replace(LAB.presets["demo"], seed=given)
    assert command_line.to_argv(config) == ["--seed", "7"] * (given == 7)
    student("s1234")
    assert seed("--seed", str(given)) == given
    assert command_line.parse(LAB, command_line.to_argv(config))[0] == config, "of a notebook or a sweep"


@pytest.mark.parametrize("name", ["Jan Müller", "../x", "=1+1", "-x", "a\nb", "x" * 101])
def test_what_is_not_an_id_is_refused_before_a_run(student, name):
    student(name)
    with pytest.raises(LabError, match=r"LABS_STUDENT=.* is not an id"):
        seed()
    with pytest.raises(LabError, match=r"(?s)LABS_STUDENT=.* is not a student's id"):
        environment.refuse_harmful()
