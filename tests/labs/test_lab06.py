"""Lab 6: what does not fit is a result; workers hold the whole network; what helps is measured."""

import dataclasses

import pytest

from labs import lab06_memory as lab
from labs.measure import memory
from labs.run import local, resources
from tests.exercises.solved import solved

TINY = dataclasses.replace(lab.PRESETS["demo"], depth=5, width=4, images=32, image_size=32, batch_size=16, epochs=2)


@pytest.mark.workers
def test_two_workers_train_in_pieces_and_what_does_not_fit_is_a_record(capsys):
    record = local.run(lab, dataclasses.replace(TINY, remedy="pieces"), workers=2, oversubscribe=True)
    assert record["metrics"]["fits"]
    assert not record["machine"]["onednn"], "its copies would hide what a remedy saves"
    assert 200 < record["metrics"]["peak_mb"] < TINY.memory_limit_mb
    assert [row["steps"] for row in record["history"]] == [1, 1], "pieces do not make more steps"
    assert 20.17 < record["metrics"]["test_psnr"] < 22.2, "the noise alone has 20 log10(255 / 25)"
    solved("lab06.q1", "lab06.q2")
    small = local.run(lab, dataclasses.replace(TINY, memory_limit_mb=100), workers=2, oversubscribe=True)
    assert "does not fit: more than 100 MiB" in capsys.readouterr().out
    assert (small["history"], small["metrics"]["fits"]) == ([], False)
    assert small["metrics"]["parameters"] == record["metrics"]["parameters"] == lab.parameters(TINY)


@pytest.mark.slow
def test_the_search_finds_the_largest_batch():
    fits = dataclasses.replace(TINY, depth=4, width=16, batch_size=200, threads=0)
    limit = round(memory.probe(lab.one_step, fits, resources.cores()).peak_mb)
    record = lab.run(dataclasses.replace(fits, search="batch_size", memory_limit_mb=limit, batch_size=110))
    result = record["metrics"]["largest_batch_size"]
    assert result == max(row["batch_size"] for row in record["tables"]["trials"] if row["fits"])
    assert result == pytest.approx(200, rel=0.15)
    solved("lab06.q3")
