"""The REST process of one worker, ``python -m mm2py_rest``. The worker starts it and passes it listening sockets.

It reads the same file as its worker, and ends when the channel to the worker closes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import logging
import random
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO, cast

from fastapi import FastAPI
from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock, SystemClock
from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.config.rest import RestSettings, ServerTls
from mm2py.config.settings import Configuration
from mm2py.errors import ConfigError, Mm2Error
from mm2py.event_loop import loop_factory
from mm2py.flow import ClusterAlias, Flow
from mm2py.inherited_sockets import read_sockets
from mm2py.kafka.cluster import fetch_metadata
from mm2py.logs import LogFormat, make_logger
from mm2py.output import STDERR, LineFile
from mm2py.records.audit_record import AuditRecord
from mm2py.status.cluster_inquiry import Patience
from mm2py.status.inquiry import Inquiry
from mm2py_rest.access import listening
from mm2py_rest.access.admission import RequestGate
from mm2py_rest.access.audit import Audit
from mm2py_rest.access.authentication import Authentication
from mm2py_rest.access.crowd import limits_of
from mm2py_rest.access.listening import CLOSING_MOST_S, Server, make_server
from mm2py_rest.access.local_token import LocalToken
from mm2py_rest.access.sessions import Sessions
from mm2py_rest.access.users import UsersFile, UsersUnusable
from mm2py_rest.app import make_app
from mm2py_rest.clusters.answers import SharedAnswer
from mm2py_rest.clusters.connections import Connections
from mm2py_rest.clusters.live import LiveReport
from mm2py_rest.clusters.questions import FlowQuestions
from mm2py_rest.events.configs import ConfigsSource
from mm2py_rest.events.feed import EventFeed, Source
from mm2py_rest.events.sources import GapsSource, GroupSource, QuarantineSource, ToBrokers
from mm2py_rest.history.keeper import HistoryKeeper
from mm2py_rest.history.log import HistoryLog
from mm2py_rest.history.sources import history_sources
from mm2py_rest.recovery.jobs import RecoveryJobs
from mm2py_rest.services import Services
from mm2py_rest.settings.changes import FlowChanges
from mm2py_rest.settings.loss_changes import LossChanges
from mm2py_rest.settings.offset_changes import OffsetChanges
from mm2py_rest.v1 import V1
from mm2py_rest.worker_link import WorkerLink

CLUSTER_ID_MOST_S: Final = 2.0
CLUSTER_ID_KEPT_S: Final = 15.0
AUDIT_CLOSING_MOST_S: Final = 1.0
DESCRIPTORS_MOST: Final = 16_384
CONNECTIONS_CLOSING_MOST_S: Final = 0.5


class ServerArguments(argparse.Namespace):
    """The arguments that the worker passes to this process."""

    file: Path
    clusters: list[str]
    channel: int
    sockets: list[tuple[int, int]]
    """For each socket: the number of its listener in the file, and its descriptor."""
    listeners: list[str]
    """For each socket: the listener it was opened for, as ``Listener.without_port``."""
    worker: str
    log_level: str
    log_format: LogFormat


def parse_arguments(arguments: Sequence[str]) -> ServerArguments:
    """Read the command line that ``RestProcess`` writes."""
    parser = argparse.ArgumentParser(
        prog="python -m mm2py_rest", description="Started by a worker; not to be called by hand."
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--clusters", nargs="*", default=[])
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--sockets", type=read_sockets, required=True)
    parser.add_argument("--listeners", type=lambda text: text.split(","), required=True)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-format", default="text")
    return parser.parse_args(arguments, namespace=ServerArguments())


def _event_sources(
    configuration: Configuration, connections: Connections, clock: Clock, rng: random.Random
) -> list[Source]:
    found: list[Source] = []
    targets: dict[ClusterAlias, ToBrokers] = {}
    for settings in configuration.flows:
        target = functools.partial(connections.target_of, settings)
        found += [kind(settings, target) for kind in (ConfigsSource, GapsSource, QuarantineSource)]
        targets.setdefault(settings.flow.target, target)
    found += [
        GroupSource(configuration.groups[alias], target, clock=clock, rng=rng) for alias, target in targets.items()
    ]
    return found


async def serve(options: ServerArguments, file: SettingsFile, log: FilteringBoundLogger) -> None:
    """Serve until the worker has ended."""
    rng, clock = random.Random(), SystemClock()  # noqa: S311  (spreads retries; nothing secret)
    configuration = file.configuration()
    # The regular looks have their own connections, so that they wait for no other request: a ledger takes long to read.
    looking, asking = Connections(rng), Connections(rng)
    changes = {
        settings.flow: FlowChanges(
            file,
            settings,
            functools.partial(asking.target_of, settings),
            worker=options.worker,
            clock=clock,
            rng=rng,
            log=log,
        )
        for settings in configuration.flows
    }
    offsets = {
        settings.flow: OffsetChanges(
            functools.partial(asking.source_of, settings),
            functools.partial(asking.target_of, settings),
            configuration.groups[settings.flow.target],
            clock=clock,
            rng=rng,
        )
        for settings in configuration.flows
    }
    losses = {
        settings.flow: LossChanges(functools.partial(asking.target_of, settings), clock=clock, rng=rng)
        for settings in configuration.flows
    }
    inquiry = Inquiry(file, lambda *to: looking.to(*to[:3]), clock=clock, rng=rng, patience=Patience(clock))
    first = next((asking.target_of(settings) for settings in configuration.flows), None)

    async def cluster_id() -> str | None:
        if first is None:
            return None
        with contextlib.suppress(Mm2Error, TimeoutError):
            async with asyncio.timeout(CLUSTER_ID_MOST_S):
                return (await fetch_metadata(first, [])).cluster_id
        return None

    link = WorkerLink(socket.socket(fileno=options.channel))
    live = LiveReport(inquiry.look, clock, lambda why: log.warning("rest.look_failed", why=why))
    questions = {
        settings.flow: FlowQuestions(
            settings,
            functools.partial(asking.source_of, settings),
            functools.partial(asking.target_of, settings),
            clock,
        )
        for settings in configuration.flows
    }
    events = EventFeed(_event_sources(configuration, asking, clock, rng), clock)
    histories = {
        settings.flow: HistoryLog(
            settings, functools.partial(looking.target_of, settings), clock=clock, rng=rng, log=log
        )
        for settings in configuration.flows
    }
    keepers = [
        HistoryKeeper(
            history,
            link.coordinated,
            live.glance,
            functools.partial(
                history_sources,
                history.settings,
                configuration.groups[flow.target],
                functools.partial(looking.target_of, history.settings),
                clock=clock,
                rng=rng,
            ),
            worker=options.worker,
            clock=clock,
            log=log,
        )
        for flow, history in histories.items()
    ]
    recoveries = RecoveryJobs(file, clock, log)
    v1 = V1(file, questions, events, histories, recoveries=recoveries, worker=options.worker)
    kept_id = SharedAnswer(cluster_id, clock, least_s=CLUSTER_ID_KEPT_S)
    services = Services(configuration, link, live, changes, clock, kept_id.get, v1, offsets, losses)
    stores = {flow: one.store_audit for flow, one in changes.items()}
    audit = Audit(functools.partial(_store_audit, stores) if stores else None, log, clock, worker=options.worker)
    servers = _servers(options, configuration.rest, make_app(services), services.sessions, audit, clock, log)
    serving = [asyncio.create_task(listening.serve(*each, log), name="server") for each in servers]
    work = [
        asyncio.create_task(live.run(), name="looks"),
        asyncio.create_task(events.run(), name="events"),
        asyncio.create_task(audit.run(), name="audit"),
        *(asyncio.create_task(keeper.run(), name="history") for keeper in keepers),
        *serving,
    ]
    try:
        linked = asyncio.create_task(link.run(), name="link")
        await asyncio.wait([linked, *work], return_when=asyncio.FIRST_COMPLETED)
        for task in work:
            if task.done():
                task.result()
    finally:
        for server, _, _ in servers:
            server.should_exit = True
        await events.close()
        await asyncio.wait(serving, timeout=CLOSING_MOST_S)
        await recoveries.close()
        for task in [*work, linked]:
            task.cancel()
        await asyncio.gather(*work, linked, return_exceptions=True)
        await audit.close(AUDIT_CLOSING_MOST_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNECTIONS_CLOSING_MOST_S):
                for question in questions.values():
                    await question.close()
                await looking.close()
                await asking.close()


def _servers(
    options: ServerArguments,
    settings: RestSettings,
    app: FastAPI,
    sessions: Sessions,
    audit: Audit,
    clock: Clock,
    log: FilteringBoundLogger,
) -> list[tuple[Server, socket.socket, ServerTls | None]]:
    """Return a server with a ``RequestGate`` for each listener. Raises: ConfigError, the file has other listeners."""

    users = None if settings.users_file is None else users_of(settings.users_file, log)
    authentication = None if users is None else Authentication(users, clock, log)
    token = LocalToken(settings.token_file, clock, log)
    now = [listener.without_port for listener in settings.listeners]
    if [now[number] if number < len(now) else "" for number, _ in options.sockets] != options.listeners:
        raise ConfigError(
            f"The worker listens at {', '.join(options.listeners)}, and the file has other listeners by now.",
            remedy="Restart the worker, or put them back: what a listener serves depends on where it listens.",
        )
    bound = [(settings.listeners[number], socket.socket(fileno=descriptor)) for number, descriptor in options.sockets]
    own = [socket.gethostname(), *(listener.host for listener, _ in bound), *settings.hosts]
    limits = limits_of(most_descriptors(), len(bound))
    servers = []
    for listener, opened in bound:
        gate = RequestGate(
            app,
            settings.exposure(listener),
            audit=audit,
            log=log,
            sessions=sessions,
            authentication=authentication,
            token=token,
            names={name.lower() for name in own if name},
            missing=settings.missing(listener),
        )
        servers.append((make_server(gate, limits), opened, settings.tls_of(listener)))
    return servers


def users_of(path: Path, log: FilteringBoundLogger) -> UsersFile:
    """Return the users of a file. If the file cannot be used yet, this is logged, and each request reads it again."""
    users = UsersFile(path, lambda why: log.warning("security.stale", why=why))
    try:
        users.current()
    except UsersUnusable as error:
        log.error("rest.users_refused", why=str(error), effect="no user is let in until it is mended")
    return users


def most_descriptors() -> int:
    """Raise this process's limit of open files as far as allowed, and return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MOST if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


async def _store_audit(stores: Mapping[Flow, Callable[[AuditRecord], Awaitable[None]]], record: AuditRecord) -> None:
    """Store a record with its flow, or with the first flow if it names none."""
    named = [store for flow, store in stores.items() if str(flow) == record.flow]
    await (named or list(stores.values()))[0](record)


def main() -> None:
    """Run until the worker has ended. It ignores signals: the worker handles them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)  # uvicorn's own lines; mm2py logs what matters
    options = parse_arguments(sys.argv[1:])
    log = make_logger(options.log_level, options.log_format, cast("TextIO", LineFile(STDERR))).bind(process="rest")
    try:
        configuration = read_settings_file(options.file, options.clusters)
        gc.freeze()  # imported objects stay: searching all of them for garbage would delay answers
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serve(options, configuration, log))
    except Mm2Error as error:
        log.error("rest.failed", why=str(error))
        sys.exit(1)
