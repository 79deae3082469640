"""Lab 0: speedup and efficiency."""

from __future__ import annotations

from labs.exercises.grading import Question, Record, grade_efficiency, grade_speedup, pair_with_one_worker

RUNS = "section 'One worker and two' of notebooks/lab00_template.ipynb"


def _pair(records: list[Record]) -> list[Record]:
    return pair_with_one_worker(records, RUNS)


QUESTIONS = {
    "q1": Question("These are a run of one worker and one of several, with the same settings. What is the speedup?",
                   "a number", _pair, lambda answer, runs: grade_speedup(answer, *runs)),
    "q2": Question("What is the scaling efficiency of the same two runs?", "a share, from 0 to 1",
                   _pair, lambda answer, runs: grade_efficiency(answer, *runs)),
}
