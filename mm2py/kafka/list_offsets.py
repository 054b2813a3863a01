"""Where partitions begin and end: every ListOffsets request of mm2py is made here.

Counterpart: OffsetFetcher of Apache Kafka's clients and KafkaAdminClient.listOffsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeVar

from kio.schema.types import BrokerId as KioBrokerId
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32, i64

from mm2py.kafka import messages
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.port import BrokerId, Brokers, TopicPartition, ask

EARLIEST: Final = -2
LATEST: Final = -1
_CONSUMER: Final = -1
_LOOKER: Final = -2
"""As this replica id, which Kafka keeps for tools, ``LATEST`` is the end of the leader's log."""
PARTITIONS_A_REQUEST: Final = 1000

Leaders = Mapping[TopicPartition, BrokerId | None]
ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class OffsetAnswer:
    """A leader's answer about one partition. ``offset`` is valid only without an error code."""

    offset: int
    leader_epoch: int
    error_code: int
    timestamp_ms: int = -1
    """Time of the record at ``offset``, if ``when`` was a time; -1: no record has that time or a later one."""


async def list_offsets(
    brokers: Brokers,
    leaders: Leaders,
    when: int | Mapping[TopicPartition, int],
    *,
    leader_epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    read_committed: bool = False,
    of_log: bool = False,
    skip_silent: bool = False,
) -> dict[TopicPartition, OffsetAnswer]:
    """Ask the leaders of partitions for their first (``EARLIEST``) or next (``LATEST``) offset.

    Args:
        leaders: the leader of each partition; partitions without one are left out of the answer.
        when: ``EARLIEST``, ``LATEST``, or a time in ms, or one of these for each partition. For a time the answer is
            the first record of that time or later.
        leader_epochs: an answer is valid under this epoch only; under another one the leader answers with an error.
        read_committed: ``LATEST`` is where the first open transaction begins.
        of_log: ``LATEST`` is the end of the leader's log; else it is the high watermark.
        skip_silent: partitions whose leader does not answer are left out, and nothing is raised for them.
    Raises:
        KafkaError: a leader does not answer.
    """
    found: dict[TopicPartition, OffsetAnswer] = {}
    for leader, keys in by_leader(leaders).items():
        try:
            for some in chunks(keys, PARTITIONS_A_REQUEST):
                request = _request(some, when, leader_epochs, read_committed=read_committed, of_log=of_log)
                found |= await _ask(brokers, leader, request)
        except KafkaError as error:
            if not (skip_silent and error.may_be_mended):
                raise
    return found


async def find_offsets(
    brokers: Brokers, leaders: Leaders, when: int, *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    """Return the offsets that leaders answer; partitions without an answer, or with an error, are left out.

    Args: see ``list_offsets``.
    Raises: KafkaError, if neither repeating nor an operator can mend it while mm2py runs.
    """
    answers = await list_offsets(brokers, leaders, when, read_committed=read_committed, skip_silent=True)
    return {key: answer.offset for key, answer in answers.items() if not answer.error_code}


async def find_bounds(brokers: Brokers, leaders: Leaders) -> dict[TopicPartition, tuple[int, int]]:
    """Return where partitions begin and end; those without an answer, or with an error, are left out.

    Raises: as ``find_offsets``.
    """
    first = await find_offsets(brokers, leaders, EARLIEST)
    last = await find_offsets(brokers, {key: leaders[key] for key in first}, LATEST)
    return {key: (first[key], last[key]) for key in last}


async def end_of(brokers: Brokers, leader: BrokerId, key: TopicPartition, when: int, *, leader_epoch: int = -1) -> int:
    """Return one end of one partition.

    Raises:
        BrokerRefused: the leader answers with an error.
        KafkaError: as ``Brokers.send``.
    """
    answers = await list_offsets(brokers, {key: leader}, when, leader_epochs={key: leader_epoch})
    answer = answers[key]
    if answer.error_code:
        raise BrokerRefused(f"Finding where {key[0]}-{key[1]} begins or ends", answer.error_code)
    return answer.offset


def by_leader(leaders: Leaders) -> dict[BrokerId, list[TopicPartition]]:
    """Return the partitions of each leader; partitions without one are left out."""
    found: dict[BrokerId, list[TopicPartition]] = {}
    for key, leader in leaders.items():
        if leader is not None:
            found.setdefault(leader, []).append(key)
    return found


def chunks(items: Sequence[ItemT], size: int) -> Iterator[Sequence[ItemT]]:
    """Yield the items in parts of at most ``size``."""
    for at in range(0, len(items), size):
        yield items[at : at + size]


def _request(
    keys: Sequence[TopicPartition],
    when: int | Mapping[TopicPartition, int],
    leader_epochs: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
    of_log: bool,
) -> messages.ListOffsetsRequest:
    by_topic: dict[str, list[messages.ListOffsetsPartition]] = {}
    for key in keys:
        asked = messages.ListOffsetsPartition(
            partition_index=i32(key[1]),
            current_leader_epoch=i32(leader_epochs.get(key, -1)),
            timestamp=i64(when if isinstance(when, int) else when[key]),
        )
        by_topic.setdefault(key[0], []).append(asked)
    return messages.ListOffsetsRequest(
        replica_id=KioBrokerId(_LOOKER if of_log else _CONSUMER),
        isolation_level=i8(int(read_committed)),
        topics=tuple(
            messages.ListOffsetsTopic(name=TopicName(topic), partitions=tuple(asked))
            for topic, asked in by_topic.items()
        ),
    )


async def _ask(
    brokers: Brokers, leader: BrokerId, request: messages.ListOffsetsRequest
) -> dict[TopicPartition, OffsetAnswer]:
    reply = await ask(brokers, leader, request, messages.ListOffsetsResponse)
    return {
        (str(topic.name), int(part.partition_index)): OffsetAnswer(
            int(part.offset), int(part.leader_epoch), int(part.error_code), int(part.timestamp)
        )
        for topic in reply.topics
        for part in topic.partitions
    }
