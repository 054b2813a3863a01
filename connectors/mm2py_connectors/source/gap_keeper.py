"""Handles the gaps of a flow: logs, counts and stores each one, and does what policies and operators decide.

``GapKeeper`` names each gap with its offsets; ``on.source.gap`` and ``on.target.loss`` decide. ``Resumption`` lets
stopped partitions continue, by these policies or by operators' commands: it drains the partition and stores an
operator's position, and the next round starts the partition there. It handles many partitions together: one after the
other, 300 accepted gaps took 39 s.

No counterpart in MM2, which starts at the earliest record wherever a position does not fit, and does not report it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple

from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.events import GapFound, SourceRewritten, TargetLost, UnexpectedMet
from mm2py.copying.gaps import expired_text
from mm2py.copying.states import Stopped
from mm2py.kafka.cluster import TopicMetadata
from mm2py.kafka.port import TopicPartition
from mm2py.records.gap_record import Command, Done, Gap, GapKind
from mm2py.records.source_offset import BY_OPERATOR, StoredPosition
from mm2py.status.not_copied import Reason
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.discovery.operators_starts import OperatorsStart
from mm2py_connectors.source.discovery.starting_offsets import StartingOffsets
from mm2py_connectors.source.going_on import DOCS, requests
from mm2py_connectors.source.recovery.reconciliation import RestartState
from mm2py_connectors.source.stored_gaps import StoredGaps
from mm2py_connectors.source.task.source_task import SourceTask

SHOWN_MOST: Final = 50
"""How many partitions the log line of a deleted or recreated topic names."""


class GapKeeper:
    """The gaps of a flow, and the partitions that they stop. Owned by the flow's connector."""

    def __init__(self, context: FlowContext, stored: StoredGaps) -> None:
        self.stored = stored
        self._context = context
        self._clock = context.clock
        self._log = context.log
        self.stopped: dict[TopicPartition, GapFound] = {}
        """Partitions that a gap has stopped, with the latest gap of each."""
        self.held: set[TopicPartition] = set()
        """Partitions of topics that are refused because of a gap."""
        self.wishes: dict[TopicPartition, int | None] = {}
        """Stopped partitions that policy lets continue: at a source offset, or at the start of the log (None)."""
        self._flow = context.flow

    def met(self, part: CopiedPartition, found: GapFound) -> None:
        """Handle a gap that a copier met. A partition that stopped starts again in the next round if policy allows."""
        done = found.done if found.done is Done.CONTINUED else self._context.gap_policy(found.kind)
        if found.done is not Done.CONTINUED:
            self._stop(part.key, found, done)
        extra = {}
        if done is Done.STOPPED:
            extra = {"reason": str(Reason.STOPPED), "remedy": self._way_out(found.kind, part)}
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

    def _stop(self, key: TopicPartition, found: GapFound, done: Done) -> None:
        """Note why a partition is stopped. While one of its gaps waits for an operator, another cannot let it
        continue."""
        waits = key in self.stopped and key not in self.wishes
        self.stopped[key] = found
        if done is Done.STOPPED:
            self.wishes.pop(key, None)
        elif not waits:
            self.wishes[key] = found.go_on_at if done is Done.CONTINUED else None
            self._context.state.metadata_wanted.set()

    def met_topic(self, kind: GapKind, name: str, positions: Mapping[int, StoredPosition], text: str) -> Done:
        """Handle a topic that was deleted or created again, on either side. Returns what policy decides.

        Args:
            positions: the stored positions of its partitions. A gap that was noted before is not noted again.
        """
        done = self._context.gap_policy(kind)
        noted: list[int] = []
        for partition, stored in positions.items():
            position = stored.next_source
            first, last = (None, position - 1) if kind.is_of_target else (position, None)
            lost = stored.target_topic_id if kind.is_of_target else stored.source_topic_id
            topic_id = None if lost is None else str(lost)
            gap = Gap(kind, name, partition, first, last, done, position, text, self._clock.wall_ms(), topic_id)
            if done is Done.STOPPED:
                self.held.add((name, partition))
            before = self.stored.known(gap)
            if before is None or before.done is not done or before.is_of_another_topic(gap):
                self._note(gap)
                noted.append(partition)
        if noted:
            say = self._log.error if done is Done.STOPPED else self._log.warning
            shown = [f"{number}: {positions[number].next_source}" for number in sorted(noted)]
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

    def started(self, partitions: Iterable[CopiedPartition], starting_offsets: StartingOffsets) -> None:
        """Note that partitions have started. A start at an operator's position accepts all gaps of the partition."""
        for part in partitions:
            self.held.discard(part.key)
            self.stopped.pop(part.key, None)
            self.wishes.pop(part.key, None)
            stored = starting_offsets.positions.get(part.key)
            if stored is not None and stored.by == BY_OPERATOR:
                self.stored.settle(part.key)
            else:
                self._hold_stopped(part)

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Forget partitions that have another owner now."""
        keys = list(keys)
        self.stored.forget(keys)
        for key in keys:
            self.held.discard(key)
            self.stopped.pop(key, None)
            self.wishes.pop(key, None)

    def _hold_stopped(self, part: CopiedPartition) -> None:
        """Stop a partition again that stopped in a previous incarnation, until an operator accepts the gap.

        The gap may not be visible any more. Three examples: ten records of the copy are lost, and another writer has
        written ten in their place. The source was truncated, and the records that replaced its end have expired:
        on.source.gap=continue would skip them. Another writer wrote to the remote partition of an exactly-once flow,
        before the position.
        """
        position = part.copier.position
        for gap in self.stored.of(part.key):
            if not gap.is_open:
                continue
            met: TargetLost | SourceRewritten | UnexpectedMet
            if gap.kind is GapKind.TARGET_TRUNCATED and gap.position >= position.source_offset:
                end = position.target_offset or 0
                met = TargetLost(end, end, gap.text)
            elif (
                gap.kind is GapKind.TRUNCATED
                and gap.position == position.source_offset
                and gap.first_offset is not None
            ):
                met = SourceRewritten(gap.first_offset, gap.position - 1)
            elif self._is_over(gap, part):
                self.stored.keep(replace(gap, done=Done.CONTINUED))
                continue
            elif gap.kind.is_unexpected and gap.position == position.source_offset:
                met = UnexpectedMet(gap.text, gap.kind, is_known=True)
            else:
                continue
            for effect in part.copier.handle(met):
                if isinstance(effect, GapFound):
                    self.met(part, effect)
            return

    def _is_over(self, gap: Gap, part: CopiedPartition) -> bool:
        """Return whether the settings of today let a partition go on that a gap has stopped."""
        if gap.kind is GapKind.TRANSFORMS:
            return part.stored is not None and part.stored.transforms == part.transforms_digest
        return gap.kind.is_unexpected and not self._context.must_be_exactly_once

    def _way_out(self, kind: GapKind, part: CopiedPartition) -> str:
        """Return the remedy. The way that continues after the present copy comes first. ``--allow-recopy`` has an
        effect only where the position does not fit any more, and is named only where the copy contains nothing else."""
        topic, number, flow = part.source_topic, part.partition, self._flow
        accept = f"mm2py gaps FILE accept '{flow}:{topic}:{number}'"
        if kind is GapKind.TARGET_TRUNCATED:
            return (
                f"Copy what was lost behind what is there: {requests(flow, topic, number)}. N is one less than"
                f" what mm2py translate FILE '{flow}' --topic {topic} --partition {number} --reverse --offset END"
                f" answers; END is where the remote partition ends. See {DOCS}. Or leave it out: {accept}."
            )
        if kind is GapKind.TRANSFORMS:
            return (
                "Give the workers the transforms back that they had, with the same modules; stop them in order once it"
                f" is copied, and change the transforms then. Or copy those records once more: {accept}."
            )
        again = ""
        if kind is GapKind.TRUNCATED and topic != part.target_topic:
            again = (
                f" If the source topic was made anew, restart with --allow-recopy '{flow}:{topic}' instead:"
                " it is copied from its first record on."
            )
        return f"Let it go on with {accept}.{again}"

    def _note(self, gap: Gap) -> None:
        self._context.metrics.count_gap(self._flow, gap.topic, gap.kind)
        self.stored.keep(gap)


def positions_of(name: str, starting_offsets: StartingOffsets) -> dict[int, StoredPosition]:
    """Return the stored positions of a topic's partitions."""
    return {number: stored for (topic, number), stored in starting_offsets.positions.items() if topic == name}


class _Verdict(NamedTuple):
    carried_out: bool
    text: str


class _Do(Enum):
    GO_ON = "a partition that a gap has stopped is to start again at a source offset"
    RESTART = "a partition of a topic that is refused because of a gap is to start at the beginning of today's topic"


class Resumption:
    """Lets stopped partitions continue. The flow's connector calls ``carry_out`` between its rounds."""

    def __init__(
        self,
        context: FlowContext,
        gaps: GapKeeper,
        task: SourceTask,
        starting_offsets: StartingOffsets,
        restart_state: RestartState,
    ) -> None:
        self._flow = context.flow
        self._log = context.log
        self._gaps = gaps
        self._task = task
        self._starting_offsets = starting_offsets
        self._operators = starting_offsets.operators
        self._restart_state = restart_state
        self._has_begun = False
        """True if partitions can start and ``carry_out`` has not returned that yet."""
        self.is_waiting = False
        """True if a partition that must continue waits for its leaders: try again soon."""

    async def carry_out(self) -> bool:
        """Let partitions continue as policies and operators decide. Returns whether a round can start some at once.

        Raises: KafkaError; a later call does the rest.
        """
        gaps = self._gaps
        async with self._task.settling:
            self.is_waiting = False
            wished = dict(gaps.wishes)
            going_on = await self._restart(wished)
            for key in wished:
                if key in going_on or key not in gaps.stopped:
                    gaps.wishes.pop(key, None)
            verdicts = await self._obey()
            for command, verdict in verdicts.items():
                self._log.warning(
                    "gap.accepted" if verdict.carried_out else "gap.not_accepted",
                    topic=command.topic,
                    partition=command.partition,
                    why=verdict.text,
                )
            await gaps.stored.answer(verdicts)
        has_begun, self._has_begun = self._has_begun, False
        return has_begun

    async def _obey(self) -> dict[Command, _Verdict]:
        """Carry out commands. Returns the answers; commands that cannot be carried out yet have none."""
        found = {command: self._judge(command) for command in self._gaps.stored.commands()}
        stopped = [(one.topic, one.partition) for one, do in found.items() if do is _Do.GO_ON]
        held = {(one.topic, one.partition) for one, do in found.items() if do is _Do.RESTART}
        going_on = await self._restart({key: self._gaps.stopped[key].go_on_at for key in stopped})
        for key, at in going_on.items():
            self._note_expired(key, at)
            self._gaps.stored.accept_all(key)
        restarted = await self._operators.restart(held) if held else {}
        for key, upstream in restarted.items():
            if not isinstance(upstream, str):
                self._has_begun = True
                self._gaps.held.discard(key)
                self._gaps.stored.accept_all(key)
        verdicts: dict[Command, _Verdict] = {}
        for command, do in found.items():
            key = (command.topic, command.partition)
            if isinstance(do, _Verdict):
                verdicts[command] = do
            elif key in going_on:
                verdicts[command] = _Verdict(True, f"it goes on at source offset {going_on[key]}.")
            elif key in restarted:
                verdicts[command] = self._restarted(command, restarted[key])
        return verdicts

    def _judge(self, command: Command) -> _Verdict | _Do | None:
        """Return what to do for a command, or what to answer; None while that is not known yet."""
        key = (command.topic, command.partition)
        gaps = self._gaps.stored.of(key)
        is_open = any(gap.is_open for gap in gaps)
        if command.action != "accept":
            return _Verdict(False, f"this mm2py does not know the command {command.action!r}.")
        before = any(gap.done is Done.ACCEPTED and gap.position == command.expected_position for gap in gaps)
        if before and not is_open:
            return _Verdict(True, "it was accepted before.")
        part, stored = self._task.partitions.get(key), self._starting_offsets.positions.get(key)
        if part is None and stored is None:
            return _Verdict(False, f"{self._flow} has no position of {command.topic}-{command.partition}.")
        if part.copier.has_untold_gaps if part is not None else key in self._gaps.stopped:
            return None  # its position is not known yet
        position = part.copier.position.source_offset if part is not None else stored.next_source if stored else -1
        if position != command.expected_position:
            return _Verdict(
                False,
                f"it stands at source offset {position}, not at {command.expected_position} any more; list the gaps"
                " again.",
            )
        if part is not None and not isinstance(part.copier.state, Stopped):
            if part.copier.end_offset is None and is_open:
                return None  # it has not been read since it started: it may meet the gap again
            return _Verdict(False, "nothing stops it: it is being copied.")
        if part is not None and key not in self._gaps.stopped:
            return _Verdict(False, f"it is not stopped by a gap: {part.copier.reason or part.copier.state.label}.")
        if part is not None:
            return _Do.GO_ON
        if key not in self._gaps.held:
            return _Verdict(False, "no gap of it is known just now; it is not copied for another reason.")
        return _Do.RESTART

    def _restarted(self, command: Command, upstream: TopicMetadata | str) -> _Verdict:
        if isinstance(upstream, str):
            return _Verdict(False, upstream)
        waiting = sorted(
            number
            for name, number in self._gaps.held
            if name == command.topic and (upstream.topic_id is None or number in upstream.partitions)
        )  # without topic ids, the position of a partition that is gone belongs to the topic before
        others = f" once partition(s) {', '.join(map(str, waiting))} are accepted too" if waiting else ""
        return _Verdict(True, f"it is copied from its first record on{others}.")

    async def _restart(self, wanted: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
        """Forget stopped partitions, and store operators' positions for them: the next round starts them there.

        Returns: the source offset of each; partitions that cannot start yet are left out.
        """
        ready: dict[TopicPartition, CopiedPartition] = {}
        for key in wanted:
            part = self._task.partitions.get(key)
            if part is None or not isinstance(part.copier.state, Stopped):
                if self._gaps.stopped.pop(key, None) is not None:
                    self._has_begun = True  # the call before was interrupted here
            elif not part.copier.has_untold_gaps:
                ready[key] = part
        at = await self._starts({key: (part, wanted[key]) for key, part in ready.items()})
        unproven = await self._operators.fence_previous([key for key in at if self._may_be_open(ready[key])])
        at = {key: offset for key, offset in at.items() if key not in unproven}
        self.is_waiting = self.is_waiting or len(at) < len(ready)
        if not at:
            return {}
        leaving = [ready[key] for key in at]
        self._has_begun = True
        await self._task.remove(at)
        self._restart_state.add(leaving)
        stood = {part.key: self._task.positions.form(part) for part in leaving if part.copier.owns_position}
        self._starting_offsets.positions.update(stood)  # if the next line fails, they stop there once more
        await self._operators.put(
            {
                key: OperatorsStart(
                    offset,
                    ready[key].source_topic_id,
                    ready[key].target_topic_id,
                    stood.get(key) if self._skips(ready[key], offset) else None,
                )
                for key, offset in at.items()
            }
        )
        for key in at:
            self._gaps.stopped.pop(key, None)
        return at

    def _skips(self, part: CopiedPartition, offset: int) -> bool:
        """Return whether only records of the source are skipped: nothing of the copy is lost or copied again."""
        stopped_by = self._gaps.stopped.get(part.key)
        is_forward = offset >= part.copier.position.source_offset
        return is_forward and stopped_by is not None and not stopped_by.kind.is_of_target

    def _may_be_open(self, part: CopiedPartition) -> bool:
        """Return whether a previous incarnation may still write there: it is not fenced yet, or the marker is lost."""
        stopped_by = self._gaps.stopped.get(part.key)
        return not part.copier.owns_position or stopped_by is None or stopped_by.kind is GapKind.TARGET_TRUNCATED

    async def _starts(
        self, wanted: Mapping[TopicPartition, tuple[CopiedPartition, int | None]]
    ) -> dict[TopicPartition, int]:
        """Return where to start. More records may have expired by now, so the source's leaders are asked."""
        asked = {
            key: part.leaders.source
            for key, (part, at) in wanted.items()
            if at is None or self._gaps.stopped[key].kind is GapKind.EXPIRED
        }
        starts = await self._operators.log_starts(asked)
        return {
            key: max(at or 0, starts.get(key, 0))
            for key, (_, at) in wanted.items()
            if key not in asked or key in starts
        }

    def _note_expired(self, key: TopicPartition, at: int) -> None:
        """Extend accepted gaps of expired records up to where the partition starts: more may have expired."""
        for gap in self._gaps.stored.of(key):
            if gap.kind is GapKind.EXPIRED and gap.is_open and gap.last_offset != at - 1:
                self._gaps.stored.keep(replace(gap, last_offset=at - 1, text=expired_text(gap.position, at - 1)))
