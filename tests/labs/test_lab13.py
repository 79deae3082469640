"""Lab 13 on real workers: what the methods send and how far they end from one worker; the frameworks agree."""

import pytest

from labs import lab13_elsewhere as lab
from labs.run import local
from tests.exercises.solved import solved

pytestmark = pytest.mark.workers


def test_methods_send_less_and_only_two_repeat_one_worker():
    record = local.run(lab, ["--rounds", "3"], workers=2, oversubscribe=True)
    messages = {row["method"]: row for row in record["tables"]["messages"]}
    plain = messages["plain"]
    assert plain["bytes_per_step"] == 4 * record["metrics"]["parameters"]
    assert plain["exchanges_per_step"] == 1
    assert 2 * messages["fp16"]["bytes_per_step"] == plain["bytes_per_step"]
    for name in ("accumulation", "local SGD"):
        assert 4 * messages[name]["bytes_per_step"] == plain["bytes_per_step"]
        assert messages[name]["exchanges_per_step"] == 0.25
    assert messages["SyncBN"]["exchanges_per_step"] == 5
    assert messages["SyncBN"]["bytes_per_step"] - messages["batch norm"]["bytes_per_step"] == 2 * 4 * 2 * (16 + 32)
    far = {name: row["distance"] for name, row in messages.items()}
    assert far["plain"] < far["fp16"] < 0.01 < min(far["local SGD"], far["accumulation"], far["batch norm"])
    assert far["SyncBN"] < far["batch norm"] / 5, "rounding may switch a ReLU, which is as much as 0.4 %"
    solved("lab13.q1", "lab13.q2", "lab13.q3")


def test_frameworks_end_with_the_same_weights_or_say_what_is_missing():
    record = local.run(lab, ["--study", "frameworks"], workers=1)
    horovod, *others = record["tables"]["frameworks"]
    assert (horovod["skipped"], horovod["workers"], horovod["difference"]) == ("", 2, 0)
    for row in others:
        assert ("is not installed" in row["skipped"] and not lab.FRAMES.exists()) or row["difference"] < 1e-5
