"""Builds the ledgers of the partitions that an application asks about, from the records of a ledger topic. Pure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from mm2py.offsets.ledger import EntryOutOfOrder
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.records import ledger_record
from mm2py.records.java_struct import MalformedRecord

_log: Final = logging.getLogger(__name__)


class LedgerRecords:
    """The ledger topic's records of some source partitions: the last record of each key, as compaction leaves it.

    All chunks of a source partition are in one partition of the ledger topic. If partitions were added to that topic,
    newer chunks may be in another one. Then the partition whose last record is older is read into the ledger first.
    """

    def __init__(self, is_wanted: Callable[[tuple[str, int]], bool]) -> None:
        """Start without records. ``is_wanted`` is asked about source partitions, named as on the source cluster."""
        self._is_wanted = is_wanted
        self._logs: dict[tuple[str, int], dict[int, _LedgerLog]] = {}

    def take(self, ledger_partition: int, timestamp_ms: int, key: bytes | None, value: bytes | None) -> None:
        """Add the next record of a partition of the ledger topic. A malformed record is skipped.

        Raises:
            NewerLedgerFormat: the record is of an unknown kind that a reader may not skip.
        """
        try:
            chunk = ledger_record.decode_key(key)
            if chunk is None:
                ledger_record.decode(key, value)  # it raises if a reader may not skip the record
        except MalformedRecord as error:
            _log.info("A record of the ledger topic is passed over: %s", error)
            return
        if chunk is None or key is None or not self._is_wanted((chunk.topic, chunk.partition)):
            return
        logs = self._logs.setdefault((chunk.topic, chunk.partition), {})
        log = logs.setdefault(ledger_partition, _LedgerLog())
        log.last_at_ms = timestamp_ms
        log.values.pop(key, None)
        if value is not None:
            log.values[key] = value

    def ledgers(self) -> dict[tuple[str, int], PartitionLedger]:
        """Return the ledgers of all wanted partitions that have records.

        Raises:
            NewerLedgerFormat: a newer mm2py wrote a chunk of a wanted partition.
        """
        return {place: _folded(logs.values()) for place, logs in self._logs.items()}


@dataclass(slots=True)
class _LedgerLog:
    """The chunks of one source partition in one partition of the ledger topic, by key, in the order of the topic."""

    values: dict[bytes, bytes] = field(default_factory=dict)
    last_at_ms: int = -1


def _folded(logs: Iterable[_LedgerLog]) -> PartitionLedger:
    ledger = PartitionLedger()
    for log in sorted(logs, key=lambda one: one.last_at_ms):
        for key, value in log.values.items():
            try:
                chunk = ledger_record.decode(key, value)
                if chunk is not None:
                    ledger.take(chunk)
            except MalformedRecord as error:
                _log.info("A record of the ledger topic is passed over: %s", error)
            except EntryOutOfOrder as error:
                _log.warning("The ledger of a partition is known only from a later record on: %s", error)
    return ledger
