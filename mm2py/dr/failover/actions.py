"""What a failover does to the target, with the source lost: the ``RecoveryActions`` of the runner.

It asks and tells the source nothing. The steps of a cutover that need no source are those of ``CutoverActions``: the
switch hook, and the fence of producers on the target, which a previous recovery may have left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from mm2py.connector_offsets.turning import TurnedFlow, turn_on, turned_flow
from mm2py.dr.cutover.actions import CutoverActions
from mm2py.dr.cutover.drained import topic_of
from mm2py.dr.cutover.pair import CutoverOptions, CutoverRefused, RecoveryPair, turned
from mm2py.dr.cutover.run_fence import RunFence
from mm2py.dr.failover.cutting_off import FlowEnding, StillWritten, by_name, moved
from mm2py.dr.failover.losses import FailoverLoss, lost_partitions
from mm2py.dr.failover.lost_groups import LostGroups
from mm2py.dr.failover.placing import SAFE, FailoverPoint, PlacedGroup
from mm2py.dr.failover.preview import FailoverPreview
from mm2py.dr.fence.choosing import chosen_topics
from mm2py.dr.fence.plan import in_short
from mm2py.dr.fence.record import FenceWay
from mm2py.dr.groups.judgement import MoveState
from mm2py.dr.journal import JournalEntry, stored_facts
from mm2py.dr.readiness import ObstacleKind, RecoveryReadiness
from mm2py.dr.runner import PreparedRun, RecoveryGoal
from mm2py.dr.states import ACTS_WITHIN_S, ENDED, RecoveryEvent, RecoveryFacts, RecoveryState, RecoveryVerb
from mm2py.dr.switch_hook import switch_kept
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.kafka.port import Brokers
from mm2py.records.direction_record import is_by_failover

KEPT: Final = "failover"
"""Under this name the first entry keeps what was asked for: ``to``, ``to_ms``, ``was_on``."""
STEP_MOST_S: Final = 600.0
"""How long a step may take at all; each of its changes is begun under a fresh entry."""
LOOK_MOST_S: Final = 8.0
"""How long the look at groups may take before they are committed."""
FAILOVER_REMEDY: Final = "Mend it, and call mm2py dr failover again: it runs again."
T = TypeVar("T")


class StepTookLong(Mm2Error):
    """A step did not come to its end."""


@dataclass(frozen=True, slots=True)
class FailoverOptions:
    """What an operator asks for, beside what a cutover takes."""

    point: FailoverPoint = field(default_factory=FailoverPoint)
    accepts_loss: bool = False


def was_drained(last: JournalEntry | None) -> bool:
    """Whether a cutover had copied everything, and placed the groups, before its source was lost. Pure.

    Clients may be on the target already: no group is placed any more.
    """
    return last is not None and last.state in (RecoveryState.SWITCHING, RecoveryState.SWITCHED)


async def _no_obstacle(_: Flow) -> Sequence[str]:
    return ()


class FailoverActions(CutoverActions):
    """The steps of one call. The caller sets ``journal`` before the first one that changes something."""

    switch_remedy = FAILOVER_REMEDY

    def __init__(
        self,
        pair: RecoveryPair,
        options: CutoverOptions,
        *,
        source: Brokers,
        say: Callable[[str], None],
        asked: FailoverOptions | None = None,
        readiness: Callable[[], Awaitable[RecoveryReadiness]] | None = None,
    ) -> None:
        """
        Args:
            pair: its ``brokers`` are those of the target alone, unless the run is taken back.
            source: is asked nothing while the source is lost.
            readiness: asks ``mm2py dr check``; None: no failover begins.
        """
        super().__init__(pair, options, obstacles=_no_obstacle, say=say)
        self._source = source
        self._asked = asked or FailoverOptions()
        self._readiness = readiness
        self._lost: LostGroups | None = None
        self._flow: TurnedFlow | None = None
        self._shown: FailoverPreview | None = None

    # What is known before anything is done

    async def prepare(self, goal: RecoveryGoal, flow: Flow, last: JournalEntry | None) -> PreparedRun:
        """See ``RecoveryActions.prepare``. Raises: CutoverRefused."""
        if goal is not RecoveryGoal.FAILOVER:
            return await super().prepare(goal, flow, last)
        found = self._shown or await self.failover_preview(flow, last)
        if found.refused:
            raise CutoverRefused(
                f"Nothing was begun: {found.refused[0]}",
                remedy="" if len(found.refused) == 1 else f"And {len(found.refused) - 1} more: see --plan.",
            )
        was_on = (await (await self._read(flow)).seen()).is_on
        kept = {"to": found.point.word, "to_ms": found.point.at_ms, "was_on": was_on}
        return PreparedRun(found.topics, kept={KEPT: kept, **switch_kept(self._options.switch_words)})

    async def failover_preview(self, flow: Flow, last: JournalEntry | None) -> FailoverPreview:
        """Return what a failover that begins would do and lose, and what stands in its way. Nothing is changed."""
        pair, options, settings = self._pair, self._options, self._pair.settings[flow]
        assert self._readiness is not None  # noqa: S101
        ready = await self._readiness()
        refused = [
            f"{one.text.rstrip('.')}. {one.way_out}"
            for one in ready.obstacles
            if one.of_failover and one.kind in (ObstacleKind.TARGET_AWAY, ObstacleKind.JOURNAL)
        ]
        ending = await self._ending(flow)
        positions = await ending.positions()
        goes_on = last is not None and last.flow == flow and last.state is not RecoveryState.REVERSED
        topics: tuple[str, ...] = ()
        try:
            if goes_on and last is not None and last.state not in ENDED:
                topics = last.topics
            else:
                topics = chosen_topics(settings, sorted({name for name, _ in positions}), options.topics)
        except Mm2Error as error:
            refused.append(str(error))
        point = self._asked.point
        if point.word == SAFE:
            point = replace(point, at_ms=ready.safe_at_ms)
            if ready.safe_at_ms is None:
                refused.append(
                    "The safe time is not known: no worker of the flow has told it. Use --to latest, or --to TIME."
                )
        groups: list[PlacedGroup] = []
        try:
            if not was_drained(last):
                groups = await self._placed(flow, topics, point, positions)
        except Mm2Error as error:
            refused.append(str(error))
        refused += [
            f"Group {one.group} cannot go on on {flow.target}: {one.why}. {one.remedy}"
            for one in groups
            if one.state is MoveState.REFUSED
        ]
        fence = await RunFence(pair, turned(flow), options).standing()
        if fence is not None and fence.way is FenceWay.HOOK and options.fence_hook is None:
            refused.append(
                f"The fence on {flow.target} was raised by a hook, {fence.hook}: name the command again,"
                " --hook-fence CMD. It lets producers go on there."
            )
        not_copied = [
            one.text
            for one in ready.obstacles
            if one.kind in (ObstacleKind.NOT_COPIED, ObstacleKind.NOT_RUNNING, ObstacleKind.NOT_KNOWN)
        ]
        loss = FailoverLoss(
            lost_partitions(positions, topics),
            ready.lost_s,
            ready.safe_at_ms,
            tuple(not_copied),
            tuple(one.group for one in groups),
        )
        self._shown = FailoverPreview(
            flow=flow,
            at_ms=ready.at_ms,
            topics=topics,
            point=point,
            loss=loss,
            groups=tuple(groups),
            direction=(await self._read(flow)).known.text,
            switch=" ".join(options.switch_words[:1]),
            notes=tuple(await self._notes(flow, last)),
            refused=tuple(refused),
        )
        return self._shown

    async def _notes(self, flow: Flow, last: JournalEntry | None) -> list[str]:
        groups = self._groups_lost(flow)
        shared = await groups.share_groups()
        found = [
            f"Share groups of {flow.source} are not known on {flow.target}, and not moved: they begin there by"
            f" share.auto.offset.reset.{f' On {flow.target} there are: {in_short(shared)}.' if shared else ''}"
        ]
        if not groups.are_known:
            found.append(f"{flow} emits no checkpoints: {flow.target} knows none of its groups, and none is placed.")
        else:
            found.append(
                f"A group that has committed nothing on {flow.source} that was checkpointed is not known on"
                f" {flow.target}."
            )
        if was_drained(last):
            found.append("Everything was drained before the switch: groups stay where the cutover has placed them.")
        return found

    # The steps

    async def cut_off_writers(self, entry: JournalEntry) -> RecoveryFacts:
        flow, target = entry.flow, entry.flow.target
        ending = await self._ending(flow)
        watches = entry.state is not RecoveryState.FAILING_OVER
        found = await self._in_time(ending.end(self._renew(entry), watches=watches), "ending the flow")
        if found.waited_for:
            self._say(f"{found.waited_for}: {found.fenced} producer(s) of {flow} are fenced on {target}")
        self._say(f"{flow} has ended on {target}: nothing of it can write there")
        if found.at_least:
            named = in_short(found.at_least)
            self._say(f"note: a worker was killed: {target} may have more than is told of {named}")
        stored = self._stored(entry)
        if watches:
            # So the look behind the next entry reads only what is new, and is quick.
            await self._placed(flow, entry.topics, self._point(entry), await ending.positions())
            return found.facts
        await self._renew(entry)()  # the hook runs under this entry
        return RecoveryFacts(
            copied_to={**found.facts.copied_to, **stored.copied_to},
            target_ends={**found.facts.target_ends, **stored.target_ends},
            source_epochs={**found.facts.source_epochs, **stored.source_epochs},
        )

    async def place_groups(self, entry: JournalEntry) -> RecoveryFacts:
        flow, ending = entry.flow, await self._ending(entry.flow)
        until_s = self._pair.clock.monotonic() + LOOK_MOST_S
        groups = await self._placed(flow, entry.topics, self._point(entry), await ending.positions())
        for one in groups:
            if one.state is MoveState.REFUSED:
                raise CutoverRefused(f"Group {one.group} cannot go on on {flow.target}: {one.why}.", remedy=one.remedy)
        if self._pair.clock.monotonic() > until_s:
            raise StepTookLong("The look at the groups took too long.", remedy="Call the same verb again.")
        await self._in_time(self._groups_lost(flow).commit(groups), "committing groups", most_s=ACTS_WITHIN_S)
        ready = [one for one in groups if one.state is MoveState.READY]
        again, most = sum(one.read_again for one in ready), sum(one.read_again_most for one in ready)
        self._say(
            f"committed on {flow.target}: {len(ready)} group(s), to {self._point(entry).text}; they read again"
            f" {again:,} record(s), at most {most:,}"
        )
        for one in groups:
            if one.state is MoveState.LEFT:
                self._say(f"group {one.group} stays: {one.why}")
        stored = self._stored(entry)
        of_groups = {part.commit.name: part.commit.end_there for one in ready for part in one.partitions}
        return replace(
            stored,
            source_ends={},
            target_ends={**stored.target_ends, **of_groups},
            groups={one.group: one.offsets for one in ready},
        )

    async def confirm_switch(self, entry: JournalEntry) -> RecoveryFacts:
        if entry.verb is not RecoveryVerb.FAILOVER:
            return await super().confirm_switch(entry)
        flow, ending = entry.flow, await self._ending(entry.flow)
        if not await ending.is_marked():
            raise StillWritten(
                f"{flow} was turned on again since it was ended.",
                remedy="Find out who has done it, and call the same verb again.",
            )
        stored = self._stored(entry)
        topics = sorted({topic_of(name)[0] for name in stored.copied_to})
        before = {name: end for name, end in stored.target_ends.items() if name in stored.copied_to}
        if late := moved(before, by_name(await ending.ends(topics))):
            raise StillWritten(
                f"{late[0]}: something writes there.",
                remedy="Stop clients that write there until the failover is through, and call the same verb again.",
            )
        return RecoveryFacts()

    async def take_back(self, entry: JournalEntry, kept: Sequence[Mapping[str, Any]]) -> None:
        """Remove the mark of a failover, and turn the flow on again if it was on; then as a cutover."""
        asked = [one[KEPT] for one in kept if KEPT in one]
        if asked:
            await self._unmark(entry.flow, was_on=any(one.get("was_on") for one in asked))
        await super().take_back(replace(entry, verb=RecoveryVerb.CUTOVER), kept)

    async def _unmark(self, flow: Flow, *, was_on: bool) -> None:
        for alias in (flow.source, flow.target):
            if alias not in self._pair.brokers:
                raise CutoverRefused(
                    f"{alias} does not answer, and {flow} has to be turned on again on {flow.target}.",
                    remedy="Call it again when both answer.",
                )
        there = await self._read(flow)
        seen = await there.seen()
        if not was_on or seen.stored is None or seen.claims or not is_by_failover(seen.stored.by):
            return
        back = None if there.settings.flow_back is None else await self._read(turned(flow))
        # It was on when the failover began, and nothing was switched: so what the flow back lacks is no reason.
        await turn_on(there, back, by=self._pair.by, author=self._pair.author, force=True)
        self._say(f"{flow} is on again")

    # What the steps share

    async def _placed(
        self, flow: Flow, topics: Sequence[str], point: FailoverPoint, positions: Mapping[tuple[str, int], object]
    ) -> list[PlacedGroup]:
        left = {name for name, _ in positions} - set(topics)
        options = self._options
        return await self._groups_lost(flow).judged(
            point, left_topics=left, wanted=options.groups, left=options.left_groups
        )

    def _groups_lost(self, flow: Flow) -> LostGroups:
        if self._lost is None:
            pair = self._pair
            self._lost = LostGroups(
                pair.settings[flow], self._source, pair.brokers[flow.target], clock=pair.clock, rng=pair.rng
            )
        return self._lost

    async def _ending(self, flow: Flow) -> FlowEnding:
        if self._flow is None:
            self._flow = await self._read(flow)
        return FlowEnding(self._flow, by=self._pair.by, author=self._pair.author)

    async def _read(self, flow: Flow) -> TurnedFlow:
        """Read whether a flow is on. Raises: Mm2Error, if its target does not answer."""
        pair = self._pair
        return await turned_flow(
            pair.file,
            pair.by_file[flow],
            pair.file.configuration().groups[flow.target],
            source=pair.brokers.get(flow.source, self._source),
            target=pair.brokers[flow.target],
            clock=pair.clock,
            rng=pair.rng,
        )

    def _renew(self, entry: JournalEntry) -> Callable[[], Awaitable[None]]:
        async def renew() -> None:
            if self.journal is not None and not self.journal.may_act:
                await self.journal.append(RecoveryEvent.RESTARTED, entry.flow)

        return renew

    def _point(self, entry: JournalEntry) -> FailoverPoint:
        """Return where groups go on: as it was asked for when the failover began."""
        assert self.journal is not None  # noqa: S101
        kept = [one.kept[KEPT] for one in self.journal.entries if one.run == entry.run and KEPT in one.kept]
        return FailoverPoint(str(kept[-1]["to"]), kept[-1]["to_ms"]) if kept else self._asked.point

    def _stored(self, entry: JournalEntry) -> RecoveryFacts:
        assert self.journal is not None  # noqa: S101
        return stored_facts([one for one in self.journal.entries if one.run == entry.run])

    async def _in_time(self, work: Awaitable[T], doing: str, *, most_s: float = STEP_MOST_S) -> T:
        try:
            async with asyncio.timeout(most_s):
                return await work
        except TimeoutError as error:
            raise StepTookLong(
                f"{doing[:1].upper()}{doing[1:]} took more than {most_s:g} s.", remedy="Call the same verb again."
            ) from error
