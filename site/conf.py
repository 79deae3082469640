"""Sphinx's settings for the course's pages; `site/build.py` makes the tree that it reads."""

from __future__ import annotations

import subprocess
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

HERE = Path(__file__).parent
SLIDERS = {
    ("notebooks/lab03_lr_scaling", "The learning rate of every step"): "rates",
    ("notebooks/lab05_allreduce", "Four ranks, and the bytes derived"): "ring",
    ("notebooks/lab05_allreduce", "Latency and bandwidth"): "message",
    ("docs/speed", "4,096 workers, on paper"): "scale",
}
"""The page and the heading of the section that each slider ends. There a reader has made the section's predictions."""

project = html_title = "Distributed training labs"
copyright = "the authors of the labs; Apache License 2.0"
extensions = ["myst_nb"]
nb_execution_mode = "off"  # The outputs are those that the notebooks were committed with.
nb_render_markdown_format = "myst"  # Links and formulas in an output.
nb_ipywidgets_js: dict = {}  # They would be loaded from another server.
myst_enable_extensions = ["dollarmath", "html_image", "colon_fence"]
myst_heading_anchors = 6  # GitHub's anchors.
suppress_warnings = ["toc.not_included"]  # Pages of single files are reached by links.
html_theme = "sphinx_book_theme"
html_theme_options = {"use_fullscreen_button": False, "home_page_in_toc": True, "navbar_persistent": []}
html_context = {"default_mode": "auto"}  # Light or dark, as the browser is.
html_static_path = [str(HERE / "static"), str(HERE.parent / "build/site-static")]
html_css_files = ["site.css"]
html_js_files = ["sliders.js"]
html_sourcelink_suffix = ""
mathjax_path = "mathjax/tex-mml-chtml.js"  # From site/build.py.
mathjax_options = {"defer": "defer"}
highlight_language = "text"  # A block without a language is a program's output.


def add_sliders(app: Sphinx, doctree: nodes.document) -> None:
    """Append a page's sliders to their sections."""
    for (page, heading), name in SLIDERS.items():
        if page == app.env.docname:
            sections = [section for section in doctree.findall(nodes.section) if section[0].astext() == heading]
            if len(sections) != 1:
                logging.getLogger(__name__).warning("%s: there is no heading %r, whose section the slider %r ends; "
                                                    "correct SLIDERS in site/conf.py", page, heading, name)
                continue
            program = f'console.log(require("{HERE}/static/sliders.js").markup("{name}"))'
            markup = subprocess.run(["node", "-e", program], check=True, capture_output=True, text=True).stdout
            sections[0].append(nodes.raw("", markup, format="html"))


def setup(app: Sphinx) -> None:
    """Let Sphinx call `add_sliders` for each page."""
    app.connect("doctree-read", add_sliders)
