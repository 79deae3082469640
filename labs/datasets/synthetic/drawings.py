"""Images generated from seeds: objects on a background, fruits on white, faces of a given age.

Pixels are computed from integers, sums and products only, because these are the same on every processor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from labs.datasets.synthetic.polygons import OBJECTS, Polygon, bar, box, oval, poly, turn

Colour = Sequence[float]  # Red, green, blue; 0 to 255.
Pose = tuple[float, float, float, float]  # A 2 x 2 matrix.
GREY = (128, 128, 128)
SKIN, SHADE, HAIR, WHITE, IRIS, LIPS, CLOTH = range(7)  # The tones of a face.


def generator(*key: int) -> np.random.Generator:
    """Return the random number generator of a key: the same numbers on every machine."""
    return np.random.Generator(np.random.PCG64(key))


def uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """Return a random number in [low, high); numpy's own `uniform` may change between versions."""
    return low + (high - low) * rng.random()


def near(rng: np.random.Generator, colour: Colour, spread: float) -> tuple[int, ...]:
    """Return a random colour near `colour`: with `spread` 0 that colour, with 1 any colour."""
    return tuple(int((1 - spread) * c + spread * 255 * r) for c, r in zip(colour, rng.random(3), strict=True))


def blotches(rng: np.random.Generator, width: int, height: int, colour: Colour, spread: float) -> Image.Image:
    """Return soft blotches around a colour, randomly coarse or fine."""
    cells = (int(rng.integers(2, 9)), int(rng.integers(2, 9)), 3)
    colours = (1 - spread) * np.asarray(colour) + spread * 255 * rng.random(cells)
    return Image.fromarray(colours.astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC)


def pose(rng: np.random.Generator, scale: tuple[float, float], tilt: int) -> Pose:
    """Return a random scaling of width and height by `scale`, tilted by up to `tilt` degrees, perhaps mirrored."""
    cosine, sine = turn(int(rng.integers(-tilt, tilt + 1)))
    wide, high = uniform(rng, *scale), uniform(rng, *scale)
    flip = 1 if rng.random() < 0.5 else -1
    return cosine * wide * flip, -sine * high, sine * wide * flip, cosine * high


def paint(canvas: Image.Image, polygons: Sequence[Polygon], pose: Pose, centre: tuple[float, float],
          tones: Sequence) -> None:
    """Paint an object's polygons, in order, in a pose around a centre (pixels)."""
    draw = ImageDraw.Draw(canvas)
    (xx, xy, yx, yy), (cx, cy) = pose, centre
    for points, tone in polygons:
        draw.polygon([(xx * x + xy * y + cx, yx * x + yy * y + cy) for x, y in points], fill=tones[tone])


def clutter(rng: np.random.Generator, canvas: Image.Image, count: int, size: float) -> None:
    """Paint random polygons, which may cover the object."""
    for _ in range(count):
        points = (2 * rng.random((int(rng.integers(3, 6)), 2)) - 1).tolist()
        centre = uniform(rng, 0, canvas.width), uniform(rng, 0, canvas.height)
        paint(canvas, [(points, 0)], pose(rng, (0.3 * size, size), 90), centre, [near(rng, (0, 0, 0), 1)])


def light(rng: np.random.Generator, image: Image.Image, noise: int) -> Image.Image:
    """Return the image under a random light (gain and offset), with noise on every pixel."""
    gain, offset = int(rng.integers(45, 75)), int(rng.integers(-30, 31))  # At most 255 * 75: int16 holds it.
    dust = rng.integers(-noise, noise + 1, (image.height, image.width, 3), dtype=np.int16)
    pixels = np.asarray(image, np.int16) * gain // 64 + offset + dust
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def scene(rng: np.random.Generator, name: str | None, size: tuple[int, int], colours: Sequence[Colour], spread: float,
          tilt: int) -> Image.Image:
    """Return an image of an object on a background.

    Args:
        rng: Source of all randomness.
        name: A name in OBJECTS, or None for clutter only.
        size: Width and height in pixels.
        colours: Typical colours of the background, of the object and of its second tone.
        spread: How far colours vary around the typical ones, 0 to 1.
        tilt: Largest tilt in degrees.
    """
    (width, height), side = size, min(size)  # Painted at twice the size, for smooth edges.
    canvas = blotches(rng, width, height, near(rng, colours[0], spread), uniform(rng, 0.1, 0.6))
    canvas = canvas.resize((2 * width, 2 * height), Image.Resampling.NEAREST)
    clutter(rng, canvas, int(rng.integers(0, 4)), side / 2)
    if name:
        tones = [near(rng, colour, spread) for colour in colours[1:]]
        tones += [near(rng, colour, 0.15) for colour in ((35, 30, 30), (225, 225, 215))]
        centre = uniform(rng, 0.75, 1.25) * width, uniform(rng, 0.75, 1.25) * height
        paint(canvas, OBJECTS[name], pose(rng, (0.45 * side, 0.95 * side), tilt), centre, tones)
    clutter(rng, canvas, int(rng.integers(0, 3)) if name else 4, side / 2.5)
    return light(rng, canvas.reduce(2), noise=14)


def fruit(rng: np.random.Generator, skin: Colour, blush: Colour, share: float, freckles: float,
          shape: tuple[float, float]) -> Image.Image:
    """Return a fruit on white, 100 x 100 pixels, lit from one side.

    Args:
        rng: Source of all randomness.
        skin: Its main colour.
        blush: Its second colour.
        share: Share of the surface in the second colour, 0 to 1.
        freckles: Share of the pixels that are freckles.
        shape: Half its width and half its height, in units of half the image.
    """
    y, x = np.mgrid[-1:1:100j, -1:1:100j]
    cosine, sine = turn(int(rng.integers(0, 360)))
    u = (x * cosine + y * sine) / (shape[0] * uniform(rng, 0.93, 1.05))
    v = (y * cosine - x * sine) / (shape[1] * uniform(rng, 0.93, 1.05))
    waves = np.asarray(blotches(rng, 100, 100, (0, 0, 0), 1), float) / 255
    reddish = np.clip(3 * (waves[..., :1] + share - 1) + 0.5, 0, 1)
    pixels = reddish * near(rng, blush, 0.1) + (1 - reddish) * near(rng, skin, 0.1)
    pixels[rng.random((50, 50)).repeat(2, 0).repeat(2, 1) < freckles] += 45
    distance = (x - uniform(rng, -0.5, 0.5)) ** 2 + (y - uniform(rng, -0.6, 0.1)) ** 2  # From the light, squared.
    pixels = pixels * (1.2 - 0.4 * distance)[..., None] + 120 * (distance < 0.015)[..., None]
    image = np.asarray(light(rng, Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)), noise=10)).copy()
    image[u * u + v * v + 0.25 * waves[..., 2] > 1] = 255
    return Image.fromarray(image)


def wrinkles(age: float) -> list[Polygon]:
    """Return the lines of a face: on the forehead from 37, at the eyes from 43, at the mouth from 49."""
    rows = [-0.42 - 0.09 * k for k in range(int(max(age - 25, 0) / 12))]
    forehead = [bar(SHADE, -0.3, y, 0.3, y, 0.03) for y in rows]
    rays = [-0.2, -0.1, 0.0][: int(max(age - 35, 0) / 8)]
    eyes = [bar(SHADE, side * 0.42, -0.1, side * 0.56, y, 0.03) for side in (-1, 1) for y in rays]
    mouth = [bar(SHADE, side * 0.16, 0.12, side * 0.32, 0.45, 0.04) for side in (-1, 1) if age > 48]
    return forehead + eyes + mouth


def features(age: float, female: bool) -> list[Polygon]:
    """Return the polygons of a face: with age, eyes get smaller, lips thinner, and a man's hairline recedes."""
    old = min(max((age - 15) / 70, 0), 1)
    eye, brow, hairline = 0.16 - 0.05 * old, -0.28 + 0.04 * old, -0.5 - 0.25 * old * (not female)
    polygons = [poly(CLOTH, -1.2, 1.4, -0.7, 0.85, 0.7, 0.85, 1.2, 1.4), box(SHADE, -0.25, 0.5, 0.25, 1)]
    polygons += [oval(HAIR, 0, -0.15, 0.74, 0.82), *[box(HAIR, -0.74, -0.1, 0.74, 0.8)] * female]
    polygons += [oval(SKIN, 0, 0.05, 0.62 - 0.06 * old, 0.78), oval(HAIR, 0, hairline, 0.6, 0.32, 180, 360)]
    polygons += wrinkles(age)
    for x in (-0.27, 0.27):
        polygons += [oval(WHITE, x, -0.1, eye, 0.6 * eye), oval(IRIS, x, -0.1, 0.5 * eye, 0.5 * eye),
                     bar(HAIR, x - 0.16, brow, x + 0.16, brow + 0.02, 0.06), oval(SHADE, x, 0.03, 0.1 * old, 0.03)]
    return [*polygons, poly(SHADE, 0, -0.1, 0.1, 0.25, -0.08, 0.25), oval(LIPS, 0, 0.45, 0.22, 0.1 - 0.05 * old)]


def face(rng: np.random.Generator, age: float, female: bool, side: int) -> Image.Image:
    """Return a face on a soft background, `side` pixels wide and high.

    It looks up to six years younger or older than its age, and turns grey early or late.
    """
    looks = age + uniform(rng, -6, 6)
    grey = min(max((looks - 30) / 40 + uniform(rng, -0.15, 0.15), 0), 1)
    brightness = uniform(rng, 0.45, 1.05)
    skin = [brightness * c for c in (235, 190, 160)]
    youth = ((30, 22, 18), (92, 58, 30), (200, 160, 90))[rng.integers(3)]
    hair = [(1 - grey) * c + grey * 205 for c in youth]
    tones = [near(rng, skin, 0.05), near(rng, [0.75 * c for c in skin], 0.05), near(rng, hair, 0.08), (240, 240, 240)]
    tones += [near(rng, (60, 50, 40), 0.3), near(rng, (170, 70, 70), 0.2), near(rng, GREY, 0.8)]
    canvas = blotches(rng, 2 * side, 2 * side, near(rng, GREY, 0.8), uniform(rng, 0, 0.5))
    centre = uniform(rng, 0.9, 1.1) * side, uniform(rng, 0.9, 1.1) * side
    paint(canvas, features(looks, female), pose(rng, (0.75 * side, 0.95 * side), 10), centre, tones)
    return light(rng, canvas.reduce(2), noise=10)
