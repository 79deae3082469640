"""No committed notebook shows a part that failed, or was measured on a busy machine."""

import re

import pytest

from labs.run import catalogue
from tests.notebooks import committed

FAILED = re.compile(r"^Traceback \(most recent|\bfailed: |^(?:labs: )?[\w.]*(?:Error|Exception): |\bDisturbed: ",
                    re.MULTILINE)


@pytest.mark.parametrize("lab", catalogue.lab_names())
def test_a_committed_page_shows_no_failed_part(lab):
    """A cell that goes on after a failure, as lab 13's programs do, ends without an error."""
    for cell in committed.cells(lab):
        for output in cell.get("outputs", []):
            assert output["output_type"] != "error", cell["id"]
            assert output.get("name") != "stderr", f"{cell['id']} writes to standard error, which a page shows in red"
            texts = [output.get("text", ""), *(text for kind, text in output.get("data", {}).items()
                                               if kind.startswith("text/"))]
            for text in map("".join, texts):
                assert not FAILED.search(text), cell["id"]
