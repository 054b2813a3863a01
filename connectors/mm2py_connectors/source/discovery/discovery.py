"""Which topics a flow copies. Each round starts new topics and stops topics that were deleted or created again.

Counterpart: refreshTopicPartitions of MirrorSourceConnector in Apache Kafka's Connect, mirror. MM2 reconfigures all its
tasks when a topic comes or goes, and only warns about topics that it cannot create. Here the other topics are copied
without a pause. A topic that must not be copied is refused with a remedy, and checked again from time to time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from mm2py.config.settings import FlowSettings
from mm2py.copying.states import Stopped
from mm2py.errors import Mm2Error
from mm2py.kafka.cluster import ClusterMetadata, TopicMetadata, fetch_metadata
from mm2py.kafka.port import TopicPartition
from mm2py.records.control_record import TopicClaim
from mm2py.records.gap_record import Done, GapKind
from mm2py.records.source_offset import StoredPosition
from mm2py.records.standstill import Cause
from mm2py.status.not_copied import FoundReason, Reason
from mm2py.topics.filters import PatternTooSlow, WhyNot
from mm2py_connectors.source.assigned_partitions import AssignedPositions
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.discovery import remote_topics
from mm2py_connectors.source.discovery.missing_topics import HIDDEN_WHY, MissingTopics
from mm2py_connectors.source.discovery.remote_topics import Vanished, gone_while_down, say_gone
from mm2py_connectors.source.discovery.rings import Rings
from mm2py_connectors.source.discovery.starting_offsets import Pair, StartingOffsets
from mm2py_connectors.source.gap_keeper import GapKeeper, positions_of
from mm2py_connectors.source.notices import RefusedConfigs, RefusedTopics
from mm2py_connectors.source.recovery.reconciliation import RestartState
from mm2py_connectors.source.refusals import (
    Recreated,
    RemoteNameChanged,
    RemoteNameIllegal,
    SeveralFlows,
    SeveralTopics,
    TopicRefused,
    Undecided,
    refuse_another_source,
)
from mm2py_connectors.source.task.source_task import SourceTask

LOOK_AGAIN_MOST_S: Final = 30.0
"""The longest pause before refused topics are checked again: an operator may have acted."""
INCOMPLETE_AGAIN_S: Final = 0.25
"""How soon the next round comes while a new topic has no leader yet."""
INCOMPLETE_REPORT_S: Final = 5.0
"""How long topics may wait for their leaders before that is logged."""
UNLISTED_AFTER_S: Final = 60.0
"""How long the partitions of a topic that is not copied any more stay assigned in the group."""


def look_again_s(settings: FlowSettings) -> float:
    """Return the pause before refused topics and remote topics are checked again, in seconds."""
    return min(LOOK_AGAIN_MOST_S, settings.refresh_topics_interval_s or LOOK_AGAIN_MOST_S)


class Discovery:
    """The rounds of discovery. The connector's watch calls ``look`` with fresh metadata of the source."""

    def __init__(
        self,
        context: FlowContext,
        source_id: str | None,
        target_id: str | None,
        task: SourceTask,
        starting_offsets: StartingOffsets,
        *,
        gaps: GapKeeper,
        restart_state: RestartState,
        assigned_positions: AssignedPositions,
    ) -> None:
        self.made = asyncio.Event()
        """Set after the first round, when all partitions that could start have started."""
        self.refused_configs = RefusedConfigs(context.view)
        self._context = context
        self._flow = context.flow
        self._source_id = source_id
        self._task = task
        self._starting_offsets = starting_offsets
        self._gaps = gaps
        self._restart_state = restart_state
        self._ownership = context.ownership
        self._assigned_positions = assigned_positions
        self._refused = RefusedTopics(context.log, context.clock)
        self._clock = context.clock
        self._log = context.log
        self._missing = MissingTopics(context)
        self.rings = Rings(
            context.view,
            target_id,
            starting_offsets.positions,
            listed=lambda: self._ownership.listed,
            is_coordinator=lambda: self._ownership.is_coordinator,
        )
        self._passed_over: set[str] = set()
        """Topics that the source showed in the last round, and that must not be copied."""
        self._shown: set[str] = set()
        """Topics that the source showed in the last round."""
        self._holds_at = 0
        """How often the holds (``AttemptState.holds``) had changed when the topics were selected."""
        self._held: dict[str, str] = {}
        """Topics that are left to backfills, each with the id of its backfill."""
        self._look_again_at_s = 0.0
        self._vanished = Vanished()
        self._known_defaults: remote_topics.KnownDefaults = {}
        self._incomplete_since_s: float | None = None
        self._incomplete_said = False
        self._unseen_since_s: dict[str, float] = {}
        """On the flow coordinator: since when listed topics must not be copied any more."""

    async def look(self, metadata: ClusterMetadata) -> int:
        """Start what is new, stop what is gone. Returns how many partitions wait for a leader or a remote topic.

        Raises: FlowRefused, if the group copies the flow from another cluster.
        """
        self._refuse_another_source()
        wanted = self._select(metadata)
        self._shown = set(metadata.topics)
        refused = await self._leave_out_rings(metadata, wanted)
        self._refused.keep([name for name in metadata.topics if name not in self._passed_over or name in refused])
        self._refused.note(refused)
        copied = {name for name, _ in self._starting_offsets.positions}
        await self._missing.look(metadata, copied | self._ownership.listed.keys())
        await self._drop_vanished(metadata)
        await self._drop_passed_over()
        self._say_once_at_start(wanted, metadata)
        try:
            missing = await self._start_new(wanted)
        except Mm2Error:
            self.look_again()  # refused topics were not looked at
            raise
        await self._unlist(wanted)
        self.made.set()
        return missing

    def refused(self) -> dict[str, str]:
        """Return the topics that are not copied, or not completely, and why."""
        return self._refused.shown()

    def causes(self) -> Iterator[tuple[str, Cause]]:
        """Yield each topic that is refused, left out, or not shown by the source, with the reason."""
        refused = self._refused.causes()
        yield from refused.items()
        if self._ownership.is_coordinator:
            yield from ((name, cause) for name, cause in self._missing.causes().items() if name not in refused)
            yield from self.rings.causes()

    @property
    def held(self) -> int:
        """How many topics wait for a backfill. They are not refused: no operator has to do anything."""
        return len(self._held)

    def leaves_out(self, topic: str) -> bool:
        """Whether a topic is refused, waits for a backfill, is not selected any more, or is not shown by the source."""
        return topic in self._passed_over or topic in self._refused or topic not in self._shown

    @property
    def held_topics(self) -> Collection[str]:
        """The topics that wait for a backfill."""
        return self._held

    def why_not_started(self, topic: str) -> FoundReason:
        """Return why a topic that this worker has is not copied by it, if nothing else is known."""
        if topic in self._held:
            return FoundReason(Reason.BACKFILL, "the workers do not copy it until a backfill has copied its history")
        if topic not in self._shown and topic not in self._passed_over:
            return FoundReason(Reason.GONE, f"{self._flow.source} does not show it any more")
        return FoundReason(Reason.STARTING, "its worker does not copy it yet, or not any more")

    def look_again(self) -> None:
        """Look at refused topics in the next round: their obstacle may be gone."""
        self._look_again_at_s = 0.0

    def pause_after(self, missing: int, interval_s: float | None) -> float | None:
        """Return the pause before the next round in seconds: short at first, then longer, while partitions cannot
        start."""
        now_s = self._clock.monotonic()
        if not missing:
            if self._incomplete_said:
                self._log.info("partitions.started")
            self._incomplete_since_s, self._incomplete_said = None, False
            return interval_s
        if self._incomplete_since_s is None:
            self._incomplete_since_s = now_s
        waited_s = now_s - self._incomplete_since_s
        if waited_s >= INCOMPLETE_REPORT_S and not self._incomplete_said:
            self._incomplete_said = True
            self._log.warning(
                "partitions.not_started",
                partitions=missing,
                why="they, or partitions of their remote topics, are not there yet or have no leader. The others are"
                " copied.",
                remedy="Look whether each has a leader, on both clusters; it is looked for again and again.",
            )
        return max(INCOMPLETE_AGAIN_S, min(waited_s, interval_s or LOOK_AGAIN_MOST_S))

    async def end(self, kind: GapKind, name: str, why: str) -> None:
        """Stop copying a topic that was deleted or created again, on either side; its copy is kept."""
        await self._stop_copying({name})
        self._meet_gap(kind, name, why)

    # Start

    def _select(self, metadata: ClusterMetadata) -> dict[str, TopicMetadata]:
        holds, self._holds_at = self._context.state.holds.topics, self._context.state.holds_changed
        found = select(self._context.settings, metadata, holds)
        self._passed_over = {*found.left_out, *found.held}
        for name, error in found.undecided.items():
            self._refused.note({name: error})
        self._note_held(found.held)
        return found.wanted

    async def _leave_out_rings(
        self, metadata: ClusterMetadata, wanted: dict[str, TopicMetadata]
    ) -> dict[str, TopicRefused]:
        """Leave out topics that came, or may have come, from the target. Return those that this worker refuses."""
        await self.rings.look(metadata, wanted, again=self._clock.monotonic() >= self._look_again_at_s)
        for name in {*self.rings.copies, *self.rings.refused} & wanted.keys():
            del wanted[name]
            self._passed_over.add(name)
        mine = {name for name, _ in self._ownership.mine()}
        is_coordinator = self._ownership.is_coordinator
        return {name: error for name, error in self.rings.refused.items() if is_coordinator or name in mine}

    def _note_held(self, held: dict[str, str]) -> None:
        new = held.keys() - self._held.keys()
        self._assigned_positions.release([key for key in self._ownership.mine() if key[0] in new])  # read again later
        for name in sorted(new):
            self._log.info("topic.held", topic=name, why=f"it waits for backfill {held[name]}")
        self._held = held

    async def _start_new(self, wanted: Mapping[str, TopicMetadata]) -> int:
        settled = self._settled_refusals()
        if not settled:
            self._forget_refusals(wanted)
        fresh = {
            name: topic
            for name, topic in wanted.items()
            if (
                self._fits(name, topic)
                if name in settled
                else name in self._refused or self._still_missing(name, topic)
            )
        }
        if not fresh:
            return self._not_seen(wanted)
        refused: dict[str, TopicRefused] = {}
        copied = {name for name, _ in self._starting_offsets.positions}
        checked = check_names(self._context.settings, fresh, self._taken, refused, copied)
        changed = names_changed(self._context.settings, self._starting_offsets.positions)
        for name in changed.keys() & checked.keys() - self._context.allow_recopy:
            refused[name] = changed[name]
            del checked[name]
        if checked:
            await self._start(checked, refused)
        self._refused.note(refused, fresh)
        return self._not_seen(wanted) + sum(
            self._still_missing(name, topic) for name, topic in fresh.items() if name not in self._refused
        )

    def _forget_refusals(self, wanted: Iterable[str]) -> None:
        """Forget refusals of topics of which this worker has no partition any more: the workers that own some report
        them."""
        if self._refused.names() and not self._ownership.is_coordinator:
            mine = {name for name, _ in self._ownership.mine()}
            self._refused.forget(name for name in wanted if name not in mine)

    def _still_missing(self, name: str, topic: TopicMetadata) -> int:
        """Return how many partitions of a topic must still start, or be listed once its remote topic exists."""
        return len(topic.partitions) if self._is_to_be_listed(name, topic) else len(self._not_started(name, topic))

    def _not_started(self, name: str, topic: TopicMetadata) -> list[TopicPartition]:
        keys = [(name, number) for number in topic.partitions]
        return [key for key in keys if key not in self._task.partitions and self._ownership.may_copy(key)]

    def _fits(self, name: str, topic: TopicMetadata) -> bool:
        """Return whether any partition of a refused topic fits into its remote topic, which has too few partitions.

        The story: the flow coordinator refuses the topic in its first round, and is assigned partitions only
        afterwards.
        """
        return any(number < self._refused.width(name) for _, number in self._not_started(name, topic))

    def _is_to_be_listed(self, name: str, topic: TopicMetadata) -> bool:
        group = self._ownership
        if not group.is_coordinator:
            return False
        return group.listed.get(name, 0) < len(topic.partitions) or group.claim(name) != self._claim_on(name)

    def _not_seen(self, wanted: Mapping[str, TopicMetadata]) -> int:
        """Return how many partitions are assigned to this worker whose topics its broker does not show yet."""
        seen = wanted.keys() | self._passed_over
        return sum(name not in seen and name not in self._refused for name, _ in self._ownership.mine())

    def _settled_refusals(self) -> set[str]:
        """Return the refused topics that need no check in this round."""
        now_s = self._clock.monotonic()
        if now_s < self._look_again_at_s:
            return self._refused.names()
        self._look_again_at_s = now_s + look_again_s(self._context.settings)
        return set()

    async def _start(
        self,
        topics: Mapping[str, tuple[str, TopicMetadata]],
        refused: dict[str, TopicRefused],
    ) -> None:
        context = self._context
        known = (self._task.partitions, self._starting_offsets.positions)
        others = {key for keys in known for key in keys if key[0] not in topics}
        found = await remote_topics.ensure(
            context.settings,
            context.source.brokers,
            context.target.brokers,
            topics,
            known=self._known_defaults,
            partitions_elsewhere=len(others),
        )
        refused |= found.refused
        self._say_created(found)
        pairs = {name: (upstream, found.ready[name]) for name, (_, upstream) in topics.items() if name in found.ready}
        await self._list(pairs, refused, created=found.created)
        async with self._task.settling:
            refused |= await self._start_pairs({name: pair for name, pair in pairs.items() if name not in refused})
        refused |= {name: error for name, error in found.too_narrow.items() if name not in refused}

    async def _list(
        self, pairs: Mapping[str, Pair], refused: dict[str, TopicRefused], *, created: Collection[str]
    ) -> None:
        """List partitions of topics whose remote topics exist, so that the group assigns them.

        If the flow has no position of such a remote topic, all its partitions must be empty. Remote topics that this
        worker has just ``created`` are empty; their leaders are not asked, as they may not know them yet.

        The story: another flow is switched off, and retention has emptied half of its copy. Each worker checks only its
        own partitions. So one of two workers would copy into the empty half, and the other one would refuse the topic.
        """
        new = {name: upstream for name, (upstream, _) in pairs.items() if self._is_to_be_listed(name, upstream)}
        if not new:
            return
        stored = await self._assigned_positions.positions_of(new)
        unknown = {
            name: pairs[name]
            for name in new
            if name not in created and not _speaks_of(pairs[name][1], stored[name].values())
        }
        without = {(name, number): pair for name, pair in unknown.items() for number in pair[1].partitions}
        bare = without.keys() - await self._starting_offsets.committed_by_group(without, refused)
        self._starting_offsets.refuse_unplaced(bare, refused)
        undecided = await self._starting_offsets.refuse_filled(bare, without, refused)
        # If another flow was listed meanwhile, the records are its own: the refusal has to name that flow.
        refused |= {name: taken for name in new if (taken := self._taken(name)) is not None}
        waiting = {name for name, _ in undecided}
        new = {name: topic for name, topic in new.items() if name not in refused and name not in waiting}
        if new:
            widths = {name: self._starting_offsets.width_at_first(topic, stored[name]) for name, topic in new.items()}
            listed = self._ownership.listed  # has more if this metadata is older: then only the claim is new
            partitions = {name: max(len(topic.partitions), listed.get(name, 0)) for name, topic in new.items()}
            claims = {name: self._claim_on(name) for name in new}
            await self._ownership.list_partitions(partitions, widths, claims, source_cluster=self._source_id)

    async def _start_pairs(self, pairs: Mapping[str, Pair]) -> Mapping[str, TopicRefused]:
        ours = {
            name: pair for name, pair in pairs.items() if self._not_started(name, pair[0]) and self._claims_same(name)
        }
        if not ours:
            return {}
        self._refuse_another_source()  # the source cluster may have become known with the list
        await self._assigned_positions.receive(
            [key for name, pair in ours.items() for key in self._not_started(name, pair[0])]
        )
        started = await self._starting_offsets.start(
            ours, self._task.partitions, await self._restart_state.identity_for(ours)
        )
        if self._context.state.holds_changed != self._holds_at:
            # A backfill has begun or ended meanwhile, or both: the positions may be other ones. Behind this nothing is
            # awaited until the first positions are on their way.
            self._assigned_positions.release(
                [key for name, pair in ours.items() for key in self._not_started(name, pair[0])]
            )
            self.look_again()
            return {}
        self._restart_state.started(started.partitions)
        self._gaps.started(started.partitions, self._starting_offsets)
        self._task.add(
            started.partitions,
            [job for job in started.jobs if not isinstance(job.part.copier.state, Stopped)],
            [part for part in started.behind_mm2 if not isinstance(part.copier.state, Stopped)],
        )
        if started.partitions:
            names = sorted({part.source_topic for part in started.partitions})
            self._task.learn_source(await fetch_metadata(self._context.source.brokers, names, channel="watch"))
            self._log.info(
                "topics.copying",
                topics=len(names),
                partitions=len(started.partitions),
                resumed=started.resumed,
                first=names[0],
            )
        return started.refused

    def _refuse_another_source(self) -> None:
        there = self._ownership.source_cluster
        refuse_another_source(self._flow, self._context.settings.group, here=self._source_id, there=there)

    def _remote(self, topic: str) -> str:
        return self._context.settings.remote_topic(topic)

    def _taken(self, topic: str) -> TopicRefused | None:
        """Return why a topic must not be copied, if its remote topic was listed before for another flow, or for another
        topic of this flow."""
        claim = self._claim_on(topic)
        if others := self._ownership.conflicting_flows(topic, claim):
            return SeveralFlows(self._flow, topic, self._remote(topic), others)
        remote = self._remote(topic)
        held = self._held if self._context.settings.policy.renames else {}
        other = self._ownership.conflicting_topic(topic, claim) or next(
            (name for name in held if self._remote(name) == remote), None
        )
        return None if other is None else SeveralTopics(self._flow, topic, remote, other)

    def _claims_same(self, topic: str) -> bool:
        """Whether the group copies a topic to the same remote topic as this worker."""
        group = self._ownership
        return topic in group.listed and group.claim(topic) == self._claim_on(topic)

    def _claim_on(self, topic: str) -> TopicClaim:
        return TopicClaim.of(topic, self._remote(topic), mixes=self._context.settings.many_to_one)

    # Stop

    async def _drop_vanished(self, metadata: ClusterMetadata) -> None:
        """Stop copying topics that were deleted or created again upstream; the remote topic is kept."""
        vanished = self._vanished.look(self._task.partitions.values(), metadata.topics)
        for name, made_anew in vanished.items():
            kind = GapKind.DELETED if made_anew is None else GapKind.RECREATED
            gone = HIDDEN_WHY if self._missing.is_hidden(name) else "it was deleted, or mm2py may not see it any more"
            await self.end(kind, name, made_anew or gone)
        gone_names = [name for name, made_anew in vanished.items() if made_anew is None]
        say_gone([name for name in gone_names if not self._missing.is_hidden(name)], self._log)

    async def _drop_passed_over(self) -> None:
        """Stop copying topics that are not selected any more. If they are selected again, they continue where they
        stopped."""
        names = sorted({name for name, _ in self._task.partitions} & self._passed_over)
        if names:
            async with self._task.settling:
                await self._stop_copying(self._passed_over)
            self._log.info(
                "topics.deselected", topics=len(names), first=names[0], why="they are not to be copied any more"
            )

    async def _stop_copying(self, names: Collection[str]) -> None:
        parts = [part for key, part in self._task.partitions.items() if key[0] in names]
        self._restart_state.add(parts)
        await self._task.remove([part.key for part in parts])
        stood = {part.key: self._task.positions.form(part) for part in parts if part.copier.owns_position}
        self._starting_offsets.positions.update(stood)

    def _meet_gap(self, kind: GapKind, name: str, why: str) -> None:
        """Refuse a topic that was deleted or created again, unless policy lets it start again in the next round."""
        done = self._context.gap_policy(kind)
        if done in {Done.STOPPED, Done.KEPT}:
            self._gaps.met_topic(kind, name, self._positions_of(name), why)
        if done is Done.STOPPED:
            self._refused.note({name: Recreated(self._flow, name, self._context.settings.remote_topic(name), why)})

    def _positions_of(self, name: str) -> dict[int, StoredPosition]:
        found = positions_of(name, self._starting_offsets)
        return {number: at for number, at in found.items() if self._ownership.speaks_for((name, number))}

    async def _unlist(self, wanted: Collection[str]) -> None:
        """As the flow coordinator, unlist topics that have been gone for ``UNLISTED_AFTER_S``: by then every worker has
        seen that, and has reported its partitions."""
        listed = self._ownership.listed if self._ownership.is_coordinator else {}
        now_s = self._clock.monotonic()
        gone = [name for name in listed if name not in wanted]
        self._unseen_since_s = {name: self._unseen_since_s.get(name, now_s) for name in gone}
        ended = {name: 0 for name, since_s in self._unseen_since_s.items() if now_s - since_s >= UNLISTED_AFTER_S}
        if ended:
            await self._ownership.list_partitions(ended, {}, {})

    # Log

    def _say_once_at_start(self, wanted: Collection[str], metadata: ClusterMetadata) -> None:
        """Log topics that ``--allow-recopy`` names by mistake, and topics that were deleted while mm2py was down."""
        if self.made.is_set():
            return
        for name in sorted(self._context.allow_recopy - set(wanted)):
            self._log.warning(
                "recopy.unused", topic=name, why=f"--allow-recopy names it, and {self._flow} copies no such topic."
            )
        gone = gone_while_down(self._starting_offsets.positions, metadata.topics)
        for name in gone:
            self._gaps.met_topic(GapKind.DELETED, name, self._positions_of(name), "it was deleted while mm2py was down")
        if gone:
            self._log.info(
                "topics.gone",
                topics=len(gone),
                first=gone[0],
                why=f"they were copied once, and {self._flow.source} shows them no more",
                effect="their remote topics and positions are kept",
            )

    def _say_created(self, found: remote_topics.RemoteTopics) -> None:
        for one in found.left_out:
            self.refused_configs.note(one.remote, one.setting, one.value, one.why)
        self.refused_configs.end()
        if found.created:
            self._log.info("remote_topics.created", topics=len(found.created), first=self._remote(found.created[0]))
        if found.widened:
            self._log.info("remote_topics.widened", topics=len(found.widened), first=self._remote(found.widened[0]))


@dataclass(slots=True)
class Selection:
    """What a flow's settings decide about the topics of its source."""

    wanted: dict[str, TopicMetadata] = field(default_factory=dict)
    left_out: dict[str, WhyNot] = field(default_factory=dict)
    """Topics that must not be copied, and the rule that says so."""
    held: dict[str, str] = field(default_factory=dict)
    """Topics that are left to backfills, each with the id of its backfill."""
    undecided: dict[str, TopicRefused] = field(default_factory=dict)


def select(settings: FlowSettings, metadata: ClusterMetadata, holds: Mapping[str, str]) -> Selection:
    """Decide about each topic that the source shows, except for internal ones and those that it shows with an error.

    Args:
        holds: topics that are left to backfills, each with the id of its backfill.
    """
    found = Selection()
    for name, topic in metadata.topics.items():
        if topic.is_internal or topic.error_code or not topic.partitions:
            continue
        try:
            why_not = settings.decision(name).why_not
            if why_not is None:
                settings.chain_of(name)  # a topic waits alone for a predicate that finds no answer
        except PatternTooSlow as error:
            found.undecided[name] = Undecided(settings.flow, name, error)
            continue
        if why_not is not None:
            found.left_out[name] = why_not
        elif name in holds:
            found.held[name] = holds[name]
        else:
            found.wanted[name] = topic
    return found


def check_names(
    settings: FlowSettings,
    topics: Mapping[str, TopicMetadata],
    taken: Callable[[str], TopicRefused | None],
    refused: dict[str, TopicRefused],
    copied: Collection[str],
) -> dict[str, tuple[str, TopicMetadata]]:
    """Return the topics whose remote names are legal and free, with those names; add the others to ``refused``.

    Args:
        taken: returns why another flow, or another topic, has the remote topic of a topic; None: none has.
        copied: topics that have positions. Of two topics with one remote name they come first, then names in order.
    """
    checked: dict[str, tuple[str, TopicMetadata]] = {}
    into: dict[str, str] = {}
    for name in sorted(topics, key=lambda one: (one not in copied, one)) if settings.policy.renames else topics:
        remote = settings.remote_topic(name)
        problem = settings.remote_problem(name)
        if problem is not None:
            refused[name] = RemoteNameIllegal(settings.flow, name, remote, problem)
        elif (error := taken(name)) is not None:
            refused[name] = error
        elif (other := into.setdefault(remote, name)) != name:
            refused[name] = SeveralTopics(settings.flow, name, remote, other)
        else:
            checked[name] = (remote, topics[name])
    return checked


def names_changed(
    settings: FlowSettings, positions: Mapping[TopicPartition, StoredPosition]
) -> dict[str, RemoteNameChanged]:
    """Return the topics whose copy has another name than ``topics.rename`` gives it now, each with its refusal."""
    found: dict[str, RemoteNameChanged] = {}
    for (name, _), at in positions.items():
        if name not in found and (before := settings.old_remote(name, at)) is not None:
            found[name] = RemoteNameChanged(settings.flow, name, before, settings.remote_topic(name))
    return found


def _speaks_of(remote: TopicMetadata, positions: Iterable[StoredPosition]) -> bool:
    """Return whether any position belongs to this remote topic, and not to an earlier one or one of another name.

    A position without a topic id counts: old brokers have none, and MirrorMaker 2 stores none.
    """
    return any(remote.topic_id is None or at.target_topic_id in {None, remote.topic_id} for at in positions)
