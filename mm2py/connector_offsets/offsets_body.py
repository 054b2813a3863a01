"""Offsets of connectors as bodies of Connect's REST API, ``{"offsets":[{"partition":{...},"offset":{...}}]}``. Pure.

Answers to alterOffsets of MirrorSourceConnector, MirrorCheckpointConnector and MirrorHeartbeatConnector: what they take
and refuse. Like there, a null offset is accepted for any partition, and further keys are ignored. Beyond that, the
source cluster must be that of the flow.
Source: MirrorUtils.validateSourcePartitionString and others, Apache Kafka, connect/mirror; ConnectorOffsets,
connect/runtime.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeGuard

from mm2py.connector import ClusterAlias, Kind
from mm2py.errors import Mm2Error
from mm2py.kafka.port import TopicPartition
from mm2py.records.source_offset import OFFSET_MOST, StoredPosition

PARTITION_MOST: Final = (1 << 31) - 1
SHOWN_MOST: Final = 200
_TEXTS: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.SOURCE: ("cluster", "topic"),
    Kind.CHECKPOINT: ("group", "topic"),
    Kind.HEARTBEAT: ("sourceClusterAlias", "targetClusterAlias"),
}
"""What names a partition of each connector, as text; all but heartbeats have a number beside it."""

Offsets = Mapping[TopicPartition, int | None]
"""By source topic and partition: the last offset that counts as copied; None: there is none any more."""


class OffsetsInvalid(Mm2Error):
    """A request names offsets that cannot be set. REST answers 400."""

    def __init__(self, what: str) -> None:
        super().__init__(what, remedy="Nothing was altered.")


def body_of(positions: Mapping[TopicPartition, StoredPosition], source: ClusterAlias) -> dict[str, Any]:
    """Return the stored positions of a source connector; without those that say that nothing is copied yet."""
    return {
        "offsets": [
            {
                "partition": {"cluster": source, "partition": partition, "topic": topic},
                "offset": {"offset": stored.next_source - 1},
            }
            for (topic, partition), stored in sorted(positions.items())
            if stored.next_source > 0 and not stored.recopy
        ]
    }


def read_offsets(body: object, kind: Kind, source: ClusterAlias) -> Offsets:
    """Return what a body asks for. Of two entries for a partition the last one counts, as in Connect.

    Returns:
        For a source connector; nothing is stored of the others, so for these it is empty.
    Raises:
        OffsetsInvalid: a connector of MirrorMaker 2 would refuse it; or it is for another cluster.
    """
    wanted: dict[TopicPartition, int | None] = {}
    for entry in _entries(body):
        partition, offset = entry.get("partition"), entry.get("offset")
        if not isinstance(partition, dict):
            raise OffsetsInvalid("Source partition may not be null, and has to be an object.")
        if offset is None:
            key = _key_or_none(partition)
            if kind is Kind.SOURCE and key is not None and partition.get("cluster") == source:
                wanted[key] = None
            continue
        for name in _TEXTS[kind]:
            if not isinstance(_field(partition, name), str):
                raise _invalid(partition, name, "must be a string")
        if kind is not Kind.HEARTBEAT:
            number = _field(partition, "partition")
            if not _is_int(number):
                raise _invalid(partition, "partition", "must be an integer")
            if not 0 <= number <= PARTITION_MOST:
                raise _invalid(partition, "partition", "must not be negative, nor larger than 2147483647")
        value = _offset(partition, offset)
        if kind is not Kind.SOURCE:
            if value != 0:
                raise _invalid_offset(partition, offset, "must be 0: this connector keeps no other offset")
        elif partition["cluster"] != source:
            raise _invalid(partition, "cluster", f"must be {source}, the source of this flow")
        else:
            wanted[partition["topic"], partition["partition"]] = value
    return wanted


def _entries(body: object) -> Sequence[Mapping[str, Any]]:
    entries = body.get("offsets") if isinstance(body, dict) else None
    if not isinstance(entries, list) or not entries:
        raise OffsetsInvalid("Partitions / offsets need to be provided for an alter offsets request.")
    if not all(isinstance(entry, dict) for entry in entries):
        raise OffsetsInvalid("Each of the offsets has to be an object with a partition and an offset.")
    return entries


def _key_or_none(partition: Mapping[str, Any]) -> TopicPartition | None:
    topic, number = partition.get("topic"), partition.get("partition")
    return (topic, number) if isinstance(topic, str) and _is_int(number) and 0 <= number <= PARTITION_MOST else None


def _field(partition: Mapping[str, Any], name: str) -> Any:
    if name not in partition:
        raise OffsetsInvalid(f"Source partition {_shown(partition)} is missing required key '{name}'.")
    return partition[name]


def _offset(partition: Mapping[str, Any], offset: object) -> int:
    if not isinstance(offset, dict) or "offset" not in offset:
        raise OffsetsInvalid(
            f"Source offset {_shown(offset)} for source partition {_shown(partition)} is missing required key 'offset'."
        )
    value = offset["offset"]
    if not _is_int(value):
        raise _invalid_offset(partition, offset, "must be an integer")
    if value < 0:
        raise _invalid_offset(partition, offset, "must not be negative")
    if value >= OFFSET_MOST:
        raise _invalid_offset(partition, offset, "is beyond what a log can hold")
    return value


def _invalid(partition: Mapping[str, Any], name: str, why: str) -> OffsetsInvalid:
    return OffsetsInvalid(f"Source partition {_shown(partition)} has an invalid value for key '{name}', which {why}.")


def _invalid_offset(partition: Mapping[str, Any], offset: object, why: str) -> OffsetsInvalid:
    return OffsetsInvalid(
        f"Source offset {_shown(offset)} for source partition {_shown(partition)} has an invalid value for key"
        f" 'offset', which {why}."
    )


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN_MOST else f"{text[:SHOWN_MOST]}..."
