"""Decode one image file to a small square of pixels."""

import io
import os
import struct
import warnings
from pathlib import Path

import cv2
import numpy as np
import PIL
from PIL import Image, ImageOps, UnidentifiedImageError

from labs.run.errors import LabError, printable

# Recognized by content, not by name. Pillow knows others, but some of those start other programs (EPS).
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
# Increment the number when the pixels or the files of `image_cache` change: those of another version are not used.
VERSION = f"10, Pillow {PIL.__version__}, OpenCV {cv2.__version__}"
MAX_PIXELS = Image.MAX_IMAGE_PIXELS or 0  # Pillow refuses larger images: they may be decompression bombs.
HEADER = 1 << 17  # Bytes of a JPEG that may hold its Exif block.
# OpenCV's flags: a JPEG can be decoded at a half, a quarter or an eighth of its size at a fraction of the cost. The
# flag for RGB is added to them: one for BGR would be in those called COLOR.
REDUCED = {8: cv2.IMREAD_REDUCED_GRAYSCALE_8, 4: cv2.IMREAD_REDUCED_GRAYSCALE_4, 2: cv2.IMREAD_REDUCED_GRAYSCALE_2,
           1: 0}
# The reduced sides may be as short as this share of the wanted size: with 1, photos of 300 x 200 would just miss 128.
MIN_SCALE = 0.75
warnings.filterwarnings("ignore", module=r"PIL\.")  # Its remarks on odd files would fill the screen.
cv2.setNumThreads(1)  # The callers run one thread per core already.


def read_image(path: str | os.PathLike, size: int) -> np.ndarray:
    """Return an image of any format as uint8 [size, size, 3], without keeping its aspect ratio."""
    try:
        return decode_bytes(Path(path).read_bytes(), size)
    except Exception as error:
        raise LabError(f"cannot decode {printable(path)} ({explain(error)}); "
                       "repair or remove the file, then start again") from error


def decode_bytes(content: bytes, size: int) -> np.ndarray:
    """Do what `read_image` does with a file's content, but let the decoder's own exceptions through."""
    pixels = _decode_jpeg(content, size)
    return _decode_any(content, size) if pixels is None else pixels


def explain(error: Exception) -> str:
    """Return in a few words why an image could not be decoded."""
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    return printable(getattr(error, "strerror", None) or str(error) or type(error).__name__)


def _decode_jpeg(content: bytes, size: int) -> np.ndarray | None:
    """Decode an ordinary JPEG two to three times as fast as Pillow; return None for other or damaged files."""
    complete = content.startswith(b"\xff\xd8\xff") and content.endswith(b"\xff\xd9")
    if not complete or content.find(b"Exif\0\0", 0, HEADER) >= 0:  # The EXIF data may ask for a rotation.
        return None
    try:
        height, width, colours = _read_header(content)
    except (IndexError, struct.error):  # A rare kind of JPEG.
        return None
    if colours not in (1, 3) or min(height, width) < 2 or height * width > MAX_PIXELS:
        return None
    scale = next((scale for scale in REDUCED if min(height, width) >= scale * MIN_SCALE * size), 1)
    pixels = cv2.imdecode(np.frombuffer(content, np.uint8), REDUCED[scale] | cv2.IMREAD_COLOR_RGB)
    return None if pixels is None else _resize(pixels, size)


def _read_header(content: bytes) -> tuple[int, ...]:
    """Return a JPEG's height, width and number of colours, which the segment "start of frame" (0xC0 to 0xC3) has."""
    start = 2
    while not 0xC0 <= content[start + 1] <= 0xC3:
        start += 2 + (content[start + 2] << 8) + content[start + 3]
    return struct.unpack_from(">HHB", content, start + 5)


def _resize(pixels: np.ndarray, size: int) -> np.ndarray:
    """Resize to a square; average first along a side that is 2.5 times too long, where interpolation skips pixels."""
    height, width = (size if side >= 2.5 * size else side for side in pixels.shape[:2])
    if (height, width) != pixels.shape[:2]:
        pixels = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
    return pixels if (height, width) == (size, size) else cv2.resize(pixels, (size, size))


def _decode_any(content: bytes, size: int) -> np.ndarray:
    """Decode an image of any format with Pillow, over a white background."""
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        if min(image.size) < 2:  # Data sets have such files where a crop came out empty.
            raise ValueError(f"{image.width} x {image.height} pixels")
        if image.mode[0] in "IF":  # Pillow would cut the values off at 255.
            raise ValueError("more than 8 bits per value; convert it to 8")
        image.draft(None, (max(1, int(MIN_SCALE * size)),) * 2)
        upright = ImageOps.exif_transpose(image)
        if upright.has_transparency_data:  # A black drawing on nothing would become a black square.
            upright = upright.convert("RGBA")
            upright = Image.alpha_composite(Image.new("RGBA", upright.size, "white"), upright)
        return np.asarray(upright.convert("RGB").resize((size, size), Image.Resampling.BILINEAR))
