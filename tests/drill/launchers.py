"""Two ways to start the training that is killed; each is called in a separate process, and ends when its workers have.

Loading TensorFlow takes far longer than this training. So most starts are forks of a process that has loaded it and has
not used it. The others are `labs run`'s: mpirun, and separate programs. Both come to the same bits.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable

from labs.launch import local
from labs.run import command_line, heartbeat, worker
from labs.run.errors import LabError
from labs.run.options import Options
from labs.training import workers
from tests.drill import training

SIZE = 2
LIBC = ctypes.CDLL(None)
SET_PARENT_DEATH_SIGNAL, SET_NAME = 1, 15  # prctl.h


def by_fork(config: training.Config, options: Options) -> None:
    """Start the workers over Gloo as copies of this process; when one is lost, or this process, all end."""
    server, launcher = workers._server(several_nodes=False), os.getpid()
    started = [fork(lambda rank=rank: _work(rank, launcher, server.server_address, config, options))
               for rank in range(SIZE)]
    for _ in started:
        _, status = os.wait()
        if status:
            for each in started:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            raise SystemExit(1)


def _work(rank: int, launcher: int, server: tuple[str, int], config: training.Config, options: Options) -> None:
    """Be one worker."""
    LIBC.prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    LIBC.prctl(SET_NAME, b"rank %d" % rank)
    if os.getppid() != launcher:  # It was killed before the line above.
        return
    # Horovod: what horovodrun tells a worker; mpirun's find it out by themselves.
    os.environ |= workers._environment(rank, [socket.gethostname()] * SIZE, *server)
    os.environ |= {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"}
    try:
        training.run(config, options)
    except BaseException as problem:
        worker.leave(problem, heartbeat.error_prefix())
    import horovod.tensorflow as hvd

    hvd.shutdown()  # Horovod: an exit in which the workers wait for each other; a forked process has none.


def by_mpirun(config: training.Config, options: Options) -> None:
    """Start the workers as `labs run` does."""
    words = [*command_line.to_argv(config), "--name", options.name, "--results", str(options.results),
             "--resume", "--save-seconds", str(options.save_seconds)]
    try:
        local.run(training, words, workers=SIZE, oversubscribe=True)
    except LabError as problem:
        print(f"labs: error: {problem}")
        raise SystemExit(1) from None


def fork(body: Callable[[], None]) -> int:
    """Call `body` in a copy of this process, and return its pid."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        body()
        code = 0
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)
