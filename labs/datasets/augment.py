"""Varied copies of the training images, the same ones however many workers there are."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Augment:
    """How much training images are varied; edges are filled with the nearest pixels."""

    flip: bool = True
    """Mirror every second image, left to right."""
    shift: float = 0.1
    """Move by up to this share of the side, each way."""
    rotation: float = 0.0
    """Turn by up to this many degrees, each way."""
    zoom: float = 0.0
    """Enlarge or shrink by up to this share."""

    @property
    def turns(self) -> bool:
        """Whether pixels fall between pixels, which takes far longer."""
        return bool(self.rotation or self.zoom)


def random_params(n: int, seed: int, epoch: int) -> np.ndarray:
    """Return the luck of each of `n` images in an epoch: float32 [n, 5] on [-1, 1).

    It belongs to an image's position, not to a worker: 2 workers with batch 32 see what 1 sees with 64.
    """
    generator = np.random.Generator(np.random.PCG64([seed, epoch, 1]))
    return generator.random((n, 5), np.float32) * 2 - 1


def _moves(draws: np.ndarray, augment: Augment, height: int, width: int) -> tuple[np.ndarray, ...]:
    """Flip or not, and shift down and right in whole pixels, of images with these draws [k, 5]."""
    shifts = np.rint(draws[:, 1:3] * augment.shift * (height, width)).astype(int)
    return (draws[:, 0] < 0) & augment.flip, shifts[:, 0], shifts[:, 1]


def flip_and_shift(images: np.ndarray, draws: np.ndarray, augment: Augment) -> np.ndarray:
    """Return varied images [k, height, width, channels]: out[y, x] = mirrored[y + down, x + right]."""
    varied = np.empty_like(images)
    for image, out, *move in zip(images, varied, *_moves(draws, augment, *images.shape[1:3]), strict=True):
        _flip_and_shift(image, out, *move)
    return varied


def _flip_and_shift(image: np.ndarray, out: np.ndarray, flip: bool, down: int, right: int) -> None:
    height, width, channels = image.shape
    top, bottom = max(0, -down), height - max(0, down)
    left, end = max(0, -right), width - max(0, right)
    source = (image[:, ::-1] if flip else image)[top + down : bottom + down, left + right : end + right]
    target = out[top:bottom, left:end]
    if flip:  # Backwards, numpy is ten times as fast one channel at a time.
        for channel in range(channels):
            target[..., channel] = source[..., channel]
    else:
        target[...] = source
    out[:top], out[bottom:] = out[top], out[bottom - 1]
    out[:, :left], out[:, end:] = out[:, left : left + 1], out[:, end - 1 : end]


def matrices(draws: np.ndarray, augment: Augment, height: int, width: int) -> np.ndarray:
    """Return float32 [k, 8] for `ImageProjectiveTransformV3`: from places in the result to the image's."""
    flip, down, right = _moves(draws, augment, height, width)
    sign = np.where(flip, -1, 1)
    angle, scale = np.deg2rad(augment.rotation * draws[:, 3]), 1 + augment.zoom * draws[:, 4]
    cos, sin = np.cos(angle) * scale, np.sin(angle) * scale
    middle_y, middle_x = (height - 1) / 2, (width - 1) / 2
    y, x = down - middle_y, sign * (right - middle_x)
    rows = [cos * sign, -sin, cos * x - sin * y + middle_x, sin * sign, cos, sin * x + cos * y + middle_y]
    return np.stack([*rows, np.zeros(len(draws)), np.zeros(len(draws))], axis=1).astype(np.float32)
