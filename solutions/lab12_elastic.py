"""Lab 12."""

import json

import pandas as pd


def q1(runs):
    """A step trains on the global batch."""
    (run,) = runs
    return run["metrics"]["steps_lost"] * run["config"]["batch_size"] * run["layout"]["size"]


def q2(runs):
    """On average, a death is halfway between two saves."""
    resumed, elastic = runs
    return {"checkpoint": resumed["history"][0]["steps"] / 2, "elastic": elastic["config"]["commit_steps"] / 2}


def q3(runs):
    """Leave out the start, which is part of every run."""
    events = pd.DataFrame(runs[0]["tables"]["events"])
    return events.loc[events["kind"] != "start", "seconds_lost"].sum()


def load_latest(files):
    """Try the newest first; a cut file is not JSON."""
    names = [name for name in files if name.startswith("step-") and name.endswith(".json")]
    for name in sorted(names, key=lambda name: int(name[5:-5]), reverse=True):
        try:
            return json.loads(files[name])["step"]
        except ValueError:
            pass
    return 0


def waste(interval, save, life, restart):
    """A save per interval; half an interval and a restart per failure."""
    return save / interval + (interval / 2 + restart) / life


def rest(order, seen, rank, size):
    """Shard what is left, by the current rank and size."""
    return order[seen:][rank::size]


bug = {"symptom": "some images are used twice in an epoch", "line": "line 38"}
