"""Whether a ledger belongs to the topics that exist now, or to earlier topics of the same names. Pure.

A topic that is deleted and made again begins at offset 0. Until something is copied, the ledger is that of the deleted
topic.
"""

from __future__ import annotations

from typing import NamedTuple

from mm2py.kafka.cluster import TopicMetadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.port import TopicPartition
from mm2py.offsets.partition_ledger import PartitionLedger, TopicId


class LedgerSide(NamedTuple):
    """A partition on one of the two clusters."""

    key: TopicPartition
    alias: str
    exists: bool
    topic_id: TopicId
    """None: not known."""


def side_of(key: TopicPartition, alias: str, topic: TopicMetadata | None) -> LedgerSide:
    """Return a side from the metadata of its topic. A topic that the cluster does not describe may exist."""
    if topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
        return LedgerSide(key, alias, False, None)
    if topic.error_code:
        return LedgerSide(key, alias, True, None)
    return LedgerSide(key, alias, key[1] in topic.partitions, topic.topic_id)


def unknown_side(key: TopicPartition, alias: str) -> LedgerSide:
    """Return a side whose cluster does not answer: then nothing contradicts the ledger."""
    return LedgerSide(key, alias, True, None)


def missing(source: LedgerSide, target: LedgerSide) -> str:
    """Return which of the partitions does not exist; empty if both do."""
    return next((f"{_name(side)} does not exist on {side.alias}" for side in (source, target) if not side.exists), "")


def recreated(ledger: PartitionLedger, source: LedgerSide, target: LedgerSide) -> str:
    """Return which of the topics was recreated after the ledger was written; empty if none."""
    if ledger.is_of(source.topic_id, target.topic_id):
        return ""
    side = target if ledger.is_of(source.topic_id, None) else source
    return f"{side.key[0]} was recreated on {side.alias}, and the ledger is of the topic before"


def _name(side: LedgerSide) -> str:
    return f"{side.key[0]}-{side.key[1]}"
