"""Answers to the questions of `labs.exercises`, for instructors. Remove this folder from what students get.

    from labs import exercises
    from solutions import lab04_speedup
    exercises.check("lab04.q1", lab04_speedup.q1(exercises.runs("lab04.q1")))

A function `q1`, `q2`, ... takes the records that `exercises.runs` returns for its question, and returns the right
answer. The others are themselves the answers to tasks: `exercises.check("lab02.shard", lab02_horovod.shard)`. `bug` is
the answer about the script in `debugging/`; `debugging.csv` has its repair, a row for each line. `train.py` is lab 2's
script with the ten lines of Horovod. `rubric.md` has model answers to the open questions of the notebooks.
"""
