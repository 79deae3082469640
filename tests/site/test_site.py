"""The built pages: links lead somewhere, nothing comes from elsewhere, and a browser shows them well."""

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Page

from labs.run.paths import ROOT
from tests import browser as browsers

pytestmark = pytest.mark.slow
LOADING = {("script", "src"), ("img", "src"), ("iframe", "src"), ("object", "data"), ("link", "href")}


class Links(HTMLParser):
    """Collects what a page loads, where it links to, and its anchors."""

    def __init__(self, text: str):
        super().__init__()
        self.loads, self.links, self.anchors = set(), set(), {"", "#"}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value)
            elif (tag, name) in LOADING:
                self.loads.add(value)
            elif (tag, name) == ("a", "href"):
                self.links.add(value)


@pytest.fixture(scope="module")
def site() -> Path:
    """Return build/site, built anew as `make site` does."""
    done = subprocess.run([sys.executable, ROOT / "site/build.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "build/site"


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Links]:
    return {path: Links(path.read_text()) for path in site.rglob("*.html") if "_static" not in path.parts}


def test_all_pages_are_built_and_links_lead_to_files_and_anchors(site, pages):
    assert len([path for path in pages if path.parent.name == "notebooks"]) == 13
    assert {"glossary", "five-reports", "questions"} <= {path.stem for path in pages}
    broken = []
    for page, found in pages.items():
        for link in found.links | found.loads:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (page.parent / unquote(url.path)).resolve() if url.path else page
            known = target.exists() and (target not in pages or unquote(url.fragment) in pages[target].anchors)
            if not known:
                broken.append(f"{page.name}: {link}")
    assert not broken


@pytest.fixture(scope="module")
def page(site) -> Page:
    """Return a page in a browser as narrow as a telephone."""
    with browsers.started() as browser:
        yield browser.new_page(viewport={"width": 400, "height": 800})


@browsers.NEEDED
def test_no_page_is_wider_than_a_telephone_or_loads_from_elsewhere(page, pages):
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


@browsers.NEEDED
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
