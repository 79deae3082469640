"""The box that answers a question of the course reports; docs/questions.md has the first sentence of each."""

from collections.abc import Mapping, Sequence


def answer(code: str, sentence: str, columns: Sequence[str], rows: Mapping[str, Sequence[object]], again: str,
           missing: str = "") -> str:
    """Return a question's box as Markdown: a sentence that answers it, a table, and the command that repeats it.

    Args:
        code: The question, such as "M1".
        sentence: Answers the question as it was asked, in about 20 words.
        columns: Of the table; the kind of run is in `runs`, and a report's figures, each with its line in
            data/reference/claims.csv, in `report M`.
        rows: The cells of each row, by what it is about.
        again: The command that makes these runs again, if there is one.
        missing: What was not measured.
    """
    table = [f"| {' | '.join(str(cell).rstrip(' .') for cell in cells)} |" for cells in
             (("", *columns), ["---"] * (1 + len(columns)), *((name, *cells) for name, cells in rows.items()))]
    last = f"Again: `{again}`." * bool(again) + f" Not measured: {missing}." * bool(missing)
    last = last.strip() or "Computed on this page."
    return "\n".join(f"> {line}".rstrip() for line in (f"**{code}.** {sentence}", "", *table, "", last))
