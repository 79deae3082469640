"""The objects of the synthetic CIFAR-10 and Caltech256, as polygons.

An object is a list of polygons, painted in order. A polygon is its points, in [-1, 1] with y downwards, and its tone.
"""

from __future__ import annotations

import math

MAIN, SECOND, DARK, LIGHT = range(4)  # The four tones of an object: its two colours, a dark and a light one.
Polygon = tuple[list[tuple[float, float]], int]


def turn(degrees: float) -> tuple[float, float]:
    """Return cosine and sine, rounded: the last bit of a cosine differs between processors."""
    angle = math.radians(degrees)
    return round(math.cos(angle), 6), round(math.sin(angle), 6)


def poly(tone: int, *xy: float) -> Polygon:
    """Return the polygon with these points: x, y, x, y, ..."""
    return list(zip(xy[::2], xy[1::2], strict=True)), tone


def box(tone: int, x0: float, y0: float, x1: float, y1: float) -> Polygon:
    """Return a rectangle with horizontal and vertical sides."""
    return poly(tone, x0, y0, x1, y0, x1, y1, x0, y1)


def oval(tone: int, x: float, y: float, rx: float, ry: float, start: int = 0, stop: int = 360) -> Polygon:
    """Return an ellipse, or a slice of one, as a polygon; angles in degrees from the right, clockwise."""
    return [(x + rx * c, y + ry * s) for c, s in map(turn, range(start, stop + 1, 15))], tone


def bar(tone: int, x0: float, y0: float, x1: float, y1: float, width: float) -> Polygon:
    """Return a thick line."""
    long = abs(x1 - x0) + abs(y1 - y0)
    dx, dy = (y1 - y0) / long * width / 2, (x0 - x1) / long * width / 2
    return poly(tone, x0 + dx, y0 + dy, x1 + dx, y1 + dy, x1 - dx, y1 - dy, x0 - dx, y0 - dy)


def star(tone: int, points: int, inner: float) -> Polygon:
    """Return a star with this many points; `inner` is the radius between them."""
    corners = [turn(180 * k / points - 90) for k in range(2 * points)]
    return [(c * r, s * r) for (c, s), r in zip(corners, [1, inner] * points, strict=True)], tone


def legs(tone: int, *xs: float) -> list[Polygon]:
    """Return a leg at each x."""
    return [bar(tone, x, 0.2, x * 1.1, 0.9, 0.14) for x in xs]


def wheels(radius: float, *xs: float) -> list[Polygon]:
    """Return a wheel at each x."""
    rims = [(DARK, radius), (LIGHT, radius / 2)]
    return [oval(tone, x, 0.4, r, r) for x in xs for tone, r in rims]


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
