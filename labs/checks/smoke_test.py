"""The proof: two workers take a step together, started as `labs run` starts them."""

from __future__ import annotations

import sys

from labs.checks import software, variables
from labs.checks.findings import Finding, fail, ok
from labs.checks.subprocesses import ask
from labs.launch import local
from labs.run.paths import ROOT

SECONDS = 300
"""It takes ten to fifteen on two idle cores, minutes on busy ones or from a cold disk."""


def two_workers() -> Finding:
    """Run setup/proof.py, which ends `make env` too, on two workers."""
    env = local.environment()
    if local.visible_gpus() < 2:
        env["CUDA_VISIBLE_DEVICES"] = ""  # NCCL refuses two workers on one GPU.
    answer = ask([*local.mpirun(2), sys.executable, ROOT / "setup" / "proof.py"], SECONDS, env)
    verdict = next((line for line in answer.out.splitlines() if line.startswith("proof: ")), "").removeprefix("proof: ")
    if answer.code == 0:
        return ok(verdict)
    cure = variables.cure("HOROVOD_", "OMPI_", "PYTHON", "TF_") or software.install("horovod")
    return fail(verdict or f"two workers did not get through a step: {answer.end}", cure)
