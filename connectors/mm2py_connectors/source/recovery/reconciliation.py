"""Reconciles partitions of a task; chooses the producer id under which partitions restart (``RestartState``).

A partition is reconciled if a previous incarnation or MirrorMaker 2 may have written after its position, or if the
outcome of its own batches is unknown. The latter happens to many partitions at once when a broker restarts, so they are
gathered.

A partition that restarts within an attempt starts its sequences at 0. The story: a right is revoked and granted again,
so a topic vanishes and returns. Under its old producer id and epoch the target would know sequence 0, acknowledge the
new records as repeats, and drop them. So it restarts under another producer id.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.events import (
    Displaced,
    Event,
    GapFound,
    Reconciled,
    SourceRewritten,
    TargetLost,
    UnexpectedMet,
)
from mm2py.copying.reading.log_reader import LogReader
from mm2py.copying.recovery import ForeignRecords, LastWriter, Tail, TailStretch
from mm2py.errors import FirstErrorGroup
from mm2py.kafka.cluster import TopicMetadata
from mm2py.kafka.port import ProducerIdentity, TopicPartition
from mm2py.kafka.producer.incarnation import OwnFence
from mm2py.records.batch import NO_PRODUCER_ID
from mm2py.records.gap_record import Done, GapKind
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.recovery.previous_producers import PreviousProducers
from mm2py_connectors.source.recovery.reconciler import ReconcileJob, ReconcileOutcome, Reconciler, find_bounds
from mm2py_connectors.source.resume_from_mm2 import ResumeFromMm2

PROOF_S: Final = 5.0
"""How long a round waits for markers; partitions without one by then start in a later round."""


class RestartState:
    """The identities that stopped partitions have been written under in this attempt."""

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._incarnation = context.incarnation
        self._written_under: dict[TopicPartition, set[ProducerIdentity]] = {}

    def add(self, parts: Iterable[CopiedPartition]) -> None:
        for part in parts:
            self._written_under.setdefault(part.key, set()).add(part.copier.identity)

    def started(self, parts: Iterable[CopiedPartition]) -> None:
        """Forget partitions that have restarted; one that is reconciled first has not restarted yet."""
        for part in parts:
            if part.copier.owns_position:
                self._written_under.pop(part.key, None)

    async def identity_for(self, topics: Collection[str]) -> ProducerIdentity:
        """Return the identity that partitions of topics start under: none of them has been written under it.

        Raises: as ``Incarnation.next_identity``.
        """
        used = {one for key, identities in self._written_under.items() if key[0] in topics for one in identities}
        if not used:
            return self._incarnation.identity
        return await self._incarnation.next_identity(self._incarnation.latest(used))

    async def fence_own(self, remotes: Mapping[TopicPartition, TopicMetadata]) -> set[TopicPartition]:
        """Fence requests that may be in flight to remote partitions that are not reconciled.

        Args:
            remotes: remote topics by source partition; those that were not stopped in this attempt are skipped.
        Returns:
            The source partitions where no marker proves the fence yet (docs/broker-facts.md#c3): they must not start.
        Raises: as ``Incarnation.fence_itself``.
        """
        by_identity: dict[ProducerIdentity, list[TopicPartition]] = {}
        for key in remotes:
            for identity in self._written_under.get(key, ()):
                by_identity.setdefault(identity, []).append(key)
        unproven: set[TopicPartition] = set()
        for identity, keys in by_identity.items():
            unproven |= await self._fence_identity(identity, {key: remotes[key] for key in keys})
        return unproven

    async def _fence_identity(
        self, identity: ProducerIdentity, remotes: Mapping[TopicPartition, TopicMetadata]
    ) -> set[TopicPartition]:
        context = self._context
        bounds = await find_bounds(context.target.brokers, [(remote.name, key[1]) for key, remote in remotes.items()])
        led = {key: remote for key, remote in remotes.items() if (remote.name, key[1]) in bounds}
        if not led:
            return set(remotes)
        epoch = await self._incarnation.fence_itself(identity, [(remote.name, key[1]) for key, remote in led.items()])
        if epoch is None:
            return set()  # a plain producer id cannot be fenced, and the guarantee says so
        writer = LastWriter(identity.producer_id, identity.epoch, 0)
        stretches = {}
        for key, remote in led.items():
            _, end = bounds[remote.name, key[1]]
            tail = Tail(end, writer, fence_epoch=epoch)
            stretches[key] = TailStretch(remote.name, remote.topic_id, key[1], tail, context.clock)
        reader = LogReader(context.target.brokers, read_committed=False, rng=context.rng, channel="reconcile")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROOF_S):
                await reader.read(stretches.values(), lambda _: None)
        return {key for key in remotes if key not in stretches or not stretches[key].tail.is_whole}


GATHER_S: Final = 0.01


@dataclass(slots=True)
class _Count:
    """The numbers of one round of reconciling, for one line in the log."""

    partitions: int = 0
    records: int = 0
    by_content: int = 0
    first: str = ""


class Reconciliation:
    """Runs the reconciler, and resumes from MirrorMaker 2, for a task."""

    def __init__(
        self,
        context: FlowContext,
        reconciler: Reconciler,
        resume_from_mm2: ResumeFromMm2,
        previous: PreviousProducers,
        *,
        met_gap: Callable[[CopiedPartition, GapFound], None],
    ) -> None:
        """Make one; ``run`` starts it.

        Args:
            met_gap: gets a gap for each partition that others write to.
        """
        self.foreign: set[str] = set()
        """Remote topics to which others write."""
        self.repeated: set[str] = set()
        """Remote topics that may hold records of ours twice."""
        self._flow = context.flow
        self._exactly_once = context.must_be_exactly_once
        self._is_mixed = context.settings.many_to_one
        """Other flows write to the same remote topics."""
        self._met_gap = met_gap
        self._reconciler = reconciler
        self._resume_from_mm2 = resume_from_mm2
        self._incarnation = context.incarnation
        self._previous = previous
        self._log = context.log
        self._jobs: list[ReconcileJob] = []
        self._behind_mm2: list[CopiedPartition] = []
        self._outcome_unknown: dict[CopiedPartition, None] = {}
        self._displaced: list[tuple[CopiedPartition, Displaced]] = []
        self._foreign_said: set[tuple[str, int]] = set()
        self._news = asyncio.Event()

    def begin(self, jobs: Sequence[ReconcileJob], behind_mm2: Sequence[CopiedPartition] = ()) -> None:
        """Reconcile partitions that a previous incarnation, or MirrorMaker 2, may have written to."""
        self._jobs += jobs
        self._behind_mm2 += behind_mm2
        self._news.set()

    def lost_track(self, part: CopiedPartition) -> None:
        """Reconcile a partition with unknown outcomes of our own batches."""
        self._outcome_unknown[part] = None
        self._news.set()

    def displaced(self, part: CopiedPartition, effect: Displaced) -> None:
        """Find out who has written between two target offsets.

        If others are known to write there, only a batch that was sent twice is a reason to read their records.
        """
        if self._is_mixed or (part.key in self._foreign_said and not effect.sent_before):
            return
        self._displaced.append((part, effect))
        self._news.set()

    async def run(self) -> None:
        """Reconcile partitions as they come, until cancelled.

        Raises:
            IncarnationFenced: another process has fenced us.
        """
        async with FirstErrorGroup() as tasks:
            while True:
                await self._news.wait()
                await asyncio.sleep(GATHER_S)
                self._news.clear()
                jobs, self._jobs = self._jobs, []
                if jobs:
                    tasks.create_task(self._reconcile(jobs, None), name="reconcile previous incarnations")
                behind_mm2, self._behind_mm2 = self._behind_mm2, []
                if behind_mm2:
                    tasks.create_task(self._resume_from_mm2.run(behind_mm2), name="resume from MirrorMaker 2")
                own, self._outcome_unknown = self._outcome_unknown, {}
                displaced, self._displaced = self._displaced, []
                for each in rounds_of(displaced):
                    tasks.create_task(self._look_between(each), name="look between")
                if own:
                    tasks.create_task(self._reconcile_own(list(own)), name="reconcile our own")

    async def _reconcile_own(self, parts: Sequence[CopiedPartition]) -> None:
        fences: dict[ProducerIdentity, OwnFence] = {}
        jobs: list[ReconcileJob] = []
        for part in parts:
            copier = part.copier
            fence = fences.setdefault(copier.identity, OwnFence(self._incarnation, copier.identity))
            writer = LastWriter(copier.identity.producer_id, copier.identity.epoch, copier.position.sequence)
            jobs.append(
                ReconcileJob(
                    part,
                    copier.real_position,
                    writer,
                    fence,
                    known_ids=self._previous.known_ids,
                    transforms=part.transforms_digest,
                )
            )
        await self._reconcile(jobs, parts[0].copier.reason)

    async def _reconcile(self, jobs: Sequence[ReconcileJob], why: str | None) -> None:
        count = _Count()

        def done(outcome: ReconcileOutcome) -> None:
            self._take(outcome, count)

        await self._reconciler.reconcile(jobs, done)
        if count.partitions:
            say = self._log.info if why is None else self._log.warning
            extra = {} if why is None else {"why": why}
            say(
                "partitions.reconciled",
                partitions=count.partitions,
                first=count.first,
                records=count.records,
                by_content=count.by_content,
                effect="what was stored behind the positions is neither repeated nor left out",
                **extra,
            )

    async def _look_between(self, displaced: Mapping[CopiedPartition, Displaced]) -> None:
        """Find out who wrote between these target offsets.

        Markers of our own incarnations are not foreign (docs/broker-facts.md#m1); their records may be second copies.
        """
        no_writer = LastWriter(NO_PRODUCER_ID - 1, 0, 0)
        tails = {
            part: Tail(effect.expected, no_writer, fence_epoch=None, end=effect.stored_at)
            for part, effect in displaced.items()
        }
        await self._reconciler.read_tails(tails)
        for part, tail in tails.items():
            for producer_id, met in tail.foreign.items():
                if producer_id in self._previous.known_ids:
                    self._say_repeated(part, producer_id, met)
                else:
                    self._say_foreign(part, producer_id, met)

    def _take(self, outcome: ReconcileOutcome, count: _Count) -> None:
        part = outcome.job.part
        event: Event
        if outcome.rewritten is not None:
            event = SourceRewritten(*outcome.rewritten)
        elif outcome.transformed_otherwise:
            text = (
                f"{outcome.stored} record(s) stand on the target behind the stored position"
                f" {part.copier.position.source_offset}, copied with other transforms than this worker has: it is not"
                " known which records they are"
            )
            event = UnexpectedMet(text, GapKind.TRANSFORMS, is_known=True)
        elif outcome.position is None:
            event = TargetLost(outcome.job.target_offset, outcome.lost_at)
        else:
            count.partitions += 1
            count.records += outcome.stored
            count.by_content += outcome.by_content
            count.first = count.first or part.copier.name
            goes_on = self._incarnation.behind(outcome.job.writer.producer_id) or part.copier.identity
            event = Reconciled(goes_on, outcome.position, outcome.entries)
        for producer_id, met in outcome.foreign.items():
            self._say_foreign(part, producer_id, met)
        part.tell(event)

    def _say_repeated(self, part: CopiedPartition, producer_id: int, met: ForeignRecords) -> None:
        """Report records of ours at offsets where none were expected; stop if the flow must be exactly-once."""
        self.repeated.add(part.target_topic)
        text = (
            f"mm2py (producer {producer_id}) wrote {met.records} records to {part.target_topic}-{part.partition}, at"
            f" offsets {met.first_offset} to {met.last_offset}, without getting an answer: they may be there twice, and"
            " none is left out"
        )
        self._say_unexpected(part, GapKind.REPEATED, text)

    def _say_foreign(self, part: CopiedPartition, producer_id: int, met: ForeignRecords) -> None:
        """Report once for each partition that others write there; stop if the flow must be exactly-once."""
        if part.key in self._foreign_said or self._is_mixed:
            return
        self._foreign_said.add(part.key)
        self.foreign.add(part.target_topic)
        text = (
            f"producer {producer_id} has written {met.records} records to {part.target_topic}-{part.partition}, at"
            f" offsets {met.first_offset} to {met.last_offset}; let only mm2py write there"
        )
        text += (
            f", or set {self._flow.target}.exactly.once.source.support=disabled"
            if self._exactly_once
            else ". Copied records stay in order, once each, with those between them"
        )
        self._say_unexpected(part, GapKind.FOREIGN, text)

    def _say_unexpected(self, part: CopiedPartition, kind: GapKind, text: str) -> None:
        if self._exactly_once:
            part.tell(UnexpectedMet(text, kind))
        else:
            at = part.copier.position.source_offset
            self._met_gap(part, GapFound(kind, None, None, Done.CONTINUED, text, at))


def rounds_of(
    displaced: Iterable[tuple[CopiedPartition, Displaced]],
) -> Iterable[Mapping[CopiedPartition, Displaced]]:
    """Divide stretches into rounds that contain each partition once, as a read takes one stretch of a partition."""
    rounds: list[dict[CopiedPartition, Displaced]] = []
    for part, effect in displaced:
        fitting = next((one for one in rounds if part not in one), None)
        if fitting is None:
            rounds.append({part: effect})
        else:
            fitting[part] = effect
    return rounds
