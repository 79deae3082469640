"""LabError, the exception that a student sees as one line; the texts of such lines; the cause of other errors."""

import errno
import re

ERROR_PREFIX = "labs: error: "  # By it a launcher recognises its workers' errors.
PROOF_PREFIX = "proof: "  # Begins the line with the verdict of setup/proof.py.


def proof_verdict(output: str) -> str:
    """Return the verdict that setup/proof.py printed, or an empty string."""
    return "".join(re.findall(f"(?m)^{PROOF_PREFIX}(.*)", output)[-1:])


class LabError(Exception):
    """A mistake or an obstacle; its message is one line that names the cause and the cure."""

    def _render_traceback_(self) -> list[str]:  # IPython shows it.
        return [f"{ERROR_PREFIX}{self}"]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, or the stop button of a notebook, which shows one line instead of a traceback."""

    def _render_traceback_(self) -> list[str]:  # IPython shows it.
        return [": ".join(filter(None, ["KeyboardInterrupt", str(self)]))]


def explain_os_error(problem: BaseException) -> BaseException:
    """Return the error of a full disk or of a path as a LabError, and any other error unchanged."""
    if not isinstance(problem, OSError) or not problem.filename or not problem.strerror:
        return problem
    if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return LabError(f"cannot write {problem.filename}: {problem.strerror}; "
                        "free some space, or choose another --results")
    return LabError(f"{problem.filename}: {problem.strerror}; check the path and its permissions")


def is_out_of_memory(problem: BaseException) -> bool:
    """Return whether an error means that Python or TensorFlow could not allocate memory."""
    # The last two: a convolution could not allocate its workspace on a GPU; the error has another class.
    return (isinstance(problem, MemoryError) or type(problem).__name__ == "ResourceExhaustedError"
            or bool(re.search("CUDNN failed to allocate the scratch space|No algorithm worked", str(problem))))


def first_line(problem: BaseException) -> str:
    """Return the line of an error's message that names the cause; TensorFlow's graphs put it further down."""
    root = re.search(r"(?m)^ *(?:\(0\) *)?(\S.*)\n\s*\[\[\{\{node", str(problem))
    return root[1] if root else (str(problem).strip() or "no reason given").splitlines()[0]


def plural(count: int, noun: str) -> str:
    """Return "1 core" or "2 cores"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def quoted(text: str) -> str:
    """Return text in quotes, shortened, with control characters escaped."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def printable(text: object) -> str:
    """Return text with its control characters escaped: names of runs and files may come from other people."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in str(text))


def one_line(text: object, longest: int = 1000) -> str:
    """Return text as one printable line; its middle is left out if it is too long."""
    line, half = printable(" ".join(str(text).splitlines())), longest // 2
    return line if len(line) <= longest else f"{line[:half]} ... {line[-half:]}"
