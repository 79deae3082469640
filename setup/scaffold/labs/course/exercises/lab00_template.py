"""Lab 0: speedup and efficiency."""

from __future__ import annotations

from labs.course.exercises.grading import Question, grade_efficiency, grade_speedup, pair_with_one_worker

PAIR = pair_with_one_worker("section 'One worker and two' of notebooks/lab00_template.ipynb")

QUESTIONS = {
    "q1": Question("These are a run of one worker and one of several, with the same settings. What is the speedup?",
                   "a number", PAIR, grade_speedup),
    "q2": Question("What is the scaling efficiency of the same two runs?", "a share, from 0 to 1", PAIR,
                   grade_efficiency),
}
