"""Exercises of lab 8: Karp-Flatt, Amdahl's law fitted, the input as a bound, and who has how many threads."""

from labs.exercises.code_tasks import AVERAGED, BROADCAST, StudentFunction, bug, close, code
from labs.exercises.grading import Question, grade_efficiency, grade_number, ratio
from labs.exercises.selecting import Record, images_per_sec, newest, pair_with_one_worker
from labs.pages import laws

NOTEBOOK = "section 'A4: one node' of notebooks/lab08_throughput.ipynb"
MAY_DIFFER = ("epochs",)
"""The throughput leaves the first epoch out and does not depend on the number of epochs."""


def _serial(answer, one: Record, many: Record) -> str:
    size, speedup = many["layout"]["size"], ratio(images_per_sec(many), images_per_sec(one))
    right = float(laws.amdahl_share(size, speedup))
    return grade_number(answer, right, "share", "(1/S - 1/n) / (1 - 1/n), from S = 1 / (s + (1 - s) / n)", {
        "that is Gustafson's share, (n - S) / (n - 1), which is for weak scaling": (size - speedup) / (size - 1),
        "that is 1 - S/n, one minus the efficiency; Amdahl's s is a share of one worker's time":
            1 - speedup / size,
        "that is the parallel share; the serial share is asked for": 1 - right}, abs_tol=0.005)


def _input_share(answer, run: Record) -> str:
    throughput, of_input = images_per_sec(run), run["metrics"]["input_images_per_sec"]
    return grade_number(answer, throughput / of_input, "share", "images_per_sec / input_images_per_sec", {
        "that is upside down: by what factor the input is faster than the training": of_input / throughput})


QUESTIONS = {
    "q1": Question(pair_with_one_worker(NOTEBOOK, may_differ=MAY_DIFFER), grade_efficiency, timed=True),
    "q2": Question(pair_with_one_worker(NOTEBOOK, strong=True, may_differ=MAY_DIFFER), _serial, timed=True),
    "q3": Question(newest("a run with a measured input", "`labs run lab08_throughput`", lambda run:
                   images_per_sec(run) and run["metrics"].get("input_images_per_sec")), _input_share, timed=True),
}


def _grade_karp_flatt(run: StudentFunction) -> str:
    for n, speedup in ((2, 2), (2, 1), (4, 2.5), (8, 6.3), (8, 0.5), (8, 10.56), (run.whole(3, 9), run.real(1.2, 2.8))):
        call = run(n, speedup)
        value = call.number("s is a number")
        call.expect(speedup != n or close(value, 0), "an ideal speedup needs no serial share")
        call.expect(speedup != 1 or close(value, 1), "no speedup at all means that everything is serial")
        call.expect_number(float(laws.amdahl_share(n, speedup)),
                           "put your s into 1 / (s + (1 - s) / n): it is not this speedup", {
            "that is Gustafson's share, (n - S) / (n - 1), which is for weak scaling": (n - speedup) / (n - 1),
            "that is 1 - S / n, which is 1 - E": 1 - speedup / n})
    run.expect_value_error(1, 1, because="one worker says nothing about s")
    return "Amdahl's law with this s gives the speedup back; above n it is negative, below 1 it is above 1"


def _grade_fit_amdahl(run: StudentFunction) -> str:
    # Numbers of workers and speedups: first those of an s of 0.25.
    points = (([2, 4], [1.6, 2.285714285714286]), ([1, 2, 4, 8], [1, 1.8, 3.0, 4.4]), ([2, 8], [1.9, 3.0]))
    drawn = [2, 4, 8], [run.real(1.5, 1.9), run.real(2.2, 3.2), run.real(3.5, 6)]
    for n, speedups in (*points, drawn):
        call = run(n, speedups)
        value = call.number("s is a number")
        shares = [float(laws.amdahl_share(*point)) for point in zip(n, speedups, strict=True) if point[0] > 1]
        call.expect(min(shares) - 1e-6 <= value <= max(shares) + 1e-6,
                    "the fitted s is not between the smallest and the largest s that a single point needs")
        call.expect_number(laws.fit_amdahl(n, speedups), "another s has a smaller sum of squares", {
            "that is the plain mean of the points' s; least squares gives points with a larger x more weight":
                sum(shares) / len(shares)})
    for n, speedups in (([8], [6.3]), ([1, 8, 8], [1, 6.3, 6.4])):
        run.expect_value_error(n, speedups, because="these points lie on the law, whatever they are")
    return "the least-squares s; points at a single number of workers are refused"


def _grade_input_bound(run: StudentFunction) -> str:
    for compute, reading in ((1000, 1000), (1500, 1100), (60, 4000), (run.whole(50, 2000), run.whole(50, 2000))):
        for one_core in (False, True):
            call = run(compute, reading, one_core)
            value, slower = call.number(), min(compute, reading)
            call.expect(value > 0, "the throughput is a positive number")
            call.expect(value <= slower * 1.000001, "no training is faster than its slower stage")
            if one_core:
                call.expect(not close(value, slower), "on one core the reading takes time away from the training")
                call.expect(close(compute * reading / value, compute + reading),
                            "on one core the seconds of an image, 1 / throughput, add up")
            else:
                call.expect(close(value, slower), "on separate cores the slower stage decides alone")
    return "the slower stage where both have cores; added seconds per image where they share one"


TASKS = {
    "karp_flatt": code("n, speedup", _grade_karp_flatt),
    "fit_amdahl": code("n, speedups", _grade_fit_amdahl),
    "input_bound": code("compute, reading, one_core", _grade_input_bound),
    "bug": bug("more threads compute than the node has cores", 17, (
        "each of the processes starts as many threads as the node has cores: together they have `local_size` times "
        "too many, and wait for each other"), {
        "the workers end with different weights": "they begin equal and add equal gradients",
        "some images are left out": "each worker makes its own images; none is left out",
        "the global batch changes with the number of workers": "the batch of one worker is the global batch over "
            "size"}, {
        21: "the global batch is divided among the workers, as strong scaling has it", 28: AVERAGED, 30: BROADCAST,
        36: "it counts the images of all workers over the slowest worker's seconds, as it should"}),
}
