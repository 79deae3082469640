"""Decode one image file to a small square of pixels."""

from __future__ import annotations

import io
import os
import warnings

import cv2
import numpy as np
import PIL
import simplejpeg
from PIL import ExifTags, Image, UnidentifiedImageError

from labs.run import atomic
from labs.run.errors import LabError
from labs.run.text import printable

# Recognized by content, not by name. Pillow knows others, but some of those start other programs (EPS).
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
# Increment the number when the pixels or the file layout of `image_cache` change: caches and remembered checks of
# another version are not used.
VERSION = f"8, Pillow {PIL.__version__}, simplejpeg {simplejpeg.__version__}, OpenCV {cv2.__version__}"
_TRANSPOSE: dict[int | None, Image.Transpose] = {  # By EXIF orientation.
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
HEADER = 1 << 17  # Bytes of a JPEG that may hold its Exif block.
LARGEST = 1 << 28  # Largest file to read, in bytes.
MIN_SCALE = 0.75
"""A JPEG can be decoded at a half, a quarter or an eighth of its size at a fraction of the cost. The reduced sides may
be as short as this share of the wanted size: with 1, photos of 300 x 200 would just miss 128. The effect on the pixels
is bounded by tests/datasets/test_decode.py."""
warnings.filterwarnings("ignore", module=r"PIL\.")  # Its remarks on odd files would fill the screen.
cv2.setNumThreads(1)  # The callers run one thread per core already.


def read_image(path: str | os.PathLike, size: int) -> np.ndarray:
    """Return an image of any format as uint8 [size, size, 3], without keeping its aspect ratio.

    Transparent pixels become white.

    Args:
        path: The file.
        size: Width and height of the result in pixels.

    Raises:
        LabError: The image cannot be decoded.
    """
    try:
        return decode_file(path, size)
    except Exception as error:
        raise LabError(f"cannot decode {printable(path)} ({reason(error)}); "
                       "repair or remove the file, then start again") from error


def decode_file(path: str | os.PathLike, size: int) -> np.ndarray:
    """Do what `read_image` does, but let the decoder's own exceptions through."""
    content = atomic.read_bytes(path, LARGEST)
    pixels = _decode_jpeg(content, size)
    return _decode_any(content, size) if pixels is None else pixels


def reason(error: Exception) -> str:
    """Return in a few words why an image could not be decoded."""
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return printable(text or type(error).__name__)


def _decode_jpeg(content: bytes, size: int) -> np.ndarray | None:
    """Decode an ordinary JPEG two to three times as fast as Pillow; return None for other or damaged files."""
    complete = content.startswith(b"\xff\xd8\xff") and content.endswith(b"\xff\xd9")
    if not complete or content.find(b"Exif\0\0", 0, HEADER) >= 0:  # The EXIF data may ask for a rotation.
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(content)
        if colours not in ("YCbCr", "Gray") or min(height, width) < 2 or height * width > Image.MAX_IMAGE_PIXELS:
            return None
        scale = next((scale for scale in (8, 4, 2) if min(height, width) >= scale * MIN_SCALE * size), 1)
        pixels = simplejpeg.decode_jpeg(content, min_height=-(-height // scale), min_width=-(-width // scale),
                                        min_factor=1)
    except ValueError:
        return None
    return _resize(pixels, size)


def _resize(pixels: np.ndarray, size: int) -> np.ndarray:
    """Resize to a square; average first along a side that is 2.5 times too long, where interpolation skips pixels."""
    height, width = (size if side >= 2.5 * size else side for side in pixels.shape[:2])
    if (height, width) != pixels.shape[:2]:
        pixels = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
    return pixels if (height, width) == (size, size) else cv2.resize(pixels, (size, size))


def _decode_any(content: bytes, size: int) -> np.ndarray:
    """Decode an image of any format with Pillow."""
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        if min(image.size) < 2:  # Data sets have such files where a crop came out empty.
            raise ValueError(f"{image.width} x {image.height} pixels")
        if image.mode[0] in "IF" or _bits(image, content) > 8:  # Pillow would cut the values off at 255 or keep 8 bits.
            raise ValueError("more than 8 bits per value; convert it to 8")
        image.draft(None, (max(1, int(MIN_SCALE * size)),) * 2)
        image.load()
        return np.asarray(_rgb(_upright(image)).resize((size, size), Image.Resampling.BILINEAR))


def _bits(image: Image.Image, content: bytes) -> int:
    """Return the bits per value of a colour image, which Pillow does not report."""
    if image.format == "PNG":
        return content[24]  # The bit depth is at a fixed offset.
    return max(image.tag_v2.get(ExifTags.Base.BitsPerSample, (8,))) if image.format == "TIFF" else 8  # type: ignore


def _upright(image: Image.Image) -> Image.Image:
    """Rotate as the EXIF tag says. `ImageOps.exif_transpose` also rewrites the tags, and fails if one is malformed."""
    turn = _TRANSPOSE.get(image.getexif().get(ExifTags.Base.Orientation)) if "exif" in image.info else None
    return image if turn is None else image.transpose(turn)


def _rgb(image: Image.Image) -> Image.Image:
    """Convert to RGB, over a white background: a black drawing on a transparent one would become a black square."""
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image if image.mode == "RGB" else image.convert("RGB")
