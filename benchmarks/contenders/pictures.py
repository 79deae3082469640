"""Epochs over a tree of photos: the first one, from indexing the folder to the last batch, and the later ones.

    python -m benchmarks.contenders.pictures copy FOLDER SOUND      copy the images that all contenders can read
    python -m benchmarks.contenders.pictures CONTENDER SOUND SIDE ...
"""

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tensorflow as tf

from benchmarks.cases import LATER_EPOCHS, show
from labs.datasets import decode as decoding
from labs.datasets import splits
from labs.datasets.image_cache import ImageCache
from labs.datasets.index import index_folder
from labs.datasets.pipeline import train_batches
from labs.datasets.sharding import shard
from labs.run import resources

BATCH_SIZE = 32
COPIES = 4


def kit(root: Path, side: int) -> Iterator[Iterable]:
    train = splits.from_folder(root, side, test_split=0, validation_split=0, seed=1).train
    for epoch in range(1 + LATER_EPOCHS):
        share = shard(train.positions, BATCH_SIZE, rank=0, size=1, epoch=epoch, seed=1)
        yield train_batches(train.images, train.labels, share, epoch=epoch, seed=1)


def generator(root: Path, side: int) -> Iterator[Iterable]:
    batches = tf.keras.preprocessing.image.ImageDataGenerator().flow_from_directory(
        root, (side, side), batch_size=BATCH_SIZE, class_mode="sparse")
    for _ in range(1 + LATER_EPOCHS):
        yield (next(batches) for _ in range(len(batches)))


def dataset(root: Path, side: int) -> Iterator[Iterable]:
    batches = tf.keras.utils.image_dataset_from_directory(root, image_size=(side, side), batch_size=BATCH_SIZE)
    for _ in range(1 + LATER_EPOCHS):
        yield batches.prefetch(tf.data.AUTOTUNE)


def decode(root: Path, side: int) -> Iterator[Iterable]:
    """Decode only, on all cores: the upper bound for a first epoch."""
    paths = index_folder(root).paths
    blocks = [paths[first : first + BATCH_SIZE] for first in range(0, len(paths), BATCH_SIZE)]
    with ThreadPoolExecutor(resources.cores()) as pool:
        yield pool.map(lambda block: [decoding.read_image(root / path, side) for path in block], blocks)


CONTENDERS: dict[str, Callable[[Path, int], Iterator[Iterable]]] = {
    "kit": kit, "ImageDataGenerator": generator, "image_dataset_from_directory": dataset, "pure decode": decode,
}


def measure(name: str, root: Path, side: int) -> None:
    count, ends = len(index_folder(root)), [time.perf_counter()]
    for epoch in CONTENDERS[name](root, side):
        for _ in epoch:
            pass
        ends.append(time.perf_counter())
    show(f"first epoch, {side} px", count / (ends[1] - ends[0]))
    if len(ends) > 2:
        show(f"later epochs, {side} px", count * LATER_EPOCHS / (ends[-1] - ends[1]))


def copy(photos: Path, sound: Path) -> None:
    """Copy only the images that can be decoded: Keras' readers would stop at the others.

    Each is copied COPIES times: an epoch of the sample alone ends before a pipeline has filled.
    """
    for path in ImageCache(index_folder(photos), 1).sound.paths:
        (sound / path).parent.mkdir(exist_ok=True)
        for copy in range(COPIES):
            shutil.copy(photos / path, (sound / path).with_stem(f"{Path(path).stem}_{copy}"))


def main(name: str, photos: Path, sides: list[int]) -> None:
    for path in photos.glob("*/*"):  # Into the page cache, so that the first contender has no disadvantage.
        path.read_bytes()
    tf.data.Dataset.range(1).reduce(tf.constant(0, tf.int64), lambda total, one: total + one)  # Starts TensorFlow.
    for side in sides:
        measure(name, photos, side)


if __name__ == "__main__":
    what, folder, *others = sys.argv[1:]
    if what == "copy":
        copy(Path(folder), Path(others[0]))
    else:
        main(what, Path(folder), list(map(int, others)))
