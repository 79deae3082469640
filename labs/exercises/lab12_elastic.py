"""Lab 12: what is done twice, what is lost on the average, and when nobody trains."""

from __future__ import annotations

from labs.exercises.judge import Question, Record, newest, number, parts

COMMAND = "`labs run lab12_elastic --workers 2`"
KILLED = "section '(a) Killed, and resumed' of notebooks/lab12_elastic.ipynb"


def _events(run: Record) -> list[dict]:
    return run.get("tables", {}).get("events", [])


def _resumed(records: list[Record]) -> list[Record]:
    return [newest(records, "a run that was killed and resumed", KILLED, lambda run: run["config"]["study"] == "resume"
                   and any(event["steps_lost"] for event in _events(run)))]


def _elastic(records: list[Record]) -> list[Record]:
    return [newest(records, "elastic training in which a worker died", COMMAND, lambda run:
                   run["config"]["study"] == "elastic" and len(_events(run)) > 1)]


def _twice(answer, runs: list[Record]) -> str:
    (run,) = runs
    batch, size = run["config"]["batch_size"], run["layout"]["size"]
    steps = sum(event["steps_lost"] for event in _events(run))
    return number(answer, steps * batch * size, "images", "steps_lost x batch_size x workers", {
        "that is the images of one worker; a step trains on those of all": steps * batch,
        "that is the steps; each has a global batch of images": steps,
        "that is all images of an epoch; the run died in the midst of it": run["history"][0]["images"],
    }, tolerance=0.005)


def _average(answer, runs: list[Record]) -> str:
    killed, elastic = runs
    steps, commit = killed["history"][0]["steps"], elastic["config"]["commit_steps"]

    def half(whole: int, of: str):
        return lambda value: number(value, whole / 2, "steps", f"half of {of}", {
            "that is the most that can be lost; a death comes on the average in the middle": whole}, slack=0.5)

    return parts(answer, {"checkpoint": half(steps, "the steps of an epoch"),
                          "elastic": half(commit, "commit_steps")})


def _idle(answer, runs: list[Record]) -> str:
    seconds = [event["seconds_lost"] for event in _events(runs[0]) if event["kind"] != "start"]
    start = sum(event["seconds_lost"] for event in _events(runs[0]) if event["kind"] == "start")
    return number(answer, sum(seconds), "seconds", "seconds_lost, summed over the events after the start", {
        "that includes the start, which every run has": sum(seconds) + start,
        "that is the start alone": start,
        "that is the longest pause alone": max(seconds),
        "that is the shortest pause alone": min(seconds),
        "that is when the last event was, not how long it lasted": _events(runs[0])[-1]["seconds"],
    })


QUESTIONS = {
    "q1": Question("This run was killed and resumed. How many images did its workers together train on twice?",
                   "a number of images", _resumed, _twice),
    "q2": Question("A worker dies at a moment that nobody knows. How many steps are lost on the average: with a "
                   "checkpoint after each epoch, as in the first of these runs, and with the commits of the second?",
                   '`{"checkpoint": ..., "elastic": ...}`, in steps',
                   lambda records: _resumed(records) + _elastic(records), _average),
    "q3": Question("For how long did nobody train in this run, its start left out?", "a number, in seconds",
                   _elastic, _idle),
}
