"""The control log of one group on one target cluster: opens it, reads it as it grows, and appends to it.

All workers must see the same records in the same order. So no reader continues in a log that was cut back or
recreated: it has to join again.

Counterpart: KafkaBasedLog of Apache Kafka's Connect. There a compacted topic is read whole; here old records are
deleted, and a joiner reads back only to the last snapshot.
"""

from __future__ import annotations

import asyncio
import bisect
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.errors import Mm2Error
from mm2py.group.control_topic import ControlLeader, ControlLogLost, ControlLogUnusable, ControlTopic, no_append_time
from mm2py.group.log_reading import HISTORY, LogItem, LogPlace, Read, history_of, is_of_this_log, newest_whole
from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE
from mm2py.kafka.errors import Backoff, BrokerRefused, KafkaError, Reaction
from mm2py.kafka.port import Brokers
from mm2py.logs import Trouble
from mm2py.records.batch import NewRecord, build_batch
from mm2py.records.control_codec import MalformedControlRecord, decode, encode
from mm2py.records.control_record import ControlRecord, Entry, Snapshot
from mm2py.topics.names import InternalTopic
from mm2py.topics.replicas import AtMost

__all__ = ("ControlLog", "ControlLogLost", "ControlLogUnusable", "Opening")

FIRST_WINDOW_RECORDS: Final = 1024
"""How far back a joiner first looks for a snapshot: about a minute of ten workers."""
APPEND_BYTES: Final = 600 << 10
"""Most bytes of records in one batch: below every broker's default ``max.message.bytes``, and above a record's part."""
APPEND_RECORDS: Final = 500
QUIET_S: Final = 5.0
"""After this long without a record the leader is looked up again: a leader that was cut off does not say so."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What a joiner starts with."""

    state: str | None
    """The text of the newest snapshot; None: there is none, start with an empty state."""
    covers: int
    """The offset of the first record that is not in ``state``; ``entries`` begin there."""
    entries: Sequence[Entry]
    log_start_offset: int
    """Above 0 without a snapshot: older records were deleted, and their content is unknown."""


class ControlLog:
    """One reader and writer of the log. ``open`` it first, and again after ControlLogLost.

    Only one task may call ``read``. Any number may call ``append``; the records of each are in the order of its calls.
    """

    def __init__(
        self,
        brokers: Brokers,
        topic: InternalTopic,
        *,
        poll_s: float,
        append_timeout_s: float,
        replication_factor: int | None = AtMost(3),
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """Make one.

        Args:
            brokers: have a client id of their own, so that a quota on copying delays no heartbeat. Their request
                timeout is not far above ``poll_s``: after it an append on a broken connection is sent again.
            poll_s: how long ``read`` waits for records, about the heartbeat interval.
            append_timeout_s: how long a leader may wait for its followers before it answers.
            replication_factor: for a topic that has to be created. None: only ``open`` and ``read`` are used, and no
                topic is created.
        """
        self.topic = str(topic.name)
        self.skipped = 0
        """How many records since ``open`` were skipped because they are no control records."""
        self._brokers = brokers
        self._checked = ControlTopic(brokers, topic, replication_factor=replication_factor, log=log)
        self._poll_ms = int(poll_s * 1000)
        self._append_timeout_ms = int(append_timeout_s * 1000)
        self._clock = clock
        self._rng = rng
        self._log = log
        self._opening = Trouble("control_log.opening", clock=clock, log=log, effect="this worker cannot take part")
        self._reading = Trouble(
            "control_log.reading", clock=clock, log=log, effect="this worker does not learn what its group decides"
        )
        self._appending = Trouble(
            "control_log.appending",
            clock=clock,
            log=log,
            effect="this worker stops writing one session time-out after its last heartbeat",
        )
        self._read_backoff = Backoff(rng, first_s=0.05, most_s=1.0)
        self._leader: ControlLeader | None = None
        self._place: LogPlace | None = None
        self._epochs: list[tuple[int, int]] = []
        """(offset, epoch): from this offset on, the records that were read were appended under this leader epoch."""
        self._lost: ControlLogLost | None = None
        self._stopped: Mm2Error | None = None
        self._heard_s = 0.0
        self._said_junk = False
        self.denied: KafkaError | None = None
        """Set if the last read was refused because a right is missing. A member waits for that right; a reader that
        does not join need not."""

    @property
    def next_offset(self) -> int:
        """The offset of the next record that ``read`` returns."""
        return self._here()[1].offset

    @property
    def trouble(self) -> str:
        """Why the target does not let us open or read the log now; empty while it does."""
        return self._opening.why or self._reading.why

    async def open(self) -> Opening:
        """Find or create the log, and return what to start with; ``read`` continues after that. Waits for the target.

        Raises:
            ControlLogUnusable: an operator has to repair it.
            ControlLogMissing: it does not exist, and we only read.
            Mm2Error: the log contains a record that this version must not skip; or as ``Brokers.send``.
        """
        backoff = Backoff(self._rng, first_s=0.1, most_s=2.0)
        while True:
            try:
                opening = await self._open()
            except ControlLogLost as error:
                self._opening.note(error)
            except BrokerRefused as error:
                if _is_denied(error):
                    raise ControlLogUnusable(error.what, remedy=self._checked.rights) from error
                if not _passes(error) and error.code != OFFSET_OUT_OF_RANGE:
                    raise
                self._opening.note(error)
            except KafkaError as error:
                if not error.retriable:
                    raise
                self._opening.note(error)
            else:
                self._opening.over()
                return opening
            await asyncio.sleep(backoff.next_s())

    async def _open(self) -> Opening:
        self._lost = self._stopped = self._place = self._leader = self.denied = None
        self.skipped, self._epochs = 0, []
        found = await self._checked.ensure()
        self._leader = leader = ControlLeader(self._brokers, found, rights=self._checked.rights, clock=self._clock)
        start, end = await leader.ends()
        opening, place = await self._find_beginning(leader, start, max(start, end))
        self._place, self._heard_s = place, self._clock.monotonic()
        return opening

    async def open_at(self, time_ms: int) -> Opening:
        """Return what a reader knew at a time, by the clock of the brokers; ``read`` continues after that.

        Returns: as ``open``; without a snapshot and with a ``log_start_offset`` above 0, what was known is not known
            any more.
        Raises: as ``read``, and ControlLogMissing.
        """
        found = await self._checked.ensure()
        leader = ControlLeader(self._brokers, found, rights=self._checked.rights, clock=self._clock)
        start, end = await leader.ends()
        after = await leader.first_after(time_ms)
        end = max(start, end if after is None else min(after, end))
        opening, _ = await self._find_beginning(leader, start, end, is_past=True)
        self._leader, self._place, self._heard_s = leader, LogPlace(end, -1), self._clock.monotonic()
        self._lost = self._stopped = None
        return opening

    async def _find_beginning(
        self, leader: ControlLeader, log_start: int, end: int, *, is_past: bool = False
    ) -> tuple[Opening, LogPlace]:
        """Read back from the end, twice as far each time, until a snapshot is complete, or to the start.

        Args:
            is_past: what is behind ``end`` does not count. Else it is newer, and counts.
        """
        items: list[LogItem] = []
        begin, window, place = end, FIRST_WINDOW_RECORDS, LogPlace(end, -1)
        void: set[str] = set()
        while True:
            snapshot = newest_whole(items, void)
            if snapshot is not None:
                wanted = max(log_start, min(snapshot.covers - 1, begin))
                if begin <= wanted:
                    if is_of_this_log(snapshot, items, leader.topic_id, log_start):
                        break
                    self._log.warning(
                        "control_log.snapshot_void",
                        topic=self.topic,
                        offset=snapshot.offset,
                        effect="it is of an earlier log; an older one, or the whole log, is read instead",
                    )
                    void.add(snapshot.snapshot_id)
                    continue
            elif begin <= log_start:
                break
            else:
                wanted = max(log_start, begin - window)
                window *= 2
            older, at = await self._read_stretch(leader, wanted, begin)
            if begin == end:
                place = at
            if begin != end or is_past:
                older = [item for item in older if item.offset < begin]
            items, begin = [*older, *items], wanted
        covers = log_start if snapshot is None else snapshot.covers
        self._learn_epochs(items)
        entries = _entries([item for item in items if item.offset >= covers])
        return Opening(None if snapshot is None else snapshot.state, covers, entries, log_start), place

    async def _read_stretch(self, leader: ControlLeader, begin: int, end: int) -> tuple[list[LogItem], LogPlace]:
        """Read at least to ``end``; return the records and the place after them."""
        items: list[LogItem] = []
        place = LogPlace(begin, -1)
        while place.offset < end:
            reads, place = await leader.fetch(place, wait_ms=0, was_read=False)
            items += [self._item(read) for read in reads]
        return items, place

    async def read(self, *, waits: bool = True) -> list[Entry]:
        """Return the next records, without a gap; none if there are none soon, or if the target does not answer.

        Args:
            waits: whether to wait for records. False: the target answers at once, also if it has none.
        Raises:
            ControlLogLost: the log was cut back or recreated.
            ControlLogUnusable: its settings were changed, or it is damaged.
            Mm2Error: the next record must not be skipped, and this version does not know it.
            After any of these errors nothing can be read until the log is opened again.
        Cancelling loses nothing.
        """
        leader, place = self._here()
        if self._stopped is not None:
            raise self._stopped.with_traceback(None)
        try:
            reads, after = await leader.fetch(place, wait_ms=self._poll_ms if waits else 0, was_read=True)
        except (ControlLogLost, KafkaError) as error:
            await self._not_read(error, leader)
            return []
        self.denied = None
        self._reading.over()
        self._read_backoff.reset()
        now_s = self._clock.monotonic()
        if after.offset > place.offset:
            self._heard_s = now_s
        elif now_s - self._heard_s > QUIET_S:
            leader.forget()
            self._heard_s = now_s
        return self._take(reads, after)

    async def end(self) -> int | None:
        """Return the offset at which the log ends; None if the target does not answer with it now.

        A newly elected leader may show less than was acknowledged, until its followers have fetched. Before that it
        refuses to return the end.
        Raises: as ``read``.
        """
        leader, _ = self._here()
        try:
            return await leader.end()
        except (ControlLogLost, KafkaError) as error:
            await self._not_read(error, leader)
            return None

    async def _not_read(self, error: ControlLogLost | KafkaError, leader: ControlLeader) -> None:
        """Wait before the next try. Raises: an error that another try does not mend."""
        if isinstance(error, ControlLogLost):
            self._lost = error
            raise error
        if not _passes(error):
            raise error
        self.denied = error if _is_denied(error) else None
        _note(error, self._reading, leader)
        await asyncio.sleep(self._read_backoff.next_s())

    def _take(self, reads: Sequence[Read], after: LogPlace) -> list[Entry]:
        """Return the entries that were read. Reading continues at ``after``, or ends at the first record that has an
        error."""
        entries: list[Entry] = []
        for read in reads:
            item = self._item(read)
            self._stopped = no_append_time(self.topic) if read.time_ms is None else item.error
            if self._stopped is not None:
                self._place = LogPlace(read.offset, read.leader_epoch)
                if entries:
                    return entries  # the next call raises it
                raise self._stopped
            self._learn_epochs([item])
            entries += _entries([item])
        self._place = after
        return entries

    async def append(self, records: Sequence[ControlRecord]) -> int:
        """Append records and return the offset of the last; keeps trying until that is acknowledged.

        A record that was sent again may be in the log twice, and its second copy after later records.

        Raises:
            ControlLogLost: as ``read``.
            ControlLogUnusable: the target refuses them for good.
        After cancelling it is unknown whether they were, or will be, appended.
        """
        last = -1
        for batch in _batches(records):
            last = await self._append_batch(
                [NewRecord(None, value, self._clock.wall_ms(), self._headers(record)) for record, value in batch]
            )
        return last

    async def _append_batch(self, records: Sequence[NewRecord]) -> int:
        data = build_batch(records)
        backoff = Backoff(self._rng, first_s=0.05, most_s=1.0)
        while True:
            leader, place = self._here()
            try:
                base_offset = await leader.append(data, read_to=place.offset, timeout_ms=self._append_timeout_ms)
            except ControlLogLost as error:
                self._lost = error
                raise
            except KafkaError as error:
                if isinstance(error, BrokerRefused) and error.reaction is Reaction.FAIL:
                    raise ControlLogUnusable(error.what, remedy=self._checked.limits) from error
                if not _passes(error):
                    raise
                _note(error, self._appending, leader)
                await asyncio.sleep(backoff.next_s())
            else:
                self._appending.over()
                return base_offset + len(records) - 1

    def _here(self) -> tuple[ControlLeader, LogPlace]:
        if self._lost is not None:
            raise self._lost.with_traceback(None)
        if self._leader is None or self._place is None:
            raise AssertionError("the control log was not opened")
        return self._leader, self._place

    def _item(self, read: Read) -> LogItem:
        """Decode a record. Every reader skips a record that is no control record."""
        where = f"{self.topic} at offset {read.offset}"
        record: ControlRecord | None = None
        error: Mm2Error | None = None
        history = ""
        try:
            if read.record is None:
                raise MalformedControlRecord(where, read.why)
            record = decode(read.record.value, where=where)
            if isinstance(record, Snapshot):
                history = (dict(read.record.headers).get(HISTORY) or b"").decode("utf-8", "replace")
        except MalformedControlRecord as junk:
            self.skipped += 1
            if not self._said_junk:
                self._said_junk = True
                self._log.warning("control_log.foreign_record", topic=self.topic, offset=read.offset, why=str(junk))
        except Mm2Error as refused:
            error = refused
        return LogItem(read.offset, read.leader_epoch, read.time_ms or 0, record, error, history)

    def _learn_epochs(self, items: Sequence[LogItem]) -> None:
        for item in items:
            if not self._epochs or item.leader_epoch > self._epochs[-1][1]:
                self._epochs.append((item.offset, item.leader_epoch))

    def _headers(self, record: ControlRecord) -> Sequence[tuple[str, bytes | None]]:
        if not isinstance(record, Snapshot):
            return ()
        index = bisect.bisect_right(self._epochs, record.covers - 1, key=lambda known: known[0])
        epoch = self._epochs[index - 1][1] if index else -1
        return ((HISTORY, history_of(None if self._leader is None else self._leader.topic_id, epoch).encode()),)


def _passes(error: KafkaError) -> bool:
    """Whether to try again: the target may recover, or an operator may grant the missing right."""
    return error.retriable or _is_denied(error)


def _note(error: KafkaError, trouble: Trouble, leader: ControlLeader) -> None:
    if _is_denied(error):
        trouble.note(error, at_once=True)
    else:
        leader.forget()
        trouble.note(error)


def _is_denied(error: KafkaError) -> bool:
    return isinstance(error, BrokerRefused) and error.reaction is Reaction.DENIED


def _entries(items: Sequence[LogItem]) -> list[Entry]:
    entries = []
    for item in items:
        if item.error is not None:
            raise item.error
        if item.record is not None:
            entries.append(Entry(item.offset, item.time_ms, item.record))
    return entries


def _batches(records: Sequence[ControlRecord]) -> Iterator[list[tuple[ControlRecord, bytes]]]:
    """Yield records in batches that any broker accepts."""
    batch: list[tuple[ControlRecord, bytes]] = []
    size = 0
    for record in records:
        value = encode(record)
        if batch and (size + len(value) > APPEND_BYTES or len(batch) >= APPEND_RECORDS):
            yield batch
            batch, size = [], 0
        batch.append((record, value))
        size += len(value)
    if batch:
        yield batch


async def open_with_history(control_log: ControlLog, session_timeout_s: float, log: FilteringBoundLogger) -> Opening:
    """Return where to start. If older records are gone and no snapshot covers them, wait for a worker to write one.

    The story: an operator deletes the log's records. w1 and w2 have read them, and continue. w3 joins, finds no member,
    and would lead a second group in the same log. The leader of w1 and w2 writes a snapshot each minute. If no record
    is written for a session time-out, no worker is left that could write one.

    Raises:
        ControlLogUnusable, Mm2Error: as ``ControlLog.open``.
    """
    last: int | None = None
    while True:
        opening = await control_log.open()
        end = opening.entries[-1].offset if opening.entries else opening.log_start_offset - 1
        if opening.state is not None or opening.log_start_offset == 0 or end == last:
            return opening
        if last is None:
            log.warning(
                "control_log.start_gone",
                topic=control_log.topic,
                before=opening.log_start_offset,
                effect="a worker that has read them is waited for, a session time-out at most",
            )
        last = end
        await asyncio.sleep(session_timeout_s)
