"""Stores the gaps and standstills of one flow in the status topic, where operators find them.

MM2 has none of this. A gap is written within a second, and before a position that skips it; the gaps of previous
incarnations are read when the topic is opened. Only the last few of each partition are kept: a topic whose records
expire every day would fill the status topic. Commands of operators arrive in the same topic.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mm2py.config.internal_topics import gaps_topic
from mm2py.copying.gap_log import GapLog
from mm2py.copying.reading.internal_table import DamagedTopic
from mm2py.errors import Mm2Error
from mm2py.kafka.errors import Backoff, BrokerRefused, KafkaError
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.port import TopicPartition
from mm2py.logs import Trouble
from mm2py.records.gap_record import Command, CommandAnswer, Done, Gap
from mm2py.records.standstill import Cause, Standstill, standstill_of
from mm2py.status.not_copied import Reason, urgency_of
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.refusals import TableUnusable

POLL_S: Final = 1.0
"""How soon a command is seen."""
CLOSE_S: Final = 5.0
WRITTEN_S: Final = 5.0
"""How long a position waits for the record of the gap that it skips."""
AGAIN_MOST_S: Final = 10.0
"""The longest pause before an unusable status topic is tried again."""
STANDSTILLS_AT_ONCE: Final = 200
"""The most standstills in one request: a standstill has some hundred bytes, and a request at most 1 MB."""
KEPT_MOST: Final = 10
"""How many of a partition's latest gaps are kept that do not wait for an operator."""


class StoredGaps:
    """A table of gaps, and the commands that name them. ``run`` keeps the table in step with the status topic."""

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._clock = context.clock
        self._log = context.log
        self._status: GapLog | None = None
        self._gaps: dict[TopicPartition, dict[bytes, Gap]] = {}
        """The gaps of this incarnation and of previous ones; the latest gap of each partition is last."""
        self._unwritten: dict[bytes, Gap] = {}
        self._outdated: set[bytes] = set()
        self._written = asyncio.Event()
        self._written.set()
        self._is_waited_for = True
        """False after a position has waited ``WRITTEN_S`` without success, until the next write to the status topic."""
        self._changed = asyncio.Event()
        self._standstills: dict[bytes, Standstill] = {}
        """What this worker does not copy, in the form in which it is stored."""
        self._storing_standstills = asyncio.Lock()
        self._settled: set[TopicPartition] = set()
        """Partitions that started at an operator's position: the gaps that stopped them before are accepted."""

    def commands(self) -> Sequence[Command]:
        """Return the unanswered commands for this worker, oldest first."""
        found = () if self._status is None else self._status.unanswered()
        return [command for command in found if self._context.ownership.speaks_for((command.topic, command.partition))]

    def known(self, gap: Gap) -> Gap | None:
        """Return the state in which the same gap was noted before; None if it was not."""
        return self._gaps.get((gap.topic, gap.partition), {}).get(gap.key)

    def of(self, key: TopicPartition) -> Sequence[Gap]:
        """Return the known gaps of a partition, the latest last."""
        return list(self._gaps.get(key, {}).values())

    def keep(self, gap: Gap) -> None:
        """Add a gap, or a new state of one."""
        key = (gap.topic, gap.partition)
        ours = self._gaps.setdefault(key, {})
        ours.pop(gap.key, None)
        ours[gap.key] = self._unwritten[gap.key] = gap
        self._outdated.discard(gap.key)
        self._trim(key)
        self._written.clear()
        self._changed.set()

    def accept_all(self, key: TopicPartition) -> None:
        """Accept all gaps of a partition that wait for an operator."""
        for gap in self.of(key):
            if gap.is_open:
                self.keep(replace(gap, done=Done.ACCEPTED))

    def settle(self, key: TopicPartition) -> None:
        """Accept all gaps of a partition that started at an operator's position, also those that are not read yet."""
        self._settled.add(key)
        self.accept_all(key)

    async def read_again(self, keys: Collection[TopicPartition]) -> None:
        """Read the gaps that previous owners of partitions have written. Do nothing while the topic is not open.

        Raises: as ``GapLog.read``.
        """
        if self._status is None:
            return
        await self._status.read()
        for key in keys:
            self._gaps.pop(key, None)
        wanted = set(keys)
        for gap in self._status.gaps():
            if (gap.topic, gap.partition) in wanted:
                self._gaps.setdefault((gap.topic, gap.partition), {})[gap.key] = gap

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Forget partitions that have another owner now. What is still to be written is written."""
        for key in keys:
            self._gaps.pop(key, None)
            self._settled.discard(key)

    def show(self, causes: Mapping[str, Sequence[Cause]]) -> None:
        """Set what this worker does not copy, and why. That is stored within a second.

        Args:
            causes: all causes, by source topic; the empty name means the flow.
        """
        member = self._context.producer_name.process
        found = [standstill_of(member, topic, sorted(of_it, key=urgency_of)) for topic, of_it in causes.items()]
        wanted = {one.key: one for one in found}
        if wanted != self._standstills:
            self._standstills = wanted
            self._changed.set()

    def _trim(self, key: TopicPartition) -> None:
        ours = self._gaps[key]
        for name in [name for name, gap in ours.items() if not gap.is_open][:-KEPT_MOST]:
            del ours[name]
            self._unwritten.pop(name, None)
            self._outdated.add(name)

    # The status topic

    async def run(self, has_wishes: Callable[[], bool]) -> None:
        """Write and read the status topic until cancelled; copying continues while the topic cannot be reached.

        Args:
            has_wishes: returns whether policies let a partition continue; operators' commands are known here.
        Raises:
            IncarnationFenced, EpochRefused: this incarnation of the flow is over.
        """
        backoff = Backoff(self._context.rng, first_s=0.2, most_s=AGAIN_MOST_S)
        effect = (
            "gaps and topics that are not copied are logged and counted only, and commands are not heard; copying of"
            " records does not need them"
        )
        trouble = Trouble("status", clock=self._clock, log=self._log, effect=effect)
        is_tidy = False
        while True:
            pause_s = POLL_S
            try:
                status = await self.open()
                await status.read()
                if status.is_missing:
                    await self._make_again(status)
                    continue
                await self.flush()
                await self._flush_standstills(status)
                if not is_tidy:
                    await status.remove(status.old_answers())
                    is_tidy = True
                self._say_malformed(status)
                if has_wishes() or self.commands():
                    self._context.state.metadata_wanted.set()
                backoff.reset()
                trouble.over()
                self._context.ownership.cannot_store("")
            except (TableUnusable, DamagedTopic) as error:
                why = Mm2Error(error.why, remedy=error.remedy) if isinstance(error, TableUnusable) else error
                trouble.note(why, at_once=True)
                self._context.ownership.cannot_store(str(why))
                pause_s = AGAIN_MOST_S
            except KafkaError as error:
                if not error.may_be_mended:
                    raise
                if isinstance(error, BrokerRefused):  # a target that does not answer is reported elsewhere
                    trouble.note(error)
                    self._context.ownership.cannot_store(str(error))
                pause_s = backoff.next_s()
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await (self._changed.wait() if self._status is not None else asyncio.Event().wait())

    async def _make_again(self, status: GapLog) -> None:
        """Create the topic again after it was deleted, and mark all known gaps as unwritten."""
        self._log.error(
            "status.topic_gone",
            topic=status.topic,
            why="the topic was deleted, and with it gaps and commands",
            effect="it is made again, and what this process knows of them is written to it",
        )
        while status.is_missing:
            try:
                await self._make_topic()
                await status.read()
            except KafkaError as error:
                if not error.may_be_mended:
                    raise
            await asyncio.sleep(POLL_S if status.is_missing else 0)
        self._unwritten = {name: gap for ours in self._gaps.values() for name, gap in ours.items()}

    async def _make_topic(self) -> int:
        return await self._context.make_table(gaps_topic(self._context.settings), keeps="gaps")

    async def flush(self) -> None:
        """Write what is not written yet. Raises: as ``TopicWriter.write``; what could not be written is kept."""
        status = self._status
        if status is None or not (self._unwritten or self._outdated):
            return
        gaps, outdated = dict(self._unwritten), set(self._outdated)
        await status.put(gap for name, gap in gaps.items() if not _says_the_same(status.records.get(name), gap))
        self._unwritten = {name: gap for name, gap in self._unwritten.items() if gaps.get(name) is not gap}
        self._is_waited_for = True
        if not self._unwritten:
            self._written.set()
        await status.remove(name for name in outdated if name in status.records)
        self._outdated -= outdated

    async def _flush_standstills(self, status: GapLog) -> None:
        """Store changed standstills, delete ended ones. The coordinator also deletes those of workers that are gone."""
        async with self._storing_standstills:  # a worker that stops deletes what was on its way as well
            await self._store_standstills(status)

    async def _store_standstills(self, status: GapLog) -> None:
        wanted, ownership = self._standstills, self._context.ownership
        member, live = self._context.producer_name.process, ownership.known_producers.live
        stored = {key: one for key, one in status.records.items() if isinstance(one, Standstill)}
        fresh = [one for key, one in wanted.items() if stored.get(key) != one]
        for at in range(0, len(fresh), STANDSTILLS_AT_ONCE):
            await status.put(fresh[at : at + STANDSTILLS_AT_ONCE])
        over = [
            key
            for key, one in stored.items()
            if (one.member == member and key not in wanted)
            or (one.member != member and ownership.is_coordinator and one.member not in live)
        ]
        for at in range(0, len(over), STANDSTILLS_AT_ONCE):
            await status.remove(over[at : at + STANDSTILLS_AT_ONCE])

    async def answer(self, answers: Mapping[Command, tuple[bool, str]]) -> None:
        """Store answers to commands: whether each was carried out, and a text. Gaps that they name are written first.

        Raises: as ``flush``.
        """
        if self._status is None or not answers:
            return
        await self.flush()
        now_ms = self._clock.wall_ms()
        await self._status.answer({one: CommandAnswer(one.command_id, *said, now_ms) for one, said in answers.items()})

    async def written(self) -> None:
        """Wait until all gaps are in the status topic: a position that skips a gap must not be stored before the gap.

        Otherwise a crash in between would lose the gap. While the topic cannot be reached, copying waits for it once,
        for at most ``WRITTEN_S``.
        """
        if self._status is None or not self._is_waited_for:
            return
        try:
            async with asyncio.timeout(WRITTEN_S):
                await self._written.wait()
        except TimeoutError:
            self._is_waited_for = False

    async def close(self) -> None:
        """Write what is left, if the target accepts it soon; the log has all of it anyway.

        Causes of rings stay stored, also while this flow is paused: topics that a reverse flow has made are left out as
        if the settings said so.
        """
        with contextlib.suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.flush()
                if self._status is not None:
                    kept = {key: _left_out(one) for key, one in self._standstills.items()}
                    self._standstills = {key: one for key, one in kept.items() if one.causes}
                    await self._flush_standstills(self._status)

    async def open(self) -> GapLog:
        """Return the status topic, read to its end when it was opened.

        Raises:
            TableUnusable, DamagedTopic, KafkaError: it cannot be used, or not yet.
        """
        if self._status is not None:
            return self._status
        context, settings = self._context, self._context.settings
        partitions = await self._make_topic()
        writer = TopicWriter(
            context.target.brokers,
            settings.status_topic,
            context.incarnation,
            rng=context.rng,
            timeout_ms=int(settings.target_request_timeout_s * 500),
            waits_for_topic=False,
        )
        status = GapLog(context.target.brokers, settings.status_topic, partitions, writer, self._clock)
        await status.read()
        for gap in reversed(status.gaps()):
            key = (gap.topic, gap.partition)
            ours = self._gaps.get(key, {})  # the gaps of this incarnation came later
            if gap.is_open and gap.key not in ours and key in self._settled:
                self._unwritten[gap.key] = replace(gap, done=Done.ACCEPTED)
                self._written.clear()
            self._gaps[key] = {gap.key: self._unwritten.get(gap.key, gap)} | ours
        for key in self._gaps:
            self._trim(key)
        self._status = status
        return status

    def _say_malformed(self, status: GapLog) -> None:
        if status.malformed:
            records, first = len(status.malformed), status.malformed[0]
            status.malformed.clear()
            self._log.warning("status.malformed", topic=status.topic, records=records, first=first)


def _left_out(one: Standstill) -> Standstill:
    return replace(one, causes=tuple(cause for cause in one.causes if cause.reason == Reason.RING))


def _says_the_same(before: object, gap: Gap) -> bool:
    return isinstance(before, Gap) and replace(before, at_ms=gap.at_ms) == gap
