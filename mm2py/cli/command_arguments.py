"""What each command takes on its command line, for the shell completion and the man page.

The parsers of the commands say it, so both follow from them. MirrorMaker 2 has neither.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from importlib import import_module
from pathlib import Path
from typing import Final

from mm2py.cli.command import DESCRIBE, ParserFound
from mm2py.cli.commands import COMMANDS, CommandRow
from mm2py.cli.main import parse_arguments

_FILES: Final = frozenset({"FILE", "DIR"})


class Takes(Enum):
    """What a shell may complete as the value of an argument."""

    NOTHING = auto()
    """The argument is an option without a value."""
    TEXT = auto()
    """Something that only the reader knows."""
    FILES = auto()
    CHOICES = auto()


@dataclass(frozen=True, slots=True)
class Argument:
    """One option, or one position."""

    names: tuple[str, ...]
    """As they are written; empty: a position."""
    value: str
    """Its value as the help names it; empty: none."""
    takes: Takes
    choices: tuple[str, ...]
    is_repeated: bool
    """More than one value may follow."""
    is_optional: bool
    """A position that may be left out, or an option that may stand without its value."""
    text: str
    """Its line of the help."""


@dataclass(frozen=True, slots=True)
class CommandArguments:
    """What one command takes."""

    command: CommandRow | None
    """None: the command that runs a worker."""
    description: str
    arguments: tuple[Argument, ...]

    @property
    def options(self) -> tuple[Argument, ...]:
        """Those with a name."""
        return tuple(one for one in self.arguments if one.names)

    @property
    def positions(self) -> tuple[Argument, ...]:
        """Those without a name, in their order."""
        return tuple(one for one in self.arguments if not one.names)


def all_arguments(commands: Sequence[CommandRow] = COMMANDS) -> tuple[CommandArguments, ...]:
    """Return what a worker takes, and what each command does."""
    runs = [import_module(command.module).run for command in commands]
    return (_of(None, parse_arguments), *map(_of, commands, runs))


def _of(command: CommandRow | None, run: Callable[[Sequence[str]], object]) -> CommandArguments:
    try:
        run([DESCRIBE])
    except ParserFound as found:
        actions = found.parser._actions  # argparse has no other way to them
        shown = tuple(_argument(action) for action in actions if action.help != argparse.SUPPRESS)
        return CommandArguments(command, " ".join((found.parser.description or "").split()), shown)
    raise AssertionError(f"{command} has no CommandParser")


def _argument(action: argparse.Action) -> Argument:
    is_flag = action.nargs == 0
    value = "" if is_flag else _value_name(action)
    choices = () if action.choices is None else tuple(map(str, action.choices))
    if is_flag:
        takes = Takes.NOTHING
    elif choices:
        takes = Takes.CHOICES
    else:
        takes = Takes.FILES if action.type is Path or value in _FILES else Takes.TEXT
    return Argument(
        tuple(action.option_strings),
        value,
        takes,
        choices,
        action.nargs in ("+", "*"),
        action.nargs in ("?", "*"),
        " ".join((action.help or "").split()) % vars(action),
    )


def _value_name(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    return action.dest.upper() if action.option_strings else action.dest
