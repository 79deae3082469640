"""Lab 12."""

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
