"""A notebook in JupyterLab, as a student sees it: opened in a browser, all cells run through the menu."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from labs.run.paths import ROOT
from tests import browser as browsers
from tests.tools.notebook.conftest import Server

pytestmark = [pytest.mark.notebooks, pytest.mark.workers, pytest.mark.timeout(900), browsers.NEEDED]
IDLE = "Python 3 (ipykernel) | Idle"
"""In the status bar. The indicator above the cells is no sign: it says idle before there is a kernel, too."""
LAB = "lab02_horovod"
POPUP = ".Toastify__toast"
PLOT = ".jp-OutputArea-output img"
WRONG = '[data-mime-type="application/vnd.jupyter.error"], [data-mime-type="application/vnd.jupyter.stderr"]'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.started() as browser:
        yield browser


def test_lab_2_runs_in_jupyterlab_on_two_workers(server: Server, browser: Browser, tmp_path):
    file = ROOT / f"work/{LAB}.ipynb"  # The student's copy, which `labs notebook` makes.
    kept = file.read_text()
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.set_default_timeout(60_000)
    page.goto(server.address.replace("/lab/tree/work", f"/lab/workspaces/{LAB}/tree/work/{file.name}"))
    page.get_by_text(IDLE).wait_for()  # JupyterLab silently drops cells that are run before there is a kernel.
    choose(page, "Edit", "Clear Outputs of All Cells")
    assert set(prompts(page)) == {"[ ]:"}
    assert not page.locator(PLOT).count()

    choose(page, "Run", "Run All Cells")
    shares = wait_until_all_have_run(page)

    page.locator(WRONG).or_(page.locator(PLOT).nth(1)).first.scroll_into_view_if_needed()
    page.screenshot(path=tmp_path / "page.png")
    assert page.locator(WRONG).all_text_contents() == []
    cells = [cell for cell in json.loads(kept)["cells"] if cell["cell_type"] == "code"]
    assert prompts(page) == [f"[{number}]:" for number in range(1, len(cells) + 1)]
    assert len({share for share in shares if 0 < share < 100}) > 1, "JupyterLab told of no cell that had run"
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


def wait_until_all_have_run(page: Page) -> list[float]:
    """Return the percents of cells that have run, as JupyterLab shows them meanwhile."""
    page.locator(".jp-InputPrompt", has_text="[*]:").first.wait_for()
    shares = []
    while "[*]:" in prompts(page):
        shares += page.get_by_role("progressbar").evaluate_all("bars => bars.map(bar => Number(bar.ariaValueNow))")
        page.wait_for_timeout(100)
    page.get_by_text(IDLE).wait_for()
    return shares
