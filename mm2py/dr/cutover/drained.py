"""Up to which source offset each partition of a run is in the target, by the stored positions of its flow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from mm2py.connector_offsets.turning import stored_positions
from mm2py.copying.reading.internal_table import each_record
from mm2py.dr.cutover.pair import RecoveryPair, turned
from mm2py.dr.states import PartitionOffsets
from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.list_offsets import EARLIEST, LATEST, Leaders, find_offsets
from mm2py.kafka.port import TopicPartition
from mm2py.shared_settings.direction import Positions

EXTRAS_MOST: Final = 1000
"""How many records of one partition are counted."""


class CopiedSoFar(NamedTuple):
    """How far a flow has copied."""

    copied: PartitionOffsets
    """By partition as ``orders-3``, the next source offset."""
    positions: Positions


async def copied_so_far(pair: RecoveryPair, flow: Flow, ends: PartitionOffsets) -> CopiedSoFar:
    """Return up to where the partitions that ``ends`` names are copied.

    Raises: Mm2Error, if a cluster does not answer.
    """
    settings = pair.settings[flow]
    positions = await stored_positions(settings, pair.brokers[flow.target], rng=pair.rng)
    arrived: Positions = {}
    if pair.keeps_names(flow):
        back = turned(flow)
        arrived = await stored_positions(pair.settings[back], pair.brokers[back.target], rng=pair.rng)
    topics = {topic_of(partition)[0] for partition in ends}
    leaders = await _leaders(pair, flow.source, topics)
    starts = await find_offsets(pair.brokers[flow.source], leaders, EARLIEST)
    return CopiedSoFar(copied_to(ends, starts, positions, arrived), positions)


def copied_to(
    ends: PartitionOffsets, starts: Mapping[TopicPartition, int], positions: Positions, arrived: Positions
) -> PartitionOffsets:
    """Return up to where each partition is copied. Pure.

    Args:
        starts: where the logs begin. A partition without a record needs no position.
        positions: of the flow.
        arrived: under the identity policy, the positions of the flow back. What that one has brought to the source
            came from the target: the flow begins behind it.
    """
    found: dict[str, int] = {}
    for partition, end in ends.items():
        key = topic_of(partition)
        brought = arrived[key].next_target if key in arrived else None
        reached = positions[key].next_source if key in positions else 0
        if key not in positions and starts.get(key) == end:
            reached = end
        found[partition] = max(reached, 0 if brought is None else brought)
    return found


def lag_of(ends: PartitionOffsets, copied: PartitionOffsets) -> int:
    """Return how many offsets are not copied yet."""
    return sum(max(0, end - copied.get(partition, 0)) for partition, end in ends.items())


def behind(ends: PartitionOffsets, copied: PartitionOffsets) -> Iterator[str]:
    """Yield each partition that is not copied to its end, in words."""
    for partition, end in sorted(ends.items()):
        if copied.get(partition, 0) != end:
            yield f"{partition} is copied to {copied.get(partition, 0):,} of {end:,}"


async def extras_on_target(pair: RecoveryPair, flow: Flow, positions: Positions, names: Iterable[str]) -> list[str]:
    """Return which topics of the target hold data records behind the flow's last copy, in words.

    Only for flows that keep names, when all is copied: the target is fenced, so neither flow wrote these records. What
    was written *between* two copies is not seen here.
    """
    wanted = sorted(set(names))
    target = pair.brokers[flow.target]
    metadata = await fetch_metadata(target, wanted)
    leaders: Leaders = await _leaders(pair, flow.target, wanted)
    ends = await find_offsets(target, leaders, LATEST)
    found: list[str] = []
    for key, end in sorted(ends.items()):
        at = positions[key].next_target if key in positions else None
        topic = metadata.topics.get(key[0])
        if at is None or at >= end or topic is None:
            continue
        only = replace(topic, partitions={key[1]: topic.partitions[key[1]]})
        count = 0
        async for _ in each_record(target, only, {key[1]: at}):
            count += 1
            if count >= EXTRAS_MOST:
                break
        if count:
            least = "at least " if count >= EXTRAS_MOST else ""
            found.append(f"{key[0]}-{key[1]} has {least}{count:,} record(s) from offset {at:,} on")
    return found


async def _leaders(pair: RecoveryPair, alias: ClusterAlias, topics: Iterable[str]) -> Leaders:
    names: Sequence[str] = sorted(set(topics))
    if not names:
        return {}
    metadata = await fetch_metadata(pair.brokers[alias], names)
    return {
        (name, number): part.leader
        for name, topic in metadata.topics.items()
        if not topic.error_code
        for number, part in topic.partitions.items()
    }


def topic_of(partition: str) -> TopicPartition:
    """Return topic and number of a partition as ``orders-3``."""
    name, _, number = partition.rpartition("-")
    return name, int(number)
