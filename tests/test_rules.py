"""Every lab has all of its files, and the code keeps the rules of CONTRIBUTING that no linter checks."""

import ast
import json
import re
import shutil
import subprocess

import pytest

from labs.run import catalogue
from labs.run.paths import ROOT

LABS = catalogue.lab_names()
FAILED = re.compile(r"(?m)^Traceback \(most recent|\bfailed: |^(?:labs: )?[\w.]*(?:Error|Exception): |\bDisturbed: ")
"""What a committed page may not show: a part that failed, or a busy machine."""


@pytest.mark.parametrize("lab", LABS)
def test_a_lab_is_one_stem_in_three_places_and_has_its_shape(lab):
    assert (ROOT / f"notebooks/{lab}.ipynb").is_file()
    assert (ROOT / f"jobs/{lab}.sh").is_file()
    assert re.search(rf"^\|.*{lab}", (ROOT / "README.md").read_text(), re.MULTILINE), "no row in the README"
    definition = catalogue.load_lab(lab)
    assert definition.name == lab
    assert re.match(r"Lab \d+: .*\.\n\nlabs run ", definition.description)
    assert set(definition.presets) >= {"demo", "paper"}
    assert definition.presets["demo"] == definition.Config(), "the defaults are the demo"
    assert definition.Config.__dataclass_params__.frozen
    assert hasattr(definition.presets["demo"], "seed"), "start and the sweeps need a seed"


@pytest.mark.parametrize("lab", LABS)
def test_a_notebook_is_thin_executed_and_plain_python(lab):
    """It runs in JupyterLab, VS Code and papermill, whose parameters go behind the one cell with this tag."""
    cells = json.loads((ROOT / f"notebooks/{lab}.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), "not from top to bottom"
    outputs = [output for cell in code for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs), "no plot"
    for output in outputs:  # A cell that goes on after a failure, as lab 13's programs do, ends without an error.
        assert (output["output_type"], output.get("name")) not in (("error", None), ("stream", "stderr"))
        texts = [output.get("text", ""), *(text for kind, text in output.get("data", {}).items() if "text/" in kind)]
        assert not [text for text in map("".join, texts) if FAILED.search(text)]
    assert 0 < len(code) <= 30
    (tagged,) = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
    given = ast.parse("".join(tagged["source"])).body
    assert all(isinstance(line, ast.Assign) for line in given), "parameters are values by name, nothing else"
    for cell in code:
        # Nothing behind % or !, which are IPython's own. `%%px` is the kit's, in every IPython kernel.
        ast.parse("".join(cell["source"]).removeprefix("%%px\n"))


def _imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


UNSAFE_MODULES = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
RUN_ON_PURPOSE = {"fresh_process.py", "child.py"}
"""They pass the grader's arguments to the process of a student's function; what that answers is JSON."""
UNSAFE_CALLS = {"eval", "exec", "load_model", "read_pickle", "unsafe_load"}
CELLS = "child.py"
"""It executes a student's cell, for `labs grade` in a container: tests/tools/grade/test_container.py."""


def test_nothing_that_is_read_is_run():
    """Data, checkpoints and results are read by readers that cannot run them: no pickle, no code, Keras' safe mode."""
    for path in (ROOT / "labs").rglob("*.py"):
        unsafe = {name.partition(".")[0] for name in _imports(path)} & UNSAFE_MODULES
        assert not unsafe or path.name in RUN_ON_PURPOSE, f"{path} imports {unsafe}"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                function = ast.unparse(node.func)
                keywords = {each.arg: ast.unparse(each.value) for each in node.keywords}
                safe = keywords.get("safe_mode") == "True"
                unsafe_calls = UNSAFE_CALLS - ({"exec"} if path.name == CELLS else set())
                assert function.rpartition(".")[2] not in unsafe_calls or safe, f"{path}:{node.lineno} calls {function}"
                assert function != "np.load" or keywords.get("allow_pickle") == "False", f"{path}:{node.lineno}"
                assert keywords.get("allow_pickle", "False") == "False", f"{path}:{node.lineno}"
                assert keywords.get("shell", "False") == "False", f"{path}:{node.lineno} runs a shell"


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="no shellcheck on this machine")
def test_what_jobs_pass_on_is_quoted():
    scripts = [*(ROOT / "jobs").rglob("*.sh"), *(ROOT / ".ci").iterdir()]
    # It cannot follow a file that is sourced from where sbatch was typed, nor see that one uses what another sets.
    words = ["shellcheck", "--exclude=SC1090,SC1091,SC2034", *scripts]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_no_registry_and_no_path_of_a_machine_is_named():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    hosts = re.compile(r"py[p]i\.org|files\.[p]ythonhosted|deb\.[d]ebian|registry\.[n]pmjs")  # Not to find this line.
    for name in listed.splitlines():
        path = ROOT / name
        if path.suffix in {".png", ".csv"} or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        assert not hosts.search(text), name
        assert str(ROOT) + "/" not in text, name
