"""Exercises of lab 11: settings on several nodes, a step over a link, a queue with backfill, noise."""

import math

from labs.exercises.code_tasks import AVERAGED, StudentFunction, bug, close, code
from labs.exercises.grading import Question, grade_entries, grade_number
from labs.exercises.selecting import Record, images_per_sec, multi_worker, newest, pair_with_one_worker
from labs.pages import laws

COMMAND = "`labs run lab11_multinode --workers 2`"
NOTEBOOK = "section 'Eight workers are one large batch' of notebooks/lab11_multinode.ipynb"
NODES, WORKERS_PER_NODE = 4, 2


def _plan(answer, run: Record) -> str:
    config, images = run["config"], run["history"][0]["images"]
    batch, base, lr = (config[name] for name in ("batch_size", "base_batch_size", "base_lr"))
    size = NODES * WORKERS_PER_NODE

    def steps(workers: int) -> int:
        return math.ceil(images / (batch * workers))

    def counted(of) -> dict[str, float]:
        return {"that counts nodes; hvd.size() counts the workers of all nodes": of(NODES),
                "that counts the workers of one node, hvd.local_size()": of(WORKERS_PER_NODE),
                "that is for one worker": of(1)}

    return grade_entries(answer, {
        "global_batch_size": lambda value: grade_number(
            value, batch * size, "images", "batch_size x hvd.size()", counted(lambda n: batch * n), rel_tol=1e-6),
        "scaled_lr": lambda value: grade_number(
            value, lr * batch * size / base, "learning rate", "base_lr x global batch / base_batch_size",
            counted(lambda n: lr * batch * n / base) |
            {"k is global batch / base_batch_size, not the number of workers": lr * size}, rel_tol=1e-3),
        "steps_per_epoch": lambda value: grade_number(
            value, steps(size), "steps", "training images / global batch, rounded up", counted(steps) |
            {"that is not rounded up: the remaining images make a step, too": images / (batch * size),
             "that leaves out the last, smaller step": images // (batch * size)}, rel_tol=1e-6)})


def _share(answer, run: Record) -> str:
    layout, exchange = run["layout"], run["metrics"]["allreduce_seconds"]
    step = layout["global_batch_size"] / images_per_sec(run)
    return grade_number(answer, exchange / step, "share", "allreduce_seconds / (global batch / images_per_sec)", {
        "that uses the batch of one worker; images_per_sec is the throughput of all workers":
            exchange / step * layout["size"],
        "that is upside down": step / exchange,
        "that is relative to an epoch; the exchange happens in each step":
            exchange / run["timings"]["seconds_per_epoch"]})


def _noise(answer, *runs: Record) -> str:
    accuracies = [run["metrics"]["test_accuracy"] for run in runs]
    variances = [p * (1 - p) / run["metrics"]["test_images"] for p, run in zip(accuracies, runs, strict=True)]
    difference = abs(accuracies[1] - accuracies[0])
    right = difference / math.sqrt(sum(variances))
    return grade_number(answer, right, "standard errors", "|p1 - p2| / sqrt(p1 (1 - p1) / n + p2 (1 - p2) / n)", {
        "that is in standard errors of one accuracy; the difference of two is more uncertain":
            difference / math.sqrt(variances[0]),
        "that adds the two standard errors; their squares add": difference / sum(map(math.sqrt, variances)),
        "that is the difference itself": difference}, abs_tol=0.02)


QUESTIONS = {
    "q1": Question(newest("a run", COMMAND, lambda run: run["history"]), _plan),
    "q2": Question(newest("several workers", COMMAND, lambda run: multi_worker(run) and images_per_sec(run) and
                   run["metrics"].get("allreduce_seconds")), _share, timed=True),
    # For an accuracy of 1, the standard error would be 0.
    "q3": Question(pair_with_one_worker(NOTEBOOK, strong=True, accept=lambda run: run["metrics"].get("test_images") and
                                        0 < run["metrics"]["test_accuracy"] < 1), _noise),
}


def _grade_plan(run: StudentFunction) -> str:
    jobs = [(1, 1, 128, 1024, 0.001, 128, "linear"), (1, 2, 128, 1024, 0.001, 128, "linear"),
            (2, 1, 128, 1000, 0.001, 128, "none"), (2, 3, 128, 60_000, 0.001, 128, "sqrt"),
            (2, 4, 32, 1438, 0.002, 64, "linear"), (8, 4, 128, 60_000, 0.001, 128, "sqrt")]
    drawn = run.whole(2, 9), run.whole(2, 9), 32, run.whole(10**3, 10**5), run.real(0.001, 0.01), 64, "sqrt"
    for nodes, tasks, batch, images, lr, base, scaling in (*jobs, drawn):
        call, size = run(nodes, tasks, batch, images, lr, base, scaling), nodes * tasks
        k = batch * size / base
        right = {"global_batch_size": batch * size, "steps_per_epoch": math.ceil(images / (batch * size)),
                 "scaled_lr": lr * {"linear": k, "sqrt": math.sqrt(k), "none": 1}[scaling]}
        value = call.value if isinstance(call.value, dict) else {}
        call.expect(set(value) == set(right), f"the result is a dictionary with the keys {', '.join(sorted(right))}")
        total, steps, scaled_lr = call.numbers([value[name] for name in right], 3, "each entry is a number")
        call.expect(tasks == 1 or nodes == 1 or total != batch * nodes,
                    "the global batch belongs to all workers of all nodes, not to one of each node")
        call.expect(close(total, right["global_batch_size"]),
                    "a step uses the images of all workers: nodes x tasks x batch_size")
        call.expect(steps == right["steps_per_epoch"],
                    "an epoch uses every image: the last step may be smaller, but it is a step")
        call.expect(not (scaling == "linear" and base != batch and close(scaled_lr, lr * size)),
                    "k is the global batch / base_batch, not the number of workers")
        call.expect(close(scaled_lr, right["scaled_lr"]),
                    "the learning rate is lr times k, the root of k, or 1, by the rule")
    return "global batch, learning rate and steps follow from nodes x tasks"


def _grade_step(run: StudentFunction) -> str:
    steps = [(1, 0.03, 1e6, 1e9), (2, 0.03, 1e6, 1e8), (4, 0.02, 4.8e6, 1e9), (8, 0.006, 4.8e6, 1e10)]
    drawn = run.whole(3, 9), run.real(0.01, 0.1), run.whole(10**6, 10**7), 1e9
    for n, compute, nbytes, bandwidth in (*steps, drawn):
        call = run(n, compute, nbytes, bandwidth)
        exchange = 2 * (n - 1) / n * 8 * nbytes / bandwidth
        call.expect(n > 1 or close(call.number(), compute), "one node has nobody to exchange with")
        call.expect_number(compute + exchange, "a step is its computation and the ring's bytes over the link", {
            "a byte has 8 bits": compute + exchange / 8,
            "each chunk of a ring is 1 / N of the gradients": compute + exchange * n,
            "in a ring a node sends 2 (N - 1) / N times the gradients, which is 1 for two nodes only":
                compute + 8 * nbytes / bandwidth,
            "a ring has two phases: reduce-scatter and all-gather": compute + exchange / 2,
            "nothing overlaps here: the two times add up": max(compute, exchange)})
    return "computation + 2 (N - 1) / N x 8 M / bandwidth"


def _grade_starts(run: StudentFunction) -> str:
    queues: list[tuple[list[tuple[int, int]], int]] = [
        ([(1, 10)], 1), ([(1, 10), (1, 5)], 1), ([(1, 10), (1, 5)], 2), ([(2, 20), (4, 30), (1, 15)], 4),
        ([(2, 20), (4, 30), (1, 25)], 4), ([(3, 10), (4, 20), (1, 15), (1, 30), (1, 5)], 4),
        ([(3, 10), (4, 20), (1, 5), (1, 5), (2, 8)], 4), ([(2, 7), (3, 9), (1, 30), (2, 4), (4, 6), (1, 3)], 4)]
    drawn = [(run.whole(1, 4), run.whole(1, 30)) for _ in range(6)]
    for jobs, nodes in (*queues, (drawn, 4)):
        call, right = run(jobs, nodes), laws.planned_starts(jobs, nodes)
        starts = call.numbers(call.value, len(jobs), "the result is a list with a start for each job")
        call.expect(all(start >= 0 for start in starts), "no job starts before it is submitted")
        for moment in starts:
            busy = sum(count for (count, limit), start in zip(jobs, starts, strict=True)
                       if start <= moment < start + limit)
            call.expect(busy <= nodes, "at some minute more nodes are in use than there are")
        call.expect(len(jobs) == 1 or sum(wanted for wanted, _ in jobs) > nodes or not any(starts),
                    "two jobs may run at the same time if there are enough nodes")
        first = next((index for index, (start, wanted) in enumerate(zip(starts, right, strict=True))
                      if not close(start, wanted)), None)
        if first is not None:
            call.expect(starts[first] > right[first],
                        f"job {first} (counted from 0) starts too early: it conflicts with jobs planned before it")
            call.expect(not any(right[first] < start for start in right[:first]),
                        f"job {first} could start earlier without delaying any job before it: backfill")
            call.expect(not any(start < starts[first] for start in starts[first + 1:]),
                        f"a job behind job {first} delays it; the queue is planned in order")
            call.expect(False, f"for job {first} enough nodes are free earlier")
    return "the queue in order, with backfill; Slurm plans the six jobs of the page in the same way"


TASKS = {
    "plan": code("nodes, tasks, batch_size, images, lr, base_batch, rule", _grade_plan),
    "step": code("nodes, compute, nbytes, bits_per_second", _grade_step),
    "start_times": code("jobs, nodes", _grade_starts),
    "bug": bug("every node trains on all images", 29, (
        "local_rank and local_size count within a node: there they are right for choosing a GPU, but nodes get the "
        "same shards; rank and size count all workers"), {
        "some images are left out of an epoch": "the script prints how many different images it used: all"}, {
        21: "the learning rate follows all workers, as the linear rule has it", 23: AVERAGED,
        28: "all workers have the same order in an epoch, which sharding needs, and another one in the next",
        31: "it gathers the images of all workers, to count them"}),
}
