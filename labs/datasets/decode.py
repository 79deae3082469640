"""Decode one image file to a small square of pixels."""

from __future__ import annotations

import contextlib
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
VERSION = f"7, Pillow {PIL.__version__}, simplejpeg {simplejpeg.__version__}, OpenCV {cv2.__version__}"
Values = tuple[float, float]
"""The smallest and the largest value of an image, or of a data set, that has more than 8 bits per value."""
_DEEP = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+", b"P5", b"P6")
"""First bytes of TIFF, BigTIFF, PGM and PPM files. These and PNG may have more than 8 bits per value."""
_TRANSPOSE: dict[int | None, Image.Transpose] = {  # By EXIF orientation.
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
LARGEST = 1 << 28  # Largest file to read, in bytes.
MIN_SCALE = 0.75
"""A JPEG can be decoded at a half, a quarter or an eighth of its size at a fraction of the cost. The reduced sides may
be as short as this share of the wanted size: with 1, photos of 300 x 200 would just miss 128. The effect on the pixels
is bounded by tests/datasets/test_decode.py."""
warnings.filterwarnings("ignore", module=r"PIL\.")  # Its remarks on odd files would fill the screen.
if hasattr(cv2.utils, "logging"):  # Silent, in OpenCV 5, and in 4 for the classic stack.
    cv2.utils.logging.setLogLevel(0)
else:
    cv2.setLogLevel(0)  # type: ignore[attr-defined]
cv2.setNumThreads(1)  # The callers run one thread per core already.


def read_image(path: str | os.PathLike, size: int, values: Values | None = None) -> np.ndarray:
    """Return an image of any format as uint8 [size, size, 3], without keeping its aspect ratio.

    Transparent pixels become white. Values of more than 8 bits, such as 16-bit integers and floats, are scaled: the
    lower of `values` becomes 0, the upper 255.

    Args:
        path: The file.
        size: Width and height of the result in pixels.
        values: The range of the data set, for an image of more than 8 bits; by default its own range.

    Raises:
        LabError: It cannot be decoded.
    """
    try:
        return decode_file(path, size, values)[0]
    except Exception as error:
        raise LabError(f"cannot decode {printable(path)} ({reason(error)}); "
                       "repair or remove the file, then start again") from error


def decode_file(path: str | os.PathLike, size: int, values: Values | None = None) -> tuple[np.ndarray, Values | None]:
    """Do what `read_image` does, but let the decoder's own exceptions through.

    Returns:
        The pixels; and the image's own range of values if they have more than 8 bits, else None.
    """
    content = atomic.read_bytes(path, LARGEST)
    pixels = _decode_jpeg(content, size)
    return _decode_any(content, size, values) if pixels is None else (pixels, None)


def grey(pixels: np.ndarray) -> np.ndarray:
    """Return the luminance of an image: uint8 [height, width, 3] -> [height, width, 1]."""
    return cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)[..., None]


def reason(error: Exception) -> str:
    """Return in a few words why an image could not be decoded."""
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return printable(text or type(error).__name__)


def _decode_jpeg(content: bytes, size: int) -> np.ndarray | None:
    """Decode an ordinary JPEG two to three times as fast as Pillow; return None for other or damaged files."""
    complete = content.startswith(b"\xff\xd8\xff") and content.endswith(b"\xff\xd9")
    if not complete or _may_be_rotated(content):
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


def _may_be_rotated(content: bytes) -> bool:
    """Return whether a JPEG has an Exif block before its pixels, or blocks that this code does not understand."""
    i = 2
    while (marker := content[i : i + 2]) != b"\xff\xda":
        if marker[:1] != b"\xff" or content.startswith(b"Exif\0\0", i + 4):
            return True
        i += 2 + int.from_bytes(content[i + 2 : i + 4], "big")
    return False


def _resize(pixels: np.ndarray, size: int) -> np.ndarray:
    """Resize to a square; average first along a side that is 2.5 times too long, where interpolation skips pixels."""
    height, width = (size if side >= 2.5 * size else side for side in pixels.shape[:2])
    if (height, width) != pixels.shape[:2]:
        pixels = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
    return pixels if (height, width) == (size, size) else cv2.resize(pixels, (size, size))


def _decode_any(content: bytes, size: int, values: Values | None) -> tuple[np.ndarray, Values | None]:
    """Decode an image of any format with Pillow, and again with OpenCV if it has more than 8 bits per value."""
    exif = None
    try:
        image = _open(content, size)
        exif = image.info.get("exif")
        samples = _samples(content)
        if samples is None and image.mode[0] in "IF":  # A rare kind of TIFF.
            samples = np.asarray(image)
    except UnidentifiedImageError:  # Pillow cannot read colour TIFFs of floats.
        samples = _samples(content)
        if samples is None:
            raise
    own = None
    if samples is not None:
        own = _range(samples)
        image = Image.fromarray(_eight_bits(samples, values or own))
        if exif and content.startswith(b"\x89PNG"):  # OpenCV rotates a TIFF, but not a PNG.
            image.info["exif"] = exif
            image = _upright(image)
    return np.asarray(_rgb(image).resize((size, size), Image.Resampling.BILINEAR)), own


def _open(content: bytes, size: int) -> Image.Image:
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        if min(image.size) < 2:  # Data sets have such files where a crop came out empty.
            raise ValueError(f"{image.width} x {image.height} pixels")
        image.draft(None, (max(1, int(MIN_SCALE * size)),) * 2)
        image.load()
        return _upright(image)


def _samples(content: bytes) -> np.ndarray | None:
    """Return an image's values, [height, width] or [height, width, channels], if they have more than 8 bits, or None.

    Pillow would keep only the upper 8 of a colour's 16 bits.
    """
    if not content.startswith(_DEEP) and not (content.startswith(b"\x89PNG") and content[24:25] == b"\x10"):
        return None
    samples = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_UNCHANGED)
    if samples is None or samples.dtype == np.uint8:
        return None
    if samples.ndim == 3:
        samples = samples[..., [2, 1, 0, 3][: samples.shape[2]]]  # OpenCV's order is blue, green, red.
    return 65535 - samples if _is_inverted(content) else samples


def _is_inverted(content: bytes) -> bool:
    """Return whether a 16-bit TIFF declares that 0 is white, which both readers ignore."""
    with contextlib.suppress(Exception), Image.open(io.BytesIO(content), formats=("TIFF",)) as image:
        return image.mode == "I;16" and image.getexif().get(ExifTags.Base.PhotometricInterpretation) == 0
    return False


def _range(samples: np.ndarray) -> Values:
    """Return the smallest and the largest finite value of all pixels, without the alpha channel."""
    colours = samples[..., :3] if samples.ndim == 3 else samples
    numbers = colours[np.isfinite(colours)]
    if not len(numbers):
        raise ValueError("none of its values is a finite number")
    return float(numbers.min()), float(numbers.max())


def _eight_bits(samples: np.ndarray, values: Values) -> np.ndarray:
    """Scale values to 0 to 255, and an alpha channel from its own largest value; NaN becomes 0."""
    low, high = values
    scaled = (samples.astype(np.float64) - low) * (255 / ((high - low) or 1))
    if samples.ndim == 3 and samples.shape[2] == 4:
        opaque = np.iinfo(samples.dtype).max if samples.dtype.kind in "iu" else 1
        scaled[..., 3] = samples[..., 3] * (255 / opaque)
    return np.nan_to_num(scaled, posinf=255).clip(0, 255).round().astype(np.uint8)


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
