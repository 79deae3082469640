"""Lab 12."""

import pandas as pd


def q1(runs):
    """A step trains on the global batch."""
    (run,) = runs
    return run["metrics"]["steps_lost"] * run["config"]["batch_size"] * run["layout"]["size"]


def q2(runs):
    """On the average a death comes in the middle between two saves."""
    resumed, elastic = runs
    return {"checkpoint": resumed["history"][0]["steps"] / 2, "elastic": elastic["config"]["commit_steps"] / 2}


def q3(runs):
    """Every run has a start; the other events are what the death has cost."""
    events = pd.DataFrame(runs[0]["tables"]["events"])
    return events.loc[events["kind"] != "start", "seconds_lost"].sum()
