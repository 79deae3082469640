"""The course on one page, A4 landscape: docs/cheat-sheet.svg and .pdf.

    python site/cheat_sheet.py [FOLDER]
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from labs.run import atomic
from labs.run.paths import ROOT

INCHES = 11.69, 8.27
MARGIN = 0.4  # Inches.
DARK, ACCENT, GREY = "#12395f", "#b3590a", "#4a5560"
STYLE = {"font.family": "DejaVu Sans", "mathtext.fontset": "stix", "svg.hashsalt": "labs", "svg.fonttype": "path",
         "pdf.fonttype": 42}
WORDS = {
    "worker": "a process that trains a copy of the model",
    "size, $N$": "number of all workers, on all nodes",
    "rank": "number of a worker, from 0 to $N-1$",
    "local rank": "its number on its node: chooses the GPU",
    "shard": "a worker's share of an epoch's images",
    "global batch, $B$": "$N\\,b$: images per step of all workers",
    "broadcast": "rank 0's weights to all, before step 1",
    "all-reduce": "all get the mean of all gradients",
    "weak scaling": "$b$ is constant, $B$ grows",
    "strong scaling": "$B$ is constant, $b = B/N$",
    "baseline": "one worker, same configuration",
}
FORMULAS = (  # Title, formula, the kit's name.
    ("Time of a step", r"$t(b) = a + c\,b$", "labs.course.step_cost.fit"),
    ("Steps", r"$\mathrm{epochs} \times \lceil n \,/\, (N\,b) \rceil$", "labs.datasets.sharding.steps_per_epoch"),
    ("Speedup", r"$S(N) = T(1)\,/\,T(N)$", "labs.results.scaling.speedups"),
    ("Scaling efficiency", r"$E(N) = S(N)\,/\,N$", "labs.results.scaling.speedups"),
    ("Learning rate, linear", r"$\eta\,k,\quad k = N\,b\,/\,B_0$", "labs.training.schedule.scaled_lr"),
    ("Learning rate, square root", r"$\eta\,\sqrt{k}$", "labs.training.schedule.scaled_lr"),
    ("Message, alpha-beta", r"$\alpha + \beta M,\quad 1/\beta = \mathrm{bandwidth}$", "labs.results.link_model.fit"),
    ("Ring all-reduce", r"$t(M) = 2\,(N-1)\,(\alpha + \beta M / N)$", "labs.results.cost_model.ring_seconds"),
    ("Bus bandwidth", r"$\mathrm{busbw} = \frac{M}{t} \frac{2\,(N-1)}{N}$", "labs.measure.collectives.busbw_factor"),
    ("Gustafson: weak scaling", r"$S = N - s\,(N-1)$", "labs.course.laws.gustafson"),
    ("Amdahl: strong scaling", r"$S = 1\,/\,(s + (1-s)/N)$", "labs.course.laws.amdahl"),
    ("Amdahl's $s$ over a ring", r"$s = 2M\,/\,(BW\;t(B))$", "labs.course.laws.ring_share"),
    ("Checkpoint interval (Young)", r"$T = \sqrt{2\,C\,M_f}$", "labs.course.at_scale.young_seconds"),
    ("Noise of an accuracy", r"$\sqrt{p\,(1-p)\,/\,n}$", "labs.results.noise.standard_error"),
)
SYMBOLS = (  # Two lines.
    r"$n$ images    $b$ images per worker and step    $B_0$ batch for $\eta$    $M$ bytes of gradients",
    r"$s$ serial share    $BW$ bytes/s    $C$ time of a save    $M_f$ time between failures",
)
COMMANDS = {
    "labs check": "is this machine ready?",
    "labs run lab04 --workers 2": "train on two workers",
    "labs run lab04 --help": "every option of a lab",
    "labs sweep lab04": "every run that its questions need",
    "labs watch": "the run in progress",
    "labs results": "all runs, as a table",
    "labs report": "all runs, as a page with plots",
    "labs lint results": "find figures that cannot be right",
    "labs handin lab04": "one zip of what you hand in",
    "labs launch 2 train.py": "your own script, on two workers",
    "mpirun -np 2 python train.py": "the same, by MPI's launcher",
    "horovodrun -np 2 python train.py": "the same, by Horovod's",
    "sbatch -N 2 jobs/lab04_speedup.sh": "a job on two nodes",
    "labs queue": "why does my job wait?",
    "labs queue --check jobs/lab04_speedup.sh": "before you submit it",
}


def ten_lines() -> list[tuple[str, str]]:
    """Return code and comment of each line that makes lab 2's script one for many workers."""
    return re.findall(r"^ *(\S.*?) +# Horovod: (.*)$", (ROOT / "solutions/train.py").read_text(), re.MULTILINE)


class Page:
    """A sheet of paper, in inches from its upper left corner."""

    def __init__(self) -> None:
        self.figure = Figure(figsize=INCHES)

    def text(self, x: float, y: float, text: str, size: float = 7.6, **style) -> None:
        self.figure.text(x / INCHES[0], 1 - y / INCHES[1], text, fontsize=size, va="baseline", **style)

    def title(self, x: float, y: float, width: float, text: str) -> None:
        """Write a heading with a line below it."""
        self.text(x, y, text, 10.5, color=DARK, weight="bold")
        ends, height = [x / INCHES[0], (x + width) / INCHES[0]], 1 - (y + 0.07) / INCHES[1]
        self.figure.add_artist(mpl.lines.Line2D(ends, [height, height], color="#e39b2f", linewidth=1.4))

    def table(self, x: float, y: float, indent: float, pitch: float, rows: dict[str, str], **style) -> None:
        """Write two columns, the first in a style."""
        for index, (left, right) in enumerate(rows.items()):
            self.text(x, y + index * pitch, left, **style)
            self.text(x + indent, y + index * pitch, right)


def draw() -> Figure:
    """Return the page."""
    page, mono = Page(), {"family": "DejaVu Sans Mono"}
    page.text(MARGIN, 0.62, "Training on many workers with Keras and Horovod", 17, color=DARK, weight="bold")
    page.text(INCHES[0] - MARGIN, 0.62, "cheat sheet of labs 1 to 13", 9, color=GREY, ha="right")
    page.title(MARGIN, 1.02, 7.0, "Ten lines")
    for index, (code, why) in enumerate(ten_lines()):
        y = 1.31 + 0.285 * index
        page.text(MARGIN + 0.14, y, str(index + 1), 7.2, color=GREY, ha="right")
        page.text(MARGIN + 0.24, y, code, 7.2, **mono)
        page.text(MARGIN + 0.34, y + 0.13, why, 6.8, color=ACCENT)
    page.title(7.75, 1.02, INCHES[0] - MARGIN - 7.75, "Words")
    page.table(7.75, 1.31, 1.2, 0.258, WORDS, weight="bold", color=DARK)
    page.title(MARGIN, 4.42, 6.3, "Formulas")
    for index, (title, formula, name) in enumerate(FORMULAS):
        x, y = MARGIN + 3.2 * (index % 2), 4.70 + 0.455 * (index // 2)
        page.text(x, y, title, 7, color=DARK, weight="bold")
        page.text(x + 0.08, y + 0.2, formula, 10.5)
        page.text(x + 3.0, y, name.removeprefix("labs."), 5, color=GREY, ha="right", **mono)
    for index, symbols in enumerate(SYMBOLS):
        page.text(MARGIN, INCHES[1] - 0.43 + 0.13 * index, symbols, 6.6, color=GREY)
    page.title(7.0, 4.42, INCHES[0] - MARGIN - 7.0, "Commands")
    page.table(7.0, 4.70, 2.5, 0.208, COMMANDS, size=6.8, **mono)
    return page.figure


def small(svg: str) -> str:
    """Return an SVG without its indentation and without digits that nobody sees: a letter moves by 0.01 of its size."""
    svg = re.sub(r"(?m)^ +| +$|(?<=\.\d{3})\d+(?=\s)", "", svg)
    return re.sub(r"(?<=<use )(.*translate\(\d+)\.\d+(?= 0\))", r"\1", svg)


def save(folder: Path) -> None:
    """Write cheat-sheet.svg and cheat-sheet.pdf, with the same bytes each time."""
    with mpl.rc_context(STYLE):
        figure, svg = draw(), io.StringIO()
        figure.savefig(svg, format="svg", metadata={"Date": None})
        atomic.write_text(folder / "cheat-sheet.svg", small(svg.getvalue()))
        with atomic.writing(folder / "cheat-sheet.pdf") as file:
            figure.savefig(file, format="pdf", metadata={"CreationDate": None})


if __name__ == "__main__":
    save(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs")
