"""The demo of a backfill: history on one cluster, copied by Spark to another while records come, then compared.

``python -m deploy.local.demo_backfill`` fills two million records of history on the first of two real clusters, copies
them with ``mm2py backfill`` on ``local[2]`` while a client still writes and a worker waits, lets the worker continue at
the seam, compares both sides with ``mm2py verify``, and prints the certificate. It leaves no process and no file.
The exit code is that of the comparison. MirrorMaker 2 has no counterpart.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.local.errors import StarterError, tail
from deploy.local.guardian import guard
from deploy.local.kafka import KafkaCluster, start_clusters

HISTORY: Final = 2_000_000
RECORD_BYTES: Final = 200
PARTITIONS: Final = 6
LIVE_PER_S: Final = 500
LIVE_AFTER_S: Final = 3.0
"""How long the client still writes after the backfill."""
WAIT_MOST_S: Final = 120.0
TOPIC: Final = "orders"
FLOW: Final = "west->east"
PROPERTIES: Final = """\
clusters = west, east
west.bootstrap.servers = {west}
east.bootstrap.servers = {east}
west->east.enabled = true
west->east.topics = {topic}
emit.heartbeats.enabled = false
listeners =
replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
"""


class DemoFailed(Exception):
    """A step did not end as it should; the message says which."""


class Live:
    """A client that writes until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4"})
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._write, name="live traffic")
        self.written = 0

    def fill(self, records: int) -> None:
        """Write history, as fast as the cluster takes it."""
        bytes_kept = random.Random(1).randbytes(1 << 20)  # noqa: S311  (codecs find nothing in it)
        for number in range(records):
            at = number * 61 % (len(bytes_kept) - RECORD_BYTES)
            while True:
                try:
                    value = bytes_kept[at : at + RECORD_BYTES]
                    self._producer.produce(TOPIC, value, b"%d" % number, partition=number % PARTITIONS)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self._producer.flush()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop writing. Returns when all records are on the cluster."""
        self._halt.set()
        self._thread.join()
        self._producer.flush()

    def _write(self) -> None:
        while not self._halt.wait(0.1):
            for _ in range(LIVE_PER_S // 10):
                self._producer.produce(TOPIC, b"live %d" % self.written, partition=self.written % PARTITIONS)
                self.written += 1
            self._producer.poll(0)


def say(text: str) -> None:
    print(f"\n== {text}", flush=True)


def command(file: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "mm2py", *arguments[:1], str(file), *arguments[1:]]


def status(file: Path) -> dict[str, Any]:
    """Return what ``mm2py status --json`` says of the flow."""
    done = subprocess.run(
        command(file, "status", "--json"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    flows: list[dict[str, Any]] = json.loads(done.stdout or b"{}").get("flows", [])
    return flows[0] if flows else {}


def wait_until(reached: Any, what: str) -> None:
    """Wait until a condition is true. Raises: DemoFailed, it is not true in time."""
    end_s = time.monotonic() + WAIT_MOST_S
    while not reached():
        if time.monotonic() > end_s:
            raise DemoFailed(f"not within {WAIT_MOST_S:.0f} s: {what}")
        time.sleep(0.5)


@contextmanager
def worker(file: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker; leaving the block drains it."""
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "mm2py", str(file)],
            stderr=stream,
            env={**os.environ, **guard().environment()},
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def demo(west: KafkaCluster, east: KafkaCluster, directory: Path, records: int) -> int:
    """Run the whole demo, and return the exit code of the comparison. Raises: DemoFailed."""
    file, certificate = directory / "mm2.properties", directory / "certificate.txt"
    file.write_text(PROPERTIES.format(west=west.bootstrap, east=east.bootstrap, topic=TOPIC))
    admin = AdminClient({"bootstrap.servers": west.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
    say(f"Filling {records:,} records of history into {TOPIC} on west.")
    live = Live(west.bootstrap)
    live.fill(records)
    live.start()
    try:
        say(f"mm2py backfill mm2.properties '{FLOW}' --master 'local[2]', while {LIVE_PER_S} records/s come")
        begun_s = time.monotonic()
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **guard().environment()}
        backfill = subprocess.Popen(
            command(file, "backfill", FLOW, "--master", "local[2]", "--topics", TOPIC, "--parquet", str(directory)),
            env=environment,
        )
        try:
            wait_until(lambda: status(file).get("backfills") or backfill.poll() is not None, "the backfill begins")
            with worker(file, directory / "worker.log"):
                if backfill.wait() != 0:
                    raise DemoFailed(f"the backfill ended with exit code {backfill.returncode}")
                took_s = time.monotonic() - begun_s
                megabytes = records * RECORD_BYTES / 1e6
                say(f"{records:,} records in {took_s:.0f} s, Spark's start included ({megabytes / took_s:.0f} MB/s).")
                time.sleep(LIVE_AFTER_S)
                live.stop()
                wait_until(lambda: status(file).get("lag") == 0, "the worker has gone on and caught up")
                say(f"The worker went on at the seam: {live.written:,} more records are copied.")
                say(f"mm2py verify mm2.properties '{FLOW}'")
                done = subprocess.run(
                    command(file, "verify", FLOW, "--master", "local[2]", "--certificate", str(certificate)),
                    env=environment,
                    check=False,
                )
        finally:
            if backfill.poll() is None:
                backfill.kill()
                backfill.wait()
    finally:
        live.stop()
    if done.returncode == 0:
        say("The certificate:")
        print(certificate.read_text(), flush=True)
    return done.returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo, and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.local.demo_backfill", description=__doc__.split("\n")[0])
    parser.add_argument("--records", type=int, default=HISTORY, help="of history; default: %(default)s")
    options = parser.parse_args(arguments)
    directory = guard().new_directory("demo-backfill")
    try:
        with start_clusters([KafkaCluster("west"), KafkaCluster("east")]) as (west, east):
            try:
                return demo(west, east, directory, options.records)
            except DemoFailed as error:
                print(f"The demo failed: {error}.", file=sys.stderr)
                if (log := directory / "worker.log").exists():
                    print(f"The log of the worker ends with:\n{tail(log, max_bytes=4_000)}", file=sys.stderr)
                return 1
    except (StarterError, KafkaException) as error:
        print(f"demo-backfill: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        guard().remove_directory(directory)


if __name__ == "__main__":
    sys.exit(main())
