"""The demo: two real clusters on loopback, sample traffic on both, and mm2py mirroring it both ways, shown as a table.

``python -m deploy.local.demo`` runs until Ctrl-C; with ``--seconds N`` it ends by itself, compares both sides record by
record, and exits with 1 on any difference. It leaves no process and no file behind. mm2py runs inside this process, so
that the table can show the state of its herder. MirrorMaker 2 has no counterpart.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

import uvloop
from confluent_kafka import KafkaException
from rich.console import Console

from deploy.local.boot_image import boot_image
from deploy.local.broker_settings import COMPACT_AT_ONCE
from deploy.local.demo_failover import Failover, Place
from deploy.local.demo_page import serving_page
from deploy.local.demo_samples import SAMPLES, Writer
from deploy.local.demo_table import WIDTH, Screen
from deploy.local.demo_verdict import conclude
from deploy.local.errors import StarterError, tail
from deploy.local.guardian import guard
from deploy.local.jars import jar_directory
from deploy.local.kafka import KafkaCluster, start_clusters
from mm2py.cli.main import make_herder
from mm2py.config.configuration import read_settings_file
from mm2py.connector import FlowStatus
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias, Flow
from mm2py.logs import make_logger
from mm2py.worker.herder import Herder
from tests.checker.check import check_copy
from tests.checker.dump import DumpFailed
from tests.checker.ledger import Ledger
from tests.checker.load import LoadFailed

DONE: Final = 0
FAILED: Final = 1
INTERRUPTED: Final = 130
SHOW_EVERY_S: Final = 0.5
CAUGHT_UP_S: Final = 60.0
STILL_S: Final = 1.5
"""A read waits at most half a second: a topic without lag after three reads has been read to its end."""
LOG_BYTES_SHOWN: Final = 4_000
FAILOVER_TOPIC: Final = "payments"

PROPERTIES: Final = """\
# What the demo runs is: mm2py mm2.properties --clusters {first} {second}
clusters = {first}, {second}
{first}.bootstrap.servers = {first_bootstrap}
{second}.bootstrap.servers = {second_bootstrap}
{first}->{second}.enabled = true
{second}->{first}.enabled = true

# some topics are written in transactions, and some of those are aborted
{first}.consumer.isolation.level = read_committed
{second}.consumer.isolation.level = read_committed

# consumer groups can go on on the other cluster at once
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 5

# REST and its web page, at any free port
listeners = http://127.0.0.1:0
rest.token.file = {directory}/rest.token

# each cluster has one broker
replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
"""

Expected = Mapping[tuple[Flow, str], int | None]


class Demo:
    """One run on running clusters: creates the topics, writes, mirrors, shows, and compares in the end."""

    def __init__(
        self, clusters: Sequence[KafkaCluster], directory: Path, console: Console, seconds: float | None
    ) -> None:
        self._clusters = {ClusterAlias(cluster.name): cluster for cluster in clusters}
        self._directory = directory
        self._console = console
        self._seconds = seconds
        self._halt = threading.Event()
        self._ledger = None if seconds is None else Ledger()
        first, second = self._clusters
        self._flows = (Flow(first, second), Flow(second, first))
        topic = FAILOVER_TOPIC
        self._failover = Failover(
            Place(first, self._clusters[first].bootstrap, topic),
            Place(second, self._clusters[second].bootstrap, f"{first}.{topic}"),
        )
        self._writers = [
            (flow, Writer(self._clusters[flow.source].bootstrap, sample, self._ledger))
            for flow in self._flows
            for sample in SAMPLES[flow.source]
        ]

    def run(self) -> int:
        """Run the whole demo. Returns the exit code.

        Raises:
            LoadFailed, DumpFailed, KafkaException, StarterError, Mm2Error: the demo cannot do its work.
            KeyboardInterrupt: while topics are created, or while both sides are compared.
        """
        self._prepare()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code = runner.run(self._mirror())
        install_handlers()  # the event loop had its own
        if code == DONE and self._seconds is not None:
            code = self._compare()
        if code == FAILED:
            self._say(f"The log of mm2py ends with:\n{tail(self._log_path, max_bytes=LOG_BYTES_SHOWN)}")
        return code

    @property
    def _log_path(self) -> Path:
        return self._directory / "mm2py.log"

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _prepare(self) -> None:
        """Write the file, create the topics, and fill the compacted ones with a history that has holes."""
        self._say("Making sample topics; the compacted ones are written and cleaned before mm2py starts.")
        first, second = self._clusters.values()
        names = {"first": first.name, "second": second.name}
        addresses = {"first_bootstrap": first.bootstrap, "second_bootstrap": second.bootstrap}
        (self._directory / "mm2.properties").write_text(
            PROPERTIES.format(**names, **addresses, directory=self._directory)
        )
        with ThreadPoolExecutor(len(self._writers)) as pool:
            try:
                made = [pool.submit(writer.prepare, self._halt) for _, writer in self._writers]
                for each in made:
                    each.result()
            except BaseException:
                self._halt.set()  # so that the other writers stop, too
                raise

    async def _mirror(self) -> int:
        """Run mm2py and the traffic until the time is over, or until the first signal."""
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        signals_seen = 0

        def on_signal() -> None:
            nonlocal signals_seen
            signals_seen += 1
            if signals_seen > 1:
                leave_at_once()
            stopping.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal)
        path = self._directory / "mm2.properties"
        file = read_settings_file(path, list(self._clusters))
        with self._log_path.open("w") as log_file, ThreadPoolExecutor(len(self._writers) + 1) as pool:
            log = make_logger("info", "text", log_file)
            herder, connections = make_herder(file, {}, log)
            worker = asyncio.create_task(herder.run(), name="mm2py")
            stop = asyncio.create_task(stopping.wait(), name="stop signal")
            traffic = [loop.run_in_executor(pool, writer.run, self._halt) for _, writer in self._writers]
            failover = loop.run_in_executor(pool, self._failover.run)
            try:
                async with serving_page(path, file, herder, log, self._say):
                    return await self._watch(herder, worker, stop, traffic, failover)
            finally:
                self._halt.set()
                self._failover.stop()
                herder.stop()
                stop.cancel()
                await asyncio.gather(worker, failover, *traffic, return_exceptions=True)
                for cluster in connections():
                    await cluster.close()

    async def _watch(
        self,
        herder: Herder,
        worker: asyncio.Task[int],
        stop: asyncio.Task[bool],
        traffic: Sequence[asyncio.Future[None]],
        failover: asyncio.Future[str],
    ) -> int:
        begun_s = time.monotonic()
        end_s = float("inf") if self._seconds is None else begun_s + self._seconds
        of_s = "" if self._seconds is None else f" of {self._seconds:g}"
        caught_up = CaughtUp({})
        facts = self._facts()
        with Screen(self._console, facts) as screen:

            async def show(heading: str, until: Callable[[], bool], watched: set[asyncio.Future[Any]]) -> None:
                """Show the table until a condition is true, or one of the watched tasks ends."""
                while not until() and not any(task.done() for task in watched):
                    text = heading.format(f"{time.monotonic() - begun_s:.0f}")
                    facts[len(self._facts()) :] = [failover.result()] if failover.done() else []
                    await asyncio.to_thread(screen.show, herder.status(), text)
                    await asyncio.wait(watched, timeout=SHOW_EVERY_S, return_when=asyncio.FIRST_COMPLETED)

            heading = f"mm2py mirrors both ways: {{}}{of_s} s"
            over = lambda: time.monotonic() >= end_s and failover.done()  # noqa: E731
            await show(heading, over, {worker, stop, *traffic})
            self._halt.set()
            self._failover.stop()
            await asyncio.gather(*traffic)
            if self._seconds is not None and not stop.done():
                caught_up = CaughtUp(self._expected())
                late_s = time.monotonic() + CAUGHT_UP_S
                await show(
                    "The traffic has ended; mm2py copies what is left.",
                    lambda: caught_up.by(herder.status(), now_s := time.monotonic()) or now_s >= late_s,
                    {worker, stop},
                )
            herder.stop()
            code = await worker
            text = f"mm2py mirrored both ways for {time.monotonic() - begun_s:.0f} s; rates are averages."
            await asyncio.to_thread(screen.show, herder.status(), text, last=True)
        if code != DONE:
            self._say(f"mm2py ended with exit code {code}.")
            return FAILED
        if went_on := await failover:
            self._say(went_on)
        if stop.done():
            self._say("Stopped; mm2py has drained.")
            return DONE if self._seconds is None else INTERRUPTED
        for text in caught_up.behind:  # the comparison reports how many records are missing
            self._say(f"{CAUGHT_UP_S:g} s after the last record was written: {text}")
        return DONE

    def _facts(self) -> list[str]:
        addresses = "   ".join(f"{alias} {cluster.bootstrap}" for alias, cluster in self._clusters.items())
        return [addresses, f"settings and log of mm2py: {self._directory}"]

    def _expected(self) -> Expected:
        """The number of records of each topic that must be copied; None for a compacted topic: it is unknown."""
        return {
            (flow, writer.sample.topic): None if writer.sample.compacted else writer.committed()
            for flow, writer in self._writers
        }

    def _compare(self) -> int:
        self._say("Comparing both sides, record by record:")
        reports = [
            check_copy(
                self._clusters[flow.source].bootstrap,
                self._clusters[flow.target].bootstrap,
                {sample.topic: f"{flow.source}.{sample.topic}" for sample in SAMPLES[flow.source]},
                read_committed=True,
                ledger=self._ledger,
            )
            for flow in self._flows
        ]
        lines, code = conclude(reports)
        for line in lines:
            self._say(line)
        return code


class CaughtUp:
    """Whether all written records have been copied, as far as a status shows."""

    def __init__(self, expected: Expected) -> None:
        """``expected`` is the number of records for each topic, None where it is unknown."""
        self.behind: list[str] = []
        """What was missing in the last status."""
        self._expected = expected
        self._copied: dict[tuple[Flow, str], int] = {}
        self._still_since_s = 0.0

    def by(self, statuses: Sequence[FlowStatus], now_s: float) -> bool:
        """Return whether no topic lags in this status, and no count has changed for ``STILL_S``."""
        topics = {(flow.flow, topic.topic): topic for flow in statuses for topic in flow.topics}
        self.behind = []
        for key, records in self._expected.items():
            flow, name = key
            topic = topics.get(key)
            if topic is None:
                self.behind.append(f"{flow} {name} is not copied at all.")
            elif topic.lag_records is None:
                self.behind.append(f"{flow} {name} has not been read yet.")
            elif topic.lag_records:
                self.behind.append(f"{flow} {name} is {topic.lag_records} records behind.")
            elif records is not None and topic.records < records:
                self.behind.append(f"{flow} {name} has {topic.records} records of {records}.")
        copied = {key: topics[key].records for key in self._expected if key in topics}  # heartbeats never end
        if copied != self._copied or self.behind:
            self._copied, self._still_since_s = copied, now_s
        return now_s - self._still_since_s >= STILL_S


@contextmanager
def run_directory() -> Iterator[Path]:
    """Make a directory for the demo's files. It is removed with the ``with`` block, at the latest with this process."""
    directory = guard().new_directory("demo")
    try:
        yield directory
    finally:
        guard().remove_directory(directory)


def leave_at_once() -> NoReturn:
    """End this process now; the guardian then ends the brokers and removes all files."""
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), b"\x1b[?25h\n")  # the table has hidden the cursor
    os._exit(INTERRUPTED)


def install_handlers() -> None:
    """Install signal handlers for code outside the event loop.

    A first signal raises KeyboardInterrupt, and a second one ends the process at once.
    """
    signals_seen = 0

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal signals_seen
        signals_seen += 1
        if signals_seen > 1:
            leave_at_once()
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)


def run(seconds: float | None, console: Console) -> int:
    """Start the clusters, run the demo on them, and stop them. Returns the exit code."""
    boot_image(jar_directory())  # here and not in two threads: it may take a while, and Ctrl-C should work
    begun_s = time.monotonic()
    console.print(f"Starting two Kafka clusters, {' and '.join(SAMPLES)}.", markup=False, highlight=False)
    with start_clusters([KafkaCluster(alias, settings=COMPACT_AT_ONCE) for alias in SAMPLES]) as clusters:
        console.print(f"They are up after {time.monotonic() - begun_s:.1f} s.", markup=False, highlight=False)
        with run_directory() as directory:
            return Demo(clusters, directory, console, seconds).run()


def parse_seconds(text: str) -> float:
    """Return a positive number of seconds; argparse prints the text of a ValueError."""
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError("not a number of seconds")
    return seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``python -m deploy.local.demo``."""
    parser = argparse.ArgumentParser(prog="make demo", description="Two clusters, mirrored both ways, to look at.")
    parser.add_argument("--seconds", type=parse_seconds, help="end by itself after so long, and compare both sides")
    options = parser.parse_args(arguments)
    install_handlers()
    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else WIDTH, no_color=not terminal or "NO_COLOR" in os.environ)
    try:
        code = run(options.seconds, console)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        code = INTERRUPTED
    except (StarterError, LoadFailed, DumpFailed, KafkaException, Mm2Error) as error:
        print(f"demo: {error}", file=sys.stderr)
        code = FAILED
    return code


if __name__ == "__main__":
    sys.exit(main())
