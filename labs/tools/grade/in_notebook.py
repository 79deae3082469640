"""Points of a hand-in inside a notebook: the zip lies beside it, as in nbgrader's folders.

    in_notebook.points("lab04.q1")    prints why, and returns the points, which nbgrader takes as the cell's score
"""

from __future__ import annotations

import functools
from pathlib import Path

from labs.run.errors import LabError
from labs.tools.grade import judge, policy


def points(exercise: str) -> float:
    """Print the verdict on an exercise and return its points.

    Args:
        exercise: Its id: "lab04.q1".

    Raises:
        LabError: There is not one zip, it cannot be read, or it is of another lab.
    """
    for verdict in _graded(Path().absolute()).verdicts:
        if verdict.exercise == exercise:
            print(f"{exercise}: {verdict.status}: {verdict.text}")
            return verdict.points
    raise LabError(f"the zip beside this notebook has no {exercise}; hand in that of this lab")


@functools.cache
def _graded(folder: Path) -> judge.Graded:
    zips = sorted(folder.glob("*.zip"))
    if len(zips) != 1:
        raise LabError(f"{len(zips)} zips beside this notebook; put there the one that `labs handin` wrote")
    graded = judge.judge(zips[0], policy.read(policy.DEFAULT))
    if graded.problem:
        raise LabError(f"{zips[0].name}: {graded.problem}")
    return graded
