"""Runs a lab on several workers: `run` starts them, supervises them, and says in one line why a run failed."""

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from labs.run import catalogue, command_line, environment, failure, mpirun, run_lock, supervisor, terminal
from labs.run.catalogue import Lab
from labs.run.errors import Interrupted, LabError, plural
from labs.run.fields import Options


def run(lab: str | ModuleType | Lab, args: Any = (), workers: int | None = None, oversubscribe: bool = False,
        log: IO[str] | None = None, announce: bool = False) -> dict:
    """Run a lab on several workers and return rank 0's record; the workers' output is forwarded as it arrives.

    Args:
        args: The lab's Config, or what follows the lab's name on the command line, such as ["--epochs", "3"].
        workers: Number of workers; by default the allocation's tasks, else one per visible GPU, else one.
        log: Where to forward the workers' output; by default the terminal.
        announce: Print a line at once, because the workers take a while to start.
    """
    environment.refuse_harmful()
    lab = catalogue.load_lab(lab)
    arguments = command_line.to_argv(args) if dataclasses.is_dataclass(args) else list(args)
    config, options = command_line.parse(lab, arguments)
    options = run_lock.resumed(lab.name, options)
    folder = options.results_root / lab.name / (options.name or "")
    if options.resume and not options.name:
        terminal.note(f"no run of {lab.name} is interrupted and idle; a new one starts")
    elif options.resume and workers is None:
        workers = run_lock.started_with(folder).get("workers") or None
    workers = mpirun.choose_workers(workers, oversubscribe)
    lab.refuse(config, workers)
    if options.name:
        run_lock.refuse_held(folder)
        run_lock.refuse_taken(folder, options, config, workers)
    folder = run_lock.make_folder(lab.name, options, workers)
    arguments += ["--name", folder.name]
    if announce:
        terminal.note(f"starting {plural(workers, 'worker')} ...")
    try:
        _launch(lab, config, workers, arguments, log, options, folder)
    except KeyboardInterrupt as stopped:  # The text is the options that resume the run, if anything is saved.
        if not (announce and (folder / "record.json").exists()):  # A job that ends with an error is put back.
            raise Interrupted(f"--resume --name {folder.name}" if run_lock.is_saved(folder) else str(stopped)) from None
    return json.loads((folder / "record.json").read_bytes())


def _launch(lab: Lab, config: Any, workers: int, arguments: Sequence[str], log: IO[str] | None, options: Options,
            folder: Path) -> None:
    """Start the workers, by mpirun or the lab's own launcher, and wait for their end; raise LabError for a failure."""
    launcher = lab.launcher(config, workers, folder)
    env = {**mpirun.environment(bar=log is None), **lab.environment}
    if not lab.module.startswith("labs."):  # Workers do not search the working folder.
        home = Path(str(sys.modules[lab.module].__file__)).resolve().parents[lab.module.count(".")]
        env["PYTHONPATH"] = f"{home}{os.pathsep}{env['PYTHONPATH']}"
    if launcher is None:  # Horovod: its own limit would also count time in which all workers were stopped.
        env["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"] = "0"
    command = [*(launcher or mpirun.command(workers, env)), *mpirun.PYTHON, "-m", lab.module, *arguments]
    diagnosis = failure.Diagnosis(options.stall_seconds, None if launcher else folder)
    code = supervisor.supervise(command, env, log, diagnosis, is_mpirun=launcher is None)
    if cause := diagnosis.cause(code, folder / "record.json"):
        raise LabError(cause)
