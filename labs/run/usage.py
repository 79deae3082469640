"""One-line errors for the command line, with suggestions for misspelled options."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from labs.run import paths
from labs.run.errors import LabError, quoted


class Parser(argparse.ArgumentParser):
    """An argparse parser that reports a wrong command line in one line, without its usage.

    Options are never abbreviated: what is an abbreviation today may be ambiguous tomorrow.
    """

    known: Sequence[str] = ()
    """Options of other parsers, to be suggested for a misspelled one."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs | {"allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        """Raise argparse's message as a LabError."""
        if unknown := re.match(r"unrecognized arguments: (\S+)", message):
            raise self._unrecognized(unknown[1])
        if choice := re.match(r"argument (.*): invalid choice: '(.*)' \(choose from (.*)\)", message, re.DOTALL):
            where = choice[1] if choice[1].startswith("--") else self.prog
            choices = choice[3].replace("'", "").split(", ")  # Python 3.11 quotes them.
            raise LabError(f"{where}: {quoted(choice[2])} is not one of {', '.join(choices)}"
                           f"{suggestion(choice[2], choices)}")
        message = message.removeprefix("argument ").replace(": expected one argument", " needs a value")
        raise LabError(f"{message}; see `{self.prog} --help`")

    def _unrecognized(self, word: str) -> LabError:
        """Return the error for an unexpected argument or an unknown option."""
        name = word.partition("=")[0]
        if not name.startswith("-"):
            return LabError(f"unexpected argument {quoted(word)}; see `{self.prog} --help`")
        similar = suggestion(name, [*options(self.format_help()), *self.known])
        return LabError(f"unknown option {quoted(name)}{similar or f'; see `{self.prog} --help`'}")


def count(text: str) -> int:
    """Return a whole number of at least 1; an argparse type."""
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a whole number from 1 to 999999")
    return int(text)


def number(text: str) -> float:
    """Return a number; an argparse type."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a number") from None


def whole_number(text: str) -> int:
    """Return a whole number; an argparse type."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a whole number") from None


def path(text: str) -> Path:
    """Return a path, with `~` replaced by the home folder; an argparse type."""
    return paths.expand_home(text, "the path")


def counts(text: str) -> tuple[int, ...]:
    """Return the numbers of "1,2,4"; an argparse type."""
    return tuple(count(number) for number in text.split(","))


def options(help_text: str) -> list[str]:
    """Return the long options in a help text."""
    return sorted(set(re.findall(r"(?<![\w-])--[a-z0-9-]*[a-z0-9]", help_text)))


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean X?" if a known word is similar, otherwise an empty string."""
    known = sorted(known)
    longer = [each for each in known if each.startswith(word)]
    close = longer[:1] or difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def refuse_empty(words: Sequence[str]) -> None:
    """Refuse empty arguments: they come from unset shell variables, as in `--results "$DIR"`.

    Raises:
        LabError: An argument is empty; the message shows the command line.
    """
    if any(not word or re.fullmatch(r"--[a-z0-9-]+=", word) for word in words):
        raise LabError(f"an argument is empty in: {shlex.join(words)}; give a value, or leave the option out")


@contextlib.contextmanager
def writing_to(option: str) -> Iterator[None]:
    """Within this block, report a file that cannot be written in one line, with the option that selects another.

    Raises:
        LabError: A file could not be written.
    """
    try:
        yield
    except OSError as problem:
        raise LabError(f"cannot write {problem.filename}: {problem.strerror}; choose another {option}") from None
