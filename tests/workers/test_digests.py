"""Labs 2 and 10 train to the weights that they had when the kit changed over to Keras 3, to the last bit."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

BEFORE = Path(__file__).parents[1] / "results" / "before"
WEIGHTS = json.loads((BEFORE / "weights.json").read_text())


def processor() -> dict[str, str]:
    """Return what rounding depends on: oneDNN and Eigen choose their code by instruction set and cache sizes."""
    lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    values = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    flags = sorted(flag for flag in values.get("flags", "").split() if flag.startswith(("avx", "amx", "fma", "sse4")))
    return {"model": " ".join(values.get(name, "") for name in ("vendor_id", "cpu family", "model")),
            "cache": values.get("cache size", ""), "instructions": " ".join(flags)}


def digest(checkpoint: Path) -> str:
    """Return the SHA-256 of the weights and the optimizer's state in a checkpoint."""
    whole = hashlib.sha256()
    with np.load(checkpoint) as arrays:
        for name in sorted(name for name in arrays.files if name.startswith("v")):
            whole.update(f"{name} {arrays[name].dtype} {arrays[name].shape}\n".encode() + arrays[name].tobytes())
    return whole.hexdigest()


@pytest.mark.everyday
@pytest.mark.skipif(processor() != WEIGHTS["processor"],
                    reason=f"the digests are from a processor that rounds differently: {WEIGHTS['processor']['model']} "
                           f"with {WEIGHTS['processor']['instructions']}")
@pytest.mark.parametrize("lab", WEIGHTS["weights"])
def test_the_weights_are_those_of_before(lab, labs, tmp_path):
    run = labs("run", lab, "--workers", 2, "--epochs", 2, "--seed", 1, "--name", "now")
    _, errors = run.communicate(timeout=300)
    assert run.returncode == 0, errors
    folder = tmp_path / "results" / lab / "now"
    now, before = (json.loads((each / "record.json").read_text()) for each in (folder, BEFORE / lab / "keras3"))
    different = {name: now[part][name] for part in ("layout", "versions") for name in ("threads", "tensorflow", "numpy")
                 if name in now[part] and now[part][name] != before[part][name]}
    if different:
        pytest.skip(f"the digests are from other threads or versions than {different}")
    assert now["config"].items() >= before["config"].items()  # Lab 2 has more options now.
    untimed = [[{name: row[name] for name in row if "seconds" not in name} for row in record["history"]]
               for record in (now, before)]
    assert untimed[0] == untimed[1]
    assert now["metrics"] == before["metrics"]
    assert digest(folder / "checkpoints" / "epoch-00002.npz") == WEIGHTS["weights"][lab]
