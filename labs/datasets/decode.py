"""One picture file after the other: reading it small, and finding those that cannot be read."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path

import cv2
import numpy as np
import PIL
import simplejpeg
from PIL import ExifTags, Image, UnidentifiedImageError
from tqdm import tqdm

from labs.datasets.folders import Index, printable
from labs.datasets.locks import exclusive
from labs.run import atomic, paths
from labs.run.errors import LabError

# By content, whatever the name says. Pillow knows more, but some of those start other programs (EPS).
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
# Raise the number when `decode` or the file of `images` changes: what was kept is made anew.
READER = f"5, Pillow {PIL.__version__}, simplejpeg {simplejpeg.__version__}, OpenCV {cv2.__version__}"
_TURNS: dict[int | None, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
KEPT = 50  # Trees whose check is remembered.
ENOUGH = 0.75
"""A JPEG can be decoded to a half, a quarter or an eighth of its size at a fraction of the cost. Sides of this share of
what is wanted will do, or photos of 300 x 200 would just miss 128; tests/datasets/test_decode.py bounds what that
changes."""
warnings.filterwarnings("ignore", module=r"PIL\.")  # Its remarks on odd files would fill the screen.
cv2.setNumThreads(1)  # Whoever decodes has a thread for each core already.


def read(path: str | os.PathLike, size: int) -> np.ndarray:
    """Return a picture of any kind as uint8 [size, size, 3], squeezed to a square.

    Raises:
        LabError: It cannot be decoded.
    """
    try:
        return decode(path, size)
    except Exception as error:
        raise LabError(f"cannot decode {printable(str(path))} ({_reason(error)}); "
                       "repair or remove the file, then start again") from error


def decode(path: str | os.PathLike, size: int) -> np.ndarray:
    """Return what `read` does, and raise whatever the decoder raises."""
    with open(path, "rb", buffering=0) as file:  # Fewer calls, in each of which another thread may take Python's lock.
        content = file.read()
    photo = _photo(content, size)
    return _any(content, size) if photo is None else photo


def _photo(content: bytes, size: int) -> np.ndarray | None:
    """Decode a JPEG as most photos are, two to three times as fast as Pillow; None for all others, damaged ones too."""
    whole = content.startswith(b"\xff\xd8\xff") and content.endswith(b"\xff\xd9")
    if not whole or _may_be_turned(content):
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(content)
        if colours not in ("YCbCr", "Gray") or min(height, width) < 2 or height * width > Image.MAX_IMAGE_PIXELS:
            return None
        scale = next((scale for scale in (8, 4, 2) if min(height, width) >= scale * ENOUGH * size), 1)
        pixels = simplejpeg.decode_jpeg(content, min_height=-(-height // scale), min_width=-(-width // scale),
                                        min_factor=1)
    except ValueError:
        return None
    return _square(pixels, size)


def _may_be_turned(content: bytes) -> bool:
    """Whether a JPEG has a block of Exif before its pixels, or blocks that are not understood."""
    place = 2
    while (marker := content[place : place + 2]) != b"\xff\xda":
        if marker[:1] != b"\xff" or content.startswith(b"Exif\0\0", place + 4):
            return True
        place += 2 + int.from_bytes(content[place + 2 : place + 4], "big")
    return False


def _square(pixels: np.ndarray, size: int) -> np.ndarray:
    """Resize; a side that is much too long by the mean of its pixels, since interpolation would skip too many."""
    height, width = (size if side >= 2.5 * size else side for side in pixels.shape[:2])
    if (height, width) != pixels.shape[:2]:
        pixels = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
    return pixels if (height, width) == (size, size) else cv2.resize(pixels, (size, size))


def _any(content: bytes, size: int) -> np.ndarray:
    """Decode a picture of any kind with Pillow."""
    with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
        if min(picture.size) < 2:  # Such files stand where a crop of a set came out empty.
            raise ValueError(f"{picture.width} x {picture.height} pixels")
        picture.draft(None, (max(1, int(ENOUGH * size)),) * 2)
        picture.load()
        return np.asarray(_rgb(_upright(picture)).resize((size, size), Image.Resampling.BILINEAR))


def _upright(picture: Image.Image) -> Image.Image:
    """Turned as its EXIF tag says. `ImageOps.exif_transpose` writes the tags anew, and fails if one is odd."""
    turn = _TURNS.get(picture.getexif().get(ExifTags.Base.Orientation)) if "exif" in picture.info else None
    return picture if turn is None else picture.transpose(turn)


def _rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I"):  # 16 bits per pixel: Pillow would cut off what is above 255.
        picture = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def undecodable(index: Index, look: Callable[[int], object] | None = None,
                again: Callable[[int], bool] = lambda number: False, threads: int | None = None,
                threshold: float = 0.1) -> dict[str, str]:
    """Return the images that cannot be decoded, and why.

    All are decoded: the header of a truncated file is in order. What was found is kept by path, size and time, so the
    next run looks at new and changed files only. One process works, the others wait and find it done.

    Args:
        index: The images.
        look: Decodes the image of a number, and raises if it cannot; by default at an eighth of its size.
        again: Whether to look once more at the image of a number that is known to be sound.
        threads: That decode at a time; one per core by default.
        threshold: Share of undecodable images above which something is wrong with the whole set.

    Raises:
        LabError: There are more than that.
    """
    look = look or (lambda number: decode(index.root / index.paths[number], 1))
    file = _memory(index.root)
    with exclusive(file.with_suffix(".lock"), f"checking the images of {index.root}"):
        known = _load(file)
        now = dict(zip(index.paths, stamps(index.root, index.paths), strict=True))
        found = {path: old for path, old in known.items() if now.get(path) == (old[0], old[1])}
        try:
            new = [number for number, path in enumerate(index.paths)
                   if path not in found or (not found[path][2] and again(number))]
            for number, reason in _faults(new, look, threads):
                found[index.paths[number]] = [*now[index.paths[number]], reason]
        finally:  # What was seen before Ctrl-C counts too.
            if found != known:
                _save(file, index.root, found)
    bad = {path: found[path][2] for path in index.paths if found[path][2]}
    if len(bad) > threshold * len(index):
        path, reason = next(iter(bad.items()))
        raise LabError(f"{len(bad)} of {len(index)} images in {index.root} cannot be decoded, such as "
                       f"{printable(path)} ({reason}); fetch or copy the data set again")
    return bad


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def stamps(root: Path, paths: Sequence[str]) -> list[tuple[int, int]]:
    """Return size in bytes and time of change of each file; (-1, -1) where there is none."""
    return [_stamp(f"{root}/{path}") for path in paths]


def _stamp(file: str) -> tuple[int, int]:
    try:
        status = os.stat(file)
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


def _faults(numbers: list[int], look: Callable[[int], object], threads: int | None) -> Iterator[tuple[int, str]]:
    if not numbers:
        return
    threads = threads or cores()
    with ThreadPool(threads) as pool:
        few = max(1, min(64, len(numbers) // (4 * threads)))  # At a time: enough for all threads until the end.
        reasons = pool.imap(functools.partial(_fault, look), numbers, chunksize=few)
        # `disable=None`: no bar where nobody watches. `delay`: nor where it would be gone at once.
        bar = tqdm(reasons, "checking images", len(numbers), disable=None, delay=1, unit=" images")
        yield from zip(numbers, bar, strict=True)


def _fault(look: Callable[[int], object], number: int) -> str:
    try:
        look(number)
    except Exception as error:  # Pillow raises a dozen kinds on broken files; they all mean the same here.
        return _reason(error)
    return ""


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not a picture"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return printable(text or type(error).__name__)


def _memory(root: Path) -> Path:
    name = hashlib.blake2b(str(root).encode(errors="surrogateescape"), digest_size=12).hexdigest()
    return paths.cache_dir() / "checked" / f"{name}.json"


def _load(file: Path) -> dict[str, list]:
    try:
        memory = json.loads(file.read_bytes())
    except (OSError, ValueError):  # None yet, or not ours: it can be made again.
        return {}
    return memory["files"] if memory.get("reader") == READER else {}


def _save(file: Path, root: Path, found: dict[str, list]) -> None:
    with atomic.writing(file, "w") as stream:
        json.dump({"reader": READER, "root": str(root), "files": found}, stream, separators=(",", ":"))
    by_age = sorted(file.parent.glob("*.json"), key=lambda other: other.stat().st_mtime)
    for old in by_age[:-KEPT]:
        old.unlink(missing_ok=True)
