"""What `labs grade` writes: a table of points, feedback for each student, and pages on the class."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from labs.results import listing, tables
from labs.run.paths import ROOT
from labs.run.text import one_line, plural
from labs.tools.grade.judge import BY_HAND, NO_ANSWER, RIGHT, WRONG, Graded, open_answers

Copies = Sequence[tuple[Sequence[str], str]]
"""As `evidence.copies` returns them: the students, and a line."""
STATUSES = (RIGHT, WRONG, NO_ANSWER, BY_HAND)


def plain(text: object) -> str:
    """Return a hand-in's text as one short line of Markdown that shows it literally."""
    return tables.markdown(one_line(text))


def table(graded: Sequence[Graded], copies: Copies, form: str) -> str:
    """Return all hand-ins as CSV.

    Args:
        graded: The hand-ins, one per student and lab.
        copies: What students share.
        form: The columns: those that Moodle or Canvas imports, or "plain" with all that is known.
    """
    import pandas as pd

    rows: list[dict[str, str | None]]
    labs = sorted({each.lab for each in graded if each.lab})
    if form == "plain":
        return listing.csv(pd.DataFrame([_row(each, copies) for each in graded]))
    if form == "moodle":
        by = "ID number"
        columns = [by, *(f"Assignment: {lab} ({what})" for lab in labs for what in ("Real", "Feedback"))]
        rows = [{by: each.student, f"Assignment: {each.lab} (Real)": _points(each)[0] or None,
                 f"Assignment: {each.lab} (Feedback)": " ".join(_summary(each).split())} for each in graded]
    else:
        by = "SIS Login ID"
        columns = ["Student", "ID", "SIS User ID", by, "Section", *labs]
        most = {lab: f"{max(each.of for each in graded if each.lab == lab):g}" for lab in labs}
        rows = [{by: "", "Student": "    Points Possible", **most}]
        rows += [{by: each.student, each.lab: _points(each)[0] or None} for each in graded]
    by_student = pd.DataFrame(rows, columns=columns, dtype=object).groupby(by, as_index=False).first()
    return listing.csv(by_student[columns].fillna(""))


def _row(each: Graded, copies: Copies) -> dict[str, object]:
    count, (points, of) = Counter(verdict.status for verdict in each.verdicts), _points(each)
    return {"student": each.student, "lab": each.lab, "points": points, "of": of,
            "late_percent": f"{each.late_percent:g}", "right": count[RIGHT], "wrong": count[WRONG],
            "no_answer": count[NO_ANSWER], "not_judged": count[BY_HAND], "findings": len(each.findings),
            "copies": sum(each.student in shared for shared, _ in copies), "file": each.file, "problem": each.problem}


def _points(each: Graded) -> tuple[str, str]:
    return ("", "") if each.problem else (f"{each.points:g}", f"{each.of:g}")


def _summary(each: Graded) -> str:
    """Return the line of points, or why there are none."""
    if each.problem:
        return f"not graded: {plain(each.problem)}"
    late = f", after {each.late_percent:g} % for lateness" if each.late_percent else ""
    return f"{each.points:g} of {each.of:g} points{late}"


def feedback(each: Graded) -> str:
    """Return a student's feedback as Markdown: each exercise, and what to explain; never a solution."""
    lines = [f"# {each.lab or 'Hand-in'}: {each.student}", "", _summary(each) + ".", ""]
    for verdict in each.verdicts:
        points = "" if verdict.status == BY_HAND else f" ({verdict.points:g} of {verdict.of:g})"
        text = "\n  ".join(map(plain, verdict.text.split("\n")))
        lines.append(f"- **{verdict.exercise}**: {verdict.status}{points}. {text}")
    if each.verdicts:
        lines += ["", "The open questions are graded by a person."]
    if each.findings:
        lines += ["", "## Please explain", "", "These figures look odd. If you can explain them, all is well.", "",
                  *(f"- {plain(finding)}" for finding in each.findings)]
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
        lines += _about(lab, [each for each in graded if each.lab == lab and not each.problem])
    lines += _section("Two hand-ins of one student: remove one, and grade again", conflicts)
    lines += _section("Not graded", problems)
    lines += _section("Files that are not hand-ins", others)
    lines += _section("Shared or copied? You decide", [line for _, line in copies])
    lines += _section("To explain", [f"{each.student}, {finding}" for each in graded for finding in each.findings])
    return "\n".join(lines)


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *(f"- {plain(line)}" for line in lines or ["none"]), ""]


def _about(lab: str, graded: Sequence[Graded]) -> list[str]:
    """Return a lab's exercises, those that most got wrong first."""
    count: dict[str, Counter[str]] = defaultdict(Counter)
    for verdict in (verdict for each in graded for verdict in each.verdicts):
        count[verdict.exercise][verdict.status] += 1
    rows = [[exercise, *(str(its[status]) for status in STATUSES)]
            for exercise, its in sorted(count.items(), key=lambda item: (item[1][RIGHT], item[0]))]
    return [f"## {lab}", "", tables.Grid("", ["exercise", *STATUSES], rows).markdown(), ""]


def open_pages(graded: Sequence[Graded]) -> Iterator[tuple[str, str]]:
    """Yield each lab with its open questions: the rubric, and below each question what the students wrote."""
    rubric = ROOT / "solutions/rubric.md"
    sections = re.split(r"(?m)^## Lab ", rubric.read_text(encoding="utf-8") if rubric.exists() else "")
    by_lab: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for each in graded:
        written = open_answers(each.hand_in) if each.hand_in and not each.problem else {}
        for number, text in written.items():
            quoted = "\n".join(f"> {tables.markdown(line)}" for line in text.splitlines())
            by_lab[each.lab][number].append(f"### {each.student}\n\n{quoted}\n")
    for lab, of_lab in sorted(by_lab.items()):
        section = next((text for text in sections if text.startswith(f"{int(lab[3:5])}:")), "")
        lines = [f"# Open questions of {lab}", "", "For instructors: it has the model answers.", ""]
        for question in re.split(r"(?m)^(?=\*\*\d+\. )", section)[1:]:
            its = question[2:].partition(".")[0]
            lines += [f"## Question {its}", "", question.strip(), "", *of_lab.pop(its, ["Nobody answered.\n"])]
        yield lab, "\n".join([*lines, *(["## Other text", ""] if of_lab else []),
                              *(text for texts in of_lab.values() for text in texts)])
