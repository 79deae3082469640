"""`labs predict`: classify pictures with a finished run's network, or show which classes it confuses."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from labs.datasets import decode
from labs.results import confusion, records, tables, tolerant
from labs.run import catalogue, paths, terminal, usage
from labs.run.errors import LabError
from labs.run.paths import results_dir, shown
from labs.run.text import printable

if TYPE_CHECKING:
    import numpy as np

MODEL, SMALL = "model.keras", 16
ABOUT = """\
Classify pictures with the network that a run has trained. Without pictures,
show which classes of the test images it confuses.

  labs predict lab10 photo.jpg           with the newest run of lab 10
  labs predict results/lab10_caltech/night-1 *.jpg
  labs predict lab10                     each class, and what it is taken for

The network of the last epoch is in the run's folder. To load it without this kit:

  import json, keras
  model = keras.models.load_model("RUN/model.keras")  # uint8 [n, size, size, 3]
  names = json.load(open("RUN/classes.json"))         # by label
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run and the pictures."""
    parser.description = ABOUT
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("run", metavar="RUN", help="folder of a run, or a lab: its newest run with a network")
    parser.add_argument("files", nargs="*", default=[], type=usage.path, metavar="FILE", help="a picture")


def main(args: argparse.Namespace) -> int:
    """Print a row for each picture or class; return 1 if a picture could not be read."""
    folder = _folder(args.run)
    if not args.files:
        print(_confusions(records.read(folder)).text())
        return 0
    for path in args.files:
        if not path.is_file():
            raise LabError(f"{printable(path)}: " + ("it is a folder; name its pictures, as in FOLDER/*.jpg"
                                                     if path.is_dir() else "there is no such file"))
    pictures = [path for path in args.files if _readable(path)]
    if not pictures:
        return 1
    from labs.training import trained

    network, rows = trained.load(folder), []
    for path in pictures:
        rows.append([printable(path), *_likeliest(network.classify(path), network.class_names)])
    print(terminal.table([["picture", "class", "probability", "or", "probability"], *rows]))
    return int(len(rows) < len(args.files))


def _readable(path: Path) -> bool:
    """Return whether a picture can be decoded, and say if not: before TensorFlow starts, which takes seconds."""
    try:
        decode.read_image(path, SMALL)
    except LabError as problem:
        print(f"labs: left out: {problem}", file=sys.stderr)
        return False
    return True


def _folder(run: str) -> Path:
    """Return the folder of a run that holds its network.

    Raises:
        LabError: There is no such folder.
    """
    if (named := paths.named(run, "RUN")).is_dir():
        folders = [named]
    elif "/" in run:
        raise LabError(f"{printable(run)}: there is no such folder; name a run's folder, or a lab")
    else:
        lab = catalogue.resolve(run)
        folders = sorted(path.parent for path in (results_dir() / lab).glob(f"*/{MODEL}"))
        if not folders:
            raise LabError(f"no run of {lab} in {shown(results_dir())} has saved a network; "
                           f"`labs run {lab}` saves one if the lab classifies pictures")
    newest = max(folders, key=lambda folder: (folder / "record.json").stat().st_mtime
                 if (folder / "record.json").exists() else 0)
    for name in (MODEL, "record.json"):
        if not (newest / name).is_file():
            raise LabError(f"{printable(newest)} has no {name}; name the folder of a finished run of a lab that "
                           "classifies pictures, as `labs run` prints it")
    return newest


def _confusions(record: records.Record) -> tables.Grid:
    """Return the confusions of a run.

    Raises:
        LabError: It has counted none.
    """
    try:
        classes = confusion.by_class(record)
    except tolerant.UNREADABLE as problem:
        raise LabError(f"the confusions of run {record['run']} cannot be read ({problem}); train again") from None
    if classes is None:
        raise LabError(f"run {record['run']} of {record['lab']} has no test images, so its errors are unknown")
    return classes


def _likeliest(probabilities: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return the two likeliest classes with their probabilities."""
    first, second = probabilities.argsort()[:-3:-1]
    return [printable(names[first]), f"{probabilities[first]:.3f}", printable(names[second]),
            f"{probabilities[second]:.3f}"]
