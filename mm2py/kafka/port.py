"""The port between mm2py and a Kafka cluster: ``send(broker, request)``.

Real clusters (``cluster.py``) and the broker model under ``tests/fakes/`` implement the same protocol, so that tests
run whole flows under a virtual clock. Requests and replies are kio entities in the one version that ``messages.py``
names for each API. Fetch and Produce carry record batches whose bytes must not be copied, so they have types of their
own here, and ``wire.py`` chooses their version for each broker. The types of which each partition needs one are tuples,
the objects that Python creates fastest.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, NewType, Protocol, TypeVar, overload

from kio.static.protocol import Payload

BrokerId = NewType("BrokerId", int)
TopicPartition = tuple[str, int]
"""Topic and partition number; upstream topics unless the name says ``remote``."""
ReplyT = TypeVar("ReplyT", bound=Payload)
_NO_RECORDS: Final = memoryview(bytearray())
ANY_BROKER = BrokerId(-1)
"""Any broker that answers: for metadata and for requests that the cluster forwards to its controller."""


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The id and epoch that batches are written under; ``transactional_id`` is None when the target grants none."""

    producer_id: int
    epoch: int
    transactional_id: str | None


class PartitionFetch(NamedTuple):
    """What to read from one partition. Offsets in records, sizes in bytes."""

    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


@dataclass(frozen=True, slots=True)
class TopicFetch:
    name: str
    topic_id: uuid.UUID | None
    partitions: Sequence[PartitionFetch]


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """One read from one broker: all partitions that are wanted now, in the order of the caller's preference.

    The connection decides whether to send all of them or only changes to a fetch session.
    """

    topics: Sequence[TopicFetch]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool
    answer_all: bool = False
    """The reply must name every partition, also those without news since the last reply."""
    rack: str = ""
    """The reader's rack: instead of records, a leader may name a replica that is nearer. Empty: it never does."""


class FetchedPartition(NamedTuple):
    """One partition's part of a fetch reply. ``records`` is a writable view into the frame that was received."""

    topic: str
    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: memoryview = _NO_RECORDS
    aborted: Sequence[tuple[int, int]] = ()
    """(producer id, first offset) of each aborted transaction in the range read; only under ``read_committed``."""
    diverging_epoch: tuple[int, int] | None = None
    """(epoch, end offset) from which the log differs from the records last fetched: the source was truncated."""
    preferred_replica: int = -1
    """The broker from which this reader should read the partition instead; -1: none."""


@dataclass(frozen=True, slots=True)
class FetchReply:
    partitions: Sequence[FetchedPartition]
    size_bytes: int
    """Size of the frame that all ``records`` are views of."""
    error_code: int = 0
    throttle_ms: int = 0
    session_id: int = 0
    """Below the port only: the fetch session that the broker granted."""


class PartitionProduce(NamedTuple):
    """One record batch for one partition; ``records`` is sent as it is."""

    partition: int
    records: bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class TopicProduce:
    name: str
    topic_id: uuid.UUID | None
    partitions: Sequence[PartitionProduce]


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """Batches for many partitions of one broker, at most one a partition; always ``acks=all``."""

    topics: Sequence[TopicProduce]
    timeout_ms: int
    transactional_id: str | None = None
    """Set if the batches are part of a transaction. Batches that a worker copies never are."""


class ProducedPartition(NamedTuple):
    topic: str
    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class ProduceReply:
    partitions: Sequence[ProducedPartition]
    throttle_ms: int = 0


class Brokers(Protocol):
    """The brokers of one cluster, reachable by id."""

    @overload
    async def send(self, broker: BrokerId, request: FetchRequest, *, channel: str = ...) -> FetchReply: ...
    @overload
    async def send(self, broker: BrokerId, request: ProduceRequest, *, channel: str = ...) -> ProduceReply: ...
    @overload
    async def send(self, broker: BrokerId, request: Payload, *, channel: str = ...) -> Payload: ...

    async def send(
        self, broker: BrokerId, request: FetchRequest | ProduceRequest | Payload, *, channel: str = "control"
    ) -> object:
        """Send one request and return its reply.

        Args:
            broker: an id from the cluster's metadata, or ``ANY_BROKER``.
            request: in the version ``messages.py`` names; the reply has the matching response class.
            channel: requests of one channel and broker share a connection and are answered in order; a request that
                waits (a fetch) must not share one with requests that cannot.
        Raises:
            BrokerUnreachable: no connection could be made, or it broke before the reply. Whether the request was
                carried out is then unknown. Retriable.
            RequestTimedOut: the reply did not come in time; the connection is closed. Retriable, outcome unknown.
            NotKafka: the server at that address does not speak Kafka's protocol.
            UnsupportedVersion: the broker and mm2py share no version of this API.
        Cancelling leaves the outcome of the request unknown; the connection stays in use.
        """
        ...

    def round_trip_s(self, broker: BrokerId) -> float | None:
        """Return how long the first answer on a connection to a broker took, at the shortest; None before the first."""
        ...

    def close_channel(self, broker: BrokerId, channel: str) -> None:
        """Close a connection that is not needed any more. The next request of the channel opens another one."""
        ...


async def ask(
    brokers: Brokers, broker: BrokerId, request: Payload, reply_type: type[ReplyT], *, channel: str = "control"
) -> ReplyT:
    """Send a request and return its reply, checked to be a ``reply_type``. Raises: as ``Brokers.send``."""
    reply = await brokers.send(broker, request, channel=channel)
    if not isinstance(reply, reply_type):
        raise TypeError(f"{type(reply).__name__} came in answer to {type(request).__name__}")
    return reply
