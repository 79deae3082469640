"""Random images that cost nothing to read: the control for an input measurement."""

from __future__ import annotations

import numpy as np


class Noise:
    """Random images without input cost: each batch is the same block of memory.

    Training on them runs at the speed of the model alone; a run on real images that is slower waits for its input.

    Args:
        count: Number of images.
        image_size: Their width and height in pixels.
        seed: Seed of the pixels.
    """

    dtype = np.dtype(np.uint8)
    BLOCK = 1024

    def __init__(self, count: int, image_size: int, seed: int):
        self.shape = (count, image_size, image_size, 3)
        block = (min(count, self.BLOCK), *self.shape[1:])
        self._pixels = np.random.default_rng(seed).integers(0, 256, block, np.uint8)
        self.digest = repr((self.shape, seed)).encode()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return one image per row [k], whichever rows they are: uint8 [k, size, size, 3]."""
        if len(rows) > len(self._pixels):
            return np.resize(self._pixels, (len(rows), *self.shape[1:]))
        return self._pixels[: len(rows)]
