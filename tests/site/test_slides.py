"""The slides: nothing is cut, nothing overflows, and a browser needs no network for them."""

from __future__ import annotations

import html
import importlib
import re

import pytest

from labs.run import catalogue
from labs.run.paths import ROOT
from tests import browser as browsers

pytestmark = pytest.mark.slow
OVERFULL = """() => {
    const slide = Reveal.getCurrentSlide(), wide = [...slide.querySelectorAll("pre, table, img, mjx-container")];
    return slide.scrollHeight > 720 || slide.querySelector("mjx-merror") !== null
        || wide.some(part => part.scrollWidth > part.clientWidth + 2 && part.tagName === "PRE"
                     || part.getBoundingClientRect().right > 1280);
}"""
CUT = "() => [...document.querySelectorAll('section > p, .predict p')].map(p => p.textContent.trim())"


@pytest.fixture
def slides(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "site")
    return importlib.import_module("slides")


def letters(text: str) -> str:
    """Return the letters and digits of Markdown or HTML alone."""
    return re.sub(r"\W|_", "", html.unescape(re.sub(r"<[^>]+>", "", text)))


@pytest.mark.parametrize("lab", catalogue.lab_names())
def test_every_sentence_is_on_a_slide_or_in_the_notes(slides, lab):
    notebook, skipped = ROOT / f"notebooks/{lab}.ipynb", 0
    shown = letters("".join(slide.body + slides.markdown(slide.notes) for slide in slides.deck(notebook)))
    for kind, text in slides.units(notebook):
        if kind == "heading" and not (skipped and len(text.split()[0]) > skipped):
            skipped = len(text.split()[0]) if text.lstrip("# ").startswith(slides.LEFT_OUT) else 0
        elif kind == "text" and not skipped:
            lost = [each for each in slides.sentences(text) if letters(slides.markdown(each)) not in shown]
            assert not lost or letters(slides.markdown(text)) in shown, lost
    assert shown.count("Predict") >= 3


def test_a_sentence_ends_where_it_ends(slides):
    text = "Goyal et al. Scale it by $k. S$. **Now this. And that.** All are equal. *Left: a. Right: b.* (So. It.) End."
    assert slides.sentences(text) == ["Goyal et al. Scale it by $k. S$.", "**Now this. And that.** All are equal.",
                                      "*Left: a. Right: b.*", "(So. It.)", "End."]


@browsers.NEEDED
def test_no_slide_is_overfull_without_a_network(slides, tmp_path):
    slides.build(tmp_path)
    with browsers.started() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 720}, offline=True)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        for lab in catalogue.lab_names():
            page.goto((tmp_path / f"{lab}.html").as_uri())
            page.wait_for_selector("html[data-ready]", timeout=60_000)
            assert not [text for text in page.evaluate(CUT) if not re.search(r"[.?!:][)\"”]?$|\)$", text)], lab
            for index in range(page.evaluate("Reveal.getTotalSlides()")):
                page.evaluate(f"Reveal.slide({index})")
                assert not page.evaluate(OVERFULL), f"{lab}, slide {index + 1}"
        assert not [url for url in asked if not url.startswith(("file:", "data:"))]
