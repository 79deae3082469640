"""Processes that want one run at the same moment; each reports how that ended, as a line of JSON.

    python contenders.py NUMBER RESULTS LAB NAME
"""

import json
import multiprocessing
import os
import sys
from pathlib import Path

from labs.run import atomic
from labs.run.errors import LabError
from labs.run.options import Options
from labs.run.run_lock import hold

forked = multiprocessing.get_context("fork")


def contend(number: int, options: Options, lab: str, start, messages, refused) -> None:
    """Want the run. Whoever gets it finishes it when all others have been refused."""
    start.wait()
    try:
        with hold(lab, options, workers=1) as name:
            all(refused.acquire(timeout=5) for _ in range(number - 1))
            atomic.write_json(options.results / lab / name / "record.json", {"by": os.getpid()})
            messages.put({"pid": os.getpid(), "won": name})
    except LabError as problem:
        refused.release()
        messages.put({"pid": os.getpid(), "refused": str(problem)})


def main() -> None:
    number, results, lab, name = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    start, messages, refused = forked.Barrier(number), forked.Queue(), forked.Semaphore(0)
    arguments = (number, Options(name=name, results=results), lab, start, messages, refused)
    contenders = [forked.Process(target=contend, args=arguments) for _ in range(number)]
    for each in contenders:
        each.start()
    for _ in contenders:
        print(json.dumps(messages.get(timeout=60)), flush=True)
    for each in contenders:
        each.join()


if __name__ == "__main__":
    main()
