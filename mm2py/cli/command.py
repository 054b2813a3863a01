"""What all commands share: how arguments are read and refused, and by which settings workers run a flow."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from textwrap import fill
from typing import Final, NoReturn

from mm2py import flow_sides
from mm2py.cli.commands import command_named, examples_of, overview
from mm2py.command_lines import with_file
from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError
from mm2py.flow_sides import ClusterFailed, in_time
from mm2py.kafka.port import Brokers
from mm2py.output import say
from mm2py.records.connector_config import FlowConfig

WIDTH: Final = 100
"""The width of what ``--help`` prints, in characters."""

DESCRIBE: Final = "--describe-arguments"
"""A hidden option of each command: raises ``ParserFound`` before anything is done."""


class ParserFound(ConfigError):
    """Brings the parser of a command to what wants to know its arguments: ``command_arguments.py``."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__(f"{DESCRIBE} is for mm2py itself.", remedy=f"Try {parser.prog} --help.")
        self.parser = parser


class _Describe(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        raise ParserFound(parser)


class CommandParser(argparse.ArgumentParser):
    """Raises ConfigError where argparse would end the process."""

    def __init__(self, name: str, description: str) -> None:
        """``name``: of the command, as in the table; empty: the one that runs a worker."""
        super().__init__(
            prog=f"mm2py {name}".rstrip(),
            description=fill(description, WIDTH),
            epilog=examples_of(command_named(name)) if name else overview(),
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=WIDTH),
            allow_abbrev=False,  # an update could give an abbreviation another meaning, or none
        )
        self.add_argument(DESCRIBE, action=_Describe, nargs=0, help=argparse.SUPPRESS)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message[:1].upper()}{message[1:]}.", remedy=f"Try {self.prog} --help.")


def number_up_to(most: int, *, least: int = 0) -> Callable[[str], int]:
    """Return a function that reads a number from the command line."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} to {most}")
        return int(text)

    return read


CommandFailed = ClusterFailed
"""A cluster does not do what a command asks for."""
within_deadline = in_time


async def as_workers_run(file: SettingsFile, settings: FlowSettings, target: Brokers) -> FlowSettings:
    """Return the settings by which the workers run a flow: those that are stored, with the addresses of the file.

    If the stored settings cannot be read or used, the user is told so, and the settings of the file count.
    """
    return (await as_workers_run_by(file, settings, target))[0]


async def as_workers_run_by(
    file: SettingsFile, settings: FlowSettings, target: Brokers
) -> tuple[FlowSettings, FlowConfig | None]:
    """Return the same, and the stored settings if they count; None: those of the file do."""
    return await flow_sides.as_workers_run_by(file, settings, target, teller(file))


def teller(file: SettingsFile) -> Callable[[str], None]:
    """Return what tells the user of a command something about a file, on standard error."""
    return lambda text: say(with_file(text, file.argument))
