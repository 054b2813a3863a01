"""Where a group continues in the other cluster: by the ledger, and by offset syncs for offsets before it. Pure.

Counterpart: MirrorCheckpointTask.checkpointsForGroup of Apache Kafka's Connect, mirror, which has offset syncs only.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from mm2py.kafka.port import TopicPartition
from mm2py.offsets.answers import Answer, AnswerKind
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.sync_store import BEFORE_OLDEST, SyncStore


class Basis(StrEnum):
    """What a translation is based on."""

    LEDGER = "ledger"
    OFFSET_SYNCS = "offset-syncs"
    NOTHING = ""
    """There is no translation."""


class Translation(NamedTuple):
    """Where to continue in the other log."""

    kind: AnswerKind
    """What the ledger says about the offset."""
    offset: int | None
    """None: it is not known, or not yet."""
    is_exact: bool
    """A group that continues at ``offset`` skips no record and reads none again. If False, it may read some again."""
    basis: Basis


def forward(ledger: PartitionLedger, syncs: SyncStore | None, key: TopicPartition, source_offset: int) -> Translation:
    """Return where a group with the committed offset ``source_offset`` continues in the remote partition.

    Args:
        ledger: that of the partition ``key``, named as on the source cluster.
        syncs: None: the flow emits none.
    """
    answer = ledger.forward(source_offset)
    by_syncs = syncs.translate(key, source_offset) if _is_left_to_syncs(answer) and syncs is not None else None
    return _translation(answer, None if by_syncs == BEFORE_OLDEST else by_syncs)


def reverse(ledger: PartitionLedger, syncs: SyncStore | None, key: TopicPartition, target_offset: int) -> Translation:
    """Return where a group with the committed offset ``target_offset`` continues in the source partition.

    MirrorMaker 2 has no rule for this direction: here its rule for the other direction is reversed.
    """
    answer = ledger.reverse(target_offset)
    by_syncs = syncs.translate_back(key, target_offset) if _is_left_to_syncs(answer) and syncs is not None else None
    return _translation(answer, by_syncs)


def _is_left_to_syncs(answer: Answer) -> bool:
    return answer.kind is AnswerKind.BEFORE_LEDGER


def _translation(answer: Answer, by_syncs: int | None) -> Translation:
    if answer.offset is not None:
        return Translation(answer.kind, answer.offset, answer.is_exact, Basis.LEDGER)
    return Translation(answer.kind, by_syncs, False, Basis.NOTHING if by_syncs is None else Basis.OFFSET_SYNCS)
