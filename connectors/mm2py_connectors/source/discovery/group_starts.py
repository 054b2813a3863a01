"""Where a consumer group of the source stands: with ``starting.offsets.group`` the copy goes on there.

The story: an older mirror, such as MirrorMaker 1, has copied a topic for years. It keeps its positions as commits of
the consumer group with which it reads. Without them the whole topic would be copied once more.

Counterpart: none in MirrorMaker 2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mm2py.flow import Flow
from mm2py.kafka.consumer_groups import committed_offsets, list_groups
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.offsets.group_sync import IDLE
from mm2py_connectors.source.refusals import GroupStartsUnknown, TopicRefused


async def committed_starts(
    flow: Flow, source: Brokers, group: str, partitions: Collection[TopicPartition], refused: dict[str, TopicRefused]
) -> Mapping[TopicPartition, int]:
    """Return which of some partitions the group has committed, and where it would read next.

    Its offset is used as it is. If the log does not have it any more, that is a gap like any other.

    Args:
        group: empty: no group counts, and nothing is asked.
        refused: all topics of ``partitions`` are added if the group cannot be used.
    Raises: KafkaError, as ``committed_offsets``; ask again.
    """
    if not group or not partitions:
        return {}
    found = (await committed_offsets(source, [group]))[group]
    why = ""
    if isinstance(found, BrokerRefused):
        if found.retriable:
            raise found
        why, found = found.what.rstrip("."), {}
    elif found:
        # An older mirror that still reads would copy on from where this flow begins.
        listed = (await list_groups(source)).get(group)
        if listed is not None and listed.state != IDLE:
            why = f"it has members ({listed.state}): the mirror that it belongs to may still be copying"
    if why:
        refused |= {topic: GroupStartsUnknown(flow, topic, group, why) for topic, _ in partitions}
        return {}
    return {key: found[key].offset for key in partitions if key in found}
