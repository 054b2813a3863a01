"""What all commands share: how arguments are read and refused, where output goes, and how a cluster is reached."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import os
import random
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn, Protocol, TypeVar

from mm2py.command_lines import with_file
from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import ClusterSettings, FlowSettings
from mm2py.connector import ClusterAlias, Flow, TopicName, parse_flow
from mm2py.errors import ConfigError, Mm2Error
from mm2py.kafka.cluster import Cluster
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers
from mm2py.kafka.security.access import Access
from mm2py.kafka.transport.opening import ConnectionOptions
from mm2py.kafka.transport.wire import FrameMemory
from mm2py.records.connector_config import FlowConfig, Writer
from mm2py.secret import printable
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.shared_settings.follow import merged_or_file

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_WAITS: Final = 3
"""Something waits for an operator."""
EXIT_CHANGES: Final = 3
"""Of a command that was only asked what would change: something would. See ``exit_of_plan``."""
EXIT_INTERRUPTED: Final = 130
STDERR: Final = 2
PARTITION_MOST: Final = (1 << 31) - 1
"""The highest number that a partition can have."""
DEADLINE_S: Final = 30.0
"""How long a cluster may take to be read or written, and a running flow to answer."""

T = TypeVar("T")
Write = Callable[[str], object]


class CommandParser(argparse.ArgumentParser):
    """Raises ConfigError where argparse would end the process; ``prog`` names the command whose help is offered."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message[:1].upper()}{message[1:]}.", remedy=f"Try {self.prog} --help.")


def number_up_to(most: int, *, least: int = 0) -> Callable[[str], int]:
    """Return what reads a number of the command line."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} to {most}")
        return int(text)

    return read


def exit_of_plan(*, failed: bool, changes: bool) -> int:
    """Return the exit code of a command that was only asked what would change, and has stored nothing.

    ``EXIT_DONE``: nothing would. ``EXIT_FAILED``: a cluster did not answer, or refused, so not all is known.
    ``EXIT_CHANGES``: something would. A wrong file, or wrong arguments, are ``EXIT_USAGE`` before anything is asked.
    """
    if failed:
        return EXIT_FAILED
    return EXIT_CHANGES if changes else EXIT_DONE


class CommandFailed(Mm2Error):
    """A cluster does not do what a command asks for."""


class Connected(Brokers, Protocol):
    """The brokers of a cluster, and the connections to them."""

    async def close(self) -> None: ...


def connect(
    command: str,
    flow: Flow,
    cluster: ClusterSettings,
    *,
    timeout_s: float,
    rng: random.Random,
    frames: FrameMemory | None = None,
) -> Cluster:
    """Return connections of a command to one cluster of a flow.

    Args:
        command: becomes part of the client id, if the file sets none.
        timeout_s: how long a request that carries records may take.
    """
    return Cluster(
        cluster.alias,
        cluster.bootstrap_servers,
        rng=rng,
        client_id=cluster.client_id or f"{flow}|mm2py-{command}",
        request_timeout_s=timeout_s,
        admin_timeout_s=cluster.request_timeout_s,
        access=Access(cluster.alias, cluster.security, rng=rng, report=lambda _: None),
        options=ConnectionOptions(frames),
    )


def flow_of(file: SettingsFile, name: str) -> FlowSettings:
    """Return the settings by which a file runs a flow.

    Raises:
        ConfigError: the file is wrong, or does not run a flow of this name.
    """
    wanted = parse_flow(name)
    configuration = file.configuration()
    for settings in configuration.flows:
        if settings.flow == wanted:
            return settings
    if wanted in configuration.refused:
        raise configuration.refused[wanted]
    raise ConfigError(f"{file.path} enables no flow {wanted}.", remedy=f"Set {wanted}.enabled=true.")


def with_flow(file: SettingsFile, name: str) -> SettingsFile:
    """Return a file that enables a flow. If this one switches it off, all others are switched off instead.

    The story: B took over from A. Now A is back, and the file enables only the way back. Where B->A begins on B, only
    the ledger of A->B tells. With both of them enabled, the identity policy would refuse them as a ring.
    Raises: ConfigError, as ``SettingsFile.configuration``.
    """
    wanted, found = parse_flow(name), file.configuration()
    is_there = wanted in found.refused or any(settings.flow == wanted for settings in found.flows)
    return file if is_there else file.alone(wanted)


def source_topic(settings: FlowSettings, topic: str, *, is_reverse: bool) -> str:
    """Return the name on the source of a topic. With ``is_reverse`` it may be given by its name on the target.

    Raises:
        ConfigError: the flow does not copy it.
    """
    name, policy = TopicName(topic), settings.policy
    upstream = policy.upstream_topic(name) if policy.topic_source(name) == settings.flow.source else None
    for found in (upstream if is_reverse else None, name):
        if found is not None and settings.replicates(found):
            return str(found)
    raise ConfigError(f"{settings.flow} does not copy {topic!r}.", remedy="Name a topic of the source that it copies.")


async def as_workers_run(file: SettingsFile, settings: FlowSettings, target: Brokers) -> FlowSettings:
    """Return the settings by which the workers run a flow: those that are stored, with the addresses of the file.

    If what is stored cannot be read or used, that is said, and the file counts.
    """
    return (await as_workers_run_by(file, settings, target))[0]


async def as_workers_run_by(
    file: SettingsFile, settings: FlowSettings, target: Brokers
) -> tuple[FlowSettings, FlowConfig | None]:
    """Return the same, and what is stored if that counts; None: the file does."""
    table = ConfigTable(target, settings.configs_topic)
    try:
        await table.read()
        config = table.config
        stored = config.previous if config is not None and config.by is Writer.MM2 else config
        return merged_or_file(file, settings, stored), stored
    except Mm2Error as error:
        say(with_file(f"{error} The settings of the file are used.", file.argument))
        return settings, None


async def within_deadline(target: ClusterAlias, work: Coroutine[Any, Any, T], doing: str) -> T:
    """Return what ``work`` returns.

    Args:
        doing: what the work is, for the message that it took too long.
    Raises:
        CommandFailed: the cluster does not answer within ``DEADLINE_S``, or refuses.
    """
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await work
    except TimeoutError as error:
        raise CommandFailed(
            f"{target} does not answer: {doing} took more than {DEADLINE_S:g} s.",
            remedy=f"Check {target}.bootstrap.servers and the network.",
        ) from error
    except BrokerRefused as error:
        raise CommandFailed(error.what, remedy=error.remedy) from error


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes event loops: uvloop's are faster; None on platforms that it does not support."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return None
    return uvloop.new_event_loop


def write_out(text: str) -> None:
    """Write to standard output."""
    sys.stdout.write(text)
    sys.stdout.flush()


def confirm(question: str) -> bool:
    """Ask on a terminal."""
    sys.stdout.write(f"{question} [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def say(text: str) -> None:
    """Write one line to standard error. The logger may not exist yet."""
    file = LineFile(STDERR)
    file.write(f"mm2py: {printable(text)}\n")
    file.flush()


class LineFile(io.TextIOBase):
    """Writes whole lines to a descriptor. It drops them where the disk is full or the reader is gone, so that the log
    stops neither a flow nor the process.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pending = ""

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, text: str) -> int:
        self._pending += text
        return len(text)

    def flush(self) -> None:
        data, self._pending = self._pending.encode(errors="backslashreplace"), ""
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._descriptor, data) :]
