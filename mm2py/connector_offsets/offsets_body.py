"""Offsets of connectors as bodies of Connect's REST API, ``{"offsets":[{"partition":{...},"offset":{...}}]}``. Pure.

mm2py accepts and refuses the same bodies as MirrorMaker 2: a null offset is accepted for any partition, and further
keys are ignored. In addition the source cluster must be that of the flow. Connect's messages repeat the values that
were sent. Ours name only the entry, the key and the type of its value: a value sent by mistake may be a secret.

Counterpart: alterOffsets of MirrorSourceConnector, MirrorCheckpointConnector and MirrorHeartbeatConnector. Source:
MirrorUtils.validateSourcePartitionString and others, Apache Kafka, connect/mirror; ConnectorOffsets, connect/runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeGuard

from mm2py.errors import Mm2Error
from mm2py.flow import PARTITION_MOST, ClusterAlias, Kind
from mm2py.kafka.port import TopicPartition
from mm2py.records.source_offset import OFFSET_MOST, StoredPosition

_TEXTS: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.SOURCE: ("cluster", "topic"),
    Kind.CHECKPOINT: ("group", "topic"),
    Kind.HEARTBEAT: ("sourceClusterAlias", "targetClusterAlias"),
}
"""The text fields that name a partition of each connector; all but heartbeats have also a partition number."""

Offsets = Mapping[TopicPartition, int | None]
"""By source topic and partition: the last offset that counts as copied; None: the offset is deleted."""


class OffsetsInvalid(Mm2Error):
    """A request names offsets that cannot be set. REST answers 400."""

    def __init__(self, what: str) -> None:
        super().__init__(what, remedy="Nothing was altered.")


def body_of(positions: Mapping[TopicPartition, StoredPosition], source: ClusterAlias) -> dict[str, Any]:
    """Return the stored positions of a source connector; without partitions of which nothing is copied yet."""
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
        The offsets of a source connector. Empty for the other connectors, which store no offsets.
    Raises:
        OffsetsInvalid: a connector of MirrorMaker 2 would refuse the body; or the body is for another cluster.
    """
    wanted: dict[TopicPartition, int | None] = {}
    for place, entry in enumerate(_entries(body), 1):
        partition, offset = entry.get("partition"), entry.get("offset")
        if not isinstance(partition, dict):
            raise OffsetsInvalid(f"Source partition of entry {place} may not be null, and has to be an object.")
        if offset is None:
            key = _key_or_none(partition)
            if kind is Kind.SOURCE and key is not None and partition.get("cluster") == source:
                wanted[key] = None
            continue
        where = f"Source partition of entry {place}"
        for name in _TEXTS[kind]:
            _field(partition, name, str, "must be a string", where)
        if kind is not Kind.HEARTBEAT:
            number = _field(partition, "partition", int, "must be an integer", where)
            if not 0 <= number <= PARTITION_MOST:
                raise _invalid(where, "partition", "must not be negative, nor larger than 2147483647")
        value = _offset(offset, f"Source offset of entry {place}")
        if kind is not Kind.SOURCE:
            if value != 0:
                raise _invalid(
                    f"Source offset of entry {place}", "offset", "must be 0: this connector keeps no other offset"
                )
        elif partition["cluster"] != source:
            raise _invalid(where, "cluster", f"must be {source}, the source of this flow")
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


def _field(fields: Mapping[str, Any], name: str, kind: type, why: str, where: str) -> Any:
    if name not in fields:
        raise OffsetsInvalid(f"{where} is missing required key '{name}'.")
    value = fields[name]
    if not (_is_int(value) if kind is int else isinstance(value, kind)):
        raise _invalid(where, name, f"{why}, and is {_json_type(value)}")
    return value


def _offset(offset: object, where: str) -> int:
    if not isinstance(offset, dict):
        raise OffsetsInvalid(f"{where} is missing required key 'offset': it is {_json_type(offset)}.")
    value: int = _field(offset, "offset", int, "must be an integer", where)
    if value < 0:
        raise _invalid(where, "offset", "must not be negative")
    if value >= OFFSET_MOST:
        raise _invalid(where, "offset", "is beyond what a log can hold")
    return value


def _invalid(where: str, name: str, why: str) -> OffsetsInvalid:
    return OffsetsInvalid(f"{where} has an invalid value for key '{name}', which {why}.")


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _json_type(value: object) -> str:
    """Return what JSON calls a value that ``json.loads`` has returned."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"
