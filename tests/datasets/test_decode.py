"""Images of every format are decoded to the same square of pixels."""

import cv2
import numpy as np
import pytest
from PIL import ExifTags, Image, ImageOps, TiffImagePlugin

from labs.datasets import decode, splits
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


@pytest.mark.parametrize(
    ("name", "mode", "options"),
    [
        ("rgb.png", "RGB", {}), ("rgb.jpg", "RGB", {"quality": 95}), ("waves.jpg", "RGB", {"optimize": True}),
        ("grey.jpg", "L", {}), ("grey.png", "L", {}), ("grey_alpha.png", "LA", {}), ("rgba.png", "RGBA", {}),
        ("cmyk.jpg", "CMYK", {}), ("cmyk.tif", "CMYK", {}), ("palette.png", "P", {}), ("few.gif", "P", {}),
        ("one_bit.png", "1", {}),
        ("rgb.bmp", "RGB", {}), ("rgb.webp", "RGB", {"lossless": True}), ("rgb.ppm", "RGB", {}),
    ],
)  # fmt: skip
def test_every_kind_of_picture(tmp_path, name, mode, options):
    picture = gradient().convert(mode)
    picture.save(tmp_path / name, **options)
    expected = np.asarray(picture.convert("RGB").resize((16, 16), Image.Resampling.BILINEAR))
    assert difference(decode.read_image(tmp_path / name, 16), expected) < 4


@pytest.mark.parametrize(("name", "mode"), [("rgba.png", "RGBA"), ("grey.png", "LA"), ("few.png", "P"),
                                            ("rgba.webp", "RGBA"), ("rgba.tif", "RGBA"), ("few.gif", "RGBA")])
def test_a_transparent_background_is_white(tmp_path, name, mode):
    """A black drawing on nothing: without its background it would be a black square."""
    drawing = np.zeros((32, 32, 4), np.uint8)
    drawing[8:24, 8:24, 3] = 255
    picture = Image.fromarray(drawing)
    (picture.quantize(4) if mode == "P" else picture.convert(mode)).save(tmp_path / name)
    expected = np.where(drawing[..., 3:] > 0, 0, 255).repeat(3, axis=2)
    assert difference(decode.read_image(tmp_path / name, 32), expected) < 1


STEP = np.linspace(0, 1, 900).reshape(30, 30)
COLOURS = np.stack([STEP, STEP[::-1], 1 - STEP], -1)
ALPHA = np.dstack([COLOURS, STEP > 0.5])


@pytest.mark.parametrize("samples", [  # What a camera of 12 bits and programs for science write.
    (STEP * 65535).round().astype(np.uint16), (STEP * 200).round().astype(np.uint16),
    (COLOURS * 4095).round().astype(np.uint16), (ALPHA * [4095, 4095, 4095, 65535]).round().astype(np.uint16),
    STEP.astype(np.float32), (2 * STEP - 1).astype(np.float32), COLOURS.astype(np.float32), STEP * 255,
    (STEP * 1000 - 500).astype(np.int32), (STEP * 200).astype(np.int16),
], ids=lambda samples: f"{samples.dtype}-{samples.shape}-{samples.max():g}")
def test_more_than_eight_bits_are_scaled(tmp_path, samples):
    expected = COLOURS if samples.ndim == 3 else STEP[..., None].repeat(3, axis=2)
    if samples.shape[-1] == 4:
        expected = np.where(ALPHA[..., 3:] > 0, expected, 1)
    for end in (".tif", ".png")[: 1 + (samples.dtype == np.uint16)]:  # PNG holds nothing else.
        file = str(tmp_path / f"deep{end}")
        cv2.imwrite(file, samples if samples.ndim == 2 else samples[..., [2, 1, 0, 3][: samples.shape[2]]])
        assert difference(decode.read_image(file, 30), 255 * expected) < 1


def test_one_range_holds_for_all_images_of_more_than_eight_bits(tmp_path):
    """Values to 3,000 in 16 bits: a dark class, a bright class, and a pixel without a value."""
    for folder, level, kind in (("dark", 300, "png"), ("light", 3000, "tif")):
        (tmp_path / folder).mkdir()
        for k in range(6):
            values = np.linspace(level / 2, level, 24 * 24).reshape(24, 24)
            cv2.imwrite(str(tmp_path / folder / f"{k}.{kind}"), values.astype({"png": "u2", "tif": "f4"}[kind]))
    odd = np.full((24, 24), 1500, np.float32)
    odd[0, 0] = np.nan
    cv2.imwrite(str(tmp_path / "light/odd.tif"), odd)
    odd[:] = np.nan
    cv2.imwrite(str(tmp_path / "light/nan.tif"), odd)
    for _ in range(2):  # Checked, then remembered.
        read = splits.from_folder(tmp_path, 24, 0, 0, seed=1)
        pixels = read.train.images[read.train.positions]
        dark, light = (pixels[read.train.labels[read.train.positions] == label] for label in (0, 1))
        assert (dark.max(), light.max()) == (13, 255)
        assert "more than 8 bits per value: 150 to 3000, the range of all images, became 0 to 255" in read.description
        assert "undecodable: 1 (light/nan.tif)" in read.description


def test_images_that_become_a_single_colour_are_named(tree):
    root = tree({"a": 20, "b": 20}, size=(32, 24))
    Image.new("RGBA", (24, 24)).save(root / "a/0003.png")
    Image.new("RGB", (24, 24), "blue").save(root / "b/0001.png")
    stripes = np.zeros((24, 24), np.uint8)
    stripes[:8] = 255  # The line in the middle is a single colour.
    Image.fromarray(stripes).save(root / "b/0002.png")
    description = splits.from_folder(root, 24, 0, 0, seed=1).description
    assert "blank images (a single colour): 2 (a/0003.png, b/0001.png)" in description


def test_zero_may_be_white(tmp_path):
    ifd = TiffImagePlugin.ImageFileDirectory_v2()
    ifd[ExifTags.Base.PhotometricInterpretation] = 0
    Image.fromarray((STEP * 4095).astype(np.uint16)).save(tmp_path / "deep.tif", tiffinfo=ifd)
    assert difference(decode.read_image(tmp_path / "deep.tif", 30), 255 * (1 - STEP[..., None]).repeat(3, 2)) < 1


@pytest.mark.parametrize("name", ["cut.png", "cut.tif"])
def test_damaged_images_of_more_than_eight_bits_are_found(tmp_path, name, capfd):
    cv2.imwrite(str(tmp_path / name), np.random.default_rng(0).integers(0, 4096, (64, 64, 3), np.uint16))
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(LabError, match="cannot decode"):
        decode.read_image(tmp_path / name, 16)
    assert capfd.readouterr().err == ""  # OpenCV would print.


def test_content_counts_not_the_name(tmp_path):
    gradient().save(tmp_path / "really.png")
    (tmp_path / "really.png").rename(tmp_path / "a.jpg")
    assert np.array_equal(decode.read_image(tmp_path / "a.jpg", 16), plain(tmp_path / "a.jpg", 16))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_stand_upright(tmp_path, orientation):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation  # How the camera was held.
    gradient().save(tmp_path / "turned.jpg", exif=exif, quality=95)
    upright = ImageOps.exif_transpose(Image.open(tmp_path / "turned.jpg")).resize((16, 16), Image.Resampling.BILINEAR)
    assert difference(decode.read_image(tmp_path / "turned.jpg", 16), np.asarray(upright)) < 1


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_png_of_16_bits_is_turned_as_one_of_8_bits(tmp_path, orientation):
    exif, pixels = Image.Exif(), np.arange(256, dtype=np.uint8).reshape(16, 16)
    exif[ExifTags.Base.Orientation] = orientation
    Image.fromarray(pixels).save(tmp_path / "8.png", exif=exif)
    Image.fromarray(pixels.astype(np.uint16) * 257).save(tmp_path / "16.png", exif=exif)
    assert np.array_equal(*(decode.read_image(tmp_path / name, 16) for name in ("8.png", "16.png")))


def test_exif_is_found_behind_a_large_block(tmp_path):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    gradient().save(tmp_path / "first.jpg", exif=exif, quality=95)
    content = (tmp_path / "first.jpg").read_bytes()
    # Two blocks of 64 KiB whose bytes look like the start of the pixels.
    profile = b"\xff\xe2\xff\xff" + b"\xff\xda" * ((1 << 15) - 2) + b"\0"
    (tmp_path / "behind.jpg").write_bytes(content[:2] + profile + profile + content[2:])
    first, behind = (decode.read_image(tmp_path / name, 16) for name in ("first.jpg", "behind.jpg"))
    assert np.array_equal(first, behind)
    (tmp_path / "cut.jpg").write_bytes(content[:2] + b"\xff\xe2\xff\xff\xff\xd9")  # A block longer than the file.
    with pytest.raises(LabError, match=r"cut\.jpg"):
        decode.read_image(tmp_path / "cut.jpg", 16)


def test_odd_exif_does_no_harm(tmp_path):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation], exif[ExifTags.Base.XResolution] = 3, 72.0
    odd = exif.tobytes().replace(b"\x01\x1a\0\x05", b"\x01\0\0\x05")  # A width that is a fraction.
    gradient().save(tmp_path / "odd.jpg", exif=odd, quality=95)
    gradient().save(tmp_path / "none.jpg", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff\x12", quality=95)
    upright = Image.Exif()
    upright[ExifTags.Base.Orientation] = 1
    gradient().save(tmp_path / "even.jpg", exif=upright, quality=95)
    even = decode.read_image(tmp_path / "even.jpg", 16)
    assert np.array_equal(decode.read_image(tmp_path / "none.jpg", 16), even)
    assert difference(decode.read_image(tmp_path / "odd.jpg", 16), even[::-1, ::-1]) < 1


@pytest.mark.parametrize(("size", "mean", "most"), [(64, 4, 14), (128, 3, 12), (224, 1.5, 8)])
def test_decoding_at_a_reduced_scale_changes_little(caltech, size, mean, most):
    """Of 255 levels, against full decoding; Keras' image_dataset_from_directory is off by 8, 4 and 1."""
    photos = sorted(caltech.glob("*/*.jpg"))[::20]
    differences = [difference(decode.read_image(photo, size), plain(photo, size)) for photo in photos]
    assert np.mean(differences) < mean
    assert max(differences) < most


def test_photos_go_the_short_way_and_damaged_ones_do_not(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)  # As much to decode in every line.
    Image.fromarray(noise).save(tmp_path / "noise.jpg")
    content = (tmp_path / "noise.jpg").read_bytes()
    assert decode._decode_jpeg(content, 64).shape == (64, 64, 3)
    before, after = content[: len(content) // 2], content[len(content) // 2 + 200 :]
    for damaged in (content[:-2], before + b"\xff\xd9", before + bytes(200) + after):
        assert decode._decode_jpeg(damaged, 64) is None


def test_a_long_picture_is_not_thinned_out(tmp_path):
    """Of white columns, one in sixteen, interpolation alone would see none."""
    columns = np.zeros((64, 1024, 3), np.uint8)
    columns[:, ::16] = 255
    Image.fromarray(columns).save(tmp_path / "columns.jpg", quality=100, subsampling=0)
    assert decode._decode_jpeg((tmp_path / "columns.jpg").read_bytes(), 64) is not None
    assert abs(decode.read_image(tmp_path / "columns.jpg", 64).mean() - 255 / 16) < 2


def test_the_error_names_the_bad_image(tmp_path):
    gradient(400, 300).save(tmp_path / "cut.jpg")
    content = (tmp_path / "cut.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(content[: len(content) // 2])
    with pytest.raises(LabError, match=r"cannot decode .*/cut\.jpg \(image file is truncated.*repair or"):
        decode.read_image(tmp_path / "cut.jpg", 16)
