"""A notebook run with other parameters: papermill notebooks/lab01_baseline.ipynb out.ipynb -p seed 2"""

import json

import nbformat
import papermill
import pytest

from labs.run.paths import ROOT

SEED = 0  # Which is a seed, too.
SIZES = [32, 128, 512]


@pytest.mark.notebooks
def test_papermill_runs_a_notebook_with_other_parameters(tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path / "results"))
    papermill.execute_notebook(ROOT / "notebooks/lab01_baseline.ipynb", tmp_path / "out.ipynb", cwd=ROOT,
                               parameters={"seed": SEED, "epochs": 3, "batch_sizes": SIZES}, progress_bar=False)
    code = [cell for cell in nbformat.read(tmp_path / "out.ipynb", 4).cells if cell.cell_type == "code"]
    tags = [cell.metadata.get("tags", []) for cell in code]
    assert tags.index(["injected-parameters"]) == tags.index(["parameters"]) + 1
    assert all(cell.execution_count for cell in code)
    records = [json.loads(path.read_text()) for path in (tmp_path / "results").rglob("record.json")]
    assert {record["config"]["seed"] for record in records} == {SEED}
    assert {record["config"]["batch_size"] for record in records} == {128, max(SIZES)}
    pictures = [output for cell in code for output in cell.outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 2, "figures stand below their cells"
