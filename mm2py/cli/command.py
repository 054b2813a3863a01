"""What all commands share: how arguments are read and refused, and by which settings workers run a flow."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from textwrap import fill
from typing import Any, Final, NoReturn, TypeVar

from mm2py.cli.commands import command_named, examples_of, overview
from mm2py.command_lines import with_file
from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow import ClusterAlias
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers
from mm2py.output import say
from mm2py.records.connector_config import DecidedBy, FlowConfig
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.shared_settings.follow import merged_or_file

DEADLINE_S: Final = 30.0
"""How long a cluster may take to be read or written, and a running flow to answer."""

WIDTH: Final = 100
"""The width of what ``--help`` prints, in characters."""

DESCRIBE: Final = "--describe-arguments"
"""A hidden option of each command: raises ``ParserFound`` before anything is done."""

T = TypeVar("T")


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


class CommandFailed(Mm2Error):
    """A cluster does not do what a command asks for."""


async def as_workers_run(file: SettingsFile, settings: FlowSettings, target: Brokers) -> FlowSettings:
    """Return the settings by which the workers run a flow: those that are stored, with the addresses of the file.

    If the stored settings cannot be read or used, the user is told so, and the settings of the file count.
    """
    return (await as_workers_run_by(file, settings, target))[0]


async def as_workers_run_by(
    file: SettingsFile, settings: FlowSettings, target: Brokers
) -> tuple[FlowSettings, FlowConfig | None]:
    """Return the same, and the stored settings if they count; None: those of the file do."""
    table = ConfigTable(target, settings.configs_topic)
    try:
        await table.read()
        config = table.config
        stored = config.previous if config is not None and config.by is DecidedBy.MM2 else config
        return merged_or_file(file, settings, stored), stored
    except Mm2Error as error:
        say(with_file(f"{error} The settings of the file are used.", file.argument))
        return settings, None


async def within_deadline(
    target: ClusterAlias, work: Coroutine[Any, Any, T], doing: str, *, deadline_s: float | None = None
) -> T:
    """Return what ``work`` returns.

    Args:
        doing: what the work is, for the message that it took too long.
        deadline_s: None: ``DEADLINE_S``.
    Raises:
        CommandFailed: the cluster does not answer in time, or refuses.
    """
    deadline_s = DEADLINE_S if deadline_s is None else deadline_s
    try:
        async with asyncio.timeout(deadline_s):
            return await work
    except TimeoutError as error:
        raise CommandFailed(
            f"{target} does not answer: {doing} took more than {deadline_s:g} s.",
            remedy=f"Check {target}.bootstrap.servers and the network.",
        ) from error
    except BrokerRefused as error:
        raise CommandFailed(error.what, remedy=error.remedy) from error
