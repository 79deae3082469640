"""What `labs grade` writes: a table of points, feedback for each student, and pages on the class."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from labs.run.paths import ROOT
from labs.run.text import plural, printable
from labs.tools.grade.judge import BY_HAND, NO_ANSWER, RIGHT, WRONG, Graded

BARS = 10
"""Groups of the points' distribution."""


def table(graded: Sequence[Graded], copies: Mapping[str, Sequence[str]], form: str) -> str:
    """Return all hand-ins as CSV.

    Args:
        graded: The hand-ins, one per student and lab.
        copies: Findings on copies, by student.
        form: The columns: those that Moodle or Canvas imports, or "plain" with all that is known.
    """
    rows: list[list[object]] = []
    if form == "plain":
        rows.append(["student", "lab", "points", "of", "late_percent", "right", "wrong", "no_answer", "not_judged",
                     "findings", "copies", "file", "problem"])
        for each in graded:
            count = Counter(verdict.status for verdict in each.verdicts)
            rows.append([each.student, each.lab, *_points(each), f"{each.late_percent:g}",
                         *(count[status] for status in (RIGHT, WRONG, NO_ANSWER, BY_HAND)), len(each.findings),
                         len(copies.get(each.student, ())), printable(each.file), printable(each.problem)])
    else:
        labs, students = sorted({each.lab for each in graded}), sorted({each.student for each in graded})
        by_name = {(each.student, each.lab): each for each in graded}
        rows += _head(form, labs, by_name)
        for student in students:
            cells: list[object] = [student] if form == "moodle" else ["", "", "", student, ""]
            for lab in labs:
                one = by_name.get((student, lab))
                cells.append(_points(one)[0] if one else "")
                cells += [" ".join(_summary(one).split()) if one else ""] if form == "moodle" else []
            rows.append(cells)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([[_harmless(cell) for cell in row] for row in rows])
    return text.getvalue()


def _head(form: str, labs: Sequence[str], by_name: Mapping[tuple[str, str], Graded]) -> list[list[object]]:
    if form == "moodle":
        return [["ID number", *(f"Assignment: {lab} ({what})" for lab in labs for what in ("Real", "Feedback"))]]
    most = [max(each.of for (_, its), each in by_name.items() if its == lab) for lab in labs]
    return [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *labs],
            ["    Points Possible", "", "", "", "", *(f"{points:g}" for points in most)]]


def _harmless(cell: object) -> str:
    """Return a cell that no spreadsheet takes for a formula."""
    text = str(cell)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _points(each: Graded) -> tuple[str, str]:
    return ("", "") if each.problem else (f"{each.points:g}", f"{each.of:g}")


def _summary(each: Graded) -> str:
    """Return the line of points, or why there are none."""
    if each.problem:
        return f"not graded: {printable(each.problem)}"
    late = f", after {each.late_percent:g} % for lateness" if each.late_percent else ""
    return f"{each.points:g} of {each.of:g} points{late}"


def feedback(each: Graded) -> str:
    """Return a student's feedback as Markdown: each exercise, and what to explain; never a solution."""
    lines = [f"# {each.lab or 'Hand-in'}: {each.student}", "", _summary(each) + ".", ""]
    for verdict in each.verdicts:
        points = "" if verdict.status == BY_HAND else f" ({verdict.points:g} of {verdict.of:g})"
        lines += [f"- **{verdict.exercise}**: {verdict.status}{points}. {_indented(verdict.text)}"]
    if each.verdicts:
        lines += ["", "The open questions are graded by a person."]
    if each.findings:
        lines += ["", "## Please explain", "", "These figures look odd. If you can explain them, all is well.", "",
                  *(f"- {finding}" for finding in each.findings)]
    return "\n".join(lines) + "\n"


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def class_page(graded: Sequence[Graded], copies: Mapping[str, Sequence[str]], replaced: Sequence[str]) -> str:
    """Return the page on the class as Markdown.

    Args:
        graded: The hand-ins, one per student and lab.
        copies: Findings on copies, by student.
        replaced: Lines on earlier hand-ins of the same student.
    """
    problems = [f"- `{printable(each.file)}`: {printable(each.problem)}" for each in graded if each.problem]
    lines = ["# The class", "", f"{plural(len(graded), 'hand-in')}, {len(problems)} of them not graded.", ""]
    for lab, of_lab in groupby(sorted((each for each in graded if not each.problem), key=lambda each: each.lab),
                               key=lambda each: each.lab):
        lines += _about(lab, list(of_lab))
    lines += _section("Not graded", problems)
    lines += _section("Equal records: shared or copied", [f"- {student}: {line}" for student in sorted(copies)
                                         for line in copies[student]])
    lines += _section("To explain", [f"- {each.student}, {finding}" for each in graded for finding in each.findings])
    lines += _section("More than one hand-in", [f"- {line}" for line in replaced])
    return "\n".join(lines)


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *(lines or ["None."]), ""]


def _about(lab: str, graded: Sequence[Graded]) -> list[str]:
    """Return a lab's exercises, those that most got wrong first, and the distribution of points."""
    count: dict[str, Counter[str]] = defaultdict(Counter)
    for verdict in (verdict for each in graded for verdict in each.verdicts):
        count[verdict.exercise][verdict.status] += 1
    statuses = RIGHT, WRONG, NO_ANSWER, BY_HAND
    lines = [f"## {lab}", "", "| exercise | " + " | ".join(statuses) + " |", "|---" * 5 + "|"]
    for exercise, its in sorted(count.items(), key=lambda item: (item[1][RIGHT], item[0])):
        lines.append(f"| {exercise} | " + " | ".join(str(its[status]) for status in statuses) + " |")
    groups = Counter(min(int(BARS * each.points / each.of), BARS - 1) for each in graded if each.of)
    bars = [f"{100 * group // BARS:3} to {100 * (group + 1) // BARS:3} % {'#' * groups[group]} {groups[group]}"
            for group in range(BARS)]
    return [*lines, "", "Points, in percent of the maximum:", "", "```", *bars, "```", ""]


def open_answers(graded: Sequence[Graded]) -> Iterator[tuple[str, str]]:
    """Yield each lab with its open questions: the rubric, and below each question what the students wrote."""
    rubric = ROOT / "solutions/rubric.md"
    sections = re.split(r"(?m)^## Lab ", rubric.read_text(encoding="utf-8") if rubric.exists() else "")
    for lab in sorted({each.lab for each in graded if each.words}):
        section = next((text for text in sections if text.startswith(f"{int(lab[3:5])}:")), "")
        written: dict[str, list[str]] = defaultdict(list)
        for each in graded:
            for words in each.words if each.lab == lab else ():
                number = re.match(r"[\W_]{0,4}(\d{1,2})[.)]", words)
                written[number[1] if number else ""].append(f"### {each.student}\n\n{_quoted(words)}\n")
        lines = [f"# Open questions of {lab}", "", "For instructors: it has the model answers.", ""]
        for question in re.split(r"(?m)^(?=\*\*\d+\. )", section)[1:]:
            its = question[2:].partition(".")[0]
            lines += [f"## Question {its}", "", question.strip(), "", *written.pop(its, ["Nobody answered.\n"])]
        yield lab, "\n".join([*lines, *(["## Other text", ""] if written else []),
                              *(text for texts in written.values() for text in texts)])


def _quoted(words: str) -> str:
    return "\n".join(f"> {line}" for line in words.splitlines())
