"""The command line's parser and the types of its arguments: an error is one line, with a suggestion."""

import argparse
import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from labs.run.errors import LabError


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are LabErrors, which a notebook shows too.

    Options are never abbreviated: what is an abbreviation today may be ambiguous tomorrow.
    """

    known: Iterable[str] = ()
    """Options of other parsers that may be meant, too."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs | {"allow_abbrev": False})

    @property
    def options(self) -> list[str]:
        """The options of this parser."""
        return list(self._option_string_actions)

    def error(self, message: str) -> NoReturn:
        """Raise argparse's message as a LabError; suggest an option for an unknown one."""
        _, unknown, words = message.partition("unrecognized arguments: ")
        similar = suggestion(words.split()[0].partition("=")[0], [*self.options, *self.known]) if unknown else ""
        raise LabError(f"{message}{similar}; see `{self.prog} --help`")


def count(text: str) -> int:
    """Return a whole number of at least 1; an argparse type."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return int(text)


def counts(text: str) -> tuple[int, ...]:
    """Return the numbers of "1,2,4"; an argparse type."""
    return tuple(map(count, text.split(",")))


def path(text: str) -> Path:
    """Return a path, with `~` replaced by the home folder; an argparse type."""
    if not text:  # As in `--results "$DIR"`, if the variable is not set.
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text).expanduser()


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean X?" if a known word is similar, otherwise an empty string."""
    close = difflib.get_close_matches(word.lower(), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
