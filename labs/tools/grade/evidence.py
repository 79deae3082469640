"""What is odd about a hand-in: records that were changed or have impossible clocks, and what two students share.

Each finding is a question for a person, not a verdict.
"""

from __future__ import annotations

import ast
import builtins
import datetime
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from labs.course.hand_ins import HandIn
from labs.lint import checker
from labs.measure import throughput
from labs.results import records, reference
from labs.results.records import Record
from labs.run.paths import ROOT
from labs.run.student import personal_seed
from labs.run.text import plural

FEWEST = 2
"""How many clocks two records must share to be called copies. One that is equal to the last digit is rare already."""
Clock = float | tuple[float, ...]
"""A time that no other run has, of an epoch, the whole run or the ledger; or the times of all epochs relative to the
first, which stay if all are multiplied by a number."""
SLACK = datetime.timedelta(minutes=5)
"""How far the clocks of two computers may be apart."""
KIT = "the kit"
"""The owner of the saved runs that come with the kit."""
OF_A_PAGE = 1000
"""Seeds of pages and sweeps are below; those of students' own runs are nearly always above."""


def clocks(record: Record) -> tuple[str, frozenset[Clock]]:
    """Return a record's run and its clocks; round times, such as typed ones, are left out."""
    rows = [*record["history"], record["timings"], record["metrics"]]
    seconds = (value for row in rows for name, value in row.items() if name.endswith("seconds"))
    measured: set[Clock] = {value for value in seconds if isinstance(value, float) and value != round(value, 4)}
    epochs = [row.get("train_seconds") for row in record["history"]]
    if len(epochs) > 2 and all(isinstance(each, float) and each > 0 for each in epochs):
        measured.add(tuple(float(f"{each / epochs[0]:.7g}") for each in epochs[1:]))
    return f"{record['lab']}/{record['run']}", frozenset(measured)


def moment(text: str) -> datetime.datetime | None:
    """Return a time in ISO 8601, in UTC if it has no offset; None if it is not one."""
    try:
        time = datetime.datetime.fromisoformat(text)
        return time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
    except ValueError:
        return None


def findings(hand_in: HandIn, created: datetime.datetime | None, term: datetime.datetime | None) -> Iterator[str]:
    """Yield what is odd about a hand-in's records.

    Args:
        hand_in: The hand-in.
        created: When it was packed.
        term: When the course began; None: unknown.
    """
    if created is None:
        yield f"the time of the hand-in is {hand_in.manifest.created!r}, so lateness is unknown"
    elif created > datetime.datetime.now(datetime.UTC) + SLACK:
        yield f"the time of the hand-in is {hand_in.manifest.created}, in the future"
    yield from (f"left out: {problem}" for problem in hand_in.damaged.values())
    if hand_in.others:
        yield f"{plural(len(hand_in.others), 'file')} beside the hand-in, not read, such as {hand_in.others[0]}"
    yield from (f"{name} mentions {kit}" for name, cell in hand_in.functions.items() for kit in sorted(_kit(cell)))
    about: dict[str, list[str]] = defaultdict(list)
    for record in hand_in.records:
        owner = hand_in.manifest.student
        for problem in (*_identity(record, owner), *_history(record), *_dates(record, created, term)):
            about[problem].append(f"{record['lab']}/{record['run']}")
    for problem, (first, *others) in about.items():
        more = f" and {plural(len(others), 'other record')}" if others else ""
        yield f"{first}{more}: {problem}"
    yield from map(str, checker.check_records(hand_in.records))


def _identity(record: Record, student: str) -> Iterator[str]:
    if record.get("student", student) != student:
        yield f"a run of {record['student']!r}, handed in by {student}"
    states = {"edited": "changed after the run: its contents do not match its digest",
              "none": "no digest: made by an earlier version of the kit, or the digest was removed"}
    if problem := states.get(records.digest_state(record)):
        yield problem


def _history(record: Record) -> Iterator[str]:
    """Yield where a record's timings contradict its epochs."""
    history, timings = record["history"], record["timings"]
    seconds = [value for row in history for name, value in row.items() if name.endswith("seconds") and value]
    if len(seconds) > 1 and all(value == round(value, 3) for value in seconds):
        yield "its times are rounded: typed or edited"
    try:
        spent = sum(row.get("train_seconds", 0.0) + row.get("val_seconds", 0.0) for row in history)
        expected = {"first_epoch_seconds": history[0]["train_seconds"] if history else None,
                    "seconds_per_epoch": throughput.seconds_per_epoch(history),
                    "images_per_sec": throughput.images_per_sec(history)}
        whole = timings.get("total_seconds")
        if whole is not None and spent > max(whole, record["metrics"].get("wall_seconds", 0.0)):  # Lab 12's counts all.
            yield (f"its epochs took {spent:.1f} s, the whole run {whole:.1f} s: a resumed run, whose clock begins at "
                   "its last start, or edited")
        for name, value in expected.items():
            stated = timings.get(name)
            if stated != value and (stated is None or value is None or abs(stated - value) > 1e-6 * abs(value)):
                yield f"{name} is {stated}, but its epochs give {value}: edited"
    except (LookupError, TypeError, ArithmeticError) as problem:
        yield f"its history cannot be checked: {type(problem).__name__}: {problem}"


def _dates(record: Record, created: datetime.datetime | None, term: datetime.datetime | None) -> Iterator[str]:
    began = moment(record["started"])
    if began is None:
        yield f"started at {record['started']!r}, which is not a time"
        return
    seconds = record["timings"].get("total_seconds")
    if created and began + datetime.timedelta(seconds=min(seconds or 0, 1e8)) > created + SLACK:
        yield f"began at {record['started']}, and ended after the hand-in was packed"
    if term and began < term:
        yield f"began at {record['started']}, before the term"


def copies(hand_ins: Sequence[HandIn]) -> list[tuple[tuple[str, ...], str]]:
    """Return what two or more students share, or a student and the kit: whose it is, and a line.

    Args:
        hand_ins: One per student and lab.
    """
    return [*_equal_clocks(hand_ins), *_equal_losses(hand_ins), *_foreign_seeds(hand_ins),
            *_equal_functions(hand_ins)]


def _equal_clocks(hand_ins: Sequence[HandIn]) -> Iterator[tuple[tuple[str, ...], str]]:
    runs = [(hand_in.manifest.student, *clocks(record)) for hand_in in hand_ins for record in hand_in.records]
    for path in sorted(reference.FOLDER.rglob("record.json")):
        runs.append((KIT, str(path.parent.relative_to(ROOT)), clocks(records.read(path.parent))[1]))
    owners: dict[Clock, dict[str, str]] = defaultdict(dict)  # Clock -> student -> run.
    for student, run, measured in runs:
        for clock in measured:
            owners[clock].setdefault(student, run)
    shared: dict[tuple[tuple[str, str], tuple[str, str]], list[Clock]] = defaultdict(list)
    for clock, run_of in owners.items():
        for pair in itertools.combinations(sorted(run_of.items()), 2):
            shared[pair].append(clock)
    for ((student, run), (other, its)), both in sorted(shared.items()):
        equal = [clock for clock in both if isinstance(clock, float)]
        same = (f"{len(equal)} times equal to the last digit, such as {equal[0]!r} s" if len(equal) >= FEWEST else
                "the times of all epochs in the same proportion" if len(equal) < len(both) else "")
        if same:
            yield (student, other), f"{student}'s {run} and {other}'s {its}: {same}: the same run, or a copy"


def _equal_losses(hand_ins: Sequence[HandIn]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield students with equal losses, as far as they are written. The seed of a page gives them honestly."""
    runs = [(hand_in.manifest.student, record, losses) for hand_in in hand_ins for record in hand_in.records
            if len(losses := [row["loss"] for row in record["history"] if isinstance(row.get("loss"), float)]) > 1]
    for (student, record, mine), (other, its, losses) in itertools.combinations(runs, 2):
        if student == other or record["lab"] != its["lab"] or len(mine) != len(losses):
            continue
        digits = min(_digits(mine), _digits(losses))
        equal = digits > 1 and all(round(one, digits) == round(two, digits)
                                   for one, two in zip(mine, losses, strict=True))
        if equal and not (_is_of_page(record, student) and _is_of_page(its, other)):
            yield (student, other), (f"{student}'s {record['lab']}/{record['run']} and {other}'s {its['run']}: the "
                                     f"losses of all {len(mine)} epochs are equal")


def _digits(values: Sequence[float]) -> int:
    return max(len(repr(value).partition(".")[2]) for value in values)


def _is_of_page(record: Record, student: str) -> bool:
    """Return whether a record is unchanged, the student's, and of a seed with which the whole class runs."""
    return (_seed(record) < OF_A_PAGE and records.digest_state(record) == "intact" and record.get("student") == student)


def _seed(record: Record) -> int:
    seed = record["config"].get("seed")
    return seed if isinstance(seed, int) else 0


def _foreign_seeds(hand_ins: Sequence[HandIn]) -> Iterator[tuple[tuple[str, ...], str]]:
    of_student = {personal_seed(hand_in.manifest.student): hand_in.manifest.student for hand_in in hand_ins}
    for hand_in in hand_ins:
        for record in hand_in.records:
            other, student = of_student.get(_seed(record)), hand_in.manifest.student
            if other and other != student:
                yield (student, other), f"{student}'s {record['lab']}/{record['run']} has the seed of {other}"


def _equal_functions(hand_ins: Sequence[HandIn]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield students with the same function, the longest first: short ones may be equal by chance."""
    owners: dict[tuple[str, str], list[str]] = defaultdict(list)
    for hand_in in hand_ins:
        for task, cell in hand_in.functions.items():
            if text := _without_names(cell):
                owners[task, text].append(hand_in.manifest.student)
    for (task, text), students in sorted(owners.items(), key=lambda item: -len(item[0][1])):
        if len(students) > 1:
            yield tuple(students), (f"{task} of {', '.join(students)}: equal but for names and comments "
                                    f"({plural(len(text.splitlines()), 'line')})")


class _Names(ast.NodeTransformer):
    """Numbers the names of a cell in the order in which they occur."""

    def __init__(self) -> None:
        self.numbers: dict[str, str] = {}

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("id", "arg", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str) and not hasattr(builtins, name):
                setattr(node, field, self.numbers.setdefault(name, f"v{len(self.numbers)}"))
        return super().generic_visit(node)


def _without_names(cell: str) -> str:
    """Return the code of a cell without its names, comments, docstrings, imports and checks; "" if it is not code."""
    try:
        statements = ast.parse(cell).body
        kept = [node for node in statements if not isinstance(node, ast.Import | ast.ImportFrom)
                and "exercises" not in ast.unparse(node)]
        for node in (each for statement in kept for each in ast.walk(statement)):
            if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
        return "\n".join(ast.unparse(_Names().visit(node)) for node in [ast.Module(kept, [])])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


def _kit(cell: str) -> set[str]:
    """Return the modules of the kit that a cell names, apart from what every page imports."""
    try:
        nodes = list(ast.walk(ast.parse(cell)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    named = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    named += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    named += [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return {name for name in named if name.startswith(("labs.course.exercises", "solutions"))}
