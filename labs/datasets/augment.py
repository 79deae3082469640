"""Augment training images: flip, shift, rotate, zoom, identically for any number of workers."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Augment:
    """How much training images are augmented."""

    flip: bool = True
    """Mirror half of the images, left to right."""
    shift: float = 0.1
    """Move by up to this share of the side, each way."""
    rotation: float = 0.0
    """Rotate by up to this many degrees, each way."""
    zoom: float = 0.0
    """Enlarge or shrink by up to this share."""

    @property
    def interpolates(self) -> bool:
        """Whether pixels move by fractions of a pixel: interpolation takes far longer than moving whole pixels."""
        return bool(self.rotation or self.zoom)


def random_params(n: int, seed: int, epoch: int) -> np.ndarray:
    """Return each image's random augmentation parameters in an epoch: float32 [n, 5] in [-1, 1).

    They belong to an image's position, not to a worker: 2 workers with batch size 32 see what 1 sees with 64.
    """
    generator = np.random.Generator(np.random.PCG64([seed, epoch, 1]))
    return generator.random((n, 5), np.float32) * 2 - 1


def _flips_and_shifts(params: np.ndarray, augment: Augment, height: int, width: int) -> tuple[np.ndarray, ...]:
    """Return for parameters [k, 5]: whether to flip, and the shift down and right in whole pixels."""
    shifts = np.rint(params[:, 1:3] * augment.shift * (height, width)).astype(int)
    return (params[:, 0] < 0) & augment.flip, shifts[:, 0], shifts[:, 1]


def flip_and_shift(images: np.ndarray, params: np.ndarray, augment: Augment) -> np.ndarray:
    """Return augmented images [k, height, width, channels]: out[y, x] = mirrored[y + down, x + right].

    Exposed edges are filled with the nearest pixels.
    """
    augmented = np.empty_like(images)
    moves = _flips_and_shifts(params, augment, *images.shape[1:3])
    for image, out, *move in zip(images, augmented, *moves, strict=True):
        _flip_and_shift(image, out, *move)
    return augmented


def _flip_and_shift(image: np.ndarray, out: np.ndarray, flip: bool, down: int, right: int) -> None:
    height, width, channels = image.shape
    top, bottom = max(0, -down), height - max(0, down)
    left, end = max(0, -right), width - max(0, right)
    source = (image[:, ::-1] if flip else image)[top + down : bottom + down, left + right : end + right]
    target = out[top:bottom, left:end]
    if flip:  # With a negative stride, numpy is ten times as fast one channel at a time.
        for channel in range(channels):
            target[..., channel] = source[..., channel]
    else:
        target[...] = source
    out[:top], out[bottom:] = out[top], out[bottom - 1]
    out[:, :left], out[:, end:] = out[:, left : left + 1], out[:, end - 1 : end]


def matrices(params: np.ndarray, augment: Augment, height: int, width: int) -> np.ndarray:
    """Return float32 [k, 8] for `ImageProjectiveTransformV3`, which maps output coordinates to input coordinates.

    It includes mirroring and shifts, by the same parameters [k, 5] as in `flip_and_shift`.
    """
    flip, down, right = _flips_and_shifts(params, augment, height, width)
    sign = np.where(flip, -1, 1)
    angle, scale = np.deg2rad(augment.rotation * params[:, 3]), 1 + augment.zoom * params[:, 4]
    cos, sin = np.cos(angle) * scale, np.sin(angle) * scale
    middle_y, middle_x = (height - 1) / 2, (width - 1) / 2
    y, x = down - middle_y, sign * (right - middle_x)
    rows = [cos * sign, -sin, cos * x - sin * y + middle_x, sin * sign, cos, sin * x + cos * y + middle_y]
    return np.stack([*rows, np.zeros(len(params)), np.zeros(len(params))], axis=1).astype(np.float32)
