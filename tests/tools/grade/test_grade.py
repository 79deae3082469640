"""`labs grade`: a class of hand-ins, right, wrong, copied, hostile, damaged and late."""

from __future__ import annotations

import csv
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from labs.course import exercises
from labs.run import catalogue
from labs.run.paths import ROOT
from labs.tools.grade import command, confinement, evidence, judge, policy
from tests.course.exercises import planted
from tests.tools.grade import packed

pytestmark = pytest.mark.skipif(not (ROOT / "solutions").is_dir(), reason="solutions/ is left out here")
POLICY = policy.read(policy.DEFAULT)
WORDS = "**1.** The baseline of each batch size is one worker with that batch size.\n\n2. Weak scaling, because ..."
EVIL = """
import os, subprocess
def excess(one, many, n):
    for attempt in ("open('/etc/passwd').read()", "os.fork()", "os.kill(os.getppid(), 9)", "subprocess.run(['true'])",
                    "open(VICTIM, 'w').write('mine')", "os.unlink(VICTIM)"):
        try:
            eval(attempt)
            return {entry: 0 for entry in one}  # Wrong: the attempt succeeded.
        except (PermissionError, OSError):
            pass
    os.write(4, b'{"value": "right", "args": []}\\n')
    os._exit(0)
"""


@pytest.fixture
def no_functions(monkeypatch):
    """Judge no functions, which takes a second each."""
    monkeypatch.setattr(confinement, "missing", lambda unsafe: "anything")


def graded(folder, *words, path=""):
    done = subprocess.run([sys.executable, "-m", "labs", "grade", str(folder), *words], cwd=ROOT, capture_output=True,
                          text=True, check=False, env=os.environ | {"PYTHONPATH": f"{path}:{ROOT}"})
    assert done.returncode == 0, done.stderr
    with open(folder / "graded/grades.csv", newline="") as file:
        return done.stdout, list(csv.DictReader(file))


def changed_copy(runs: list[dict], student: str) -> list[dict]:
    """Return records as a student who copies them changes them: names, accuracies, throughput, digest."""
    changed = []
    for record in runs:
        history = [row | {"accuracy": row["accuracy"] - 0.01} for row in record["history"]]
        timings = record["timings"] | {"images_per_sec": record["timings"]["images_per_sec"] * 1.07}
        run = f"mine-{record['run']}"
        changed.append(packed.signed(record | {"run": run, "history": history, "timings": timings}, student))
    return changed


@pytest.fixture(scope="module")
def a_class(tmp_path_factory):
    """Grade a class, without any TensorFlow; return what was printed, the rows by student, and the folder."""
    folder = tmp_path_factory.mktemp("class")
    runs = packed.measured("lab04", "right")
    packed.write(folder, "right", runs=runs, words=WORDS)
    packed.write(folder, "wrong", answers={"lab04.q1": {64: 0.1, 16: 0.2}, "lab04.q3": None, "lab04.q2": 10.0},
                 functions={"lab04.excess": "def excess(one, many, n):\n    return {e: many[e] - one[e] for e in one}"})
    packed.write(folder, "copied", runs=changed_copy(runs, "copied"))
    (folder / "victim").write_text("another student's")
    packed.write(folder, "hostile", functions={"lab04.excess": EVIL.replace("VICTIM", repr(str(folder / "victim")))})
    (folder / "lab04_speedup-broken.zip").write_bytes(b"PK\3\4 no more")
    (folder / "Ann").mkdir()
    (folder / "Ann/=cmd.zip").write_bytes(b"")
    trap = tmp_path_factory.mktemp("trap")
    (trap / "tensorflow.py").write_text("import os\nos._exit(99)\n")
    printed, rows = graded(folder, path=trap)
    return printed, {row["student"]: row for row in rows}, folder


def feedback(folder, student: str) -> str:
    return (folder / f"graded/feedback/lab04_speedup-{student}.md").read_text()


def test_a_right_hand_in_has_all_points(a_class):
    _, rows, folder = a_class
    assert (rows["right"]["points"], rows["right"]["of"], rows["right"]["wrong"]) == ("15", "15", "0")
    assert feedback(folder, "right").count(": right (") == 7
    assert "Please explain" not in feedback(folder, "right")


def test_a_wrong_one_has_hints_and_no_solution(a_class):
    _, rows, folder = a_class
    row = rows["wrong"]
    assert (row["points"], row["right"], row["wrong"], row["no_answer"]) == ("6", "3", "3", "1")
    text = feedback(folder, "wrong")
    assert "lab04.q1**: wrong (0 of 2)" in text
    assert "takes exactly its ideal time" in text
    assert "ormula" not in text.partition("lab04.q4")[0]


def test_a_copy_with_changed_names_and_figures_is_found(a_class):
    _, rows, folder = a_class
    assert {student for student, row in rows.items() if row["copies"] != "0"} == {"right", "copied"}
    page = (folder / "graded/class.md").read_text()
    assert "copied: lab04_speedup/mine-" in page
    assert "times equal to the last digit" in page
    assert "images_per_sec is" in feedback(folder, "copied")
    assert "copies" not in feedback(folder, "right"), "whom it was copied from is for the instructor"


def test_a_hostile_one_is_contained(a_class):
    _, rows, folder = a_class
    assert (rows["hostile"]["points"], rows["hostile"]["wrong"]) == ("12", "1")
    assert "EndedError" in feedback(folder, "hostile")
    assert (folder / "victim").read_text() == "another student's"


def test_one_that_cannot_be_read_gets_a_row_with_the_reason(a_class):
    printed, rows, folder = a_class
    assert printed.startswith("6 hand-ins, 2 not graded, 2 students with equal records\n")
    assert "zip" in rows["broken"]["problem"]
    assert rows["Ann/=cmd.zip"]["problem"]
    assert rows["broken"]["points"] == ""
    assert "`Ann/=cmd.zip`: " in (folder / "graded/class.md").read_text()


def test_open_answers_stand_below_their_rubric(a_class):
    _, _, folder = a_class
    text = (folder / "graded/open-answers/lab04_speedup.md").read_text()
    first, second = text.split("## Question 1\n")[1].split("## Question 2\n")
    assert "- **2**: " in first
    assert "### right\n\n> **1.** The baseline of each" in first
    assert "> 2. Weak scaling, because" in second


@pytest.mark.slow
def test_the_columns_are_moodles_or_canvas(tmp_path):
    packed.write(tmp_path, "s1", "lab03")
    _, (row,) = graded(tmp_path, "--for", "moodle")
    assert list(row) == ["ID number", "Assignment: lab03_lr_scaling (Real)", "Assignment: lab03_lr_scaling (Feedback)"]
    assert row["ID number"] == "s1"
    assert row["Assignment: lab03_lr_scaling (Feedback)"].endswith("points")
    _, rows = graded(tmp_path, "--for", "canvas")
    assert list(rows[0]) == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "lab03_lr_scaling"]
    assert rows[0]["Student"] == "    Points Possible"
    assert rows[1]["SIS Login ID"] == "s1"
    assert rows[0]["lab03_lr_scaling"] == rows[1]["lab03_lr_scaling"]


@pytest.mark.slow
@pytest.mark.parametrize("lab", catalogue.lab_names())
def test_the_solutions_of_every_lab_are_right(lab, tmp_path):
    each = judge.judge(packed.write(tmp_path, "s1", lab), POLICY)
    by_hand = {"lab02.step"} & set(exercises.tasks(lab))
    assert {verdict.exercise: verdict.text for verdict in each.verdicts if verdict.status != judge.RIGHT} == \
        dict.fromkeys(by_hand, "it needs two real workers: run it with exercises.check in a notebook of your own")
    assert each.points == each.of > 0


@pytest.mark.slow
@pytest.mark.parametrize("lab", catalogue.lab_names())
@pytest.mark.usefixtures("no_functions")
def test_no_hint_to_a_wrong_answer_has_its_formula(lab, tmp_path):
    right, _ = packed.solved(lab, runs := packed.measured(lab, "s1"))
    for number, answer, _ in planted.of(lab).WRONG:
        name = f"{lab[:5]}.{number}"
        about = exercises.questions(lab)[name].select_runs(runs)
        given = answer(about, right[name])
        each = judge.judge(packed.write(tmp_path, "s1", lab, runs=runs, answers={name: given}), POLICY)
        (verdict,) = [verdict for verdict in each.verdicts if verdict.exercise == name]
        assert verdict.status == judge.WRONG
        assert "formula:" not in verdict.text


SESSION = """
import runpy, sys
from labs.course import exercises
solution = runpy.run_path(sys.argv[1], run_name="__main__")
for name in exercises.questions("lab04"):
    exercises.check(name, solution[name[6:]](exercises.runs(name)))
for name in exercises.tasks("lab04"):
    exercises.check(name, solution[name[6:]])
"""


@pytest.mark.slow
def test_what_labs_handin_packs_is_graded_as_the_notebook_judged_it(tmp_path):
    work, results = tmp_path / "work", planted.write(tmp_path / "results", *packed.measured("lab04", "s1"))
    work.mkdir()
    shutil.copy(ROOT / "notebooks/lab04_speedup.ipynb", work)
    env = os.environ | {"LABS_WORK": str(work), "LABS_RESULTS": str(results), "LABS_STUDENT": "s1",
                        "PYTHONPATH": str(ROOT)}
    solution = str(ROOT / "solutions/lab04_speedup.py")
    subprocess.run([sys.executable, "-c", SESSION, solution], cwd=work, env=env, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([sys.executable, "-m", "labs", "handin", "lab04", "--output", str(tmp_path)], cwd=ROOT, env=env,
                   check=True, stdout=subprocess.DEVNULL)
    _, (row,) = graded(tmp_path)
    assert (row["student"], row["points"], row["of"], row["findings"]) == ("s1", "15", "15", "0")


@pytest.mark.slow
@pytest.mark.alone
def test_a_class_of_sixty(tmp_path, capsys):
    for number in range(60):
        packed.write(tmp_path, f"s{number}")
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    _, rows = graded(tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert [(row["points"], row["copies"], row["problem"]) for row in rows] == [("15", "0", "")] * 60
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with capsys.disabled():
        print(f"\n60 hand-ins: {time.perf_counter() - began:.1f} s, {busy:.1f} s of the processors")


@pytest.mark.usefixtures("no_functions")
def test_a_later_run_does_not_make_an_answer_wrong(tmp_path):
    runs, question = packed.measured("lab04", "s1"), exercises.questions("lab04")["lab04.q4"]
    answers, _ = packed.solved("lab04", runs)
    metrics = runs[-1]["metrics"] | {"ledger_communication_seconds": 0.1}
    later = packed.signed(runs[-1] | {"run": "later", "started": "2026-11-30T10:00:00+0000", "metrics": metrics}, "s1")
    about = {"lab04.q4": [run["run"] for run in question.select_runs(runs)]}
    for named, status in ((about, judge.RIGHT), ({}, judge.WRONG), ({"lab04.q4": ["gone"]}, judge.WRONG)):
        each = judge.judge(packed.write(tmp_path, "s1", runs=[*runs, later], answers=answers, about=named), POLICY)
        assert {verdict.exercise: verdict.status for verdict in each.verdicts}["lab04.q4"] == status


def ends_its_process(path):
    if path.name == "b":
        os._exit(3)
    return judge.Graded(str(path), "s1", "lab04_speedup")


def test_one_that_ends_the_graders_process_does_not_stop_the_others():
    a, b, c = command._each(ends_its_process, [Path("a"), Path("b"), Path("c")])
    assert (a.problem, b.problem, c.problem) == ("", "it ended the grader's process", "")


# Points and lateness.

@pytest.mark.usefixtures("no_functions")
@pytest.mark.parametrize(("created", "percent"), [
    ("2026-12-01T23:00:00Z", 0), ("2026-12-02T01:59:00Z", 0), ("2026-12-02T02:01:00Z", 10),
    ("2026-12-03T00:30:00+00:00", 20), ("2027-01-01T00:00:00Z", 50), ("yesterday", 0)])
def test_lateness_costs_what_the_policy_says(created, percent, tmp_path):
    (tmp_path / "policy.toml").write_text(policy.DEFAULT.read_text().replace(
        "# lab04_speedup = 2026-12-04T23:59:00+01:00", "lab04_speedup = 2026-12-02T00:00:00Z"))
    rules = policy.read(tmp_path / "policy.toml")
    each = judge.judge(packed.write(tmp_path, "s1", created=created), rules)
    assert each.late_percent == percent
    assert each.points == pytest.approx(9 * (1 - percent / 100))
    assert any("lateness is unknown" in line for line in each.findings) == (created == "yesterday")


@pytest.mark.parametrize("text", ["[points]\nquestion = -1", "points = 3", "[late", "[points]\nother = 2"])
def test_a_policy_that_is_none_is_refused(text, tmp_path):
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(policy.LabError, match=r"policy\.toml: "):
        policy.read(tmp_path / "policy.toml")


# Records.

def edited(change) -> list[dict]:
    """Return a student's records, of which the last was changed, and its digest computed again."""
    *runs, last = packed.measured("lab04", "s1")
    change(last)
    return [*runs, packed.signed(last, last["student"])]


ODD = {
    "another owner": (lambda run: run.update(student="s2"), "a run of 's2', handed in by s1"),
    "more epochs than the run has time": (lambda run: run["timings"].update(total_seconds=1.5), "the whole run 1.5 s"),
    "a faster figure": (lambda run: run["timings"].update(images_per_sec=999.0), "images_per_sec is 999.0, but its"),
    "after the hand-in": (lambda run: run.update(started="2026-12-01T12:10:00"), "after the hand-in was packed"),
    "of last year": (lambda run: run.update(started="2025-06-01T12:10:00"), "before the term"),
    "no time": (lambda run: run.update(started="noon"), "which is not a time"),
}


@pytest.mark.usefixtures("no_functions")
@pytest.mark.parametrize("name", ODD)
def test_an_odd_record_is_named(name, tmp_path):
    change, reason = ODD[name]
    (tmp_path / "policy.toml").write_text(policy.DEFAULT.read_text().replace("# begins = 2026-09", "begins = 2025-09"))
    rules = policy.read(tmp_path / "policy.toml")
    right, odd = (judge.judge(packed.write(tmp_path, "s1", runs=runs), rules).findings
                  for runs in (edited(lambda run: None), edited(change)))
    assert not [line for line in right if reason in line]
    assert [line for line in odd if reason in line]


@pytest.mark.usefixtures("no_functions")
def test_a_digest_that_differs_or_is_missing_is_named(tmp_path):
    runs = packed.measured("lab04", "s1")
    runs[0]["metrics"]["test_accuracy"] = 0.99
    del runs[1]["digest"]
    lines = judge.judge(packed.write(tmp_path, "s1", runs=runs), POLICY).findings
    about = {words: [line.partition(": ")[0][-len(runs[0]["run"]):] for line in lines if words in line]
             for words in ("changed after the run", "no digest")}
    assert about == {"changed after the run": [runs[0]["run"]], "no digest": [runs[1]["run"]]}


def test_copies_are_found_when_all_clocks_are_multiplied_and_not_among_honest_records(tmp_path):
    mine, other = (packed.measured("lab04", student) for student in ("s1", "s2"))
    slower = packed.measured("lab04", "s1")
    for record in slower:
        for row in record["history"]:
            row["train_seconds"] *= 1.031
        record["timings"]["total_seconds"] *= 1.031
        packed.again(record)

    def found(*students):
        return evidence.copies([(f"s{index}", [evidence.clocks(run) for run in runs])
                                for index, runs in enumerate(students)])

    assert not found(mine, other)
    short = [[other[0] | {"timings": {}, "history": [{"train_seconds": seconds} for seconds in (2.0, *later)]}]
             for later in ((0.0201234567, 0.0204321), (0.0201236543, 0.0204329))]  # Less than a microsecond apart.
    assert not found(*short)
    assert set(found(mine, other, slower)) == {"s0", "s2"}
    assert "in the same proportion" in found(mine, slower)["s1"][0]


def test_a_saved_run_of_the_kit_is_no_record_of_a_student():
    saved = next((ROOT / "data/reference_runs").glob("two-cores/lab04_speedup/*"))
    found = evidence.copies([("s1", [evidence.clocks(evidence.records.read(saved))])])
    assert found["s1"][0].endswith(f"has the times of the kit's own {saved.relative_to(ROOT)}")
