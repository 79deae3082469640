"""Cost of random kills: a training process is killed with SIGKILL and restarted, and its real time is measured.

    python -m labs.measure.kills FOLDER SAVE_EVERY SEED       the process that is killed

It trains with numpy, so that it starts in a fraction of a second. Only the mean time between kills is not realistic.
"""

import dataclasses
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from labs.run import atomic, worker
from labs.run.errors import LabError
from labs.run.paths import ROOT, python_path

HIDDEN, BATCH = 1024, 64
"""Units of the hidden layer, which make a state of 6.5 MB with images of 28 x 28 pixels; images per step."""
CLOCK = struct.Struct("4d")
"""The file `clock`, which outlives the process: when the first step began, seconds of the steps that are saved, seconds
of the saves, and their number."""


@dataclasses.dataclass(frozen=True)
class Life:
    """Seconds of one training process, from its start to its kill, and the steps in its last checkpoint.

    `life` is the sum of `restart` (until the first step), `kept` (steps that a checkpoint has saved), `saving` (the
    checkpoints that were completed) and `lost` (steps after the last one, and a save that was not completed).
    """

    life: float
    restart: float
    kept: float
    saving: float
    lost: float
    saves: int
    steps: int


def study(images: np.ndarray, labels: np.ndarray, *, save_every: float, mean_life: float, kills: int,
          seed: int) -> list[Life]:
    """Train, kill the training at random moments, start it again from its last checkpoint, and return its lives.

    Args:
        save_every: Seconds of steps between two checkpoints.
        mean_life: Mean seconds from the start of a process to its kill; exponentially distributed, as failures are.
    """
    rng = np.random.default_rng(seed)
    lives: list[Life] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "data.npz", images=images.reshape(len(images), -1) / 255, labels=labels)
        for life in rng.exponential(mean_life, kills):
            before = lives[-1].steps if lives else 0
            lives.append(_live(folder, save_every, seed, float(life)))
            if lives[-1].steps < before:
                raise LabError("a checkpoint that was complete is gone")
    return lives


def _live(folder: Path, save_every: float, seed: int, seconds: float) -> Life:
    """Start the training, kill it after some seconds, and return what it has done with them."""
    clock = folder / "clock"
    for path in (clock, *folder.glob(".*.part")):  # Left by the previous process.
        path.unlink(missing_ok=True)
    program = [sys.executable, "-m", "labs.measure.kills", str(folder), str(save_every), str(seed)]
    env = os.environ | {"PYTHONPATH": python_path(), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    began = time.monotonic()
    try:
        subprocess.run(program, cwd=ROOT, env=env, timeout=seconds, check=True)  # It kills with SIGKILL.
        raise LabError("the training ended by itself")
    except subprocess.TimeoutExpired:
        life = time.monotonic() - began
    content = clock.read_bytes() if clock.exists() else b""
    first, kept, saving, saves = CLOCK.unpack(content) if content else 4 * (0.0,)
    restart = min(first - began, life) if first else life
    return Life(life, restart, kept, saving, life - restart - kept - saving, int(saves),
                int(_load(folder / "checkpoint.npz").get("steps", 0)))


def _load(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file; none if it does not exist."""
    if not path.exists():
        return {}
    with np.load(path, allow_pickle=False) as saved:
        return dict(saved)


def train(folder: Path, save_every: float, seed: int) -> None:
    """Train until killed: steps, and a checkpoint whenever the steps since the last one have taken `save_every`."""
    data, path, rng = _load(folder / "data.npz"), folder / "checkpoint.npz", np.random.default_rng(seed)
    images, labels = data["images"].astype(np.float32), data["labels"]
    state = {"hidden": rng.normal(0, 0.1, (images.shape[1], HIDDEN)).astype(np.float32),
             "out": rng.normal(0, 0.01, (HIDDEN, 10)).astype(np.float32)}
    state |= {f"{name} velocity": np.zeros_like(values) for name, values in state.items()}
    state |= _load(path)
    steps = int(state.pop("steps", 0))
    clock = os.open(folder / "clock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    kept = saving = saves = unsaved = 0.0
    first = time.monotonic()
    while True:
        os.pwrite(clock, CLOCK.pack(first, kept, saving, saves), 0)
        while unsaved < save_every:
            began = time.monotonic()
            _step(state, images, labels, np.random.default_rng([seed, steps]))
            steps, unsaved = steps + 1, unsaved + time.monotonic() - began
        began = time.monotonic()
        with atomic.writing(path) as file:
            np.savez(file, **state | {"steps": np.array(steps)})
        kept, saving, saves, unsaved = kept + unsaved, saving + time.monotonic() - began, saves + 1, 0.0


def _step(state: dict[str, np.ndarray], images: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> None:
    """Take one step of SGD with momentum."""
    rows = rng.integers(0, len(images), BATCH)
    inputs = images[rows]
    hidden = np.maximum(inputs @ state["hidden"], 0)
    scores = hidden @ state["out"]
    errors = np.exp(scores - scores.max(axis=1, keepdims=True))
    errors /= errors.sum(axis=1, keepdims=True)
    errors[np.arange(BATCH), labels[rows]] -= 1
    gradients = {"hidden": inputs.T @ (errors @ state["out"].T * (hidden > 0)), "out": hidden.T @ errors}
    for name, gradient in gradients.items():
        velocity = state[f"{name} velocity"]
        velocity *= 0.9
        velocity -= 0.01 / BATCH * gradient
        state[name] += velocity


if __name__ == "__main__":
    worker.end_with_parent(signal.SIGKILL)
    train(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
