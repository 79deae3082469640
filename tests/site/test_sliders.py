"""The formulas of the pages' moving figures are those of the kit."""

import itertools
import json
import shutil
import subprocess

import numpy as np
import pytest

from labs.pages import at_scale, lab05
from labs.results import cost_model
from labs.run.paths import ROOT
from labs.training import schedule

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("node"), reason="no node on this machine")]
BYTES, RANKS, LATENCIES, BANDWIDTHS = (1e3, 4.5e7, 1e9), (2, 3, 8, 100), (1e-6, 1e-3), (12.5e6, 50e9)


def javascript(calls: list[tuple]) -> list:
    """Return the results of (name, arguments...) with the functions of sliders.js."""
    program = (f"const {{ model }} = require('{ROOT}/site/static/sliders.js');"
               "const calls = JSON.parse(require('fs').readFileSync(0));"
               "console.log(JSON.stringify(calls.map(([name, ...args]) => model[name](...args))))")
    return json.loads(subprocess.run(["node", "-e", program], input=json.dumps(calls), capture_output=True, text=True,
                                     check=True).stdout)


MESSAGES = [*itertools.product(BYTES, RANKS, LATENCIES, BANDWIDTHS)]
RATES = [*itertools.product((0.001, 0.1), (0.25, 1, 64), ("none", "sqrt", "linear"))]
WARMUPS = [*itertools.product((0, 1, 50, 100, 1000), (0.01,), (0.08,), (0, 100))]


@pytest.mark.parametrize(("name", "kit", "cases"), [
    *((f"{name}Seconds", cost_model.ALGORITHMS[name], MESSAGES) for name in ("ring", "tree", "halving")),
    ("busbw", lambda nbytes, seconds, n: nbytes / seconds * 2 * (n - 1) / n, [(1e9, 2, 8)]),
    ("scaledLr", schedule.scaled_lr, RATES),
    ("warmupLr", lambda step, *words: float(schedule.Warmup(*words)(step)), WARMUPS)])
def test_a_formula(name, kit, cases):
    np.testing.assert_allclose(javascript([(name, *case) for case in cases]), [kit(*case) for case in cases], rtol=1e-6)


def test_steps_of_many_workers():
    grid = list(itertools.product((1, 4, 64, 4096), (0.005, 1.0), BYTES, LATENCIES, BANDWIDTHS, (1, 8), (0.0, 0.7)))
    for (workers, compute, nbytes, latency, bandwidth, per_node, overlap), got in zip(
            grid, javascript([("step", *case) for case in grid]), strict=True):
        kit = at_scale.predict(workers, compute, gradient_bytes=nbytes, latency=latency,
                               bandwidth=bandwidth, workers_per_node=per_node, overlap=overlap)
        expected = [kit.allreduce_seconds, kit.exposed_seconds, kit.step_seconds, kit.efficiency]
        np.testing.assert_allclose([got[name] for name in ("allreduce", "exposed", "step", "efficiency")], expected,
                                   rtol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_the_ring(n):
    kit = lab05.ring_steps([np.full(n, 10**rank) for rank in range(n)])
    states = javascript([("ringStates", n)])[0]
    sums = [[[sum(10**rank for rank in ranks) for ranks in row] for row in state["cells"]] for state in states]
    assert sums == [np.asarray(state.values).tolist() for state in kit]
