"""Draw docs/pictures/step.svg: a step on two ranks, as README shows it.

It moves in a browser, and is complete in its first moment and where nothing moves.

    python notebooks/step_picture.py
"""

from labs.run import atomic
from labs.run.paths import ROOT

PICTURE = ROOT / "docs/pictures/step.svg"
WEIGHT, LEARNING_RATE = 1.0, 0.5
GRADIENTS = (0.6, 0.2)
"""Of rank 0 and rank 1."""
MEAN = sum(GRADIENTS) / len(GRADIENTS)
COLUMNS = (("its own images", 85), ("its own gradient", 270), ("all-reduce: the mean", 460), ("the same step", 655))
"""Title and middle of each column; each appears in its quarter of the film."""
ROWS = (100, 220)
MIDDLE = sum(ROWS) / 2
COLOURS = ("#d9741b", "#2a7fc9")
STYLE = """\
text { font: 15px system-ui, sans-serif; text-anchor: middle; fill: #1f2328 }
.small { font-size: 13px; fill: #59636e }
.chip { fill: #ffffff; stroke: #59636e; stroke-width: 1.5 }
.line { stroke: #8c959f; stroke-width: 1.5; fill: none }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 } .chip { fill: #0d1117; stroke: #9198a1 } .line { stroke: #656c76 }
}
@media (prefers-reduced-motion: no-preference) {
  .c0, .c1, .c2, .c3 { animation: 9s infinite }
  .c0 { animation-name: first } .c1 { animation-name: second } .c2 { animation-name: third }
  .c3 { animation-name: fourth }
  .to0, .to1 { animation: 9s infinite; opacity: 0 }
  .to0 { animation-name: down } .to1 { animation-name: up }
}
@keyframes first { 0%, 8%, 14%, 100% { opacity: 1 } 10% { opacity: 0 } }
@keyframes second { 0%, 8%, 28%, 100% { opacity: 1 } 10%, 24% { opacity: 0 } }
@keyframes third { 0%, 8%, 56%, 100% { opacity: 1 } 10%, 50% { opacity: 0 } }
@keyframes fourth { 0%, 8%, 76%, 100% { opacity: 1 } 10%, 68% { opacity: 0 } }
"""


def main() -> None:
    """Write the picture."""
    atomic.write_text(PICTURE, picture())


def picture() -> str:
    """Return the picture as SVG: columns that appear one after the other, and gradients that travel to the mean."""
    travel = "".join(
        f"@keyframes {name} {{ 0%, 31% {{ opacity: 0; transform: none }} 34% {{ opacity: 1; transform: none }} "
        f"50% {{ opacity: 1; transform: translate({COLUMNS[2][1] - COLUMNS[1][1]}px, {MIDDLE - y:g}px) }} "
        "54%, 100% { opacity: 0 } }\n" for name, y in zip(("down", "up"), ROWS, strict=True))
    parts = [_text(x, 30, title, column) for column, (title, x) in enumerate(COLUMNS)]
    for rank in range(2):
        parts += _row(rank)
    x = COLUMNS[2][1]
    parts += [f'<circle class="chip c2" cx="{x}" cy="{MIDDLE:g}" r="46"/>', _text(x, MIDDLE, f"{MEAN:.1f}", 2),
              _text(x, MIDDLE + 17, f"({GRADIENTS[0]} + {GRADIENTS[1]}) / 2", 2, "small", 10)]
    about = (f"Two ranks compute gradients {GRADIENTS[0]} and {GRADIENTS[1]} on their own images. All-reduce gives "
             f"both the mean, {MEAN:.1f}, and both take the same step: their weights stay equal.")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 285" role="img" aria-label="{about}">\n'
            f"<style>\n{STYLE}{travel}</style>\n" + "\n".join(parts) + "\n</svg>\n")


def _row(rank: int) -> list[str]:
    """Return what one rank does, from left to right."""
    y, colour = ROWS[rank], COLOURS[rank]
    images, gradient, mean, step = (x for _, x in COLUMNS)
    after = WEIGHT - LEARNING_RATE * MEAN
    chip = f'<circle class="chip{{}}" cx="{gradient}" cy="{y}" r="26" style="stroke: {colour}"/>'
    squares = [f'<rect class="c0" x="{images - 47 + 33 * k}" y="{y - 14}" width="28" height="28" rx="4" '
               f'fill="{colour}" fill-opacity="{0.45 + 0.25 * k:g}"/>' for k in range(3)]
    bend = f"C{gradient + 90} {y} {mean - 90} {MIDDLE:g} {mean - 48} {MIDDLE:g}"
    back = f"C{mean + 90} {MIDDLE:g} {step - 140} {y} {step - 94} {y}"
    return [_text(images, y + 36, f"rank {rank}", 0, "small"), *squares,
            f'<path class="line c1" d="M{images + 56} {y} H{gradient - 30}"/>', chip.format(" c1"),
            _text(gradient, y + 5, f"{GRADIENTS[rank]}", 1),
            f'<path class="line c2" d="M{gradient + 28} {y} {bend}"/>',
            f'<g class="to{rank}" opacity="0">{chip.format("")}'
            f"{_text(gradient, y + 5, f'{GRADIENTS[rank]}', 1)}</g>",
            f'<path class="line c3" d="M{mean + 48} {MIDDLE:g} {back}"/>',
            f'<rect class="chip c3" x="{step - 92}" y="{y - 24}" width="184" height="48" rx="8"/>',
            _text(step, y + 5, f"{WEIGHT} &#8722; {LEARNING_RATE} &#215; {MEAN:.1f} = {after:.1f}", 3),
            _text(step, y + 42, f"the weight of rank {rank}", 3, "small")]


def _text(x: float, y: float, words: str, column: int, name: str = "", size: int = 0) -> str:
    """Return a text centred at x that appears with a column."""
    style = f' style="font-size: {size}px"' if size else ""
    return f'<text class="c{column}{f" {name}" if name else ""}" x="{x:g}" y="{y:g}"{style}>{words}</text>'


if __name__ == "__main__":
    main()
