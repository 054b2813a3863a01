"""Decides where partitions start: at their position, or at the start of the log where that is safe or allowed.

MirrorMaker 2 starts at the earliest record whenever it finds no offset, and uses any offset that it finds, even one
that was stored for another topic. Here a position must fit its topics. Without a position the remote partition must be
empty, unless the operator allows a second copy (``--allow-recopy``). ``operators_starts.py`` stores the positions that
operators and policies set.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mm2py.copying.copied_partition import CopiedPartition, Leaders, LedgerPlace, Shell
from mm2py.copying.copier import FENCING, Copier
from mm2py.copying.events import TargetLed
from mm2py.copying.planning.steps import DigestTally, TargetRules
from mm2py.copying.positions import Position
from mm2py.copying.recovery import LastWriter
from mm2py.flow import Flow
from mm2py.kafka import admin
from mm2py.kafka.cluster import TopicMetadata
from mm2py.kafka.list_offsets import EARLIEST, LATEST, find_bounds, find_offsets
from mm2py.kafka.port import Brokers, ProducerIdentity, TopicPartition
from mm2py.records.gap_record import Done, GapKind
from mm2py.records.source_offset import BY_OPERATOR, StoredPosition
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.discovery.group_starts import committed_starts
from mm2py_connectors.source.discovery.operators_starts import OperatorsStart, OperatorsStarts
from mm2py_connectors.source.discovery.remote_topics import RemoteRules, fewer
from mm2py_connectors.source.recovery.preparation import Prepared
from mm2py_connectors.source.recovery.reconciler import ReconcileJob
from mm2py_connectors.source.recovery.reconciliation import RestartState
from mm2py_connectors.source.refusals import (
    NoPosition,
    Recreated,
    RenamedCopyMissing,
    TargetNotEmpty,
    TopicRefused,
)
from mm2py_connectors.source.resume_from_mm2 import SEARCHING

Pair = tuple[TopicMetadata, TopicMetadata]
"""The upstream topic and its remote topic."""


@dataclass(frozen=True, slots=True)
class Started:
    """The partitions that a round starts, with their copiers, and the topics that it refuses."""

    partitions: Sequence[CopiedPartition]
    jobs: Sequence[ReconcileJob]
    """Partitions to which a previous incarnation of the flow may have written after the position."""
    behind_mm2: Sequence[CopiedPartition]
    """Partitions to which MirrorMaker 2 may have written after the position."""
    resumed: int
    """How many partitions continue at a stored position."""
    refused: Mapping[str, TopicRefused]


class StartingOffsets:
    """Decides where each new partition of a flow starts. ``positions`` are the stored ones, by source partition."""

    def __init__(
        self,
        context: FlowContext,
        prepared: Prepared,
        restart_state: RestartState,
        *,
        shell: Shell,
        store: Callable[[Mapping[TopicPartition, StoredPosition]], Awaitable[None]],
        met_gap: Callable[[GapKind, str, Mapping[int, StoredPosition], str], Done],
    ) -> None:
        """Make one.

        Args:
            shell: the shell of the partitions that are made here.
            store: stores positions (``PositionKeeper.store``).
            met_gap: is called for a topic that was deleted or created again; returns what to do
                (``GapKeeper.met_topic``).
        """
        self.positions = prepared.positions
        self._context = context
        self._flow = context.flow
        self._source = context.source.brokers
        self._target = context.target.brokers
        self._source_id = prepared.source_id
        self._previous = prepared.previous
        self.operators = OperatorsStarts(context, prepared, store=store)
        self._restart_state = restart_state
        self._ownership = context.ownership
        self._met_gap = met_gap
        self._shell = shell
        self._wished: set[TopicPartition] = set()
        """Partitions that policies copy again from their start, until that start is stored."""
        self._reset: set[TopicPartition] = set()
        """Partitions whose positions an operator has deleted, until their start is stored."""
        self._recopied: set[TopicPartition] = set()
        """Partitions for which ``--allow-recopy`` was used: it works once for each."""
        self._width_at_first: dict[str, int] = {}
        """How many partitions a topic had when it was first copied. Later ones are copied from their start."""
        self._log = context.log
        self._rules = RemoteRules(context)

    async def start(
        self, pairs: Mapping[str, Pair], running: Mapping[TopicPartition, object], identity: ProducerIdentity
    ) -> Started:
        """Return the partitions of ``pairs`` (by source topic) that may be copied and are not ``running`` yet.

        Partitions without a leader are left out; a later round starts them.
        """
        refused: dict[str, TopicRefused] = {}
        new = self._new_partitions(pairs, running, refused)
        await self._drop_cut_back({key: pair for key, pair in new.items() if self._recopies(key)})
        self._say_unused_recopies(new)
        await self._refuse_missing_copies(new, refused)
        new = {key: pair for key, pair in new.items() if key[0] not in refused}
        startable, starts = await self._find_starts(new, refused)
        startable, ends = await self._find_ends(startable)
        rules = await self._rules.of({remote.name: upstream.name for upstream, remote in startable.values()})
        copied = [
            self._copied_partition(key, pair, (starts.get(key), ends.get(key)), rules[pair[1].name], identity)
            for key, pair in startable.items()
        ]
        behind_mm2 = [part for part in copied if self._is_behind_mm2(part.key)]
        jobs = [self._job(part) for part in copied if self._is_continued(part.key)]
        return Started(copied, jobs, behind_mm2, len(copied) - len(starts), refused)

    def _new_partitions(
        self,
        pairs: Mapping[str, Pair],
        running: Mapping[TopicPartition, object],
        refused: dict[str, TopicRefused],
    ) -> dict[TopicPartition, Pair]:
        """Return the partitions of this worker that are not copied yet; topics that are refused go to ``refused``."""
        stored: dict[str, dict[int, StoredPosition]] = {}
        for (name, number), position in self.positions.items():
            stored.setdefault(name, {})[number] = position
        for upstream, remote in pairs.values():
            own = stored.get(upstream.name, {})
            self._width_at_first.setdefault(upstream.name, self.width_at_first(upstream, own))
            self._refuse_recreated(upstream, remote, own, refused)
        return {
            (name, number): (upstream, remote)
            for name, (upstream, remote) in pairs.items()
            for number in upstream.partitions
            if number in remote.partitions
            and (name, number) not in running
            and name not in refused
            and self._ownership.may_copy((name, number))
        }

    async def _find_starts(
        self, new: Mapping[TopicPartition, Pair], refused: dict[str, TopicRefused]
    ) -> tuple[dict[TopicPartition, Pair], dict[TopicPartition, int]]:
        """Return the partitions whose start is known, and the source offsets of those that have no position."""
        without = {key: pair for key, pair in new.items() if key not in self.positions}
        committed = await self.committed_by_group(without, refused)
        undecided = await self.refuse_filled(without.keys() - committed.keys(), without, refused)
        without = {key: pair for key, pair in without.items() if key[0] not in refused and key not in undecided}
        starts = await self._start_offsets(without, committed, refused)
        unproven = await self._record_recopies({key: at for key, at in starts.items() if self._recopies(key)}, new)
        starts = {key: at for key, at in starts.items() if key not in unproven}
        known = {
            key: pair for key, pair in new.items() if key[0] not in refused and (key in self.positions or key in starts)
        }
        return known, starts

    async def _find_ends(
        self, partitions: Mapping[TopicPartition, Pair]
    ) -> tuple[dict[TopicPartition, Pair], dict[TopicPartition, int]]:
        """Fence earlier producers. Return the partitions that may start, and the ends of their remote partitions.

        Partitions that must be looked up are fenced and read by the look-up, so they need no end here.
        """
        fresh = {key: pair for key, pair in partitions.items() if not self._is_looked_up(key)}
        remotes = {key: remote for key, (_, remote) in fresh.items()}
        unproven = await self._restart_state.fence_own(remotes)
        open_ = [key for key in remotes if key in self.positions and self.positions[key].leaves_producer_open]
        unproven |= await self._previous.fence_in_partitions({key: remotes[key] for key in open_})
        ends = await self._target_ends({key: pair for key, pair in fresh.items() if key not in unproven})
        return {key: pair for key, pair in partitions.items() if key in ends or key not in fresh}, ends

    def width_at_first(self, upstream: TopicMetadata, stored: Mapping[int, StoredPosition]) -> int:
        """Return how many partitions a topic had when it was first copied.

        The story: with ``auto.offset.reset=latest`` the partitions of a new topic go to two workers. The second one
        finds positions that the first one has just stored, and would treat its own partitions as added later. So
        all workers use the number that the flow coordinator has listed.
        """
        said = self._ownership.width(upstream.name)
        return _known_width(stored, len(upstream.partitions)) if said is None else said

    def _has_grown_by(self, key: TopicPartition) -> bool:
        """Return whether a partition was added after its topic was first copied."""
        return key[1] >= self._width_at_first.get(key[0], 0)

    def _is_continued(self, key: TopicPartition) -> bool:
        """Return whether a partition continues after a previous incarnation, and not at an operator's position."""
        stored = self.positions.get(key)
        if stored is None or stored.by == BY_OPERATOR:
            return False
        return None not in {stored.producer_id, stored.producer_epoch, stored.next_sequence, stored.next_target}

    def assign(self, key: TopicPartition, stored: StoredPosition | None) -> None:
        """Note the stored position of a partition that is now assigned to this worker."""
        self._reset.discard(key)
        if stored is not None and not stored.recopy:
            self.positions[key] = stored
            return
        self.positions.pop(key, None)
        if stored is not None:
            self._reset.add(key)

    def _is_behind_mm2(self, key: TopicPartition) -> bool:
        """Return whether a partition continues after MirrorMaker 2, in a remote topic of this flow only: MirrorMaker
        2's records cannot be found among those of other flows."""
        stored = self.positions.get(key)
        return stored is not None and stored.is_of_mm2 and not self._context.settings.many_to_one

    def _is_looked_up(self, key: TopicPartition) -> bool:
        return self._is_continued(key) or self._is_behind_mm2(key)

    def _job(self, part: CopiedPartition) -> ReconcileJob:
        stored = self.positions[part.key]
        writer = LastWriter(stored.producer_id or 0, stored.producer_epoch or 0, stored.next_sequence or 0)
        fence = self._previous.fence_of(stored)
        return ReconcileJob(
            part,
            part.copier.position,
            writer,
            fence,
            known_ids=self._previous.known_ids,
            transforms=stored.transforms,
        )

    async def _target_ends(self, partitions: Mapping[TopicPartition, Pair]) -> dict[TopicPartition, int]:
        """Return the ends of remote partitions: the first batch is expected there."""
        leaders = {(pair[1].name, key[1]): pair[1].partitions[key[1]].leader for key, pair in partitions.items()}
        ends = await find_offsets(self._target, leaders, LATEST)
        return {key: ends[at] for key, pair in partitions.items() if (at := (pair[1].name, key[1])) in ends}

    def _recopies(self, key: TopicPartition) -> bool:
        by_flag = key[0] in self._context.allow_recopy and key not in self._recopied
        return by_flag or key in self._wished or key in self._reset

    def _say_unused_recopies(self, new: Iterable[TopicPartition]) -> None:
        for name in sorted({key[0] for key in new if self._recopies(key) and key in self.positions}):
            self._log.warning(
                "recopy.unused",
                topic=name,
                why="--allow-recopy names it, and a position is stored that fits both topics: it goes on from there.",
            )

    async def _drop_cut_back(self, partitions: Mapping[TopicPartition, Pair]) -> None:
        """Forget the positions of these partitions if the source log now ends before them (``--allow-recopy``)."""
        for key, (upstream, _) in partitions.items():
            position, leader = self.positions.get(key), upstream.partitions[key[1]].leader
            if position is None or leader is None:
                continue
            epoch = position.source_leader_epoch
            if epoch is not None:
                ends = await admin.epoch_ends(self._source, leader, {key: epoch})
            else:
                ends = await find_offsets(self._source, {key: leader}, LATEST)
            if key in ends and ends[key] < position.next_source:
                del self.positions[key]

    async def _refuse_missing_copies(
        self, partitions: Mapping[TopicPartition, Pair], refused: dict[str, TopicRefused]
    ) -> None:
        """Refuse topics that MirrorMaker 2 has copied, and of which nothing is under the name that a rule gives them.

        The story: ``topics.rename`` is set when mm2py takes over. MirrorMaker 2's positions do not say which topic it
        wrote to, and the new remote topic would have only what comes now.
        """
        renamed = {
            (pair[1].name, key[1]): (key, pair[1].partitions[key[1]].leader)
            for key, pair in partitions.items()
            if self._is_behind_mm2(key) and self._context.settings.renamed(key[0]) is not None
        }
        bounds = await find_bounds(self._target, {at: leader for at, (_, leader) in renamed.items()}) if renamed else {}
        for at, (_, end) in sorted(bounds.items()):
            if end == 0:
                (name, number), _ = renamed[at]
                refused.setdefault(name, RenamedCopyMissing(self._flow, name, at[0], number))

    def _refuse_recreated(
        self,
        upstream: TopicMetadata,
        remote: TopicMetadata,
        stored: Mapping[int, StoredPosition],
        refused: dict[str, TopicRefused],
    ) -> None:
        """Refuse a topic whose stored positions are stale (``stale_positions``). Only partitions that this worker
        decides about are checked."""
        name = upstream.name
        stale = {
            (name, number): found
            for number, found in stale_positions(self._flow, upstream, remote, stored, self._source_id).items()
            if self._ownership.speaks_for((name, number))
        }
        if not stale:
            return
        for met in dict.fromkeys(stale.values()):
            numbers = [key[1] for key, found in stale.items() if found == met and not self._recopies(key)]
            at = {number: stored[number] for number in numbers}
            if at and self._met_gap(met[0], name, at, met[1]) is not Done.STOPPED:
                self._wished |= {(name, number) for number in numbers}
        if all(map(self._recopies, stale)):
            for key in stale:
                del self.positions[key]
        else:
            (_, number), (_, what) = next(iter(stale.items()))
            refused[name] = Recreated(self._flow, name, remote.name, what, partition=number)

    async def committed_by_group(
        self, partitions: Iterable[TopicPartition], refused: dict[str, TopicRefused]
    ) -> Mapping[TopicPartition, int]:
        """Return where partitions without positions start, as ``starting.offsets.group`` says. Others are left out."""
        group = self._context.settings.starting_offsets_group
        asked = [key for key in partitions if not self._recopies(key)]
        return await committed_starts(self._flow, self._source, group, asked, refused)

    async def refuse_filled(
        self,
        keys: Iterable[TopicPartition],
        partitions: Mapping[TopicPartition, Pair],
        refused: dict[str, TopicRefused],
    ) -> set[TopicPartition]:
        """Refuse topics without positions whose remote partitions are not empty, unless an operator allows it.

        Args:
            keys: those of ``partitions`` that are looked at.
        Returns:
            The partitions whose remote partition has no leader; a later round decides about them.
        """
        if self._context.settings.many_to_one:
            return set()
        asked = {
            (partitions[key][1].name, key[1]): (key[0], partitions[key][1]) for key in keys if not self._recopies(key)
        }
        filled, undecided = await find_filled(self._target, asked)
        for name, ends in filled.items():
            refused[name] = TargetNotEmpty(self._flow, name, self._remote_name(name), ends)
        return undecided

    def refuse_unplaced(self, partitions: Iterable[TopicPartition], refused: dict[str, TopicRefused]) -> bool:
        """Refuse partitions without positions if ``auto.offset.reset=none``. Returns whether that is set."""
        if self._context.settings.auto_offset_reset != "none":
            return False
        refused |= {key[0]: NoPosition(self._flow, key[0]) for key in partitions if not self._recopies(key)}
        return True

    async def _start_offsets(
        self,
        partitions: Mapping[TopicPartition, Pair],
        committed: Mapping[TopicPartition, int],
        refused: dict[str, TopicRefused],
    ) -> dict[TopicPartition, int]:
        """Return where to start partitions that have no position; ``committed``: see ``committed_by_group``.

        ``auto.offset.reset`` is about records from before the topic was copied. A partition that was added later has
        none: it is copied from its start, like a partition that is copied once more.
        """
        reset = self._context.settings.auto_offset_reset
        leaders = {key: pair[0].partitions[key[1]].leader for key, pair in partitions.items()}
        ranges = self._context.ranges
        given = {key: committed[key] for key in leaders if key in committed}
        given |= {key: ranges[key].first for key in leaders if key in ranges}
        leaders = {key: leader for key, leader in leaders.items() if key not in given}
        from_start = {key: leader for key, leader in leaders.items() if self._has_grown_by(key) or self._recopies(key)}
        others = {key: leader for key, leader in leaders.items() if key not in from_start}
        if self.refuse_unplaced(others, refused):
            others = {}
        when = LATEST if reset == "latest" else EARLIEST
        starts = await find_offsets(self._source, from_start, EARLIEST)
        return given | starts | await find_offsets(self._source, others, when)

    async def _record_recopies(
        self,
        starts: Mapping[TopicPartition, int],
        pairs: Mapping[TopicPartition, Pair],
    ) -> set[TopicPartition]:
        """Store the start of a second copy as an operator's position, so that its cause has no second effect.

        Returns the partitions that must wait because previous producers are not fenced there yet.
        """
        # An operator's position replaces the one that names the previous producer.
        unproven = await self._previous.fence_in_partitions({key: pairs[key][1] for key in starts})
        starts = {key: start for key, start in starts.items() if key not in unproven}
        if not starts:
            return unproven
        topic_ids = {key: (upstream.topic_id, remote.topic_id) for key, (upstream, remote) in pairs.items()}
        await self.operators.put({key: OperatorsStart(start, *topic_ids[key]) for key, start in starts.items()})
        by_policy = {name for name, number in starts if (name, number) in self._wished}
        by_reset = {name for name, number in starts if (name, number) in self._reset}
        self._recopied |= starts.keys() - self._wished - self._reset
        self._wished -= starts.keys()
        self._reset -= starts.keys()
        for name in sorted({name for name, _ in starts}):
            says = "on.source.gap or on.target.loss says" if name in by_policy else "--allow-recopy says"
            says = "an operator says, who deleted its offsets" if name in by_reset else says
            self._log.warning("topic.recopied", topic=name, effect=f"copied once more from its start, as {says}")
        return unproven

    def _copied_partition(
        self,
        key: TopicPartition,
        pair: Pair,
        offsets: tuple[int | None, int | None],
        rules: TargetRules,
        identity: ProducerIdentity,
    ) -> CopiedPartition:
        """Make a partition. ``offsets`` are its first source and target offsets where no position gives them."""
        start, target_end = offsets
        upstream, remote = pair
        name, number = key
        stored = self.positions.get(key)
        if stored is None or stored.by == BY_OPERATOR:
            start = stored.next_source if stored is not None else start or 0
            position = Position(start, target_offset=target_end)
        else:
            epoch = -1 if stored.source_leader_epoch is None else stored.source_leader_epoch
            position = Position(
                stored.next_source,
                source_leader_epoch=epoch,
                target_offset=target_end if stored.next_target is None else stored.next_target,
                target_leader_epoch=stored.target_leader_epoch,
                skipped=stored.skipped,
            )
        lookup = FENCING if self._is_continued(key) else SEARCHING if self._is_behind_mm2(key) else None
        copier = Copier(
            f"{name}-{number}",
            position,
            identity,
            self._context.copy_settings,
            lookup=lookup,
        )
        given = self._context.ranges.get(key)
        if given is not None:
            copier.tally = DigestTally()
        copier.handle(TargetLed(remote.partitions[number].leader_epoch))
        return CopiedPartition(
            source_topic=name,
            target_topic=remote.name,
            partition=number,
            copier=copier,
            rules=rules,
            shell=self._shell,
            source_topic_id=upstream.topic_id,
            target_topic_id=remote.topic_id,
            stored=stored,
            transforms=self._context.transforms_of(name, number),
            seam=None if given is None else given.seam,
            leaders=Leaders(
                upstream.partitions[number].leader,
                upstream.partitions[number].leader_epoch,
                target=remote.partitions[number].leader,
            ),
            ledger=LedgerPlace(None if stored is None else stored.ledger),
        )

    def _remote_name(self, topic: str) -> str:
        return self._context.settings.remote_topic(topic)


def stale_positions(
    flow: Flow,
    upstream: TopicMetadata,
    remote: TopicMetadata,
    stored: Mapping[int, StoredPosition],
    source_id: str | None,
) -> dict[int, tuple[GapKind, str]]:
    """Return, by partition, which stored positions of a topic are of another source topic, another remote topic or
    another source cluster, with what has happened. Pure.

    Clusters with topic ids show that by the id. On others, fewer partitions than positions mean another topic, as a
    topic never loses partitions.
    """
    stale: dict[int, tuple[GapKind, str]] = {}
    beyond = [number for number in stored if number not in upstream.partitions]
    anew = f"it was deleted and recreated upstream{fewer(len(upstream.partitions), max(stored, default=-1) + 1)}"
    if beyond and all(position.source_topic_id is None for position in stored.values()):
        stale |= dict.fromkeys(stored, (GapKind.RECREATED, anew))
    for number in upstream.partitions:
        position = stored.get(number)
        if position is None:
            continue
        if position.source_cluster not in {None, source_id}:
            text = f"its position is of cluster {position.source_cluster}, {flow.source} is {source_id}"
            stale[number] = (GapKind.RECREATED, text)
        elif position.source_topic_id not in {None, upstream.topic_id}:
            stale[number] = (GapKind.RECREATED, anew)
        elif position.target_topic_id not in {None, remote.topic_id}:
            text = f"{remote.name} on {flow.target} was deleted and recreated"
            stale[number] = (GapKind.TARGET_DELETED, text)
    return stale


async def find_filled(
    target: Brokers, asked: Mapping[TopicPartition, tuple[str, TopicMetadata]]
) -> tuple[dict[str, dict[int, int]], set[TopicPartition]]:
    """Find remote partitions that are not empty.

    Args:
        asked: by remote partition, its source topic and the remote topic.
    Returns:
        By source topic, where those partitions end; and the source partitions whose remote partition has no leader.
    """
    leaders = {at: remote.partitions[at[1]].leader for at, (_, remote) in asked.items()}
    bounds = await find_bounds(target, leaders)
    filled: dict[str, dict[int, int]] = {}
    undecided: set[TopicPartition] = set()
    for at, (name, _) in asked.items():
        if at not in bounds:
            undecided.add((name, at[1]))
        elif bounds[at][1] > bounds[at][0]:
            filled.setdefault(name, {})[at[1]] = bounds[at][1]
    return filled, undecided


def _known_width(stored: Mapping[int, StoredPosition], partitions: int) -> int:
    """Return how many partitions a topic had when it was first copied.

    mm2py stores a position for each partition that it starts, so a partition without one is new if others of its topic
    have one. MM2 stores none for a partition without records, so only partitions after the last position count as new.
    Idle last partitions look the same, and are copied from their start.
    """
    if not stored:
        return partitions
    if all(position.is_of_mm2 for position in stored.values()):
        return max(stored) + 1
    return 0
