"""Positions of the copied partitions, stored in ``mm2-offsets.A.internal``: a table, a store, and a limit.

Each flow has an account in a worker's budget of positions a second. The budget remembers how many each flow asked for
last. So flows that ask for many share what the other flows leave, whichever asks first. MirrorMaker 2 has no such
limit: each worker writes the offsets of all changed partitions every ``offset.flush.interval.ms``.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from mm2py.clock import Clock
from mm2py.copying.reading.internal_table import TopicTable
from mm2py.kafka.cluster import TopicMetadata
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.port import Brokers
from mm2py.records.batch import NewRecord
from mm2py.records.source_offset import (
    BY_OPERATOR,
    MalformedPosition,
    NewerPositionFormat,
    SourcePartition,
    StoredPosition,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    partition_for,
    partition_of,
)

RANGES_MAX: Final = 100
"""A position keeps at most this many ranges, as its record should have some hundred bytes."""


class Position(NamedTuple):
    """How far a partition is copied. Offsets are the *next* ones; None if unknown."""

    source_offset: int
    source_leader_epoch: int = -1
    target_offset: int | None = None
    target_leader_epoch: int | None = None
    sequence: int = 0
    skipped: tuple[tuple[int, int], ...] = ()
    """Ranges (first, last) skipped since the last copied record."""

    def target_beyond(self, end: int) -> int:
        """Return how far the target offset is beyond the real end of the remote partition; at least 0."""
        return 0 if self.target_offset is None else max(0, self.target_offset - end)

    def cut_back(self, offsets: int) -> Position:
        """Return the position with a target offset lower by ``offsets``."""
        return self._replace(target_offset=None if self.target_offset is None else self.target_offset - offsets)

    def behind(self, next_offset: int, leader_epoch: int) -> Position:
        """Return the position at ``next_offset``, with the records before it skipped.

        Adjacent ranges become one. Beyond ``RANGES_MAX`` the two oldest become one, too: nothing was copied between
        them.
        """
        first, last = self.source_offset, next_offset - 1
        ranges = [*self.skipped]
        if ranges and ranges[-1][1] + 1 >= first:
            first = ranges.pop()[0]
        ranges.append((first, last))
        if len(ranges) > RANGES_MAX:
            ranges[:2] = [(ranges[0][0], ranges[1][1])]
        return self._replace(source_offset=next_offset, source_leader_epoch=leader_epoch, skipped=tuple(ranges))


def operators_position(
    at: int,
    *,
    source_cluster: str | None,
    source_topic_id: uuid.UUID | None,
    target_topic_id: uuid.UUID | None,
    target_topic: str | None = None,
    behind: StoredPosition | None = None,
) -> StoredPosition:
    """Return a position that says: copy from here, whatever the remote partition holds.

    Args:
        target_topic: the name of the remote topic, if a rule gave it, see ``StoredPosition``.
        behind: the position that it replaces, if the records between the two are skipped, and all records before are
            copied. Without it another ledger begins.
    """
    skipped = () if behind is None else behind.skipped
    if behind is not None and behind.next_source < at:
        skipped = Position(behind.next_source, skipped=skipped).behind(at, -1).skipped
    return StoredPosition(
        next_source=at,
        source_cluster=source_cluster,
        source_topic_id=source_topic_id,
        target_topic_id=target_topic_id,
        target_topic=target_topic,
        by=BY_OPERATOR,
        skipped=skipped,
        ledger=None if behind is None else behind.ledger,
    )


PER_SECOND_MAX: Final = 1000
"""Records in a second. First and final positions do not count."""
WINDOW_S: Final = 1.0
AGAIN_LEAST_S: Final = 0.05


class PositionBudget:
    """The records that a worker may write in a second, divided among accounts."""

    def __init__(self, per_second_max: int = PER_SECOND_MAX) -> None:
        self.per_second_max = per_second_max
        self._accounts: list[PositionAccount] = []
        self._given: deque[tuple[float, PositionAccount, int]] = deque()
        """Time, account and number of what was given within the last second."""

    def open(self) -> PositionAccount:
        """Return a new account. The parts of the others shrink when it asks for something."""
        account = PositionAccount(self)
        self._accounts.append(account)
        return account

    def take(self, account: PositionAccount, now_s: float) -> int:
        """Give ``account`` its fair part of what it wants, and return how many."""
        self._forget(now_s)
        used = dict.fromkeys(self._accounts, 0)
        total = 0
        for _, one, records in self._given:
            total += records  # a closed account still counts for the limit
            if one in used:
                used[one] += records
        share = _fair_share(self.per_second_max, [used[one] + one.wanted for one in self._accounts])
        given = max(0, min(account.wanted, share - used[account], self.per_second_max - total))
        if given:
            self._given.append((now_s, account, given))
        return given

    def again_in_s(self, now_s: float) -> float:
        """Return in how many seconds to ask again for what was not given."""
        self._forget(now_s)
        over_s = self._given[0][0] + WINDOW_S if self._given else now_s
        return max(AGAIN_LEAST_S, over_s - now_s)

    def close(self, account: PositionAccount) -> None:
        if account in self._accounts:
            self._accounts.remove(account)

    def _forget(self, now_s: float) -> None:
        while self._given and self._given[0][0] + WINDOW_S <= now_s:
            self._given.popleft()


class PositionAccount:
    """One flow's part of the budget."""

    def __init__(self, budget: PositionBudget) -> None:
        self.wanted = 0
        """How many records were asked for and not given yet."""
        self._budget = budget

    def take(self, wanted: int, now_s: float) -> int:
        """Return how many of ``wanted`` records may be written now. Ask again for the rest."""
        self.wanted = wanted
        given = self._budget.take(self, now_s)
        self.wanted -= given
        return given

    def again_in_s(self, now_s: float) -> float:
        """Return in how many seconds to ask again for what was not given."""
        return self._budget.again_in_s(now_s)

    def close(self) -> None:
        """Close the account, because the flow has ended."""
        self._budget.close(self)


def _fair_share(limit: int, demands: list[int]) -> int:
    """Return the most that each may have so that all have ``limit`` together."""
    left = limit
    for place, demand in enumerate(sorted(demands)):
        share = left // (len(demands) - place)
        if demand > share:
            return share
        left -= demand
    return limit


class PositionStore:
    """Writes positions. All previous producers must be fenced in the topic before."""

    def __init__(self, source_alias: str, partitions: int, writer: TopicWriter, clock: Clock) -> None:
        self._source_alias = source_alias
        self._partitions = partitions
        self._writer = writer
        self._clock = clock

    @property
    def topic(self) -> str:
        return self._writer.topic

    @property
    def is_missing(self) -> bool:
        """There is no such topic now. Positions wait until it is back."""
        return self._writer.is_missing

    @property
    def times_recreated(self) -> int:
        """How often the topic was recreated, without what was stored before."""
        return self._writer.times_recreated

    def number_of(self, key: tuple[str, int]) -> int:
        """Return the partition of the topic that has the position of a (source topic, partition)."""
        return partition_for(SourcePartition(self._source_alias, *key), self._partitions)

    def trouble(self, number: int) -> str | None:
        """Return why the last attempt to write to a partition of the topic failed; None if it did not."""
        return self._writer.trouble.get(number)

    async def store(self, positions: Mapping[tuple[str, int], StoredPosition | None]) -> None:
        """Write positions by (source topic, partition); None deletes one. Return when the target has acknowledged all.

        Raises: as ``TopicWriter.write``.
        """
        now_ms = self._clock.wall_ms()
        records: dict[int, list[NewRecord]] = {}
        for at, position in positions.items():
            key = self._key(at)
            record = NewRecord(key, None if position is None else encode_value(position), now_ms)
            records.setdefault(partition_of(key, self._partitions), []).append(record)
        await self._writer.write(records)

    def _key(self, at: tuple[str, int]) -> bytes:
        return encode_key(SourcePartition(self._source_alias, *at))


class PositionTable(TopicTable):
    """The stored positions for a source cluster, up to the last ``read``."""

    def __init__(self, source_alias: str) -> None:
        super().__init__()
        self.positions: dict[tuple[str, int], StoredPosition] = {}
        self.malformed: list[str] = []
        """Records that could not be understood, if no later one has taken their place."""
        self.malformed_at: set[tuple[str, int]] = set()
        """Partitions whose last record could not be understood."""
        self._too_new: dict[tuple[str, int], NewerPositionFormat] = {}
        """Partitions whose last record only a later mm2py may use."""
        self._source_alias = source_alias
        self._latest: dict[bytes | None, bytes | None] = {}
        """Records of a read, not decoded yet: of a thousand a second, only the last of each partition is decoded."""

    async def read(self, brokers: Brokers, topic: TopicMetadata) -> None:
        """Read what was stored since the last call. Arguments and errors: see ``read_table``.

        Raises:
            NewerPositionFormat: without this position the partition would be copied again from its start.
        """
        try:
            await self._follow(brokers, topic)
        finally:  # these records are not read again
            for key, value in self._latest.items():
                self._decode(key, value)
            self._latest.clear()
        for error in self._too_new.values():
            raise error.with_traceback(None)

    def _clear(self) -> None:
        self.positions.clear()
        self.malformed_at.clear()
        self._too_new.clear()
        self._latest.clear()

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        self._latest.pop(key, None)  # the latest record comes last, also where two keys mean one partition
        self._latest[key] = value

    def _decode(self, key: bytes | None, value: bytes | None) -> None:
        partition = None
        try:
            partition = decode_key(key)
            if partition is None or partition.cluster != self._source_alias:
                return
            stored = decode_value(value)
        except MalformedPosition as error:
            self.malformed.append(str(error))
            if partition is not None:
                self.malformed_at.add((partition.topic, partition.partition))
            return
        except NewerPositionFormat as error:
            if partition is not None:
                self._too_new[partition.topic, partition.partition] = error
            return
        at = (partition.topic, partition.partition)
        self.malformed_at.discard(at)
        self._too_new.pop(at, None)
        if stored is None:
            self.positions.pop(at, None)
        else:
            self.positions[at] = stored


async def read_positions(
    brokers: Brokers, topic: TopicMetadata, source_alias: str
) -> tuple[dict[tuple[str, int], StoredPosition], list[str]]:
    """Return the stored positions for a source cluster, and what could not be understood.

    Raises: as ``PositionTable.read``.
    """
    table = PositionTable(source_alias)
    await table.read(brokers, topic)
    return table.positions, table.malformed
