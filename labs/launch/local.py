"""Runs a lab on several workers: `run` starts them, supervises them, and says in one line why a run failed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from labs.launch import failure, mpirun, supervisor
from labs.results import records
from labs.run import catalogue, cluster_state, command_line, environment, paths, resources, run_lock, terminal
from labs.run.catalogue import Lab
from labs.run.errors import Interrupted, LabError
from labs.run.options import Options
from labs.run.text import plural


class InterruptedAfterRecord(Interrupted):
    """A run was interrupted just after it had written its record: there is nothing to resume."""


def run(lab: str | ModuleType | Lab, args: Any = (), workers: int | None = None, oversubscribe: bool = False,
        log: IO[str] | None = None, announce: bool = False,
        launch: Callable[[Lab, Any, Sequence[str]], None] | None = None) -> dict:
    """Run a lab on several workers and return rank 0's record; the workers' output is forwarded as it arrives.

    Args:
        lab: Its name, the beginning of its name ("lab10"), or its module.
        args: The lab's Config, or what follows the lab's name on the command line, such as ["--epochs", "3"].
        workers: Number of workers; by default the allocation's tasks, else one per visible GPU, else one.
        oversubscribe: Allow more workers than cores.
        log: Where to forward the workers' output; by default the terminal.
        announce: Print a line at once, because the workers take a while to start.
        launch: Trains, given the lab, its Config and what follows the lab's name on the command line. By default new
            workers are started.

    Raises:
        LabError: The command line is wrong, or the run failed: with rank, host, step and cause.
        InterruptedAfterRecord: The run was interrupted after it had written its record.
        KeyboardInterrupt: The run was interrupted; the text is the command that resumes it, if anything is saved.
    """
    environment.refuse_harmful()
    lab = catalogue.load_lab(lab)
    arguments = command_line.to_argv(args) if dataclasses.is_dataclass(args) else list(args)
    config, options = command_line.parse(lab, arguments, launches=True)
    if environment.student_id():  # Workers that have started already may have another id in their environment.
        arguments += ["--seed", str(config.seed)]
    named, options, chosen = options.name, run_lock.resumed(lab.name, options), workers is not None
    runs = options.results_root / lab.name
    if options.resume and options.name and workers is None:
        workers = run_lock.started_with(runs / options.name).get("workers") or None
    workers = mpirun.choose_workers(workers, oversubscribe)
    if options.resume and not options.name:
        terminal.note(f"no run of {lab.name} is interrupted and idle; a new one starts")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(run_lock.reserved(lab.name, options, workers))
        if options.name:
            _refuse_run(lab, config, folder, options, workers)
        _refuse_config(lab, config, workers)
        epochs, warmup = getattr(config, "epochs", 0), getattr(config, "warmup_epochs", 0)
        if announce and warmup > epochs:
            terminal.note(f"the learning rate will not reach its full value: --warmup-epochs {warmup:g}, "
                          f"--epochs {epochs}")
        arguments += [] if named else ["--name", folder.name]
        if launch:  # Workers that have started already may have another results root in their environment.
            launch(lab, config, arguments + ([] if options.results else ["--results", str(runs.parent)]))
            return records.read(folder)
        launcher = lab.launcher(config, workers, folder)
        if announce:
            is_chosen = chosen or options.resume or lab.one_worker(config) or resources.allocation()
            if not is_chosen and not mpirun.visible_gpus() and workers < (free := mpirun.slots()):
                terminal.note(f"{plural(workers, 'worker')}; `--workers {free}` uses all {free} cores")
            terminal.note(f"starting {plural(workers, 'worker')} ...")
        try:
            _launch(lab, launcher, workers, arguments, log, options.stall_seconds, folder)
        except KeyboardInterrupt:
            if (folder / "record.json").exists():
                raise InterruptedAfterRecord from None
            if run_lock.is_saved(folder):
                raise Interrupted(_to_resume(lab, arguments, workers, oversubscribe)) from None
            raise
    return records.read(folder)


def _refuse_run(lab: Lab, config: Any, folder: Path, options: Options, workers: int) -> None:
    """Refuse a run that is locked, finished or cannot be resumed like this; report if there is nothing to resume.

    Raises:
        LabError: The run is locked or finished, or cannot be resumed like this; the message names the cause.
    """
    run_lock.refuse_held(folder)
    run_lock.refuse_taken(lab.name, folder, options, config, workers)
    if options.resume and not run_lock.is_saved(folder):
        terminal.note(f"run {folder.name!r} of {lab.name} has saved nothing and starts from the beginning")


def _refuse_config(lab: Lab, config: Any, workers: int) -> None:
    """Refuse what the workers would find only after they have loaded TensorFlow, or at the end of the run.

    Raises:
        LabError: The workers could not run this Config; the message names the cause.
    """
    lab.refuse(config, workers)
    if lab.data_set and (data := getattr(config, "data", "embedded")) != "embedded":
        from labs.datasets import registry

        registry.locate(lab.data_set, data)


def _to_resume(lab: Lab, arguments: Sequence[str], workers: int, oversubscribe: bool) -> str:
    """Return the command that resumes a run."""
    words = [*(["cluster"] if cluster_state.inside() else []), "run", lab.name,
             *(word for word in arguments if word != "--resume"), "--resume", "--workers", str(workers),
             *(["--oversubscribe"] if oversubscribe else [])]
    return f"{paths.labs_command()} {shlex.join(words)}"


def _module_path(lab: Lab) -> dict[str, str]:
    """Return PYTHONPATH with the folder of a lab outside the kit: workers do not search the working folder."""
    if lab.module.startswith("labs."):
        return {}
    folder = Path(str(sys.modules[lab.module].__file__)).resolve().parents[lab.module.count(".")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), paths.python_path()]))}


def _launch(lab: Lab, launcher: list[str] | None, workers: int, arguments: Sequence[str], log: IO[str] | None,
            stall_seconds: float, folder: Path) -> None:
    """Start the workers and wait for their end; `launcher` is the lab's own instead of mpirun, or None.

    Raises:
        LabError: The run failed.
    """
    env = {**mpirun.environment(bar=log is None), **mpirun.supervision(), **lab.environment, **_module_path(lab)}
    if launcher is None:
        # Set here, since a run in this process (a notebook) may have left its own limits.
        env |= failure.horovod_stall_check(stall_seconds)
    command = [*(launcher or mpirun.command(workers, env)), *mpirun.PYTHON, "-m", lab.module, *arguments]
    evidence = failure.Evidence(stall_seconds)
    code = supervisor.supervise(command, env, log, evidence, is_mpirun=launcher is None)
    if cause := evidence.cause(code, folder):
        raise LabError(cause)
