"""Slurm: its controller and its partitions."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

from labs.launch.supervisor import complete
from labs.run import slurm as commands
from labs.run.errors import LabError
from labs.tools.check.findings import Finding, absent, fail, ok, refused, warn

TELL = "tell the cluster's administrator"


def slurm() -> Finding | list[Finding]:
    """Check Slurm: configuration, controller, partitions. Stop at the first problem, which causes the others."""
    if shutil.which("scontrol") is None:
        return absent("not on this machine")
    conf = os.environ.get("SLURM_CONF")
    if conf and not Path(conf).is_file():
        return fail(f"SLURM_CONF={conf} is not a file", "unset SLURM_CONF")
    outcome = complete(["scontrol", "ping"], 30)
    if "Could not establish a configuration source" in outcome.err:
        return absent("its programs are installed, but no cluster is configured (slurm.conf)")
    if "fatal:" in outcome.err:
        return fail(outcome.err.partition("error: ")[2].splitlines()[0], "unset SLURM_CONF" if conf else TELL)
    host = re.search(r"at (\S+) is UP", outcome.out)
    if not host:
        return fail(f"its controller does not answer ({(outcome.out or outcome.cause).splitlines()[0]})",
                    "try again on a login node; if the problem persists, " + TELL)
    return [ok(f"its controller on {host[1]} answers"), replace(_partitions(), name="partitions")]


def _partitions() -> Finding:
    """Check the partition that jobs go to, and list all."""
    try:
        states = commands.rows("sinfo", "--noheader", "--format=%R|%P|%a|%T")
    except LabError as error:
        return refused(error)
    is_default = {name: starred.endswith("*") for name, starred, *_ in states}
    up = [name for name, _, available, nodes in states
          if available == "up" and not re.match(r"down|drain|fail|maint|unk|.*\*", nodes)]
    listed = ", ".join(name + "*" * is_default[name] + " (down)" * (name not in up) for name in is_default)
    chosen = os.environ.get("SBATCH_PARTITION") or next((name for name in is_default if is_default[name]), None)
    cure = f"export SBATCH_PARTITION={up[0]}" if up else TELL
    if chosen is None:
        return warn(f"none is the default, so sbatch needs a name; there are: {listed}", cure)
    if chosen not in up:
        why = "is down or has no node that is up" if chosen in is_default else "does not exist"
        return fail(f"{chosen}, where jobs would go, {why}; there are: {listed}", cure)
    return ok(listed)
