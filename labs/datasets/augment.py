"""Augment training images: flip and shift, identically for any number of workers."""

import dataclasses

import cv2
import numpy as np


@dataclasses.dataclass(frozen=True)
class Augment:
    """How much training images are augmented."""

    flip: bool = True  # Mirror half of the images, left to right.
    shift: float = 0.1  # Move by up to this share of the side, each way, in whole pixels.


def random_params(n: int, seed: int, epoch: int) -> np.ndarray:
    """Return each image's random augmentation parameters in an epoch: float32 [n, 3] in [-1, 1).

    They belong to an image's position, not to a worker: 2 workers with batch size 32 see what 1 sees with 64.
    """
    generator = np.random.Generator(np.random.PCG64([seed, epoch, 1]))
    return generator.random((n, 5), np.float32)[:, :3] * 2 - 1  # The last two were once a rotation and a zoom.


def flip_and_shift(images: np.ndarray, params: np.ndarray, augment: Augment) -> np.ndarray:
    """Return augmented images [k, height, width, channels]: out[y, x] = mirrored[y + down, x + right].

    Exposed edges are filled with the nearest pixels.
    """
    augmented = np.empty_like(images)
    flips = (params[:, 0] < 0) & augment.flip
    shifts = np.rint(params[:, 1:] * augment.shift * images.shape[1:3]).astype(int)
    for image, out, flip, (down, right) in zip(images, augmented, flips, shifts, strict=True):
        height, width = image.shape[:2]
        mirrored = cv2.flip(image, 1) if flip else image
        source = mirrored[max(0, down) : height + min(0, down), max(0, right) : width + min(0, right)]
        edges = (max(0, -down), max(0, down), max(0, -right), max(0, right))
        out[...] = cv2.copyMakeBorder(source, *edges, cv2.BORDER_REPLICATE).reshape(out.shape)
    return augmented
