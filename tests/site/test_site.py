"""The built pages: nothing comes from elsewhere, and a browser shows them well. The build itself checks their links."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

from labs.run.paths import ROOT

CHROMIUM = shutil.which("chromium")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM, reason="no chromium; apt-get install chromium")]


@pytest.fixture(scope="module")
def site() -> Path:
    """Return build/site, built anew as `make site` does."""
    done = subprocess.run([sys.executable, ROOT / "site/build.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "build/site"


@pytest.fixture(scope="module")
def page(site) -> Page:
    """Return a page in a browser as narrow as a telephone."""
    with sync_playwright() as kinds:
        browser = kinds.chromium.launch(executable_path=CHROMIUM)
        yield browser.new_page(viewport={"width": 400, "height": 800})
        browser.close()


def test_no_page_is_wider_than_a_telephone_or_loads_from_elsewhere(page, site):
    pages = [path for path in site.rglob("*.html") if "_static" not in path.parts]
    assert len([path for path in pages if path.parent.name == "notebooks"]) == 13
    wide, outside, problems = {}, [], []
    page.on("request", lambda request: outside.append(request.url))
    page.on("pageerror", lambda error: problems.append(error))
    for path in sorted(pages):
        page.goto(path.as_uri())
        if "tex-mml-chtml" in path.read_text():
            page.evaluate("MathJax.startup.promise")
        if (width := page.evaluate("document.documentElement.scrollWidth")) > 400:
            wide[path.name] = width
    assert (wide, problems) == ({}, [])
    assert not [url for url in outside if not url.startswith(("file:", "data:"))]


def test_formulas_search_and_sliders_work_without_a_server(page, site):
    page.goto((site / "notebooks/lab05_allreduce.html").as_uri())
    page.evaluate("MathJax.startup.promise")
    assert page.locator("mjx-container").count() > 40
    assert not page.locator("mjx-merror").count()
    ring = page.locator("[data-slider=ring]")
    ring.get_by_role("slider", name="step").focus()
    page.keyboard.press("End")
    assert "Step 6 of 6" in ring.inner_text()
    page.goto((site / "search.html").as_uri() + "?q=straggler")
    page.locator("#search-results li").first.wait_for()
