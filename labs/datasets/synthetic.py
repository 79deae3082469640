"""Synthetic versions of the data sets, in the layout and the file formats of the real ones; they need no network.

    python -m labs.datasets.synthetic NAME FOLDER          as `registry.locate` runs it
"""

import datetime
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np

from labs.datasets.generated_images import face, fruit, generator, scene

GREEN, BLUE, GREY, BROWN = (90, 130, 70), (110, 150, 200), (130, 130, 130), (130, 95, 60)
RED, YELLOW, WHITE, BLACK = (190, 60, 50), (220, 180, 60), (225, 225, 215), (50, 50, 55)

# Typical colours of the background, of the object and of its second tone; real photographs have such patterns, too.
CIFAR10 = {
    "airplane": (BLUE, WHITE, GREY), "automobile": (GREY, RED, BLACK), "bird": (BLUE, BROWN, YELLOW),
    "cat": (BROWN, GREY, BLACK), "deer": (GREEN, BROWN, WHITE), "dog": (BROWN, WHITE, BROWN),
    "frog": (BROWN, GREEN, YELLOW), "horse": (GREEN, BROWN, BLACK), "ship": (BLUE, GREY, RED),
    "truck": (GREY, WHITE, RED),
}
CALTECH256 = {
    "airplane": (BLUE, WHITE, GREY), "bottle": (GREY, GREEN, RED), "ketch": (BLUE, BROWN, WHITE),
    "mug": (BROWN, WHITE, BLUE), "mushroom": (GREEN, RED, WHITE), "starfish": (BLUE, RED, YELLOW),
    "sunflower": (GREEN, YELLOW, GREEN), "tire": (GREY, GREY, BLACK), "umbrella": (GREY, RED, WHITE),
    "watch": (WHITE, YELLOW, BROWN),
}
# Main colour, second colour and its share, share of freckles, half width and half height: similar in pairs.
FRUITS360 = {
    "Apple Golden 1": ((205, 190, 80), (200, 120, 60), 0.25, 0.006, (0.95, 0.90)),
    "Apple Golden 2": ((205, 185, 75), (200, 110, 60), 0.30, 0.035, (0.95, 0.92)),
    "Apple Red 1": ((190, 50, 45), (220, 170, 90), 0.20, 0.020, (0.95, 0.92)),
    "Apple Red 2": ((185, 50, 45), (220, 170, 90), 0.45, 0.025, (0.95, 0.92)),
    "Tomato 1": ((205, 55, 30), (215, 100, 40), 0.35, 0.0, (0.97, 0.90)),
    "Tomato 2": ((210, 60, 30), (215, 100, 40), 0.45, 0.0, (0.97, 0.74)),
}
LABEL_NOISE = 0.04  # Share of the images whose object is picked regardless of their label.


def _mnist(home: Path) -> None:
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.zeros((len(digits.target), 28, 28), np.uint8)
    for image, small in zip(images, (digits.images * 15.9).astype(np.uint8), strict=True):
        image[4:24, 4:24] = np.asarray(Image.fromarray(small).resize((20, 20), Image.Resampling.BICUBIC))
    test = np.zeros(len(images), bool)
    for digit in range(10):
        rows = generator(1, digit).permutation(np.flatnonzero(digits.target == digit))
        test[rows[: round(len(rows) / 5)]] = True
    labels = digits.target.astype(np.uint8)
    with open(home / "mnist.npz", "wb") as file:
        np.savez(file, x_train=images[~test], y_train=labels[~test], x_test=images[test], y_test=labels[test])


def _object(rng: np.random.Generator, name: str, table: dict, size: tuple[int, int], spread: float, tilt: int):
    shown = name if rng.random() > LABEL_NOISE else list(table)[rng.integers(len(table))]
    return scene(rng, shown, size, table[shown], spread, tilt)


def cifar10(home: Path, train: int = 400, test: int = 500) -> None:
    """Write synthetic objects of CIFAR-10's classes, in its binary format: `train` images in each of its five files."""
    (home / "batches.meta.txt").write_text("\n".join(CIFAR10) + "\n\n")
    for number, count in enumerate([train] * 5 + [test]):
        records = []
        for k in range(count):
            rng = generator(2, number, k)
            label = int(rng.integers(10))
            image = _object(rng, list(CIFAR10)[label], CIFAR10, (32, 32), 0.4, 15)
            records.append(bytes([label]) + np.asarray(image).transpose(2, 0, 1).tobytes())
        file = f"data_batch_{number + 1}.bin" if number < 5 else "test_batch.bin"
        (home / file).write_bytes(b"".join(records))


def fruits360(home: Path, tests: int = 20) -> None:
    """Write synthetic fruits as Training/CLASS and Test/CLASS: 60 training and `tests` test images of each variety."""
    for code, (variety, looks) in enumerate(FRUITS360.items()):
        for subset, first, last in (("Training", 0, 60), ("Test", 60, 60 + tests)):
            folder = home / subset / variety
            folder.mkdir(parents=True)
            for k in range(first, last):
                image = fruit(generator(3, code, k), *looks)
                image.save(folder / f"{k}_100.jpg", quality=90)


def _caltech256(home: Path) -> None:
    home = home / "256_ObjectCategories"
    for code, name in enumerate([*CALTECH256, None], start=1):
        number = code if name else 257
        folder = home / f"{number:03d}.{name or 'clutter'}"
        folder.mkdir(parents=True)
        for k in range(1, 81 + int(generator(4, code).integers(20))):
            image = _photo(generator(4, code, k), name)
            image.save(folder / f"{number:03d}_{k:04d}.jpg", quality=85)
    # The real archive has two misplaced entries: a folder in 056.dog and a file in 198.spider.
    (home / "003.ketch" / "greg").mkdir()
    _photo(generator(4), "ketch").save(home / "003.ketch" / "greg" / "vision309.jpg")
    (home / "010.watch" / "RENAME2").write_text("#!/bin/sh\n")


def _photo(rng: np.random.Generator, name: str | None):
    size = int(rng.integers(90, 161)), int(rng.integers(90, 161))
    image = _object(rng, name, CALTECH256, size, 0.4, 20) if name else scene(rng, None, size, [GREY], 1, 0)
    return image.convert("L") if rng.random() < 0.03 else image


def _imdb_wiki(home: Path, count: int = 500) -> None:
    rows = []
    for k in range(count):
        rng = generator(5, k)
        age, female, year = int(rng.integers(15, 86)), bool(rng.random() < 0.4), int(rng.integers(1950, 2015))
        born = datetime.date(year - age, int(rng.integers(1, 7)), int(rng.integers(1, 29)))
        side = int(rng.integers(90, 141))
        dob = born.toordinal() + 366  # Matlab counts days from the year 0, Python from the year 1.
        row: dict[str, Any] = {
            "dob": dob, "photo_taken": year, "full_path": f"{k % 100:02d}/{k}_{born}_{year}.jpg",
            "gender": float(not female), "name": f"Person {k}", "face_location": np.array([[1.0, 1.0, side, side]]),
            "face_score": 1 + 5 * rng.random(), "second_face_score": np.nan}
        file = io.BytesIO()
        face(rng, age, female, side).save(file, "JPEG", quality=88)
        (home / f"{k % 100:02d}").mkdir(exist_ok=True)
        (home / row["full_path"]).write_bytes(file.getvalue()[: _add_fault(row, k)])
        rows.append(row)
    write_wiki_mat(home / "wiki.mat", rows)


def _add_fault(row: dict, k: int) -> int | None:
    """Give some rows the faults of the real data set, and return how many bytes of the image to write (None: all)."""
    if k % 50 == 7:
        row["face_score"] = -np.inf  # No face detected.
    if k % 50 == 17:
        row["dob"] += 366 * 200  # Born after the photograph.
    if k % 100 == 27:
        row["gender"] = np.nan
    if k % 100 == 37:
        row["second_face_score"] = 2.5
    return {47: 0, 97: 700}.get(k % 100)  # An empty file, a truncated one.


def write_wiki_mat(path: Path, rows: list[dict]) -> None:
    from scipy.io import savemat

    wiki = {}
    for field in rows[0]:
        cell = field in ("full_path", "name", "face_location")
        wiki[field] = np.empty((1, len(rows)), object if cell else float)
        wiki[field][0] = [row[field] for row in rows]
    file = io.BytesIO()
    savemat(file, {"wiki": wiki})
    header = b"MATLAB 5.0 MAT-file, drawn faces in the layout of IMDB-WIKI"
    path.write_bytes(header.ljust(116) + file.getvalue()[116:])  # scipy writes the current time there.


MAKERS = {"mnist": _mnist, "cifar10": cifar10, "fruits360": fruits360, "caltech256": _caltech256,
          "imdb_wiki": _imdb_wiki}

if __name__ == "__main__":
    MAKERS[sys.argv[1]](Path(sys.argv[2]))
