"""One-line errors for the command line, with suggestions for misspelled options; for argparse and tyro."""

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
    """An argparse parser that reports a wrong command line in one line, without its usage."""

    def error(self, message: str) -> NoReturn:
        """Raise argparse's message as a LabError."""
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        if unknown:
            raise unrecognized(unknown[1], options(self.format_help()), self.prog)
        choice = re.match(r"argument .*: invalid choice: '(.*)' \(choose from (.*)\)", message, re.DOTALL)
        if choice:
            raise _no_choice(choice[1], re.findall(r"'([^']*)'", choice[2]), self.prog)
        message = message.removeprefix("argument ").replace(": expected one argument", " needs a value")
        raise LabError(f"{message}; see `{self.prog} --help`")


def count(text: str) -> int:
    """Return a whole number of at least 1; an argparse type."""
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a whole number from 1 to 999999")
    return int(text)


def path(text: str) -> Path:
    """Return a path, with `~` replaced by the home folder; an argparse type."""
    return paths.named(text, "the path")


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


def unrecognized(word: str, known: Iterable[str], prog: str) -> LabError:
    """Return the error for a word that the parser could not assign to an option."""
    name = word.partition("=")[0]
    if not name.startswith("-"):
        return LabError(f"{quoted(word)} belongs to no option; see `{prog} --help`")
    return LabError(f"no option is called {quoted(name)}{suggestion(name, known) or f'; see `{prog} --help`'}")


def _no_choice(word: str, choices: Sequence[str], prog: str) -> LabError:
    return LabError(f"{prog}: {quoted(word)} is not one of {', '.join(choices)}{suggestion(word, choices)}")


def refuse_empty(words: Sequence[str]) -> None:
    """Refuse empty arguments: they come from unset shell variables, as in `--results "$DIR"`.

    Raises:
        LabError: An argument is empty; the message shows the command line.
    """
    if any(not word or re.fullmatch(r"--[a-z0-9-]+=", word) for word in words):
        raise LabError(f"an argument is empty in: {shlex.join(words)}; give a value, or leave the option out")


def refuse_foreign_digits(words: Sequence[str]) -> None:
    """Refuse numbers in digits of other scripts, which Python would read and Horovod, Slurm or a shell would not.

    Raises:
        LabError: Names the argument, and shows the number in ASCII.
    """
    for word in words:
        number = word.rpartition("=")[2]
        if not number.isascii() and re.fullmatch(r"[\d.,:e+-]+[a-z]{0,4}", number):
            plain = "".join(str(int(each)) if each.isdecimal() else each for each in number)
            raise LabError(f"{quoted(number)} has digits other than 0 to 9; write {plain}")


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


@contextlib.contextmanager
def errors_as_one_line(known: Iterable[str], prog: str) -> Iterator[None]:
    """Within this block, turn tyro's errors into LabErrors; tyro itself would print a box.

    Args:
        known: Options to suggest for a misspelled one.
        prog: The command whose `--help` the error names.
    """
    # Private, but only this hook has the error as data; the version is pinned, and tests cover each event.
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
    """Return Python's message about a malformed number in plain words; return other messages as they are."""
    match = re.match(r"(invalid literal for int|could not convert string to float).*: (.*)", message, re.DOTALL)
    return f"{match[2]} is not a {'whole ' * match[1].endswith('int')}number" if match else message
