"""Exercises of lab 12: the newest intact checkpoint, the wasted share of the clock, the rest of an epoch."""

import json
import re
from collections import Counter

from labs.exercises.code_tasks import StudentFunction, bug, code
from labs.exercises.grading import Question, grade_entries, grade_number
from labs.exercises.selecting import Record, newest
from labs.pages import at_scale

COMMAND = "`labs run lab12_elastic --workers 2`"
KILLED = "section 'Killed, and resumed' of notebooks/lab12_elastic.ipynb"


def _events(run: Record) -> list[dict]:
    return run.get("tables", {}).get("events", [])


def _of(study: str, run: Record) -> bool:
    return run["config"].get("study") == study


RESUMED = newest("a run that was killed and resumed", KILLED, lambda run: _of("resume", run) and any(
    event["steps_lost"] for event in _events(run)))
ELASTIC = newest("elastic training in which a worker died", COMMAND, lambda run: _of("elastic", run) and
                 len(_events(run)) > 1)


def _twice(answer, run: Record) -> str:
    batch, size = run["config"]["batch_size"], run["layout"]["size"]
    steps = sum(event["steps_lost"] for event in _events(run))
    return grade_number(answer, steps * batch * size, "images", "steps_lost x batch_size x workers", {
        "that is the images of one worker; a step trains on the batches of all workers": steps * batch,
        "that is the number of steps; each has a global batch of images": steps,
        "that is all images of an epoch; the run was killed in the middle of it": run["history"][0]["images"],
    }, rel_tol=0.005)


def _average(answer, killed: Record, elastic: Record) -> str:
    steps, commit = killed["history"][0]["steps"], elastic["config"]["commit_steps"]

    def half(whole: int, of: str):
        return lambda value: grade_number(value, whole / 2, "steps", f"half of {of}", {
            "that is the most that can be lost; on average, a death is halfway between two saves": whole}, abs_tol=0.5)

    return grade_entries(answer, {"checkpoint": half(steps, "the steps of an epoch"),
                          "elastic": half(commit, "commit_steps")})


def _idle(answer, *runs: Record) -> str:
    seconds = [event["seconds_lost"] for event in _events(runs[0]) if event["kind"] != "start"]
    start = sum(event["seconds_lost"] for event in _events(runs[0]) if event["kind"] == "start")
    return grade_number(answer, sum(seconds), "seconds", "seconds_lost, summed over the events after the start", {
        "that includes the start, which is part of every run": sum(seconds) + start,
        "that is the start alone": start,
        "that is the longest pause alone": max(seconds),
        "that is when the last event happened, not how long it lasted": _events(runs[0])[-1]["seconds"]})


QUESTIONS = {
    "q1": Question(RESUMED, _twice),
    "q2": Question(lambda records: RESUMED(records) + ELASTIC(records), _average),
    "q3": Question(ELASTIC, _idle, timed=True),
}


def _checkpoint(step: int, cut: int | None = None) -> dict[str, bytes]:
    """Return a file with a checkpoint, or with its first bytes."""
    return {f"step-{step}.json": json.dumps({"step": step, "weights": [0.5, -1.5]}).encode()[:cut]}


FOLDERS: list[tuple[dict[str, bytes], str]] = [
    ({}, "without a checkpoint, training starts at the beginning"),
    (_checkpoint(8), "it is intact"),
    (_checkpoint(8) | _checkpoint(6), "the newest one counts, in whatever order the files come"),
    (_checkpoint(8) | _checkpoint(12), "compare the steps as numbers, not as text"),
    (_checkpoint(8) | _checkpoint(12, cut=9), "the newest file is cut: the one before it must be used"),
    (_checkpoint(8) | _checkpoint(12, cut=0), "the newest file is empty: the one before it must be used"),
    (_checkpoint(8) | {"step-12.json.part": _checkpoint(12)["step-12.json"][:20]}, "a .part file is no checkpoint"),
    (_checkpoint(12, cut=9), "no file is intact, so training starts at the beginning"),
    (_checkpoint(8) | {"notes.txt": b"step 99"}, "only files named step-STEP.json are checkpoints"),
]


def reference_latest(files: dict[str, bytes]) -> int:
    """Return the step of the newest checkpoint that can be read."""
    steps = [0]
    for name, content in files.items():
        try:
            steps += [json.loads(content)["step"]] * bool(re.fullmatch(r"step-\d+\.json", name))
        except ValueError:
            continue
    return max(steps)


def _grade_load_latest(run: StudentFunction) -> str:
    step = run.whole(100, 900)
    drawn = _checkpoint(step) | _checkpoint(step + 7, cut=5), "the newest file that is intact counts"
    for files, why in (*FOLDERS, drawn):
        call = run(files)
        value = call.number("the result is a step, a whole number")
        call.expect(value == int(value), "the result is a step, a whole number")
        call.expect(value == reference_latest(files), why)
    return "the newest intact checkpoint, whatever a kill has left beside it"


def _grade_waste(run: StudentFunction) -> str:
    clocks = [(100, 1, 1000, 0), (600, 0, 36_000, 300), (600, 6, 21_600, 300), (1200, 30, 86_400, 900)]
    drawn = run.whole(300, 900), run.whole(5, 30), run.whole(20_000, 90_000), run.whole(60, 600)
    for interval, save, life, restart in (*clocks, drawn):
        call = run(interval, save, life, restart)
        right = at_scale.first_order(interval, save, life, restart)
        call.expect_number(right, "add the share of the saves, and what a failure costs divided by the time between "
                                  "failures", {
            "a failure at a random moment loses half of an interval": save / interval + (interval + restart) / life,
            "after each failure there is a restart": save / interval + interval / 2 / life,
            "each interval ends with a save": (interval / 2 + restart) / life,
            "saves come once per interval, not once per failure": save / life + (interval / 2 + restart) / life,
            "a share is a number from 0 to 1, not in percent": 100 * right})
    return "saves per interval, plus half an interval and a restart per failure; least near the root of 2 C M"


def _grade_rest(run: StudentFunction) -> str:
    epochs = [([3, 1, 2, 0], 0, 1), ([3, 1, 2, 0], 2, 1), ([3, 1, 2, 0], 0, 2), ([3, 1, 2, 0], 2, 2),
              ([5, 2, 7, 0, 6, 1, 4, 3], 3, 2), ([5, 2, 7, 0, 6, 1, 4, 3], 4, 3), ([1, 0], 2, 2)]
    drawn = run.rng.permutation(30).tolist(), run.whole(1, 20), run.whole(2, 5)
    for order, seen, size in (*epochs, drawn):
        left, shares = Counter(order[seen:]), []
        for rank in range(size):
            call = run(order, seen, rank, size)
            call.expect(isinstance(call.value, list) and all(type(image) is int for image in call.value),
                        "the result is a list of images")
            shares.append(Counter(call.value))
            call.expect(not shares[-1] - Counter(order), "an image is not in the epoch, or occurs twice")
            call.expect(not shares[-1] - left, "an image that has been used is used again: leave the first `seen` out")
            call.expect(not sum(shares, Counter()) - left, "a lower rank already has one of these images, and each "
                                                           "goes to one worker")
        call.expect(sum(shares, Counter()) == left, "together, the ranks leave out an image that is still to be used")
        counts = [share.total() for share in shares]
        call.expect(max(counts) - min(counts) <= 1, "the workers' numbers of images differ by more than one")
    return "each image that is left, on one worker, for any number of workers"


TASKS = {
    "load_latest": code("files", _grade_load_latest),
    "waste": code("interval, save, life, restart", _grade_waste),
    "rest": code("order, seen, rank, size", _grade_rest),
    "bug": bug("some images are used twice in an epoch", 38, (
        "the checkpoint forgets how much of the epoch's order is used, so the resumed run begins the epoch again "
        "with weights that have seen half of it"), {
        "the workers end with different weights": "they start from one seed, and every step averages the gradients",
        "the checkpoint holds the weights of the start": "it is written after the steps up to the interruption"}, {
        20: "each epoch has a different order, equal on all workers and in both starts, which is right",
        21: "the step's images are the next ones of that order",
        22: "each worker takes every size-th image of the step, which is right",
        43: "it continues where the checkpoint says that training was"}),
}
