"""Notebooks in JupyterLab, as a student sees them: opened in a browser, all cells run through the menu."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from labs.run.paths import ROOT
from tests import browser as browsers
from tests.tools.notebook.conftest import Server

pytestmark = [pytest.mark.notebooks, pytest.mark.workers, pytest.mark.timeout(900), browsers.NEEDED]
IDLE = "Python 3 (ipykernel) | Idle"
"""In the status bar. The indicator above the cells is no sign: it says idle before there is a kernel, too."""
POPUP = ".Toastify__toast"
PLOT = ".jp-OutputArea-output img"
WRONG = '[data-mime-type="application/vnd.jupyter.error"], [data-mime-type="application/vnd.jupyter.stderr"]'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.started() as browser:
        yield browser


@pytest.mark.parametrize(("lab", "counts_of_epochs"), [("lab01_baseline", 3), ("lab02_horovod", 1)])
def test_a_notebook_runs_in_jupyterlab(server: Server, browser: Browser, lab, counts_of_epochs, tmp_path):
    """Lab 1 prints its epochs while it trains; lab 2 runs cells on two workers."""
    file = ROOT / f"work/{lab}.ipynb"  # The student's copy, which `labs notebook` makes.
    kept = file.read_text()
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.set_default_timeout(60_000)
    page.goto(server.address.replace("/lab/tree/work", f"/lab/workspaces/{lab}/tree/work/{file.name}"))
    page.get_by_text(IDLE).wait_for()  # JupyterLab silently drops cells that are run before there is a kernel.
    choose(page, "Edit", "Clear Outputs of All Cells")
    assert set(prompts(page)) == {"[ ]:"}
    assert not page.locator(PLOT).count()

    choose(page, "Run", "Run All Cells")
    shares, epochs = watched(page)

    page.locator(WRONG).or_(page.locator(PLOT).nth(1)).first.scroll_into_view_if_needed()
    page.screenshot(path=tmp_path / f"{lab}.png")
    print(f"screenshot: {tmp_path / lab}.png")
    assert page.locator(WRONG).all_text_contents() == []
    cells = [cell for cell in json.loads(kept)["cells"] if cell["cell_type"] == "code"]
    assert prompts(page) == [f"[{number}]:" for number in range(1, len(cells) + 1)]
    assert len({share for share in shares if 0 < share < 100}) > 1, "JupyterLab told of no cell that had run"
    assert len(set(epochs)) >= counts_of_epochs, "the epochs came all at once"
    assert not page.locator(POPUP).count(), "news, or a newer version, is offered"
    assert page.locator(PLOT).evaluate_all("plots => plots.every(plot => plot.naturalWidth > 0)")
    assert file.read_text() == kept, "it was not saved"
    page.close()
    for kernel in server.ask("GET", "kernels").json():
        server.ask("DELETE", f"kernels/{kernel['id']}")


def choose(page: Page, menu: str, entry: str) -> None:
    """Choose an entry of a menu of JupyterLab."""
    page.get_by_role("menuitem", name=menu, exact=True).click()
    page.get_by_role("menuitem", name=entry, exact=True).click()


def prompts(page: Page) -> list[str]:
    """Return what stands left of the code cells: "[ ]:", "[*]:" while they wait or run, "[3]:" when they have run."""
    return page.locator(".jp-CodeCell .jp-InputPrompt").all_text_contents()


def watched(page: Page) -> tuple[list[float], list[int]]:
    """Look on until all cells have run: return JupyterLab's percents of them, and the numbers of epochs told so far."""
    page.locator(".jp-InputPrompt", has_text="[*]:").first.wait_for()
    shares, epochs = [], []
    while "[*]:" in prompts(page):
        shares += page.get_by_role("progressbar").evaluate_all("bars => bars.map(bar => Number(bar.ariaValueNow))")
        texts = page.locator(".jp-OutputArea-output").all_text_contents()
        epochs.append(len(re.findall(r"^epoch \d+/", "".join(texts), re.MULTILINE)))
        page.wait_for_timeout(100)
    page.get_by_text(IDLE).wait_for()
    return shares, epochs
