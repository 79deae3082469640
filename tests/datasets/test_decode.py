"""Images of every format are decoded to the same square of pixels."""

import cv2
import numpy as np
import pytest
from PIL import ExifTags, Image, ImageOps

from labs.datasets import decode
from labs.run.errors import LabError


def gradient(width=40, height=30):
    """Return a smooth image: whatever a format does to it, each corner keeps its colour."""
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([across, down, 255 - across], -1).astype(np.uint8))


def plain(path, size):
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB").resize((size, size), Image.Resampling.BILINEAR))


def difference(one, other):
    return np.abs(one.astype(int) - other).mean()


@pytest.mark.parametrize(("name", "mode", "options"), [
    ("rgb.png", "RGB", {}), ("rgb.jpg", "RGB", {"quality": 95}), ("grey.jpg", "L", {}), ("grey_alpha.png", "LA", {}),
    ("cmyk.jpg", "CMYK", {}), ("palette.png", "P", {}), ("few.gif", "P", {}), ("one_bit.png", "1", {}),
    ("rgb.bmp", "RGB", {}), ("rgb.webp", "RGB", {"lossless": True}), ("cmyk.tif", "CMYK", {}), ("rgb.ppm", "RGB", {}),
])
def test_every_kind_of_picture(tmp_path, name, mode, options):
    picture = gradient().convert(mode)
    picture.save(tmp_path / name, **options)
    expected = np.asarray(picture.convert("RGB").resize((16, 16), Image.Resampling.BILINEAR))
    assert difference(decode.read_image(tmp_path / name, 16), expected) < 4


@pytest.mark.parametrize(("name", "mode"), [("rgba.png", "RGBA"), ("few.png", "P")])
def test_a_transparent_background_is_white(tmp_path, name, mode):
    """A black drawing on nothing: without its background it would be a black square."""
    drawing = np.zeros((32, 32, 4), np.uint8)
    drawing[8:24, 8:24, 3] = 255
    picture = Image.fromarray(drawing)
    (picture.quantize(4) if mode == "P" else picture).save(tmp_path / name)
    expected = np.where(drawing[..., 3:] > 0, 0, 255).repeat(3, axis=2)
    assert difference(decode.read_image(tmp_path / name, 32), expected) < 1


def test_the_content_counts_not_the_name(tmp_path):
    gradient().save(tmp_path / "really.png")
    (tmp_path / "really.png").rename(tmp_path / "a.jpg")
    assert np.array_equal(decode.read_image(tmp_path / "a.jpg", 16), plain(tmp_path / "a.jpg", 16))


@pytest.mark.parametrize("orientation", [1, 3, 5, 6, 8])
def test_pictures_are_upright(tmp_path, orientation):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation  # How the camera was held.
    gradient().save(tmp_path / "turned.jpg", exif=exif, quality=95)
    upright = ImageOps.exif_transpose(Image.open(tmp_path / "turned.jpg")).resize((16, 16), Image.Resampling.BILINEAR)
    assert difference(decode.read_image(tmp_path / "turned.jpg", 16), np.asarray(upright)) < 1


@pytest.mark.parametrize(("size", "mean", "most"), [(64, 4, 14), (128, 3, 12), (224, 1.5, 8)])
def test_decoding_at_a_reduced_scale_changes_little(caltech, size, mean, most):
    """Of 255 levels, against full decoding; Keras' image_dataset_from_directory is off by 8, 4 and 1."""
    photos = sorted(caltech.glob("*/*.jpg"))[::20]
    differences = [difference(decode.read_image(photo, size), plain(photo, size)) for photo in photos]
    assert np.mean(differences) < mean
    assert max(differences) < most


def test_a_long_picture_is_not_thinned_out(tmp_path):
    """Of white columns, one in sixteen, interpolation alone would see none."""
    columns = np.zeros((64, 1024, 3), np.uint8)
    columns[:, ::16] = 255
    Image.fromarray(columns).save(tmp_path / "columns.jpg", quality=100, subsampling=0)
    assert abs(decode.read_image(tmp_path / "columns.jpg", 64).mean() - 255 / 16) < 2


DEEP = "more than 8 bits per value; convert it to 8"


def spoilt(path):
    """Four files that cannot be decoded, each with the reason."""
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)  # As much to decode in every line.
    Image.fromarray(noise).save(path / "whole.jpg")
    content = (path / "whole.jpg").read_bytes()
    half = len(content) // 2
    (path / "cut.jpg").write_bytes(content[:half])
    (path / "text.jpg").write_text("<html>404 Not Found</html>")
    (path / "program.jpg").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    Image.fromarray(np.full((20, 20), 3000, np.uint16)).save(path / "deep.png")
    return {"cut.jpg": "truncated", "text.jpg": "not an image", "program.jpg": "not an image",
            "deep.png": DEEP}


def test_the_error_names_the_bad_image(tmp_path):
    colours = {"colour.png": DEEP, "colour.tif": DEEP}
    for name in colours:
        cv2.imwrite(str(tmp_path / name), np.full((20, 20, 3), 3000, np.uint16))
    for name, cause in (spoilt(tmp_path) | colours).items():
        with pytest.raises(LabError, match=rf"cannot decode .*/{name} \(.*{cause}.*\); repair or"):
            decode.read_image(tmp_path / name, 64)
