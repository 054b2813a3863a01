"""The command ``mm2py``: reads the file, joins the parts, runs until it is stopped.

This is the only module that joins the packages.

Counterpart: MirrorMaker.main and connect-mirror-maker.sh of Apache Kafka.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import os
import random
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn, TextIO, cast

from structlog.typing import FilteringBoundLogger

from mm2py import __version__
from mm2py.cli import rest_process, supervisor
from mm2py.cli.command import CommandParser
from mm2py.cli.commands import COMMANDS, HELP, find, overview
from mm2py.cli.rest_process import BoundSocket, RestProcess
from mm2py.cli.service_manager import service_manager
from mm2py.clock import SystemClock
from mm2py.compiled_core import CHOICE
from mm2py.config.configuration import SettingsFile, as_argument, read_settings_file
from mm2py.config.rest import RestSettings
from mm2py.config.settings import ClusterSettings, Configuration
from mm2py.connector import Side
from mm2py.copying.reading.limits import MemoryBudget
from mm2py.errors import ConfigError, Mm2Error
from mm2py.event_loop import loop_factory
from mm2py.flow import ClusterAlias, Flow, check_quoted, parse_flow
from mm2py.inherited_sockets import read_sockets
from mm2py.kafka.cluster import Cluster
from mm2py.kafka.security.access import Access
from mm2py.kafka.transport.opening import ConnectionOptions
from mm2py.kafka.transport.wire import FrameMemory, keep_large_blocks
from mm2py.logs import LEVELS, level_of, make_logger, set_level
from mm2py.output import STDERR, LineFile, say, write_out
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE
from mm2py.worker.facts import COORDINATED, FACTS, LOG_LEVEL, SNAPSHOT
from mm2py.worker.herder import Herder
from mm2py.worker.snapshot import snapshot_parts
from mm2py_connectors import wiring

VERSION_CAPS_VARIABLE: Final = "MM2PY_API_VERSION_CAPS"
"""For tests against old protocol versions: ``0:9,1:13`` caps Produce (0) at 9 and Fetch (1) at 13."""


class WorkerArguments(argparse.Namespace):
    """What the command line says."""

    file: Path
    clusters: list[str] | None
    log_level: str
    log_format: str
    allow_recopy: list[str]
    apply: bool
    workers: int
    worker_number: int | None
    rest_sockets: str | None


def parse_arguments(arguments: Sequence[str]) -> WorkerArguments:
    """Read the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser("", "Mirrors topics between Kafka clusters; reads MirrorMaker 2's files.")
    parser.add_argument("file", metavar="FILE", type=Path, help="a properties file as MirrorMaker 2 reads it")
    parser.add_argument(
        "--clusters", nargs="+", metavar="A", help="only run flows into these clusters, the nearby ones"
    )
    parser.add_argument("--log-level", choices=LEVELS, default="info", type=str.lower)
    parser.add_argument("--log-format", choices=("text", "json"), default="text")
    parser.add_argument(
        "--allow-recopy",
        nargs="+",
        action="extend",
        default=[],
        metavar="A->B:TOPIC",
        help="copy a topic once more from its start although its remote topic is not empty, so that records may come "
        "twice; give it to each worker. The refusal of the topic says how to go on behind what is there instead",
    )
    parser.add_argument(
        supervisor.APPLY_OPTION,
        action="store_true",
        help="let all workers of the flows run by this file, as mm2py apply FILE does before; think twice before a "
        "service has it: each restart of it undoes what was changed meanwhile",
    )
    supervisor.add_arguments(parser)
    parser.add_argument("--version", action="version", version=f"mm2py {__version__}, {CHOICE}")
    return parser.parse_args(arguments, namespace=WorkerArguments())


def recopies_of(texts: Sequence[str]) -> dict[Flow, set[str]]:
    """Read the values of ``--allow-recopy``.

    Raises:
        ConfigError: one of them is not ``A->B:TOPIC``.
    """
    found: dict[Flow, set[str]] = {}
    for text in texts:
        check_quoted(text)
        flow, colon, topic = text.rpartition(":")
        if not colon or not topic:
            raise ConfigError(f"--allow-recopy {text!r} names no topic.", remedy="Write it as A->B:TOPIC.")
        found.setdefault(parse_flow(flow), set()).add(topic)
    return found


def make_herder(
    file: SettingsFile,
    recopies: Mapping[Flow, set[str]],
    log: FilteringBoundLogger,
    *,
    apply: bool = False,
) -> tuple[Herder, Callable[[], Sequence[Cluster]]]:
    """Return a worker's herder for real clusters. The second result lists the connections to close."""
    rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
    memory_max_bytes = file.configuration().memory_max_bytes
    frames = FrameMemory(memory_max_bytes // 2)
    caps = _version_caps()
    opened: list[Cluster] = []

    def report_to(flow: Flow, cluster: ClusterSettings) -> Callable[[str], None]:
        return lambda why: log.warning("security.stale", flow=str(flow), cluster=cluster.alias, why=why)

    without_session: set[tuple[ClusterAlias, str]] = set()

    def no_session_in(alias: ClusterAlias) -> Callable[[str], None]:
        def report(broker: str) -> None:
            if (alias, broker) not in without_session:
                without_session.add((alias, broker))
                log.warning(
                    "broker.no_fetch_session",
                    cluster=alias,
                    broker=broker,
                    effect="every read names all its partitions and is answered for all of them, at the cost of more"
                    " CPU here and on the broker; it is asked for a session again every minute",
                    remedy=f"Raise max.incremental.fetch.session.cache.slots on the brokers of {alias}; all their"
                    " clients share these.",
                )

        return report

    def connect(flow: Flow, cluster: ClusterSettings, timeout_s: float) -> Side:
        brokers = Cluster(
            cluster.alias,
            cluster.bootstrap_servers,
            rng=rng,
            client_id=cluster.client_id or f"{flow}|mm2py",
            request_timeout_s=timeout_s,
            admin_timeout_s=cluster.request_timeout_s,
            access=Access(cluster.alias, cluster.security, rng=rng, report=report_to(flow, cluster)),
            options=ConnectionOptions(frames, no_session_in(cluster.alias), caps),
        )
        opened.append(brokers)
        return Side(cluster.alias, brokers, brokers.check_bootstrap, brokers.reads_topic_ids)

    context = wiring.WorkerContext(
        connect,
        SystemClock(),
        rng,
        MemoryBudget(memory_max_bytes),
        log,
        name=worker_name(),
    )
    return wiring.make_herder(file, recopies, context, apply=apply), lambda: opened


async def run_worker(
    herder: Herder,
    connections: Callable[[], Sequence[Cluster]],
    log: FilteringBoundLogger,
    rest: RestProcess | None = None,
    *,
    has_parent: bool = False,
) -> int:
    """Run until a signal stops it; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    signals_seen = 0

    def on_signal() -> None:
        nonlocal signals_seen
        signals_seen += 1
        if signals_seen > 1:
            os._exit(EXIT_INTERRUPTED)
        log.info("worker.stopping", why="signal; a second one stops at once")
        herder.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    beside = [asyncio.create_task(herder.vitals.watch_loop(), name="event loop")]
    if rest is not None:
        beside.append(asyncio.create_task(rest.run(), name="REST"))
    manager = service_manager(os.environ, is_worker_of_parent=has_parent)
    if manager is not None:
        telling = manager.run(herder.facts, lambda: herder.is_stopping)
        beside.append(asyncio.create_task(telling, name="service manager"))
    try:
        return await herder.run()
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        for cluster in connections():
            await cluster.close()


def _refuse_what_is_no_command(arguments: Sequence[str]) -> None:
    """Raises: ConfigError, the first word is no file, and looks like a command. A missing file is reported later."""
    first = arguments[0] if arguments else ""
    if not first or first.startswith("-") or os.path.exists(first):
        return
    import difflib  # noqa: PLC0415  (a worker, which starts often, has a file)

    names = [HELP, *(command.name for command in COMMANDS)]
    near = difflib.get_close_matches(first, names, 1)
    if near or not all(other.startswith("-") for other in arguments[1:2]):
        raise ConfigError(
            f"{first!r} is neither a file nor a command.",
            remedy=f"Did you mean mm2py {near[0]}?" if near else f"Commands are {', '.join(names)}.",
        )


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code."""
    if arguments[:1] == [HELP]:
        if len(arguments) == 1:
            write_out(f"{overview()}\n")
            return EXIT_DONE
        arguments = [*arguments[1:], "--help"]
        if find(arguments)[0] is None:
            raise ConfigError(f"There is no command {arguments[0]!r}.", remedy="Try mm2py help.")
    command, behind = find(arguments)
    if command is not None:
        of_command: Callable[[Sequence[str]], int] = import_module(command.module).run
        return of_command(behind)
    _refuse_what_is_no_command(arguments)
    options = parse_arguments(arguments)
    recopies = recopies_of(options.allow_recopy)
    log = make_logger(
        options.log_level,
        "json" if options.log_format == "json" else "text",
        cast("TextIO", LineFile(STDERR)),
        file=as_argument(options.file),
    )
    if options.worker_number is not None:
        log = log.bind(worker=options.worker_number)
    file = read_settings_file(options.file, options.clusters)
    configuration = file.configuration()
    flows = {settings.flow for settings in configuration.flows} | set(configuration.refused)
    strangers = sorted(set(recopies) - flows)
    if strangers:
        raise ConfigError(
            f"--allow-recopy names {strangers[0]}, which does not run.", remedy="Name a flow of the file."
        )
    for warning in configuration.warnings if options.worker_number is None else ():  # the parent has logged them
        log.warning("config", why=warning)
    if options.workers > 1:
        return supervisor.run_workers(arguments, options.workers, configuration.rest, log)
    beyond = {settings.flow for settings in configuration.heartbeats} - flows
    log.info(
        "worker.starting",
        version=__version__,
        core=str(CHOICE),
        flows=" ".join(map(str, sorted(flows))),
        only_heartbeats=" ".join(map(str, sorted(beyond))),
        pid=os.getpid(),
    )
    tune_process(log)
    bound = _bound(options, configuration.rest, log)

    async def main_task() -> int:
        herder, connections = make_herder(file, recopies, log, apply=options.apply)
        has_parent = options.worker_number is not None
        if has_parent:
            supervisor.watch_parent(herder.stop, log)
        rest = make_rest_process(options, bound, herder, configuration, log)
        return await run_worker(herder, connections, log, rest, has_parent=has_parent)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main_task())


def tune_process(log: FilteringBoundLogger) -> None:
    """Set the allocator and the garbage collector for copying. Everything must be imported already."""
    if not keep_large_blocks():
        log.info(
            "allocator.unknown",
            effect="memory of repacked and rebuilt batches goes back to the system each time: copying takes more CPU",
        )
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _bound(options: WorkerArguments, settings: RestSettings, log: FilteringBoundLogger) -> list[BoundSocket]:
    number = options.worker_number or 1
    if options.rest_sockets is None:
        return rest_process.bind(settings, log, number=number)
    return rest_process.adopt(settings, read_sockets(options.rest_sockets), number=number)


def make_rest_process(
    options: WorkerArguments,
    bound: Sequence[BoundSocket],
    herder: Herder,
    configuration: Configuration,
    log: FilteringBoundLogger,
) -> RestProcess | None:
    """Return the REST process of a worker, which is to be run; None: it listens nowhere."""
    if not bound:
        return None
    rest_process.make_token(configuration.rest, log)
    arguments = ["--worker", worker_name(), "--log-level", options.log_level, "--log-format", options.log_format]
    arguments += ["--clusters", *(options.clusters or ()), "--", str(options.file)]
    rng = random.Random()  # noqa: S311  (spreads restarts; nothing secret)
    checkpoints_max = configuration.metrics_partitions_max
    answers: dict[str, Callable[[], Iterable[object]]] = {
        FACTS: lambda: [herder.facts()],
        COORDINATED: lambda: [herder.coordinated()],
        SNAPSHOT: lambda: snapshot_parts(herder, checkpoints_max=checkpoints_max),
        LOG_LEVEL: lambda: [level_of(log)],
        **{f"{LOG_LEVEL} {level}": functools.partial(_log_at, log, level) for level in LEVELS},
    }
    return RestProcess(arguments, bound, lambda what: answers[what](), rng=rng, log=log)


def _log_at(log: FilteringBoundLogger, level: str) -> Iterable[str]:
    set_level(log, level)
    return [level]


def worker_name() -> str:
    """Return the name of this process, for logs and status."""
    return f"{socket.gethostname()}:{os.getpid()}"


def main() -> NoReturn:
    """Entry point of the command."""
    _fill_standard_descriptors()
    try:
        code = run(sys.argv[1:])
    except Mm2Error as error:
        say(str(error))
        code = EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    finally:
        _flush_output()
    sys.exit(code)


def _flush_output() -> None:
    """Flush what --help or --version printed. A reader that is gone is no failure, and Python must report none."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fill_standard_descriptors() -> None:
    """Open those of 0, 1 and 2 that the caller closed: a socket with such a number would be sent stray output."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
            setattr(sys, name, open(opened, mode, closefd=False))  # noqa: SIM115  (for as long as the process lives)


def _version_caps() -> dict[int, int]:
    text = os.environ.get(VERSION_CAPS_VARIABLE, "")
    try:
        return {int(key): int(cap) for key, cap in (pair.split(":") for pair in text.split(",") if pair)}
    except ValueError:
        raise ConfigError(f"{VERSION_CAPS_VARIABLE}={text!r} is not key:version pairs.", remedy="Unset it.") from None
