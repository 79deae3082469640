"""The smoke test (`labs check --only proof`): two workers take a step together, started as `labs run` starts them."""

from __future__ import annotations

import sys

from labs.launch import capacity, failure, mpirun
from labs.launch.supervisor import complete
from labs.run.paths import ROOT
from labs.tools.check import software, variables
from labs.tools.check.findings import Finding, fail, ok

SECONDS = 300
"""It takes 10 to 15 s on two idle cores, minutes on busy ones or from a cold disk."""


def two_workers() -> Finding:
    """Run setup/proof.py on two workers, as the end of `make env` does."""
    env = mpirun.environment()
    if capacity.visible_gpus() < 2:
        env["CUDA_VISIBLE_DEVICES"] = ""  # NCCL refuses two workers on one GPU.
    outcome = complete([*mpirun.command(2), sys.executable, ROOT / "setup" / "proof.py"], SECONDS, env)
    verdict = failure.proof_verdict(outcome.out)
    if outcome.code == 0:
        return ok(verdict)
    cure = variables.cure("HOROVOD_", "OMPI_", "PYTHON", "TF_", "KERAS_") or software.install("horovod")
    return fail(verdict or f"two workers did not get through a step: {outcome.cause}", cure)
