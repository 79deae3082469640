"""Questions of lab 12: repeated work, work lost on average, and time without training."""

from __future__ import annotations

from labs.course.exercises.grading import Question, Record, grade_entries, grade_number, newest

COMMAND = "`labs run lab12_elastic --workers 2`"
KILLED = "section '(a) Killed, and resumed' of notebooks/lab12_elastic.ipynb"


def _events(run: Record) -> list[dict]:
    return run.get("tables", {}).get("events", [])


def _of(study: str, run: Record) -> bool:
    return run["config"].get("study") == study


RESUMED = newest("a run that was killed and resumed", KILLED, lambda run: _of("resume", run) and any(
    event["steps_lost"] for event in _events(run)))
ELASTIC = newest("elastic training in which a worker died", COMMAND, lambda run: _of("elastic", run) and
                 len(_events(run)) > 1)


def _twice(answer, runs: list[Record]) -> str:
    (run,) = runs
    batch, size = run["config"]["batch_size"], run["layout"]["size"]
    steps = sum(event["steps_lost"] for event in _events(run))
    return grade_number(answer, steps * batch * size, "images", "steps_lost x batch_size x workers", {
        "that is the images of one worker; a step trains on the batches of all workers": steps * batch,
        "that is the number of steps; each has a global batch of images": steps,
        "that is all images of an epoch; the run was killed in the middle of it": run["history"][0]["images"],
    }, rel_tol=0.005)


def _average(answer, runs: list[Record]) -> str:
    killed, elastic = runs
    steps, commit = killed["history"][0]["steps"], elastic["config"]["commit_steps"]

    def half(whole: int, of: str):
        return lambda value: grade_number(value, whole / 2, "steps", f"half of {of}", {
            "that is the most that can be lost; on average, a death is halfway between two saves": whole}, abs_tol=0.5)

    return grade_entries(answer, {"checkpoint": half(steps, "the steps of an epoch"),
                          "elastic": half(commit, "commit_steps")})


def _idle(answer, runs: list[Record]) -> str:
    seconds = [event["seconds_lost"] for event in _events(runs[0]) if event["kind"] != "start"]
    start = sum(event["seconds_lost"] for event in _events(runs[0]) if event["kind"] == "start")
    return grade_number(answer, sum(seconds), "seconds", "seconds_lost, summed over the events after the start", {
        "that includes the start, which is part of every run": sum(seconds) + start,
        "that is the start alone": start,
        "that is the longest pause alone": max(seconds),
        "that is when the last event happened, not how long it lasted": _events(runs[0])[-1]["seconds"],
    })


QUESTIONS = {
    "q1": Question("This run was killed and resumed. On how many images did all its workers together train twice?",
                   "a number of images", RESUMED, _twice),
    "q2": Question("A worker dies at a random moment. How many steps are lost on average: with a checkpoint after each "
                   "epoch, as in the first of these runs, and with the commits of the second?",
                   '`{"checkpoint": ..., "elastic": ...}`, in steps',
                   lambda records: RESUMED(records) + ELASTIC(records), _average),
    "q3": Question("For how long did no worker train in this run, not counting the start?", "a number, in seconds",
                   ELASTIC, _idle),
}
