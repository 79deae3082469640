"""A notebook run with other parameters: papermill notebooks/lab01_baseline.ipynb out.ipynb -p seed 2"""

import ast
import json

import nbformat
import papermill
import pytest

from labs.run import catalogue
from labs.run.paths import ROOT
from tests.notebooks import committed

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


@pytest.mark.parametrize("lab", catalogue.lab_names())
def test_zero_is_a_value_of_a_parameter(lab):
    """`seed or config.seed` would train with another seed than `-p seed 0` says."""
    code = [cell for cell in committed.cells(lab) if cell["cell_type"] == "code"]
    parameters, = ("".join(cell["source"]) for cell in code if "parameters" in cell["metadata"].get("tags", []))
    names = {node.id for node in ast.walk(ast.parse(parameters)) if isinstance(node, ast.Name)}
    for cell in code:
        for node in ast.walk(ast.parse("".join(cell["source"]).removeprefix("%%px\n"))):
            assert not (isinstance(node, ast.BoolOp) and isinstance(node.values[0], ast.Name)
                        and node.values[0].id in names), ast.unparse(node)
