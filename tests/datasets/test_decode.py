"""Images of every format are decoded to the same square of pixels."""

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageOps

from labs.datasets import decode


def gradient():
    """Return a smooth image: whatever a format does to it, each corner keeps its colour."""
    across, down = np.meshgrid(np.linspace(0, 255, 40), np.linspace(0, 255, 30))
    return Image.fromarray(np.stack([across, down, 255 - across], -1).astype(np.uint8))


def difference(one, other):
    return np.abs(one.astype(int) - other).mean()


def resized(image, size):
    return np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR))


def test_every_format_whatever_its_name(tmp_path):
    for name, mode, options in (
            ("rgb.png", "RGB", {}), ("rgb.jpg", "RGB", {"quality": 95}), ("grey.jpg", "L", {}), ("alpha.png", "LA", {}),
            ("cmyk.jpg", "CMYK", {}), ("palette.png", "P", {}), ("few.gif", "P", {}), ("bit.png", "1", {}),
            ("rgb.bmp", "RGB", {}), ("rgb.webp", "RGB", {"lossless": True}), ("cmyk.tif", "CMYK", {}),
            ("rgb.ppm", "RGB", {})):
        image = gradient().convert(mode)
        image.save(tmp_path / name, **options)
        (tmp_path / name).rename(tmp_path / "image.jpg")
        assert difference(decode.read_image(tmp_path / "image.jpg", 16), resized(image, 16)) < 4, name


def test_backgrounds_are_white_photos_upright_and_long_images_not_thinned_out(tmp_path):
    drawing = np.zeros((32, 32, 4), np.uint8)
    drawing[8:24, 8:24, 3] = 255
    for image in (Image.fromarray(drawing), Image.fromarray(drawing).quantize(4)):
        image.save(tmp_path / "drawing.png")
        expected = np.where(drawing[..., 3:] > 0, 0, 255).repeat(3, axis=2)
        assert difference(decode.read_image(tmp_path / "drawing.png", 32), expected) < 1
    for orientation in (1, 3, 5, 6, 8):
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation  # How the camera was held.
        gradient().save(tmp_path / "turned.jpg", exif=exif, quality=95)
        upright = resized(ImageOps.exif_transpose(Image.open(tmp_path / "turned.jpg")), 16)
        assert difference(decode.read_image(tmp_path / "turned.jpg", 16), upright) < 1
    columns = np.zeros((64, 1024, 3), np.uint8)
    columns[:, ::16] = 255  # Interpolation alone would see none of them.
    Image.fromarray(columns).save(tmp_path / "columns.jpg", quality=100, subsampling=0)
    assert abs(decode.read_image(tmp_path / "columns.jpg", 64).mean() - 255 / 16) < 2


@pytest.mark.parametrize(("size", "mean", "most"), [(64, 4, 14), (128, 3, 12), (224, 1.5, 8)])
def test_decoding_at_a_reduced_scale_changes_little(samples, size, mean, most):
    """Of 255 levels, against full decoding; Keras' image_dataset_from_directory is off by 8, 4 and 1."""
    photos = sorted((samples / "caltech-sample").glob("*/*/*.jpg"))[::20]
    differences = [difference(decode.read_image(photo, size), resized(Image.open(photo), size)) for photo in photos]
    assert np.mean(differences) < mean
    assert max(differences) < most


def write_bad_images(folder):
    """Write five files that cannot be decoded."""
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
    Image.fromarray(noise).save(folder / "cut.jpg")
    content = (folder / "cut.jpg").read_bytes()
    (folder / "cut.jpg").write_bytes(content[: len(content) // 2])
    (folder / "text.jpg").write_text("<html>404 Not Found</html>")
    (folder / "program.jpg").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    Image.fromarray(np.full((20, 20), 3000, np.uint16)).save(folder / "deep.png")
    Image.new("1", (20000, 10000)).save(folder / "bomb.png")
