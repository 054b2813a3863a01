"""Positions as MM2 keeps them: the source entries of ``mm2-offsets.A.internal``. Pure.

Connect's format without schemas: the key is ``[connector, source partition]``, the value an object of primitives whose
``offset`` is that of the last copied record. The object has our own fields, too. Connect's reader ignores them, but
refuses nested values, so they are flat. Fields that we do not know are kept.
Source: MirrorUtils.wrapOffset, OffsetUtils.validateFormat, JsonConverter; Apache Kafka, connect.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mm2py.errors import Mm2Error
from mm2py.records.lag_seen import LagSeen

CONNECTOR: Final = "MirrorSourceConnector"
FORMAT_VERSION: Final = 2
_FORMAT_BEFORE_TRANSFORMS: Final = 1
"""The format of positions whose records were not transformed: versions of mm2py without transforms read it."""
OFFSET_MOST: Final = (1 << 63) - 1
BY_OPERATOR: Final = "operator"
"""``by`` of a position that an operator set: copy from here, whatever is on the target."""

_OWN_FIELDS: Final = frozenset(
    {
        "offset",
        "mm2py",
        "next_source",
        "source_cluster",
        "source_topic_id",
        "source_leader_epoch",
        "next_target",
        "target_topic_id",
        "target_topic",
        "target_leader_epoch",
        "producer_id",
        "producer_epoch",
        "next_sequence",
        "by",
        "skipped",
        "drained",
        "ledger",
        "ledger_run",
        "newest_ms",
        "record_bytes",
        "mode",
        "source_end",
        "moved_ms",
        "behind_since_ms",
        "lag_before",
        "previous_by",
        "recopy",
        "transforms",
        "readable_from",
    }
)


class MalformedPosition(ValueError):
    """A record of the offsets topic is not what MM2 or mm2py writes."""


class NewerPositionFormat(Mm2Error):
    """A position that must not be passed over, in a layout that this version does not know."""

    def __init__(self, needs_format: int) -> None:
        super().__init__(
            f"The offsets topic holds a position of format {needs_format}. This version of mm2py knows"
            f" {FORMAT_VERSION}.",
            remedy="Update mm2py here to the version that wrote it, or to a later one.",
        )


@dataclass(frozen=True, slots=True)
class SourcePartition:
    """The partition that a position belongs to."""

    cluster: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """The position of a partition, and the last producer that may have written to the remote partition.

    None: the writer could not know the value. In a position of MM2 this is every field but ``next_source``.
    """

    next_source: int
    source_cluster: str | None = None
    source_topic_id: uuid.UUID | None = None
    source_leader_epoch: int | None = None
    next_target: int | None = None
    target_topic_id: uuid.UUID | None = None
    target_topic: str | None = None
    """The name of the remote topic, if a rule of ``topics.rename`` gave it; None: the replication policy alone did."""
    target_leader_epoch: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    next_sequence: int | None = None
    by: str | None = None
    skipped: tuple[tuple[int, int], ...] = ()
    drained: bool = False
    """Everything that the producer sent was answered, and it sends nothing more. It needs no fence."""
    ledger: int | None = None
    """The number of the ledger that was written up to this position; see ``records/ledger_record.py``."""
    ledger_run: tuple[int, int, bool] | None = None
    """Source and target offset where the last chunk of that ledger begins, and whether copying began there. Set only if
    all from there up to this position is one run: the next owner extends this chunk instead of beginning another."""
    newest_ms: int | None = None
    """The newest timestamp of the batch that was copied last: it shows how old the copy is."""
    record_bytes: int | None = None
    """The mean size of the copied records, as sent: it turns a lag in records into bytes, approximately."""
    mode: str | None = None
    """How the batch that was copied last travelled: ``pass``, or why it was repacked or rebuilt."""
    source_end: int | None = None
    """The end of the source log as the owner knew it when it stored this."""
    moved_ms: int | None = None
    """When the position last advanced, by the worker's clock. A worker that only takes the partition over does not
    change it."""
    behind_since_ms: int | None = None
    """Since when the partition is behind, see ``mm2py/metrics/lag_trend.py``. None: it keeps up."""
    lag_before: LagSeen | None = None
    """Of a partition that is behind: how far it was ten seconds to half a minute before this was stored."""
    previous_by: str | None = None
    """In an operator's position that names a producer: its transactional id. The producer may still write, and must be
    fenced before copying begins there."""
    recopy: bool = False
    """An operator has deleted the position: the partition is copied again from its start."""
    transforms: str | None = None
    """The digest of the transforms under which records are copied behind it. Recovery counts the records that come out
    of them, so it needs the same. None: there are none."""
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def producer_name(self) -> str | None:
        """The transactional id of the producer that the position names."""
        return self.previous_by if self.by == BY_OPERATOR else self.by

    @property
    def leaves_producer_open(self) -> bool:
        """Whether an operator set it, and it names a producer that must be fenced first."""
        return self.by == BY_OPERATOR and self.producer_id is not None

    @property
    def is_of_mm2(self) -> bool:
        """Whether MM2 wrote it: it names no producer and no operator."""
        return self.by is None and self.producer_id is None


def encode_key(partition: SourcePartition, connector: str = CONNECTOR) -> bytes:
    """Return the key exactly as Java writes it, because compaction compares bytes."""
    inner = {"cluster": partition.cluster, "partition": partition.partition, "topic": partition.topic}
    return _dump([connector, inner])


def decode_key(key: bytes | None, connector: str = CONNECTOR) -> SourcePartition | None:
    """Return the partition of a key; None for entries of other connectors.

    Raises:
        MalformedPosition: it is no key of the offsets topic.
    """
    try:
        name, inner = json.loads(key or b"")
        if name != connector:
            return None
        partition = SourcePartition(inner["cluster"], inner["topic"], inner["partition"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedPosition(f"key {(key or b'')[:200]!r}") from error
    right = isinstance(partition.cluster, str) and isinstance(partition.topic, str) and _is_int(partition.partition)
    if not right or partition.partition < 0:
        raise MalformedPosition(f"key {key!r}")
    return partition


def encode_value(position: StoredPosition) -> bytes:
    """Return the value: ``offset`` for MM2, the other fields for us."""
    fields = {
        **position.unknown,
        "offset": position.next_source - 1,
        "mm2py": _FORMAT_BEFORE_TRANSFORMS,
        "next_source": position.next_source,
        "source_cluster": position.source_cluster,
        "source_topic_id": _id_text(position.source_topic_id),
        "source_leader_epoch": position.source_leader_epoch,
        "next_target": position.next_target,
        "target_topic_id": _id_text(position.target_topic_id),
        "target_leader_epoch": position.target_leader_epoch,
        "producer_id": position.producer_id,
        "producer_epoch": position.producer_epoch,
        "next_sequence": position.next_sequence,
        "by": position.by,
        "skipped": ",".join(f"{first}-{last}" for first, last in position.skipped),
        "drained": position.drained,
        "ledger": position.ledger,
        "ledger_run": None if position.ledger_run is None else ",".join(str(int(part)) for part in position.ledger_run),
        "newest_ms": position.newest_ms,
        "record_bytes": position.record_bytes,
        "source_end": position.source_end,
        "moved_ms": position.moved_ms,
    }
    if position.behind_since_ms is not None:  # few are behind: the others need no more room
        fields |= {
            "behind_since_ms": position.behind_since_ms,
            "lag_before": None if position.lag_before is None else position.lag_before.text,
        }
    if position.target_topic is not None:
        fields["target_topic"] = position.target_topic
    if position.mode is not None:
        fields["mode"] = position.mode
    if position.transforms is not None:
        fields |= {"mm2py": FORMAT_VERSION, "readable_from": FORMAT_VERSION, "transforms": position.transforms}
    if position.by == BY_OPERATOR:
        fields |= {"previous_by": position.previous_by, "recopy": position.recopy}
    return _dump(fields)


def encode_mm2_value(next_source: int) -> bytes:
    """Return the value that MM2 itself writes: the offset of the last copied record."""
    return _dump({"offset": next_source - 1})


def decode_value(value: bytes | None) -> StoredPosition | None:
    """Return the position; None for a tombstone, or for a negative offset, which MM2 treats as no position.

    A later format that this one may read says nothing of it, and has further fields: they are kept. One that this
    version must not read names in ``readable_from`` the format from which on it can be read.

    Raises:
        MalformedPosition: it is no value of the offsets topic.
        NewerPositionFormat: a later mm2py wrote it, and this one must not go on from it.
    """
    if value is None:
        return None
    try:
        fields = json.loads(value)
        if fields is None:
            return None
        if not isinstance(fields, dict):
            raise TypeError("no object")
        own = "mm2py" in fields
        if own and (needs := _int(fields, "readable_from") or FORMAT_VERSION) > FORMAT_VERSION:
            raise NewerPositionFormat(needs)
        stored = fields["next_source" if own else "offset"]
        if not _is_int(stored):
            raise TypeError("offset is no integer")
        next_source = stored if own else stored + 1
        if next_source > OFFSET_MOST:
            raise ValueError("no log holds that offset")
        if next_source < (0 if own else 1):
            return None
        return StoredPosition(
            next_source=next_source,
            source_cluster=_text(fields, "source_cluster"),
            source_topic_id=_id(fields, "source_topic_id"),
            source_leader_epoch=_int(fields, "source_leader_epoch"),
            next_target=_int(fields, "next_target"),
            target_topic_id=_id(fields, "target_topic_id"),
            target_topic=_text(fields, "target_topic"),
            target_leader_epoch=_int(fields, "target_leader_epoch"),
            producer_id=_int(fields, "producer_id"),
            producer_epoch=_int(fields, "producer_epoch"),
            next_sequence=_int(fields, "next_sequence"),
            by=_text(fields, "by"),
            skipped=_ranges(_text(fields, "skipped") or ""),
            drained=fields.get("drained") is True,
            ledger=_int(fields, "ledger"),
            ledger_run=_run(_text(fields, "ledger_run")),
            newest_ms=_int(fields, "newest_ms"),
            record_bytes=_int(fields, "record_bytes"),
            mode=_text(fields, "mode"),
            source_end=_int(fields, "source_end"),
            moved_ms=_int(fields, "moved_ms"),
            behind_since_ms=_int(fields, "behind_since_ms"),
            lag_before=LagSeen.of(_text(fields, "lag_before")),
            previous_by=_text(fields, "previous_by"),
            recopy=fields.get("recopy") is True,
            transforms=_text(fields, "transforms"),
            unknown={name: content for name, content in fields.items() if name not in _OWN_FIELDS},
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedPosition(f"value {value[:200]!r}") from error


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of the offsets topic that Java's default partitioner chooses for ``key``.

    Source: Utils.murmur2 and BuiltInPartitioner.partitionForKey, Apache Kafka, clients.
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partition_for(partition: SourcePartition, partitions: int) -> int:
    """Return the partition of the offsets topic that has the position of a source partition.

    The ledger topic keeps its ledger in the partition of the same number, if both topics have as many partitions.
    """
    return partition_of(encode_key(partition), partitions)


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash, unsigned."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def _dump(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _id_text(topic_id: uuid.UUID | None) -> str | None:
    return None if topic_id is None else str(topic_id)


def _int(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and not _is_int(value):
        raise TypeError(f"{name} is no integer")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} is no text")
    return value


def _id(fields: Mapping[str, Any], name: str) -> uuid.UUID | None:
    text = _text(fields, name)
    return None if text is None else uuid.UUID(text)


def _run(text: str | None) -> tuple[int, int, bool] | None:
    if not text:
        return None
    source_offset, target_offset, is_whole = map(int, text.split(","))
    return source_offset, target_offset, bool(is_whole)


def _ranges(text: str) -> tuple[tuple[int, int], ...]:
    pairs = (part.split("-") for part in text.split(",") if part)
    return tuple((int(first), int(last)) for first, last in pairs)
