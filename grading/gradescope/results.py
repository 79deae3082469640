"""Grade one submission as Gradescope has it: BASE/submission in, BASE/results/results.json out.

    python grading/gradescope/results.py /autograder
"""

import sys
from pathlib import Path

from labs.run import atomic
from labs.tools.grade import judge
from labs.tools.grade.judge import BY_HAND, RIGHT, Graded


def main(base: Path) -> None:
    """Grade the submission and write the results."""
    submission = base / "submission"
    zips = sorted(submission.glob("*.zip"))  # Gradescope unpacks a zip that a student uploads.
    # Functions need no container: Gradescope's own holds one submission and no solutions.
    hand_in = judge.read(zips[0] if zips else submission, base)
    graded = judge.judge(hand_in, judge.read_points(judge.POLICY))
    (base / "results").mkdir(exist_ok=True)
    atomic.write_json(base / "results/results.json", results(graded))


def results(graded: Graded) -> dict:
    """Return what Gradescope shows: a test per exercise, and what only instructors see."""
    if graded.problem:
        return {"score": 0, "output": f"Not graded: {graded.problem}"}
    tests: list[dict] = []
    for verdict in graded.verdicts:
        shown = {"name": verdict.exercise, "output": f"{verdict.status}: {verdict.text}"}
        marks = {"score": verdict.points, "max_score": verdict.of,
                 "status": "passed" if verdict.status == RIGHT else "failed"}
        tests.append(shown if verdict.status == BY_HAND else shown | marks)
    if graded.findings:
        tests.append({"name": "To explain", "output": "\n".join(graded.findings), "visibility": "hidden"})
    return {"score": graded.points, "tests": tests, "output": "The open questions are graded by a person."}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
