"""A deck of slides per notebook, from its headings, bold statements, predictions, figures and answers.

    python site/slides.py FOLDER
"""

from __future__ import annotations

import base64
import dataclasses
import html
import json
import re
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import jinja2
import mistune
import vendor

from labs.run import atomic
from labs.run.paths import ROOT

LEFT_OUT = ("Closer look", "Questions", "Write it yourself")
"""Sections for reading and homework; their subsections are left out as well."""
WIDTH, HEIGHT = 1180, 590
"""Pixels for the content of a slide, below its heading."""
TEXT, BOX, CAPTION, CELLS = (40, 78), (36, 84), (30, 104), (30, 100)
"""Pixels per line and letters per line of a slide's text, an answer, a caption and a row of a table."""
TITLE, BELOW = 240, 130
"""Pixels that the first heading takes more than the others, and that a figure leaves for what follows it."""
PARTS = (r"(?P<code>```.*?```|(?<=\n\n)    .*?(?=\n\n|\Z))|(?P<math>\$\$.*?\$\$)|(?P<heading>#+ [^\n]*)"
         r"|(?P<table>\|.*?)(?=\n\n|\Z)"
         r"|(?P<list>(?:[*-]|\d+\.) .*?)(?=\n\n(?!\s)|\Z)|(?P<box>>.*?)(?=\n(?!>)|\Z)"
         r"|(?P<text>\S.*?)(?=\n\n|\n\$\$|\Z)")
SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z*`$(])|(?<=[.?!]\*\*)\s+|(?<=[.?!]\*)\s+|(?<=[.?!]\))\s+")


def markdown(text: str) -> str:
    """Return HTML; links within the project become plain text, since the slides lie elsewhere."""
    return str(_markdown(re.sub(r"\[([^]]+)\]\((?!http)[^)]*\)", r"\1", text)))


_markdown = mistune.create_markdown(plugins=["table", "math"])


@dataclasses.dataclass
class Slide:
    """One slide: its heading and HTML, the pixels still free, and the text for the speaker."""

    heading: str
    body: str = ""
    notes: str = ""
    left: int = HEIGHT
    figure: bool = False


def units(notebook: Path) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of each part of a page; a figure's text is its PNG in base64."""
    for cell in json.loads(notebook.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield from blocks(source)
            continue
        yield "cell", ""
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                yield "figure", "".join(data["image/png"]).replace("\n", "")
            elif "text/markdown" in data:
                yield from blocks("".join(data["text/markdown"]))
            elif "text/html" in data or "your guess" in "".join(data["text/plain"]):
                yield "output", "".join(data["text/plain"])


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of each block of Markdown."""
    for match in re.finditer(PARTS, text.strip(), re.DOTALL):
        yield str(match.lastgroup), match[0]


def sentences(text: str) -> list[str]:
    """Return the sentences of a paragraph; emphasis, formulas, code and brackets stay in one piece."""
    found: list[str] = []
    for piece in SENTENCE.split(text.replace("\n", " ")):
        before = found[-1] if found else ""
        inside = (any(before.replace("**", "§").count(mark) % 2 for mark in "§*$`")
                  or before.count("(") > before.count(")"))
        if inside or before.endswith(" al.") or re.fullmatch(r"\*\*[^*]{1,40}\*\*", before):  # A heading in the line.
            found[-1] += f" {piece}"
        else:
            found.append(piece)
    return found


def height(text: str, size: tuple[int, int] = TEXT) -> int:
    """Return an estimate of the pixels that a text needs."""
    plain = re.sub(r"\\[a-zA-Z]+|[{}*$\\]|\]\([^)]*\)", "", text)
    return sum(-(-max(1, len(line)) // size[1]) * size[0] + 6 for line in plain.split("\n")) + 8


def answer(output: str) -> str:
    """Return what a cell prints about a prediction, without the reader's own guess; nothing if it is long."""
    lines = [re.sub(r"[;,:]? *(and )?your guess.*", "", line).rstrip() for line in output.rstrip().split("\n")]
    lines = [line for line in lines if line and not re.fullmatch(r"(rank \d+:? *)?", line)]
    return "\n".join(lines) if len(lines) <= 11 and all(len(line) <= 100 for line in lines) else ""


class Deck:
    """The slides of a page, filled part by part."""

    def __init__(self) -> None:
        self.slides: list[Slide] = []
        self.skipped = 0  # Level of the heading whose section is left out; 0: none.
        # No sentence is shown yet; the last slide asks for a prediction; a cell has run since.
        self.fresh = self.predicted = self.answered = False

    def heading(self, text: str) -> None:
        level, title = len(text.split()[0]), text.lstrip("# ")
        if self.skipped and level > self.skipped:
            return
        self.skipped = level if title.startswith(LEFT_OUT) else 0
        self.fresh, self.predicted = True, False
        if not self.skipped:
            self.slides.append(Slide(title, left=HEIGHT if self.slides else HEIGHT - TITLE))

    def put(self, body: str, pixels: int) -> None:
        """Add HTML to the last slide, or to a new one with the same heading if it does not fit."""
        if pixels > self.slides[-1].left:
            self.slides.append(Slide(self.slides[-1].heading))
        self.slides[-1].body += body
        self.slides[-1].left -= pixels

    def add(self, kind: str, text: str) -> None:
        """Add a part of the page: to a slide, or to the speaker's notes."""
        if kind == "heading":
            self.heading(text)
        elif not self.skipped:
            getattr(self, f"add_{kind}", lambda block: self.add_block(kind, block))(text)

    def add_text(self, text: str) -> None:
        shown, caption = sentences(text), self.slides[-1].figure and re.match(r"\*[^*]", text)
        for index, sentence in enumerate(shown):
            if sentence.startswith("**Predict"):
                question, slide = " ".join(shown[index:]), self.slides[-1]
                if slide.figure or self.predicted or "<pre" in slide.body or slide.left < height(question) + 200:
                    self.slides.append(Slide(slide.heading))
                self.put(f'<div class="predict">{markdown(question)}</div>', height(question) + 60)
                self.predicted, self.answered = True, False
                return
            if caption and index == 0 and height(sentence, CAPTION) <= self.slides[-1].left:
                self.put(f'<div class="caption">{markdown(sentence)}</div>', height(sentence, CAPTION))
            elif re.search(r"\*\*[^*]+\*\*", sentence) or (self.fresh and not caption):
                self.put(markdown(sentence), height(sentence))
                self.fresh = False
            else:
                self.slides[-1].notes += f"{sentence} "
        self.slides[-1].notes += "\n\n"

    def add_block(self, kind: str, text: str) -> None:
        if kind == "box":
            self.slides.append(Slide(self.slides[-1].heading))
        lines = text.splitlines()
        pixels = {"list": height(text), "math": 110, "box": height(text, BOX) + 40,
                  "table": sum(height(line, CELLS) for line in lines) + 20,
                  "code": sum(27 * -(-max(1, len(line)) // 100) for line in lines)}[kind]
        self.put(f'<div class="{kind}">{markdown(text)}</div>', pixels)

    def add_figure(self, png: str) -> None:
        wide, high = struct.unpack(">II", base64.b64decode(png)[16:24])
        pixels = round(WIDTH * high / wide)
        if self.slides[-1].figure or self.predicted or min(pixels, 330) > self.slides[-1].left - BELOW:
            self.slides.append(Slide(self.slides[-1].heading))
        pixels = min(pixels, self.slides[-1].left - BELOW)
        self.put(f'<img style="height: {pixels}px" alt="" src="data:image/png;base64,{png}">', pixels + 20)
        self.slides[-1].figure, self.predicted = True, False

    def add_output(self, text: str) -> None:
        if self.predicted and (shown := answer(text)):
            self.put(f'<pre class="fragment">{html.escape(shown)}</pre>', 75 + 27 * shown.count("\n"))

    def add_cell(self, _: str) -> None:
        """Note that a cell has run."""
        if self.predicted and not self.answered:
            self.fresh = self.answered = True  # The sentence after a prediction says what came out.


def deck(notebook: Path) -> list[Slide]:
    """Return the slides of a notebook."""
    result = Deck()
    for kind, text in units(notebook):
        result.add(kind, text)
    return [slide for slide in result.slides if slide.body]


def build(folder: Path) -> None:
    """Write a page of slides per notebook, and what it loads, into a folder; it needs no network afterwards."""
    reveal, mathjax = vendor.fetch(*vendor.REVEAL), vendor.fetch(*vendor.MATHJAX)
    folder.mkdir(parents=True, exist_ok=True)
    for path in (reveal / "dist/reset.css", reveal / "dist/reveal.css", reveal / "dist/reveal.js",
                 reveal / "plugin/notes/notes.js", mathjax / "es5/tex-svg.js"):
        shutil.copy(path, folder)
    template = jinja2.Template((Path(__file__).parent / "slides.html").read_text(), autoescape=True)
    for notebook in sorted((ROOT / "notebooks").glob("lab*.ipynb")):
        slides = deck(notebook)
        page = template.render(title=slides[0].heading, slides=slides, markdown=markdown)
        atomic.write_text(folder / f"{notebook.stem}.html", page)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
