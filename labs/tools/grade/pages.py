"""What `labs grade` writes: a table of points, feedback for each student, and pages on the class."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from labs.results import tables
from labs.run.text import one_line, plural
from labs.tools.grade.judge import BY_HAND, NO_ANSWER, RIGHT, WRONG, Graded, open_answers

Copies = Sequence[tuple[Sequence[str], str]]
"""As `evidence.copies` returns them: the students, and a line."""
STATUSES = (RIGHT, WRONG, NO_ANSWER, BY_HAND)


def escape(text: object) -> str:
    """Return a hand-in's text as one short line of Markdown that shows it literally."""
    return tables.markdown(one_line(text))


def table(graded: Sequence[Graded], copies: Copies) -> str:
    """Return all hand-ins as CSV, one per student and lab."""
    import pandas as pd

    return pd.DataFrame([_row(each, copies) for each in graded]).convert_dtypes().to_csv(index=False)


def _row(each: Graded, copies: Copies) -> dict[str, object]:
    count = Counter(verdict.status for verdict in each.verdicts)
    points, of = ("", "") if each.problem else (f"{each.points:g}", f"{each.of:g}")
    return {"student": each.student, "lab": each.lab, "points": points, "of": of,
            "late_percent": f"{each.late_percent:g}", "right": count[RIGHT], "wrong": count[WRONG],
            "no_answer": count[NO_ANSWER], "not_judged": count[BY_HAND], "findings": len(each.findings),
            "copies": sum(each.student in shared for shared, _ in copies), "file": each.file, "problem": each.problem}


def feedback(each: Graded) -> str:
    """Return a student's feedback as Markdown: each exercise, and what to explain; never a solution."""
    late = f", after {each.late_percent:g} % for lateness" if each.late_percent else ""
    lines = [f"# {each.lab}: {each.student}", "", f"{each.points:g} of {each.of:g} points{late}.", ""]
    for verdict in each.verdicts:
        points = "" if verdict.status == BY_HAND else f" ({verdict.points:g} of {verdict.of:g})"
        text = "\n  ".join(map(escape, verdict.text.split("\n")))
        lines.append(f"- **{verdict.exercise}**: {verdict.status}{points}. {text}")
    lines += ["", "The open questions are graded by a person."]
    if each.findings:
        lines += ["", "## Please explain", "", "These figures look odd. If you can explain them, all is well.", "",
                  *(f"- {escape(finding)}" for finding in each.findings)]
    return "\n".join(lines) + "\n"


def class_page(graded: Sequence[Graded], copies: Copies, conflicts: Sequence[str], others: Sequence[str]) -> str:
    """Return the page on the class as Markdown.

    Args:
        graded: The hand-ins.
        copies: What students share.
        conflicts: Lines on hand-ins of the same student and lab.
        others: Names of files that are no hand-ins.
    """
    problems = [f"{each.file}: {each.problem}" for each in graded if each.problem]
    lines = ["# The class", "", f"{plural(len(graded), 'hand-in')}, {len(problems)} of them not graded.", ""]
    for lab in sorted({each.lab for each in graded if not each.problem}):
        lines += _exercises(lab, [each for each in graded if each.lab == lab and not each.problem])
    lines += _section("Two hand-ins of one student: remove one, and grade again", conflicts)
    lines += _section("Not graded", problems)
    lines += _section("Files that are not hand-ins", others)
    lines += _section("Shared or copied? You decide", [line for _, line in copies])
    lines += _section("To explain", [f"{each.student}, {finding}" for each in graded for finding in each.findings])
    return "\n".join(lines)


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *(f"- {escape(line)}" for line in lines or ["none"]), ""]


def _exercises(lab: str, graded: Sequence[Graded]) -> list[str]:
    """Return a lab's exercises, those that most got wrong first."""
    count: dict[str, Counter[str]] = defaultdict(Counter)
    for verdict in (verdict for each in graded for verdict in each.verdicts):
        count[verdict.exercise][verdict.status] += 1
    rows = [[exercise, *(str(its[status]) for status in STATUSES)]
            for exercise, its in sorted(count.items(), key=lambda item: (item[1][RIGHT], item[0]))]
    return [f"## {lab}", "", tables.Grid("", ["exercise", *STATUSES], rows).markdown(), ""]


def open_page(lab: str, graded: Sequence[Graded]) -> str:
    """Return what the students wrote about the open questions of a lab; solutions/rubric.md has the model answers."""
    written = {each.student: open_answers(each.hand_in) for each in graded if each.hand_in and each.lab == lab}
    texts = (f"## {student}\n\n" + "\n".join(f"> {escape(line)}" for line in text.splitlines()) + "\n"
             for student, text in written.items() if text)
    return "\n".join([f"# Open questions of {lab}\n", *texts])
