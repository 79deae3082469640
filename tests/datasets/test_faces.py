"""Faces with ages: what cannot be used is left out and counted, what is left is divided; and the control, noise."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from labs.datasets import splits
from labs.datasets.arrays import is_aligned
from labs.datasets.image_cache import ImageCache
from labs.datasets.sharding import coverage, shard
from labs.run.errors import LabError

SOUND = 60


@pytest.fixture
def wiki(tmp_path):
    """A folder with a row of every kind that IMDB-WIKI has: SOUND faces aged 20 to 79, and eight that are of no use."""
    root = tmp_path / "wiki"
    (root / "00").mkdir(parents=True)
    names = [f"00/{k}_1930-01-01_2000.jpg" for k in range(SOUND + 8)]
    for k, name in enumerate(names):
        Image.fromarray(np.full((20, 24, 3), 3 * k, np.uint8)).save(root / name)
    born = np.array([(np.datetime64(f"{1980 - k}-01-01") - np.datetime64("1970-01-01")).astype(int)
                     for k in range(SOUND)] + 8 * [0], float) + 719_529
    score, second = np.full(SOUND + 8, 2.0), np.full(SOUND + 8, np.nan)
    born[SOUND], born[SOUND + 1] = 47, np.inf  # Of year 0; and no date.
    born[SOUND + 2], score[SOUND + 2] = 719_529 + 365 * 60, -np.inf  # Not born yet, and no face: one row, counted once.
    second[SOUND + 3] = 2.5
    (root / names[SOUND + 4]).write_bytes(b"")
    whole = (root / names[SOUND + 5]).read_bytes()
    (root / names[SOUND + 5]).write_bytes(whole[: len(whole) // 2])
    Image.new("RGB", (1, 1)).save(root / names[SOUND + 6])
    (root / names[SOUND + 7]).unlink()
    columns = {"dob": born, "photo_taken": np.full(SOUND + 8, 2000.0), "face_score": score, "second_face_score": second}
    struct = {name: column[None] for name, column in columns.items()}
    savemat(root / "wiki.mat", {"wiki": struct | {"full_path": np.array([names], object)}})
    return root


def test_what_cannot_be_used_is_left_out_and_every_row_counted_once(wiki):
    faces = splits.from_faces(wiki, 16, 0.2, 0.2, seed=1)
    assert faces.description.splitlines()[0] == (
        "60 faces of 68, aged 20 to 79; left out: 1 no face, 1 two faces, 2 absurd age, 4 undecodable"
    )
    assert faces.class_names == ()


def test_a_face_keeps_its_age(wiki):
    faces = splits.from_faces(wiki, 16, 0.2, 0.2, seed=1)
    positions = np.sort(np.concatenate([part.positions for part in (faces.train, faces.validation, faces.test)]))
    assert positions.tolist() == list(range(SOUND)), "every face is in one part"
    assert faces.train.labels.dtype == np.float32
    brightness = faces.train.images[positions].mean((1, 2, 3))
    np.testing.assert_allclose(brightness, 3 * (faces.train.labels[positions] - 20), atol=1.5)


def test_a_set_without_a_usable_face_is_refused(wiki):
    mat = {name: np.array([[value]], float) for name, value in
           {"dob": 719_529, "photo_taken": 1969, "face_score": 2, "second_face_score": np.nan}.items()}
    savemat(wiki / "wiki.mat", {"wiki": mat | {"full_path": np.array([["00/a.jpg"]], object)}})
    with pytest.raises(LabError, match=r"none of the 1 faces of .* can be used; fetch or copy"):
        splits.from_faces(wiki, 16, 0.2, 0.2, seed=1)


def test_uncached_pictures_are_decoded_each_time_also_after_a_cached_run(wiki):
    rows = np.arange(5)
    cached = splits.from_faces(wiki, 16, 0.2, 0.2, seed=1).train.images
    assert isinstance(cached, ImageCache)
    first = cached[rows]
    uncached = splits.from_faces(wiki, 16, 0.2, 0.2, seed=1, cached=False).train.images
    assert (cached.decoded, uncached.decoded) == (60, 0)  # The check keeps what it decodes.
    assert np.array_equal(uncached[rows], first)
    assert uncached.decoded == 0
    (wiki / uncached.paths[0]).write_bytes(b"")
    assert np.array_equal(cached[rows], first)
    with pytest.raises(LabError, match="cannot decode"):
        uncached[rows]


def test_random_images_are_pictures_without_input_cost():
    noise = splits.from_noise(3000, 16, seed=1)
    assert (len(noise.train), len(noise.validation), len(noise.test)) == (3000, 0, 0)
    assert noise.train.images[noise.train.positions].shape == (3000, 16, 16, 3)
    assert noise.train.labels.dtype == np.float32
    assert is_aligned(noise.train.images), "read where they lie"
    all_ = [shard(noise.train.positions, 32, rank, 2, 0, 1) for rank in range(2)]
    assert coverage(all_, noise.train.positions).startswith("epoch 1: 3000 of 3000 training images used once")
