"""Lab 5: bandwidths, bytes and messages of real workers."""

import pytest

from labs import lab05_allreduce as lab
from labs.run import local
from tests.exercises.solved import solved

pytestmark = pytest.mark.workers


def test_horovod_and_raw_mpi_are_in_one_table():
    record = local.run(lab, ["--largest-mb", "0.25", "--seconds", "1"], workers=2, oversubscribe=True)
    rows = record["tables"]["collectives"]
    assert record["layout"]["backend"] == "MPI"
    assert {row["library"] for row in rows} == {"Horovod over MPI", "raw MPI"}
    assert [row["bytes"] for row in rows if row["library"] == "raw MPI"] == [8] + [4**n for n in range(2, 10)]
    for row in rows:
        assert row["seconds_low"] <= row["seconds"] <= row["seconds_high"]
        assert row["repeats"] >= 10, "a median of fewer is no better than its luckiest repeat"
        assert row["busbw"] == pytest.approx(row["bytes"] / row["seconds"]), "2 (N - 1) / N is 1"
    (small, *_, large) = [row for row in rows if row["library"] == "Horovod over MPI"]
    assert record["metrics"]["latency_seconds"] == small["seconds"], "not raw MPI's, whose name also ends in MPI"
    assert record["metrics"]["busbw_gb_per_sec"] == large["busbw"] / 1e9
    solved("lab05.q1")


@pytest.mark.alone
def test_bytes_on_the_wire_of_training_steps():
    for options, nbytes in (["--fp16-allreduce"], 2), ([], 4):
        record = local.run(lab, ["--study", "traffic", "--backend", "gloo", *options], workers=2, oversubscribe=True)
        assert record["metrics"]["gradient_bytes"] == nbytes * 246_682
        for row in record["tables"]["wire"]:
            assert row["predicted_bytes_per_step"] == 2 * nbytes * 246_682
            assert abs(row["difference"]) < 0.05
    solved("lab05.q2", "lab05.q3")


def test_messages_of_an_epoch_and_what_gradients_leave_different():
    record = local.run(lab, ["--study", "messages"], workers=2, oversubscribe=True)
    metrics, by_kind = record["metrics"], {row["kind"]: row for row in record["tables"]["messages"]}
    assert by_kind["gradients"]["bytes"] == record["history"][0]["steps"] * metrics["gradient_bytes"]
    assert by_kind["gradients"]["messages"] < by_kind["gradients"]["exchanges"], "tensors were fused"
    assert by_kind["batch-norm statistics"]["bytes"] == 4 * 736
    assert metrics["spread_of_weights"] == metrics["spread_of_statistics_after"] == 0
    assert metrics["spread_of_statistics_before"] > 1e-3
    assert metrics["accuracy_weighted_mean"] == pytest.approx(metrics["accuracy_of_all"], abs=1e-9)
    assert abs(metrics["accuracy_plain_mean"] - metrics["accuracy_of_all"]) > 1e-4
    solved("lab05.q4")
