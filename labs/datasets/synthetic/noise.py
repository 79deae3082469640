"""Pictures that need no input: the control of a measurement."""

from __future__ import annotations

import numpy as np


class Noise:
    """Random pictures that cost nothing to read: one block of memory, shown again and again.

    A run on them trains at the speed of the model alone; a run on real pictures that is slower waits for its input.

    Args:
        count: How many pictures there seem to be.
        image_size: Their side in pixels.
        seed: Of the pixels.
    """

    dtype = np.dtype(np.uint8)
    BLOCK = 1024

    def __init__(self, count: int, image_size: int, seed: int):
        self.shape = (count, image_size, image_size, 3)
        held = (min(count, self.BLOCK), *self.shape[1:])
        self._pixels = np.random.default_rng(seed).integers(0, 256, held, np.uint8)
        self.digest = repr((self.shape, seed)).encode()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return as many pictures as there are rows [k], whichever they are: uint8 [k, size, size, 3]."""
        if len(rows) > len(self._pixels):
            return np.resize(self._pixels, (len(rows), *self.shape[1:]))
        return self._pixels[: len(rows)]
