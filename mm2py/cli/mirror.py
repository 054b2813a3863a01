"""``mm2py mirror``: mirrors topics without a settings file, until it is stopped or has caught up.

It makes the settings of a file from its options and from client files, and runs a worker by them. The worker is like
any other: positions are on the target, and a second call with the same options, also on another machine, shares the
work.

Counterpart: kafka-mirror-maker.sh (MirrorMaker 1), and the Go mirror maker, whose options it takes as well.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TextIO, cast

from structlog.typing import FilteringBoundLogger

from mm2py.cli.command import CommandParser
from mm2py.cli.main import make_herder, run_worker, tune_process
from mm2py.clock import SystemClock
from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.config.properties import read_properties
from mm2py.config.settings import ClusterSettings
from mm2py.errors import ConfigError
from mm2py.event_loop import loop_factory
from mm2py.flow import Flow
from mm2py.flow_clusters import Connected, connect
from mm2py.logs import LEVELS, make_logger
from mm2py.mirror.client_file import NO_FILE, ClientFile, ClientRole, read_client_file
from mm2py.mirror.old_options import OLD_OPTIONS, OldMeaning
from mm2py.mirror.progress import MirrorState, ProgressWatch
from mm2py.mirror.properties_text import properties_text
from mm2py.mirror.request import MirrorArguments, MirrorRequest, read_request
from mm2py.output import STDERR, LineFile, write_out
from mm2py.status.cluster_inquiry import patience_of_commands
from mm2py.status.exit_codes import EXIT_DONE, EXIT_WAITS
from mm2py.status.inquiry import Inquiry
from mm2py.status.report import report_of
from mm2py.worker.herder import Herder

LOOK_EVERY_S: Final = 2.0
LINE_EVERY_S: Final = 60.0
"""How often a line is written where there is no terminal."""
_IN_FILE: Final = re.compile(r"^\S*/mirror(, line \d+)?: ")
_UP, _CLEAR = "\x1b[{}F", "\x1b[K"


class MirrorCommand(argparse.Namespace):
    """What follows ``mirror`` on the command line."""

    sources: list[str]
    source_configs: list[Path]
    target: str
    target_config: Path | None
    topics: str | None
    exclude: str | None
    blacklist: str | None
    prefixes: list[str]
    identity: bool
    from_group: str | None
    from_latest: bool
    until_caught_up: bool
    write_file: Path | None
    log_level: str


def make_parser() -> CommandParser:
    """Return the parser of the command."""
    parser = CommandParser(
        "mirror",
        "Mirrors topics without a settings file. It only reads from the sources. Exactly one of topics and blacklist is"
        " given. Without a prefix, topics keep their names. Called again with the same options, also on another"
        " machine, it goes on, or shares the work. Exit codes: 0 stopped, or caught up; 1 it failed; 2 wrong"
        " options or files; 3 caught up, but for topics that need an operator.",
    )
    main = parser.add_argument
    add = parser.add_argument_group("what to mirror").add_argument
    add("--from", dest="sources", action="append", default=[], metavar="HOST:PORT", help="a source; may be repeated")
    add("--to", dest="target", default="", metavar="HOST:PORT", help="the target")
    add("--topics", metavar="REGEX", help="topics to mirror: whole names, separated by commas")
    add("--exclude", metavar="REGEX", help="but not these")
    add(
        "--prefix",
        dest="prefixes",
        action="append",
        default=[],
        metavar="P",
        help="copies are called P.TOPIC; if P ends in one of . _ - that stands between the two; once for each --from",
    )
    add("--identity", action="store_true", help="copies keep the names of their topics: as without --prefix")
    add(
        "--from-config",
        "--consumer.config",
        dest="source_configs",
        action="append",
        default=[],
        metavar="F",
        type=Path,
        help="a properties file of a consumer of the source; may be repeated. Its group.id counts as --from-group",
    )
    add(
        "--to-config",
        "--producer.config",
        dest="target_config",
        metavar="F",
        type=Path,
        help="a properties file of a producer of the target",
    )
    add("--from-group", metavar="G", help="begin where this consumer group has committed on the source; '' for none")
    add("--from-latest", action="store_true", help="begin with what is written from now on, instead of at the start")
    main("--until-caught-up", action="store_true", help="end when all that was there at the start is copied")
    main("--write-file", metavar="F", type=Path, help="only write the settings file that does the same, and end")
    main("--log-level", choices=LEVELS, default="warning", type=str.lower)
    old = parser.add_argument_group(
        "of older mirrors", "What is not named here works as it does there. Each of these says what it means here."
    ).add_argument
    old("--whitelist", "--include", dest="whitelist", metavar="REGEX", help="as --topics")
    old("--blacklist", metavar="REGEX", help="mirror all topics but these")
    for option in OLD_OPTIONS:
        word = "refused" if option.meaning is OldMeaning.REFUSED else option.text
        old(f"--{option.name}", dest=f"old {option.name}", nargs="?", const="true", metavar="X", help=word)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: it cannot be understood, a file cannot be read, or the worker failed.
    """
    options = make_parser().parse_args(arguments, namespace=MirrorCommand())
    request = read_request(_given(options))
    for note in request.notes:
        _tell(note)
    text = properties_text(request)
    if options.write_file is not None:
        _write_new(options.write_file, text)
        _tell(f"Wrote {options.write_file}. It may hold credentials: only you may read it.")
        return EXIT_DONE
    try:
        file = _read(text)
        configuration = file.configuration()
        for refused in configuration.refused.values():
            raise refused
    except ConfigError as error:
        raise _of_options(error) from error
    for warning in configuration.warnings:
        _tell(warning)
    _tell(_what(request))
    log = make_logger(options.log_level, "text", cast("TextIO", LineFile(STDERR)))
    tune_process(log)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_mirror(file, log, ends=options.until_caught_up))


def _given(options: MirrorCommand) -> MirrorArguments:
    given = vars(options)
    whitelist = given["whitelist"]
    if options.topics is not None and whitelist is not None:
        raise ConfigError("--topics and --whitelist are given.", remedy="Give one of them; they mean the same.")
    old = {name.removeprefix("old "): value for name, value in given.items() if name.startswith("old ") and value}
    return MirrorArguments(
        sources=options.sources,
        source_files=[_client(path, ClientRole.CONSUMER) for path in options.source_configs],
        target=options.target,
        target_file=NO_FILE if options.target_config is None else _client(options.target_config, ClientRole.PRODUCER),
        topics=whitelist if options.topics is None else options.topics,
        exclude=options.exclude,
        blacklist=options.blacklist,
        prefixes=options.prefixes,
        identity=options.identity,
        group=options.from_group,
        from_latest=options.from_latest,
        old=old,
    )


def _client(path: Path, role: ClientRole) -> ClientFile:
    return read_client_file(read_properties(path).entries, str(path), role)


def _what(request: MirrorRequest) -> str:
    """Return what is mirrored, in a sentence."""
    ways = [
        f"{source.bootstrap} -> {request.target}"
        + ("" if request.is_identity else f" as {source.alias}{request.separator}TOPIC")
        for source in request.sources
    ]
    but = f" but {request.exclude}" if request.exclude else ""
    return f"Mirrors {request.topics}{but}: {'; '.join(ways)}. Ctrl-C stops; the same command goes on."


def _write_new(path: Path, text: str) -> None:
    """Write a file that only its owner may read. Raises: ConfigError, it is there already, or cannot be written."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise ConfigError(f"{path} is there already.", remedy="Name a new file.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.", remedy="Name another file.") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)


def _read(text: str) -> SettingsFile:
    """Return settings as a file would give them. The file is gone at once: it may hold credentials."""
    with tempfile.TemporaryDirectory(prefix="mm2py-mirror-") as folder:
        path = Path(folder) / "mirror"
        _write_new(path, text)
        return read_settings_file(path, None)


def _of_options(error: ConfigError) -> ConfigError:
    """Return an error of the settings as one of the options: the file with its lines is gone already."""
    return ConfigError(_IN_FILE.sub("The options cannot be used: ", error.what, count=1), remedy=error.remedy)


async def _mirror(file: SettingsFile, log: FilteringBoundLogger, *, ends: bool) -> int:
    """Run a worker, and tell how far it has come; with ``ends`` until it has caught up."""
    herder, connections = make_herder(file, {}, log, apply=True)
    watching = asyncio.create_task(_watch(file, herder, ends=ends), name="progress")
    try:
        code = await run_worker(herder, connections, log)
    finally:
        watching.cancel()
        found = await asyncio.gather(watching, return_exceptions=True)
    state = found[0] if isinstance(found[0], MirrorState) else None
    if state is MirrorState.STUCK and code == EXIT_DONE:
        return EXIT_WAITS
    if isinstance(found[0], Exception):
        raise found[0]
    return code


async def _watch(file: SettingsFile, herder: Herder, *, ends: bool) -> MirrorState | None:
    clock, rng = SystemClock(), random.Random()  # noqa: S311  (spreads retries; nothing secret)

    def connected(flow: Flow, cluster: ClusterSettings, timeout_s: float, rng: random.Random) -> Connected:
        return connect("mirror", flow, cluster, timeout_s=timeout_s, rng=rng)

    inquiry = Inquiry(file, connected, clock=clock, rng=rng, patience=patience_of_commands(clock), settles=True)
    watch, told_s, drawn = ProgressWatch(clock.wall_ms()), float("-inf"), 0
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    try:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            found = watch.judge(report_of(await inquiry.look()))
            is_over = ends and found.state is not MirrorState.COPIES
            if is_terminal:
                drawn = _draw(found.lines, drawn)
            elif is_over or clock.monotonic() - told_s >= LINE_EVERY_S:
                told_s = clock.monotonic()
                write_out("".join(f"{line}\n" for line in found.lines))
            if is_over:
                _tell(f"It is {found.state}: it ends.")
                herder.stop()
                return found.state
    finally:
        await inquiry.close()


def _draw(lines: Sequence[str], drawn: int) -> int:
    """Draw lines over those that were drawn before; returns how many there are now."""
    width = os.get_terminal_size(sys.stdout.fileno()).columns
    up = _UP.format(drawn) if drawn else ""
    body = "".join(f"{line[: width - 1]}{_CLEAR}\n" for line in lines)
    rest = f"{_CLEAR}\n" * max(0, drawn - len(lines))
    write_out(up + body + rest)
    return max(drawn, len(lines))


def _tell(text: str) -> None:
    file: Any = LineFile(STDERR)
    file.write(f"mm2py: {text}\n")
    file.flush()
