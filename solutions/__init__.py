"""Answers to the questions of `labs.exercises`, for instructors. Remove this folder from what students get.

    from labs import exercises
    from solutions import lab04_speedup
    exercises.check("lab04.q1", lab04_speedup.q1(exercises.runs("lab04.q1")))

Each function takes the records that `exercises.runs` returns for its question, and returns the right answer.
"""
