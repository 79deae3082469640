"""Lab 2: the plain script and its ten lines, the study of wrong shards, and a run of the kit's loop."""

import dataclasses

import numpy as np
import pytest

from labs import lab02_horovod as lab
from labs.pages import lab02 as page
from labs.run import local
from labs.run.paths import ROOT
from tests.exercises.solved import solved, with_solutions


@with_solutions
@pytest.mark.workers
def test_ten_lines_let_two_workers_compute_what_one_computes(tmp_path, monkeypatch):
    """As it is, two workers train two models with the plain script. The page runs a script of one's own."""
    plain, finished = ((ROOT / path).read_text() for path in ("examples/plain/train.py", "solutions/train.py"))
    before, after = ({line.strip() for line in text.partition('"""\n\n')[2].splitlines()} for text in (plain, finished))
    assert len(after - before) == 10
    assert all("# Horovod: " in line for line in after - before)
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    train = page.prepare_scripts() / "train.py"
    copies = page.run_command("horovodrun -np 2 python plain.py --epochs 1")
    assert [each.steps for each in copies] == [44, 44]
    train.write_text(finished)
    page.prepare_scripts()
    assert train.read_text() == finished, "a student's file is kept"
    (one,) = page.run_command("horovodrun -np 1 python train.py --epochs 2 --batch-size 64 --base-lr 0.002")
    (two,) = page.run_command("horovodrun -np 2 python train.py --epochs 2")
    assert two.steps == one.steps == 22
    assert two.loss == pytest.approx(one.loss, rel=1e-3)
    (line,) = (line for line in finished.splitlines(keepends=True) if "order[hvd.rank()" in line)
    train.write_text(finished.replace(line, ""))
    (bad,) = page.run_command("horovodrun -np 2 python train.py --epochs 2")
    assert bad.loss != pytest.approx(one.loss, rel=0.01), "the page's assertion notices it"


@pytest.mark.parametrize(("order", "reshuffle", "per_epoch", "ever"), [
    ("sharded", True, 1024, 1024), ("own_seeds", False, 700, 700), ("unsharded", True, 256, 1024)])
def test_wrong_shards_miss_images(order, reshuffle, per_epoch, ever):
    """Own seeds see 1 - (3/4)^4 = 68 % of 1,024 images."""
    study = dataclasses.replace(lab.PRESETS["laptop"], code="textbook", order=order, reshuffle=reshuffle)
    epochs = [lab.divide_images(study, 1024, range(lab.RANKS), 128, epoch).rows for epoch in range(40)]
    assert len(np.unique(epochs[0])) == pytest.approx(per_epoch, rel=0.03)
    assert len(np.unique(epochs)) == pytest.approx(ever, rel=0.03)


@pytest.mark.workers
def test_the_study_is_the_same_on_one_worker_and_on_two():
    one, two = (local.run(lab, ["--code", "textbook", "--epochs", "2", "--order", "own_seeds",
                                "--batch-size", str(128 // size)], workers=size, oversubscribe=True)
                for size in (1, 2))
    assert two["metrics"]["test_loss"] == pytest.approx(one["metrics"]["test_loss"], rel=1e-3)


@pytest.mark.everyday
@pytest.mark.workers
def test_two_workers_with_the_kit_learn_the_digits():
    record = local.run(lab, ["--epochs", "4"], workers=2, oversubscribe=True)
    row = record["history"][-1]
    assert row["learning_rate"] == pytest.approx(2 * record["config"]["base_lr"])
    assert row["steps"] == -(-row["images"] // 64)
    assert record["metrics"]["test_accuracy"] > 0.85
    solved("lab02.q3", "lab02.q4")
