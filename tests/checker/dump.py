"""Dumps: the records of a partition as a consumer sees them, up to an end that was fixed before reading started.

librdkafka reads and verifies every batch's CRC; no code of mm2py takes part. The end is the high watermark, or for
committed reads the last stable offset. The last offsets below it may belong to no record (markers, aborted or compacted
records). So a dump ends at the first of these: the last offset before the end, a record after it, the client's report
that it has read to the end.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]

from tests.checker.dumped import Dumped, Headers
from tests.cluster.patience import now_s

AT_ONCE = 10_000
AT_ONCE_S = 0.02
"""A read waits this long for ``AT_ONCE`` records, or for all records before the end, also at the end of a log."""
ANSWER_S = 30.0
"""Not multiplied by PATIENCE: librdkafka may lose a first request, and then its caller repeats it
(``copies.answered``)."""
MOVING = frozenset(
    {
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)
"""Another broker leads now: the next request finds it."""


class Bounds(NamedTuple):
    """The start of a log, and its present end for readers of an isolation level."""

    start: int
    end: int


class DumpFailed(Exception):
    """A cluster cannot be read to the end: broker down, partition offline, records expired meanwhile."""


class Reader:
    """Reads one cluster at one isolation level, one partition at a time.

        with Reader(bootstrap, read_committed=True) as reader:
            bounds = reader.bounds("orders", range(3))
            records = list(reader.records("orders", 0, *bounds[0]))

    Args:
        settings: further librdkafka properties, such as credentials.
        stall_s: how long a read may bring nothing new before it fails.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        read_committed: bool,
        settings: Mapping[str, Any] | None = None,
        stall_s: float = ANSWER_S,
    ) -> None:
        self.read_committed = read_committed
        self._stall_s = stall_s
        common = {"bootstrap.servers": bootstrap, "log_level": 0, **(settings or {})}
        self._admin = AdminClient(common)
        self._consumer = Consumer(
            {
                **common,
                "group.id": f"checker-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed" if read_committed else "read_uncommitted",
                "check.crcs": True,
                "fetch.wait.max.ms": 10,
                "fetch.message.max.bytes": 4 << 20,
                "fetch.max.bytes": 64 << 20,
                "queued.max.messages.kbytes": 128 << 10,
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._consumer.close()

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic; 0 if there is no such topic."""
        found = self._consumer.list_topics(topic, timeout=ANSWER_S).topics[topic]
        if found.error is not None and found.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise KafkaException(found.error)
        return len(found.partitions)

    def config(self, topic: str) -> dict[str, str | None]:
        """Return the configuration of a topic, the broker's defaults included."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = self._admin.describe_configs([resource])[resource].result(ANSWER_S)
        return {name: entry.value for name, entry in entries.items()}

    def bounds(self, topic: str, partitions: Iterable[int]) -> dict[int, Bounds]:
        """Return the present bounds of partitions."""
        numbers = list(partitions)
        if not numbers:
            return {}
        starts = self._offsets(topic, numbers, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        ends = self._offsets(topic, numbers, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {number: Bounds(starts[number], ends[number]) for number in numbers}

    def _offsets(self, topic: str, numbers: list[int], spec: OffsetSpec) -> dict[int, int]:
        level = IsolationLevel.READ_COMMITTED if self.read_committed else IsolationLevel.READ_UNCOMMITTED
        wanted = {TopicPartition(topic, number): spec for number in numbers}
        end_s = time.monotonic() + ANSWER_S
        while True:
            futures = self._admin.list_offsets(wanted, isolation_level=level, request_timeout=ANSWER_S)
            try:
                return {place.partition: future.result(ANSWER_S).offset for place, future in futures.items()}
            except KafkaException as error:
                if error.args[0].code() not in MOVING or time.monotonic() > end_s:
                    raise
                time.sleep(0.1)

    def records(self, topic: str, partition: int, start: int, end: int) -> Iterator[Dumped]:
        """Yield the records of ``[start, end)``. The next read may begin when this one is exhausted or closed.

        Raises:
            DumpFailed: nothing came for ``stall_s``, or the log no longer has ``start``.
        """
        if start >= end:
            return
        self._consumer.assign([TopicPartition(topic, partition, start)])
        try:
            heard_s = now_s()
            position = start
            while True:
                messages = self._consumer.consume(min(AT_ONCE, end - position), timeout=AT_ONCE_S)
                if messages:
                    heard_s = now_s()
                elif now_s() - heard_s > self._stall_s:
                    raise DumpFailed(f"{topic}-{partition} brought nothing for {self._stall_s:g} s, end {end}.")
                for message in messages:
                    offset = cast("int", message.offset())
                    error = message.error()
                    if error is not None:
                        if error.code() != KafkaError._PARTITION_EOF:
                            raise DumpFailed(f"{topic}-{partition} cannot be read: {error}.")
                        if offset >= end:
                            return
                    elif offset < end:
                        yield dumped(message)
                    if error is None:
                        position = offset + 1
                        if position >= end:
                            return
        finally:
            self._consumer.unassign()


def dumped(message: Message) -> Dumped:
    """Return a consumed message as a record."""
    timestamp_type, timestamp_ms = message.timestamp()
    headers = message.headers()
    return Dumped(
        cast("int", message.offset()),
        timestamp_type,
        timestamp_ms,
        message.key(),
        message.value(),
        cast("Headers", tuple(headers)) if headers else (),
    )
