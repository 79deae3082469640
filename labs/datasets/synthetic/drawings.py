"""Pictures drawn from seeds: objects on a background, fruits on white, faces that age.

Only integers, sums and products decide a pixel, because those are the same on every processor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from labs.datasets.synthetic.polygons import SHAPES, Part, bar, box, oval, poly, turn

Colour = Sequence[float]  # Red, green, blue; 0 to 255.
Pose = tuple[float, float, float, float]  # A 2 x 2 matrix.
GREY = (128, 128, 128)
SKIN, SHADE, HAIR, WHITE, IRIS, LIPS, CLOTH = range(7)  # The tones of a face.


def generator(*key: int) -> np.random.Generator:
    """Return the random numbers that belong to a key, the same on every machine."""
    return np.random.Generator(np.random.PCG64(key))


def uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """Return a number between two others (numpy's own `uniform` promises no fixed stream)."""
    return low + (high - low) * rng.random()


def near(rng: np.random.Generator, colour: Colour, spread: float) -> tuple[int, int, int]:
    """Return a colour near another one: `spread` 0 gives that colour, 1 any colour."""
    red, green, blue = (int((1 - spread) * c + spread * 255 * r) for c, r in zip(colour, rng.random(3), strict=True))
    return red, green, blue


def blotches(rng: np.random.Generator, width: int, height: int, colour: Colour, spread: float) -> Image.Image:
    """Return soft blotches around a colour, coarse or fine as the dice fall."""
    cells = (int(rng.integers(2, 9)), int(rng.integers(2, 9)), 3)
    colours = (1 - spread) * np.asarray(colour) + spread * 255 * rng.random(cells)
    return Image.fromarray(colours.astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC)


def pose(rng: np.random.Generator, scale: tuple[float, float], tilt: int) -> Pose:
    """Return width and height drawn from `scale`, tilted by up to `tilt` degrees, perhaps mirrored."""
    cosine, sine = turn(int(rng.integers(-tilt, tilt + 1)))
    wide, high = uniform(rng, *scale), uniform(rng, *scale)
    flip = 1 if rng.random() < 0.5 else -1
    return cosine * wide * flip, -sine * high, sine * wide * flip, cosine * high


def paint(
    canvas: Image.Image, parts: Sequence[Part], pose: Pose, centre: tuple[float, float], tones: Sequence
) -> None:
    """Paint the parts of an object, in order, posed around a centre (pixels)."""
    draw = ImageDraw.Draw(canvas)
    (xx, xy, yx, yy), (cx, cy) = pose, centre
    for points, tone in parts:
        draw.polygon([(xx * x + xy * y + cx, yx * x + yy * y + cy) for x, y in points], fill=tones[tone])


def litter(rng: np.random.Generator, canvas: Image.Image, count: int, size: float) -> None:
    """Paint random polygons: things in the way."""
    for _ in range(count):
        points = (2 * rng.random((int(rng.integers(3, 6)), 2)) - 1).tolist()
        centre = uniform(rng, 0, canvas.width), uniform(rng, 0, canvas.height)
        paint(canvas, [(points, 0)], pose(rng, (0.3 * size, size), 90), centre, [near(rng, (0, 0, 0), 1)])


def lit(rng: np.random.Generator, picture: Image.Image, noise: int) -> Image.Image:
    """Return the picture in another light (gain and offset) and with noise on every pixel."""
    gain, offset = int(rng.integers(45, 75)), int(rng.integers(-30, 31))  # At most 255 * 75: int16 holds it.
    dust = rng.integers(-noise, noise + 1, (picture.height, picture.width, 3), dtype=np.int16)
    pixels = np.asarray(picture, np.int16) * gain // 64 + offset + dust
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def scene(
    rng: np.random.Generator,
    shape: str | None,
    size: tuple[int, int],
    colours: Sequence[Colour],
    spread: float,
    tilt: int,
) -> Image.Image:
    """Return a picture of an object on a background.

    Args:
        shape: A name in SHAPES, or None for a picture of litter only.
        size: Width and height in pixels.
        colours: Usual colours of the ground, of the object and of its second tone.
        spread: How far colours stray from the usual ones, 0 to 1.
        tilt: Largest tilt in degrees.
    """
    (width, height), side = size, min(size)  # Drawn at twice the size, for smooth edges.
    canvas = blotches(rng, width, height, near(rng, colours[0], spread), uniform(rng, 0.1, 0.6))
    canvas = canvas.resize((2 * width, 2 * height), Image.Resampling.NEAREST)
    litter(rng, canvas, int(rng.integers(0, 4)), side / 2)
    if shape:
        own = [near(rng, colour, spread) for colour in colours[1:]]
        tones = [*own, near(rng, (35, 30, 30), 0.15), near(rng, (225, 225, 215), 0.15)]
        centre = uniform(rng, 0.75, 1.25) * width, uniform(rng, 0.75, 1.25) * height
        paint(canvas, SHAPES[shape], pose(rng, (0.45 * side, 0.95 * side), tilt), centre, tones)
    litter(rng, canvas, int(rng.integers(0, 3)) if shape else 4, side / 2.5)
    return lit(rng, canvas.reduce(2), noise=14)


def fruit(
    rng: np.random.Generator,
    skin: Colour,
    blush: Colour,
    share: float,
    freckles: float,
    shape: tuple[float, float],
) -> Image.Image:
    """Return a fruit on white, 100 x 100 pixels, lit from one side.

    Args:
        skin, blush: Its two colours.
        share: How much of it blushes, 0 to 1.
        freckles: Share of its pixels that are freckles.
        shape: Half its width and half its height, 1 being the half of the picture.
    """
    y, x = np.mgrid[-1:1:100j, -1:1:100j]
    cosine, sine = turn(int(rng.integers(0, 360)))
    u = (x * cosine + y * sine) / (shape[0] * uniform(rng, 0.93, 1.05))
    v = (y * cosine - x * sine) / (shape[1] * uniform(rng, 0.93, 1.05))
    waves = np.asarray(blotches(rng, 100, 100, (0, 0, 0), 1), float) / 255
    reddish = np.clip(3 * (waves[..., :1] + share - 1) + 0.5, 0, 1)
    pixels = reddish * near(rng, blush, 0.1) + (1 - reddish) * near(rng, skin, 0.1)
    pixels[rng.random((50, 50)).repeat(2, 0).repeat(2, 1) < freckles] += 45
    light = (x - uniform(rng, -0.5, 0.5)) ** 2 + (y - uniform(rng, -0.6, 0.1)) ** 2
    pixels = pixels * (1.2 - 0.4 * light)[..., None] + 120 * (light < 0.015)[..., None]
    picture = np.asarray(lit(rng, Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)), noise=10)).copy()
    picture[u * u + v * v + 0.25 * waves[..., 2] > 1] = 255
    return Image.fromarray(picture)


def wrinkles(age: float) -> list[Part]:
    """Return the lines of a face: on the forehead from 37, at the eyes from 43, at the mouth from 49."""
    rows = [-0.42 - 0.09 * k for k in range(int(max(age - 25, 0) / 12))]
    rays = [-0.2, -0.1, 0.0][: int(max(age - 35, 0) / 8)]
    forehead = [bar(SHADE, -0.3, y, 0.3, y, 0.03) for y in rows]
    eyes = [bar(SHADE, side * 0.42, -0.1, side * 0.56, y, 0.03) for side in (-1, 1) for y in rays]
    mouth = [bar(SHADE, side * 0.16, 0.12, side * 0.32, 0.45, 0.04) for side in (-1, 1) if age > 48]
    return forehead + eyes + mouth


def features(age: float, female: bool) -> list[Part]:
    """Return the parts of a face: with the years its eyes shrink, its lips thin, a man's hair recedes."""
    old = min(max((age - 15) / 70, 0), 1)
    eye, brow, hairline = 0.16 - 0.05 * old, -0.28 + 0.04 * old, -0.5 - 0.25 * old * (not female)
    parts = [poly(CLOTH, -1.2, 1.4, -0.7, 0.85, 0.7, 0.85, 1.2, 1.4), box(SHADE, -0.25, 0.5, 0.25, 1)]
    parts += [oval(HAIR, 0, -0.15, 0.74, 0.82), *[box(HAIR, -0.74, -0.1, 0.74, 0.8)] * female]
    parts += [oval(SKIN, 0, 0.05, 0.62 - 0.06 * old, 0.78), oval(HAIR, 0, hairline, 0.6, 0.32, 180, 360)]
    parts += wrinkles(age)
    for x in (-0.27, 0.27):
        parts += [oval(WHITE, x, -0.1, eye, 0.6 * eye), oval(IRIS, x, -0.1, 0.5 * eye, 0.5 * eye)]
        parts += [bar(HAIR, x - 0.16, brow, x + 0.16, brow + 0.02, 0.06)]
        parts += [oval(SHADE, x, 0.03, 0.1 * old, 0.03)]
    nose, mouth = poly(SHADE, 0, -0.1, 0.1, 0.25, -0.08, 0.25), oval(LIPS, 0, 0.45, 0.22, 0.1 - 0.05 * old)
    return [*parts, nose, mouth]


def face(rng: np.random.Generator, age: float, female: bool, side: int) -> Image.Image:
    """Return a face that looks about its age, on a soft background.

    Args:
        age: In years; a person may look six years younger or older, and greys early or late.
        side: Width and height in pixels.
    """
    looks = age + uniform(rng, -6, 6)
    grey = min(max((looks - 30) / 40 + uniform(rng, -0.15, 0.15), 0), 1)
    light = uniform(rng, 0.45, 1.05)
    skin = [light * c for c in (235, 190, 160)]
    youth = ((30, 22, 18), (92, 58, 30), (200, 160, 90))[rng.integers(3)]
    hair = [(1 - grey) * c + grey * 205 for c in youth]
    tones = [near(rng, skin, 0.05), near(rng, [0.75 * c for c in skin], 0.05), near(rng, hair, 0.08)]
    tones += [(240, 240, 240), near(rng, (60, 50, 40), 0.3), near(rng, (170, 70, 70), 0.2)]
    tones += [near(rng, GREY, 0.8)]
    canvas = blotches(rng, 2 * side, 2 * side, near(rng, GREY, 0.8), uniform(rng, 0, 0.5))
    centre = uniform(rng, 0.9, 1.1) * side, uniform(rng, 0.9, 1.1) * side
    paint(canvas, features(looks, female), pose(rng, (0.75 * side, 0.95 * side), 10), centre, tones)
    return lit(rng, canvas.reduce(2), noise=10)
