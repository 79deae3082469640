"""Images generated from seeds: objects on a background, fruits on white, faces of a given age.

Pixels are computed from integers, sums and products only, because these are the same on every processor.
"""

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

MAIN, SECOND, DARK, LIGHT = range(4)  # The four tones of an object: its two colours, a dark and a light one.
SKIN, SHADE, HAIR, WHITE, IRIS, LIPS, CLOTH = range(7)  # The tones of a face.
GREY = (128, 128, 128)
Polygon = tuple[list[tuple[float, float]], int]
"""Points in [-1, 1] with y downwards, and a tone. An object is a list of polygons, painted in order."""
Colour = Sequence[float]  # Red, green, blue; 0 to 255.
Pose = tuple[float, float, float, float]  # A 2 x 2 matrix.


def turn(degrees: float) -> tuple[float, float]:
    """Return cosine and sine, rounded: the last bit of a cosine differs between processors."""
    angle = math.radians(degrees)
    return round(math.cos(angle), 6), round(math.sin(angle), 6)


def poly(tone: int, *xy: float) -> Polygon:
    return list(zip(xy[::2], xy[1::2], strict=True)), tone


def box(tone: int, x0: float, y0: float, x1: float, y1: float) -> Polygon:
    return poly(tone, x0, y0, x1, y0, x1, y1, x0, y1)


def oval(tone: int, x: float, y: float, rx: float, ry: float, start: int = 0, stop: int = 360) -> Polygon:
    """Return an ellipse, or a slice of one, as a polygon; angles in degrees from the right, clockwise."""
    return [(x + rx * c, y + ry * s) for c, s in map(turn, range(start, stop + 1, 15))], tone


def bar(tone: int, x0: float, y0: float, x1: float, y1: float, width: float) -> Polygon:
    long = abs(x1 - x0) + abs(y1 - y0)
    dx, dy = (y1 - y0) / long * width / 2, (x0 - x1) / long * width / 2
    return poly(tone, x0 + dx, y0 + dy, x1 + dx, y1 + dy, x1 - dx, y1 - dy, x0 - dx, y0 - dy)


def star(tone: int, points: int, inner: float) -> Polygon:
    """Return a star with this many points; `inner` is the radius between them."""
    corners = [turn(180 * k / points - 90) for k in range(2 * points)]
    return [(c * r, s * r) for (c, s), r in zip(corners, [1, inner] * points, strict=True)], tone


def legs(tone: int, *xs: float) -> list[Polygon]:
    return [bar(tone, x, 0.2, x * 1.1, 0.9, 0.14) for x in xs]


def wheels(radius: float, *xs: float) -> list[Polygon]:
    return [oval(tone, x, 0.4, r, r) for x in xs for tone, r in ((DARK, radius), (LIGHT, radius / 2))]


# The objects of the synthetic CIFAR-10 and Caltech256.
OBJECTS: dict[str, list[Polygon]] = {
    "airplane": [poly(SECOND, -0.05, 0, 0.2, 0, -0.2, -0.5, -0.35, -0.5), oval(MAIN, 0, 0, 0.95, 0.15),
        poly(SECOND, -0.1, 0.02, 0.25, 0.02, -0.15, 0.7, -0.4, 0.7),
        poly(SECOND, -0.95, 0, -0.6, -0.05, -0.8, -0.4, -1, -0.4), bar(DARK, -0.4, -0.05, 0.6, -0.05, 0.06)],
    "ketch": [poly(MAIN, -0.85, 0.5, 0.9, 0.45, 0.55, 0.85, -0.6, 0.85), bar(DARK, 0, 0.5, 0, -0.95, 0.06),
        poly(SECOND, 0.06, -0.9, 0.06, 0.38, 0.75, 0.38), poly(LIGHT, -0.06, -0.7, -0.06, 0.38, -0.6, 0.38)],
    "starfish": [star(MAIN, 5, 0.4),
        *[oval(SECOND, 0.5 * c, 0.5 * s, 0.08, 0.08) for c, s in map(turn, range(-90, 270, 72))]],
    "sunflower": [bar(SECOND, 0, 0, 0.1, 1.3, 0.12), star(MAIN, 13, 0.62), oval(DARK, 0, 0, 0.42, 0.42)],
    "bottle": [box(DARK, -0.12, -1, 0.12, -0.8),
        poly(MAIN, -0.1, -0.85, 0.1, -0.85, 0.1, -0.45, 0.3, -0.2, 0.3, 0.95, -0.3, 0.95, -0.3, -0.2, -0.1, -0.45),
        box(LIGHT, -0.3, 0.1, 0.3, 0.55), bar(SECOND, -0.2, 0.33, 0.2, 0.33, 0.1)],
    "mug": [oval(MAIN, 0.45, 0.05, 0.4, 0.4), oval(DARK, 0.45, 0.05, 0.22, 0.24), box(MAIN, -0.65, -0.55, 0.4, 0.7),
        oval(DARK, -0.12, -0.55, 0.52, 0.14), box(SECOND, -0.65, 0.0, 0.4, 0.25)],
    "watch": [box(SECOND, -0.24, -1.05, 0.24, 1.05), oval(MAIN, 0, 0, 0.6, 0.6), oval(LIGHT, 0, 0, 0.46, 0.46),
        bar(DARK, 0, 0, 0, -0.36, 0.08), bar(DARK, 0, 0, 0.26, 0.12, 0.08)],
    "tire": [oval(DARK, 0, 0, 0.95, 0.95), oval(SECOND, 0, 0, 0.62, 0.62),
        *[bar(MAIN, 0, 0, 0.58 * c, 0.58 * s, 0.14) for c, s in map(turn, range(0, 360, 72))],
        oval(DARK, 0, 0, 0.16, 0.16)],
    "umbrella": [bar(DARK, 0, -0.4, 0, 0.85, 0.07), bar(DARK, 0, 0.85, 0.22, 0.75, 0.07),
        oval(MAIN, 0, 0.05, 0.95, 0.8, 180, 360), poly(SECOND, 0, -0.75, -0.6, 0.05, -0.25, 0.05),
        poly(SECOND, 0, -0.75, 0.6, 0.05, 0.25, 0.05)],
    "mushroom": [poly(LIGHT, -0.22, -0.1, 0.22, -0.1, 0.32, 0.9, -0.32, 0.9), oval(MAIN, 0, 0.05, 0.9, 0.75, 180, 360),
        *[oval(SECOND, x, y, 0.12, 0.1) for x, y in ((-0.5, -0.15), (0, -0.4), (0.45, -0.2))]],
    "automobile": [poly(MAIN, -0.55, 0, -0.35, -0.42, 0.35, -0.42, 0.62, 0), box(MAIN, -0.95, -0.05, 0.95, 0.35),
        poly(LIGHT, -0.4, -0.03, -0.27, -0.33, 0.28, -0.33, 0.45, -0.03), *wheels(0.22, -0.55, 0.55)],
    "truck": [box(MAIN, -0.95, -0.65, 0.35, 0.35), poly(SECOND, 0.4, -0.35, 0.7, -0.35, 0.95, 0, 0.95, 0.35, 0.4, 0.35),
        poly(LIGHT, 0.48, -0.25, 0.66, -0.25, 0.8, 0, 0.48, 0), *wheels(0.2, -0.7, -0.2, 0.65)],
    "ship": [poly(MAIN, -0.95, 0.25, 0.95, 0.2, 0.7, 0.7, -0.75, 0.7), box(LIGHT, -0.5, -0.15, 0.4, 0.25),
        box(SECOND, -0.2, -0.6, 0.05, -0.15), bar(DARK, 0.3, 0.2, 0.3, -0.7, 0.06)],
    "bird": [poly(MAIN, -0.5, 0, -1, -0.2, -0.95, 0.2), oval(MAIN, 0, 0.05, 0.6, 0.35),
        oval(MAIN, 0.55, -0.3, 0.26, 0.24), poly(SECOND, 0.78, -0.36, 1.05, -0.25, 0.78, -0.2),
        oval(SECOND, -0.1, 0, 0.4, 0.2), bar(DARK, 0, 0.35, 0.05, 0.8, 0.06)],
    "cat": [bar(MAIN, -0.6, 0.3, -0.95, -0.4, 0.15), oval(MAIN, -0.2, 0.4, 0.55, 0.42),
        poly(MAIN, 0.05, -0.3, 0.1, -0.85, 0.4, -0.5), poly(MAIN, 0.75, -0.3, 0.75, -0.85, 0.4, -0.5),
        oval(MAIN, 0.4, -0.2, 0.4, 0.36), oval(LIGHT, 0.26, -0.25, 0.08, 0.08), oval(LIGHT, 0.55, -0.25, 0.08, 0.08),
        *legs(MAIN, -0.4, 0.15)],
    "dog": [bar(MAIN, -0.6, 0.2, -0.9, -0.2, 0.14), oval(MAIN, -0.15, 0.3, 0.6, 0.36),
        oval(MAIN, 0.45, -0.25, 0.36, 0.36), oval(SECOND, 0.12, -0.15, 0.13, 0.36),
        oval(SECOND, 0.75, -0.15, 0.12, 0.34), oval(LIGHT, 0.48, -0.02, 0.2, 0.16), oval(DARK, 0.48, -0.08, 0.08, 0.07),
        *legs(MAIN, -0.55, 0.2)],
    "deer": [*legs(MAIN, -0.45, -0.25, 0.2, 0.4), oval(MAIN, -0.05, 0.15, 0.55, 0.25),
        bar(MAIN, 0.35, 0.1, 0.55, -0.4, 0.2), oval(MAIN, 0.65, -0.42, 0.22, 0.13),
        bar(SECOND, 0.55, -0.5, 0.4, -0.95, 0.07), bar(SECOND, 0.6, -0.5, 0.75, -0.95, 0.07),
        bar(SECOND, 0.45, -0.75, 0.25, -0.8, 0.07), bar(SECOND, 0.7, -0.75, 0.92, -0.8, 0.07)],
    "horse": [*legs(MAIN, -0.5, -0.3, 0.25, 0.45), oval(MAIN, -0.05, 0.1, 0.65, 0.3),
        poly(MAIN, 0.3, 0.15, 0.65, 0.1, 0.75, -0.55, 0.5, -0.6), oval(MAIN, 0.75, -0.5, 0.28, 0.14),
        bar(DARK, 0.35, -0.05, 0.5, -0.65, 0.12), bar(DARK, -0.65, 0, -0.85, 0.5, 0.14)],
    "frog": [oval(SECOND, -0.65, 0.4, 0.3, 0.22), oval(SECOND, 0.65, 0.4, 0.3, 0.22), oval(MAIN, 0, 0.2, 0.75, 0.42),
        oval(MAIN, -0.35, -0.2, 0.2, 0.2), oval(MAIN, 0.35, -0.2, 0.2, 0.2), oval(LIGHT, -0.35, -0.22, 0.12, 0.12),
        oval(LIGHT, 0.35, -0.22, 0.12, 0.12), bar(DARK, -0.4, 0.25, 0.4, 0.25, 0.05)],
}


def generator(*key: int) -> np.random.Generator:
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
    """Return an image of an object of OBJECTS (None: only clutter) on a background.

    The colours are typical ones of the background, of the object and of its second tone; `near` explains `spread`.
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
    """Return a fruit on white, 100 x 100 pixels, lit from one side; `blush` covers about `share` of its skin.

    `freckles` is the share of pixels that are freckles, `shape` half its width and height in units of half the image.
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
    """Return a face that looks up to six years younger or older than its age, `side` pixels wide and high."""
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
