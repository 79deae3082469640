"""Command line errors in one line, with a suggestion for a misspelled option: for argparse and for tyro."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from labs.run.errors import LabError, quoted


class Parser(argparse.ArgumentParser):
    """An argument parser that refuses a command line in one line, without its usage."""

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong, as a LabError."""
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        if unknown:
            raise unrecognized(unknown[1], options(self.format_help()), self.prog)
        choice = re.match(r"argument .*: invalid choice: '(.*)' \(choose from (.*)\)", message, re.DOTALL)
        if choice:
            raise _no_choice(choice[1], re.findall(r"'([^']*)'", choice[2]), self.prog)
        message = message.removeprefix("argument ").replace(": expected one argument", " needs a value")
        raise LabError(f"{message}; see `{self.prog} --help`")


def count(text: str) -> int:
    """Read a whole number of at least one, as an argparse type."""
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a whole number from 1 to 999999")
    return int(text)


def counts(text: str) -> tuple[int, ...]:
    """Read "1,2,4", as an argparse type."""
    return tuple(count(number) for number in text.split(","))


def options(help_text: str) -> list[str]:
    """Return the long options that a help text names."""
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]", help_text)))


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean X?" if a word is similar to a known one, else an empty string."""
    known = sorted(known)
    longer = [each for each in known if each.startswith(word)]
    close = longer[:1] or difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def unrecognized(word: str, known: Iterable[str], prog: str) -> LabError:
    """Return the error for a word that no option takes."""
    name = word.partition("=")[0]
    if not name.startswith("-"):
        return LabError(f"{quoted(word)} belongs to no option; see `{prog} --help`")
    return LabError(f"no option is called {quoted(name)}{suggestion(name, known) or f'; see `{prog} --help`'}")


def _no_choice(word: str, choices: Sequence[str], prog: str) -> LabError:
    return LabError(f"{prog}: {quoted(word)} is none of {', '.join(choices)}{suggestion(word, choices)}")


def refuse_empty(words: Sequence[str]) -> None:
    """Refuse an empty argument, as an unset shell variable leaves it: `--results "$DIR"`.

    Raises:
        LabError: Shows the command line.
    """
    if any(not word or re.fullmatch(r"--[a-z-]+=", word) for word in words):
        raise LabError(f"an argument is empty in: {shlex.join(words)}; give a value, or leave the option out")


@contextlib.contextmanager
def one_line(known: Iterable[str], prog: str) -> Iterator[None]:
    """Raise a LabError for a command line that tyro refuses in this block, instead of printing a box.

    Args:
        known: Options to suggest for a misspelled one.
        prog: What `--help` is added to.
    """
    # Private, but the only hook that has the error as data; constraints.txt pins tyro, and the tests cover each event.
    from tyro import _errors

    def refuse(event: _errors.ParseErrorEvent) -> None:
        if isinstance(event, _errors.UnrecognizedArgs):
            raise unrecognized(event.tokens[0], known, prog)
        if isinstance(event, _errors.InvalidChoice):
            raise _no_choice(event.value, event.choices, _option(event.argument))
        if isinstance(event, _errors.BadValue):
            raise LabError(f"{_option(event.argument)} needs a value; see `{prog} --help`")
        if isinstance(event, _errors.InstantiationFailure) and event.argument is not None:
            raise LabError(f"{_option(event.argument)}: {_plain(event.message)}; see `{prog} --help`")
        raise LabError(f"this command line cannot be read; see `{prog} --help`")

    with _errors.on_parse_error(refuse):
        yield


def _option(argument: Any) -> str:
    return argument.lowered.name_or_flags[0]


def _plain(message: str) -> str:
    """Return Python's message on a number that cannot be read in plain words."""
    match = re.match(r"(invalid literal for int|could not convert string to float).*: (.*)", message, re.DOTALL)
    return f"{match[2]} is not a {'whole ' * match[1].endswith('int')}number" if match else message
