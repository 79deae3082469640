"""The process that calls a student's functions, confined by the kernel; it gives no marks.

    python -I labs/tools/grade/contained.py ROOT CPU_SECONDS MEMORY HIDE_FILES

Reads requests on its standard input and answers each on its standard output, one line of JSON each (`plain`). Whatever
the code does, it can only give answers: `sandbox`, in the grader's process, compares them.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import sysconfig
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/dev/null",
             "/dev/urandom", f"{sys.prefix}/lib", f"{sys.base_prefix}/lib")


def main(root: str, cpu_seconds: str, memory: str, hide_files: str) -> None:
    """Answer requests to the end of the input."""
    sys.path.insert(0, root)
    from labs.run import stop
    from labs.tools.grade import confinement, plain

    stop.end_with_parent(signal.SIGKILL)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # What the code prints is discarded.
        os.dup2(nowhere, number)
    warnings.simplefilter("ignore")
    confinement.limit(int(cpu_seconds), int(memory))
    confinement.confine(_readable(Path(root)), hide_files=hide_files == "True")
    answers.write(plain.dumps({"ready": True}))

    def called_back(place: int, *args: Any) -> Any:
        answers.write(plain.dumps({"callback": place, "args": list(args)}))
        answer = plain.loads(next(requests))
        if "error" in answer:
            raise plain.raised(answer)
        return answer["value"]

    function: Callable[..., Any] = called_back
    answer: dict[str, Any]
    for line in requests:
        request = plain.loads(line)
        try:
            if "source" in request:
                function = _defined(request["source"], request["name"])
                answer = {"doc": str(function.__doc__ or ""), "args": []}
            else:
                args = [functools.partial(called_back, place) if place in request["callbacks"] else arg
                        for place, arg in enumerate(request["args"])]
                answer = {"value": function(*args), "args": args}
            text = plain.dumps(answer)
        except BaseException as error:
            text = plain.dumps(plain.error(error))
        answers.write(text)


def _readable(root: Path) -> list[Path]:
    """Return what the code may read: the kit's modules and Python's, never a folder around the kit."""
    folders = [root / "labs", *(Path(name) for name in (*sysconfig.get_paths().values(), *LIBRARIES))]
    return [path for path in folders if path.exists() and not root.is_relative_to(path.resolve())]


def _defined(source: str, name: str) -> Callable[..., Any]:
    """Run a student's source and return the function of that name, or else the last one in it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, f"{name}.py", "exec"), names)
    functions = [value for value in names.values() if isinstance(value, types.FunctionType)]
    functions += [names[name]] if callable(names.get(name)) else []
    if not functions:
        raise NameError(f"the file defines no function {name}")
    return functions[-1]


if __name__ == "__main__":
    main(*sys.argv[1:])
