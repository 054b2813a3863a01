"""The gaps of one flow: logged, counted, kept in the status topic, and carried out as policies and operators say.

MM2 has none of this: it begins at the earliest record wherever a position does not fit, and says nothing. Here each
gap is named with its offsets, ``on.source.gap`` and ``on.target.loss`` decide what follows, and a partition that was
stopped goes on when an operator's command (``mm2py gaps FILE accept``) expects it where it stands.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from connectors.source import start
from connectors.source.beginning import Beginning, Key
from connectors.source.refusals import TableUnusable
from connectors.source.stopped import StoppedPartitions
from connectors.source.task import SourceTask
from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.kafka import admin
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.incarnation import Incarnation
from mm2py.kafka.port import Brokers
from mm2py.kafka.retry import Backoff, name_of
from mm2py.kafka.topic_writer import TopicWriter
from mm2py.metrics import Metrics
from mm2py.records.source_offset import BY_OPERATOR
from mm2py.records.status_record import Command, Done, Gap, GapKind
from mm2py.replication.compacted_topic import DamagedTopic
from mm2py.replication.copier import Phase
from mm2py.replication.events import GapFound, TargetLost
from mm2py.replication.gaps import decide
from mm2py.replication.lane import CopiedPartition
from mm2py.replication.status_log import StatusLog

POLL_S: Final = 1.0
"""How soon a command is seen."""
CLOSE_S: Final = 5.0
WRITTEN_S: Final = 5.0
"""How long a position waits for the record of the gap that it passes over."""
SHOWN_MOST: Final = 50
"""Of a topic that is not what was copied so many partitions stand in its line of the log."""
UNAVAILABLE_REPORT_S: Final = 10.0
"""How long the status topic may be out of reach before that is worth a line in the log."""


class _Wish(NamedTuple):
    """A stalled partition is to begin again: at a source offset, or at the start of its log (None)."""

    key: Key
    at: int | None


class _Verdict(NamedTuple):
    carried_out: bool
    text: str


@dataclass(frozen=True, slots=True)
class _Parts:
    """What of its flow a gap is carried out with."""

    task: SourceTask
    beginning: Beginning
    stopped: StoppedPartitions


class GapKeeper:
    """Owned by the flow's connector, whose watch calls ``carry_out`` between its rounds."""

    def __init__(
        self,
        settings: FlowSettings,
        source: Brokers,
        target: Brokers,
        *,
        incarnation: Incarnation,
        metrics: Metrics,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        self.wake: Callable[[], None] = lambda: None
        """Called when there is something to carry out."""
        self.on_read: Callable[[], None] = lambda: None
        """Called when the status topic was read; may raise what ends this life of the flow."""
        self.on_made_anew: Callable[[], Awaitable[None]] = _nothing
        """Called when the status topic was made once more, and is empty."""
        self._settings = settings
        self._flow = settings.flow
        self._source = source
        self._target = target
        self._incarnation = incarnation
        self._metrics = metrics
        self._clock = clock
        self._rng = rng
        self._log = log
        self._status: StatusLog | None = None
        self._gaps: dict[bytes, Gap] = {}
        """All that were met in this life, and what earlier ones left."""
        self._unwritten: set[bytes] = set()
        self._written = asyncio.Event()
        self._written.set()
        self._is_waited_for = True
        """Nobody has waited in vain for the status topic since it was written to last."""
        self._changed = asyncio.Event()
        self._wishes: list[_Wish] = []
        self._stalled: dict[Key, GapFound] = {}
        self._held: set[Key] = set()
        """Partitions of topics that are refused because of a gap."""
        self._settled: set[Key] = set()
        """Partitions that began at an operator's position: what stopped them before is over."""

    # What is met

    def policy(self, kind: GapKind) -> Done:
        return decide(kind, on_source_gap=self._settings.on_source_gap, on_target_loss=self._settings.on_target_loss)

    def met(self, part: CopiedPartition, found: GapFound) -> None:
        """Take in what a copier met. Where it stalled and policy lets it go on, it begins again in the next round."""
        done = found.done if found.done is Done.CONTINUED else self.policy(found.kind)
        if found.done is not Done.CONTINUED:
            self._stalled[part.key] = found
            if done is not Done.STOPPED:
                self._wishes.append(_Wish(part.key, found.go_on_at if done is Done.CONTINUED else None))
                self.wake()
        extra = {"remedy": self._way_out(part.source_topic, part.partition)} if done is Done.STOPPED else {}
        self._log.error(
            found.kind.event,
            topic=part.source_topic,
            partition=part.partition,
            why=found.text,
            first_offset=found.first_offset,
            last_offset=found.last_offset,
            done=done,
            **extra,
        )
        position = part.copier.position.source_offset
        if found.done is Done.CONTINUED and found.first_offset is not None:
            position = found.first_offset
        self._note(
            Gap(
                found.kind,
                part.source_topic,
                part.partition,
                found.first_offset,
                found.last_offset,
                done,
                position,
                found.text,
                self._clock.wall_ms(),
            )
        )

    def met_topic(self, kind: GapKind, name: str, positions: Mapping[int, int], text: str) -> Done:
        """Take in that a topic is not what was copied, on either side. Returns what is to be done, by policy.

        Args:
            positions: where each of its partitions stands. What was noted before is not noted again.
        """
        done = self.policy(kind)
        noted: list[int] = []
        for partition, position in positions.items():
            first, last = (None, position - 1) if kind.is_of_target else (position, None)
            gap = Gap(kind, name, partition, first, last, done, position, text, self._clock.wall_ms())
            if done is Done.STOPPED:
                self._held.add((name, partition))
            before = self._gaps.get(gap.key)
            if before is None or before.done is not done:
                self._note(gap)
                noted.append(partition)
        if noted:
            say = self._log.error if done is Done.STOPPED else self._log.warning
            shown = [f"{number}: {positions[number]}" for number in sorted(noted)]
            more = [f"and {len(shown) - SHOWN_MOST} more, see mm2py gaps --all"] if len(shown) > SHOWN_MOST else []
            say(
                kind.event,
                topic=name,
                partitions=len(shown),
                next_source_offsets=", ".join([*shown[:SHOWN_MOST], *more]),
                why=text,
                done=done,
            )
        return done

    def begun(self, partitions: Iterable[CopiedPartition], beginning: Beginning) -> None:
        """Where a partition began at an operator's position, nothing waits for an operator any more."""
        for part in partitions:
            self._held.discard(part.key)
            self._stalled.pop(part.key, None)
            part.copier.stops_when_expired = self.policy(GapKind.EXPIRED) is not Done.CONTINUED
            stored = beginning.positions.get(part.key)
            if stored is not None and stored.by == BY_OPERATOR:
                self._settled.add(part.key)
                self._accept_all(part.key)
            else:
                self._hold_lost_copy(part)

    def _hold_lost_copy(self, part: CopiedPartition) -> None:
        """Stop a partition once more whose copy an earlier life found cut back, as long as nobody has accepted that.

        The story: ten records are lost, and ten of somebody else stand there by now. The log ends where it should.
        """
        position = part.copier.position
        for gap in self._of(part.key):
            if gap.kind is GapKind.TARGET_TRUNCATED and gap.is_open and gap.position >= position.source_offset:
                end = position.target_offset or 0
                for effect in part.copier.handle(TargetLost(end, end, gap.text)):
                    if isinstance(effect, GapFound):
                        self.met(part, effect)
                return

    def _way_out(self, topic: str, partition: int) -> str:
        at = f"{self._flow}:{topic}"
        return (
            f"Let it go on with mm2py gaps FILE accept {at}:{partition}, or restart with --allow-recopy {at} to copy"
            " the topic once more."
        )

    def _note(self, gap: Gap) -> None:
        self._metrics.count_gap(self._flow, gap.topic, gap.kind)
        self._keep(gap)

    def _keep(self, gap: Gap) -> None:
        self._gaps[gap.key] = gap
        self._unwritten.add(gap.key)
        self._written.clear()
        self._changed.set()

    def _accept_all(self, key: Key) -> None:
        for gap in self._of(key):
            if gap.is_open:
                self._keep(replace(gap, done=Done.ACCEPTED))

    def _of(self, key: Key) -> list[Gap]:
        return [gap for gap in self._gaps.values() if (gap.topic, gap.partition) == key]

    # The status topic

    async def run(self) -> None:
        """Keep the status topic until cancelled; copying goes on while it is out of reach.

        Raises:
            Fenced, EpochRefused, StatusIsBack: this life of the flow is over.
        """
        backoff = Backoff(self._rng, first_s=0.2, most_s=UNAVAILABLE_REPORT_S)
        since_s: float | None = None
        said = is_tidy = False
        while True:
            pause_s = POLL_S
            try:
                status = await self.open()
                await status.read()
                if status.is_missing:
                    await self._make_again(status)
                    continue
                await self.flush()
                if not is_tidy:
                    await status.remove(status.old_answers())
                    is_tidy = True
                self.on_read()
                self._say_malformed(status)
                if status.unanswered():
                    self.wake()
                backoff.reset()
                if said:
                    self._log.info("status.back", topic=status.topic)
                since_s, said = None, False
            except (KafkaError, TableUnusable, DamagedTopic) as error:
                if isinstance(error, KafkaError) and not (error.retriable or isinstance(error, BrokerRefused)):
                    raise
                now_s = self._clock.monotonic()
                since_s = now_s if since_s is None else since_s
                lasting = not isinstance(error, KafkaError) or now_s - since_s >= UNAVAILABLE_REPORT_S
                if lasting and not error.retriable and not said:  # of a target that is away others tell
                    said = True
                    why = f"{error.why} {error.remedy}" if isinstance(error, TableUnusable) else str(error)
                    self._log.warning(
                        "status.unavailable",
                        topic=self._settings.status_topic,
                        why=why,
                        effect="gaps are logged and counted only, and commands are not heard; records are copied",
                    )
                pause_s = UNAVAILABLE_REPORT_S if lasting else backoff.next_s()
            self._changed.clear()
            try:
                async with asyncio.timeout(pause_s):
                    await (self._changed.wait() if self._status is not None else asyncio.Event().wait())
            except TimeoutError:
                pass

    async def _make_again(self, status: StatusLog) -> None:
        """Make the topic anew after it was deleted under us, and let all that is known be written to it once more."""
        self._log.error(
            "status.topic_gone",
            topic=status.topic,
            why="the topic was deleted, and with it gaps, commands, and who runs the flow",
            effect="it is made again, and what this process knows of them is written to it",
        )
        backoff = Backoff(self._rng, first_s=0.2, most_s=POLL_S)
        while status.is_missing:
            try:
                await start.ensure_table(self._settings, start.status_table(self._settings), self._target)
                await status.read()
            except KafkaError as error:
                if not (error.retriable or isinstance(error, BrokerRefused)):
                    raise
            if status.is_missing:
                await asyncio.sleep(backoff.next_s())
        self._unwritten |= set(self._gaps)
        await self.on_made_anew()

    async def flush(self) -> None:
        """Write what was met since. Raises: as ``TopicWriter.write``; what could not be written is kept."""
        status = self._status
        if status is None or not self._unwritten:
            return
        keys = set(self._unwritten)
        gaps = {key: self._gaps[key] for key in keys}
        await status.put(gap for key, gap in gaps.items() if not _says_the_same(status.records.get(key), gap))
        self._unwritten -= {key for key in keys if self._gaps[key] is gaps[key]}
        self._is_waited_for = True
        if not self._unwritten:
            self._written.set()

    async def written(self) -> None:
        """Wait until what was met is in the status topic: only then a position may pass it over. Killed in between, the
        next life would meet nothing. While the topic is out of reach, copying waits for it once, and not for long."""
        if self._status is None or not self._is_waited_for:
            return
        try:
            async with asyncio.timeout(WRITTEN_S):
                await self._written.wait()
        except TimeoutError:
            self._is_waited_for = False

    async def close(self) -> None:
        """Write what is left, if the target takes it soon: all of it is in the log."""
        with contextlib.suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.flush()

    async def open(self) -> StatusLog:
        """Return the status topic, read to its end when it was opened.

        Raises:
            TableUnusable, DamagedTopic, KafkaError: it cannot be used, or not yet.
        """
        if self._status is not None:
            return self._status
        settings = self._settings
        partitions = await start.ensure_table(settings, start.status_table(settings), self._target)
        writer = TopicWriter(
            self._target,
            settings.status_topic,
            self._incarnation,
            rng=self._rng,
            timeout_ms=int(settings.target_request_timeout_s * 500),
            waits_for_topic=False,
        )
        status = StatusLog(self._target, settings.status_topic, partitions, writer, self._clock)
        await status.read()
        for gap in status.gaps():
            self._gaps.setdefault(gap.key, gap)
        for key in self._settled:
            self._accept_all(key)
        self._status = status
        return status

    def _say_malformed(self, status: StatusLog) -> None:
        if status.malformed:
            records, first = len(status.malformed), status.malformed[0]
            status.malformed.clear()
            self._log.warning("status.malformed", topic=status.topic, records=records, first=first)

    # Carrying out

    async def carry_out(self, task: SourceTask, beginning: Beginning, stopped: StoppedPartitions) -> bool:
        """Begin again what policies and operators want; returns whether there is something to look for at once.

        Args:
            stopped: gets the partitions that were stopped for it.
        Raises: KafkaError; whatever was not done is done by the next call.
        """
        parts = _Parts(task, beginning, stopped)
        again = False
        while self._wishes:
            key, at = self._wishes[0]
            if key in self._stalled:
                await self._begin_again(parts, key, at)
                again = True
            self._wishes.pop(0)
        if self._status is None:
            return again
        for command in self._status.unanswered():
            verdict = await self._obey(parts, command)
            if verdict is None:
                continue
            again |= verdict.carried_out
            await self.flush()
            await self._status.answer(command, carried_out=verdict.carried_out, text=verdict.text)
            self._log.warning(
                "gap.accepted" if verdict.carried_out else "gap.not_accepted",
                topic=command.topic,
                partition=command.partition,
                why=verdict.text,
            )
        return again

    async def _obey(self, parts: _Parts, command: Command) -> _Verdict | None:
        """Carry out a command. Returns what to answer; None while that cannot be told yet."""
        key = (command.topic, command.partition)
        gaps = self._of(key)
        if command.action != "accept":
            return _Verdict(False, f"this mm2py does not know the command {command.action!r}.")
        if any(gap.done is Done.ACCEPTED and gap.position == command.expected_position for gap in gaps):
            return _Verdict(True, "it was accepted before.")
        part, stored = parts.task.partitions.get(key), parts.beginning.positions.get(key)
        if part is None and stored is None:
            return _Verdict(False, f"{self._flow} has no position of {command.topic}-{command.partition}.")
        position = part.copier.position.source_offset if part is not None else stored.next_source if stored else -1
        if position != command.expected_position:
            return _Verdict(
                False,
                f"it stands at source offset {position}, not at {command.expected_position} any more; list the gaps"
                " again.",
            )
        if part is not None and part.copier.phase is not Phase.STALLED:
            if part.copier.end_offset is None and any(gap.is_open for gap in gaps):
                return None  # it has not been read since it began: the gap may be met again
            return _Verdict(False, "nothing stops it: it is being copied.")
        if part is not None and key not in self._stalled:
            return _Verdict(False, f"it is not stopped by a gap: {part.copier.reason or part.copier.phase.value}.")
        if part is not None:
            at = self._stalled[key].go_on_at
            await self._begin_again(parts, key, at)
            self._accept_all(key)
            return _Verdict(True, f"it goes on at source offset {at}.")
        if key not in self._held:
            return _Verdict(False, "no gap of it is known just now; it is not copied for another reason.")
        upstream = await parts.beginning.begin_anew(key)
        if isinstance(upstream, str):
            return _Verdict(False, upstream)
        self._held.discard(key)
        self._accept_all(key)
        waiting = sorted(
            number
            for name, number in self._held
            if name == command.topic and (upstream.topic_id is None or number in upstream.partitions)
        )  # without ids, a position of a partition that is not there any more still speaks of another topic
        others = f" once partition(s) {', '.join(map(str, waiting))} are accepted too" if waiting else ""
        return _Verdict(True, f"it is copied from its first record on{others}.")

    async def _begin_again(self, parts: _Parts, key: Key, at: int | None) -> None:
        """Forget a stalled partition, and store an operator's position for it: the next round begins it there."""
        part = parts.task.partitions.get(key)
        if part is None or part.copier.phase is not Phase.STALLED:
            self._stalled.pop(key, None)
            return
        if at is None:
            at = await self._log_start(part)
        await parts.task.remove([key])
        parts.stopped.add([part])
        parts.beginning.positions[key] = parts.task.stored_form(part)  # should the next line fail, it stalls once more
        await parts.beginning.set_position(
            key, at, source_topic_id=part.source_topic_id, target_topic_id=part.target_topic_id
        )
        self._stalled.pop(key, None)

    async def _log_start(self, part: CopiedPartition) -> int:
        leader = part.source_leader
        code = 5
        if leader is not None:
            answer = (await admin.list_offsets(self._source, leader, [part.key], admin.EARLIEST))[part.key]
            if not answer.error_code:
                return answer.offset
            code = answer.error_code
        raise BrokerRefused(f"Finding the start of {part.source_topic}-{part.partition}", code, name_of(code))


async def _nothing() -> None:
    pass


def _says_the_same(before: object, gap: Gap) -> bool:
    return isinstance(before, Gap) and replace(before, at_ms=gap.at_ms) == gap


def positions_of(name: str, beginning: Beginning) -> dict[int, int]:
    """Return where the partitions of a topic stand by what is stored of them."""
    return {number: at.next_source for (topic, number), at in beginning.positions.items() if topic == name}
