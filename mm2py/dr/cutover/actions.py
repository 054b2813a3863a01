"""What a planned cutover, its rollback and its end do to the clusters: the ``RecoveryActions`` of the runner.

Each step may be repeated by another process: what it needs is on the clusters. The steps of a failover
(``mm2py/dr/failover``) and of a return (``mm2py/dr/extras``) are refused here by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from mm2py.dr.cutover.coupling import Coupling, refusal_text
from mm2py.dr.cutover.drained import behind, copied_so_far, extras_on_target, lag_of, topic_of
from mm2py.dr.cutover.final_groups import FinalGroups, left_topics, moved_text, refuse_groups, waiting
from mm2py.dr.cutover.pair import CutoverOptions, CutoverRefused, RecoveryPair, turned
from mm2py.dr.cutover.preview import RunPreview
from mm2py.dr.cutover.run_fence import RunFence, refuse_plan
from mm2py.dr.cutover.turning_round import read_turned, turn_round
from mm2py.dr.fence.choosing import chosen_topics
from mm2py.dr.fence.hook import run_command
from mm2py.dr.fence.plan import FencePlan, in_short
from mm2py.dr.fence.record import FenceWay
from mm2py.dr.fence.stillness import Stillness
from mm2py.dr.groups.judgement import MoveState
from mm2py.dr.groups.moving import JudgedGroup
from mm2py.dr.journal import JournalEntry
from mm2py.dr.journal_writer import JournalWriter
from mm2py.dr.runner import PreparedRun, RecoveryGoal
from mm2py.dr.states import PartitionOffsets, RecoveryEvent, RecoveryFacts, RecoveryState, RecoveryVerb
from mm2py.dr.switch_hook import switch_kept
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.errors import KafkaError
from mm2py.moments import duration_text, time_text
from mm2py.topics.names import recovery_topic

LOOK_EVERY_S: Final = 0.5
NO_POSITION_S: Final = 15.0
"""How long a flow may have no stored position at all, while producers are fenced and wait for it."""
COMMIT_WITHIN_S: Final = 8.0
"""How long groups that were final may take to be so once more: then they are committed, or nothing is."""
SWITCH_REMEDY: Final = "Mend it, and call the same verb again: it runs again. Or undo the run: mm2py dr rollback."
T = TypeVar("T")


class TimeIsOver(Mm2Error):
    """A step did not come to its end within ``--timeout``."""


class ExtraRecords(Mm2Error):
    """The cluster to which producers go back has records that neither flow wrote."""


class PositionsLost(Mm2Error):
    """Up to where a flow has copied is not known: it has no stored position at all."""

    def __init__(self, flow: Flow, topic: str) -> None:
        super().__init__(
            f"Up to where {flow} has copied is not known: {topic} on {flow.target} has no position of it.",
            remedy="If the flow has only just begun, wait for its first ones. If the topic was deleted, create it again"
            " by hand, with as many partitions and cleanup.policy=compact: workers that still run store all positions"
            " again.",
        )


class FenceRecordLost(Mm2Error):
    """What a fence has to give back is not known any more: its record is gone on both clusters."""

    def __init__(self, entry: JournalEntry) -> None:
        super().__init__(
            f"What the fence on {entry.flow.source} has changed is not known: neither cluster has its record in"
            " mm2-dr-fences.internal.",
            remedy=f"{by_hand(entry.flow.source, entry.topics)} Then delete {recovery_topic(entry.flow).name} on both"
            " clusters: the next call begins anew.",
        )


def by_hand(alias: ClusterAlias, topics: Sequence[str]) -> str:
    """Return how a fence is removed of which nothing is known any more."""
    return (
        f"Remove by hand what stops producers of {in_short(topics)} on {alias}: DENY rules, max.message.bytes=1, or"
        " what your hook has done."
    )


class CutoverActions:
    """The steps of one call. The caller sets ``journal`` before the first one that changes something."""

    journal: JournalWriter | None = None
    switch_remedy: str = SWITCH_REMEDY

    def __init__(
        self,
        pair: RecoveryPair,
        options: CutoverOptions,
        *,
        obstacles: Callable[[Flow], Awaitable[Sequence[str]]],
        say: Callable[[str], None],
    ) -> None:
        """
        Args:
            obstacles: asks what stands in the way of a cutover of a flow, by ``mm2py dr check``.
            say: is told what happens.
        """
        self._pair = pair
        self._options = options
        self._obstacles = obstacles
        self._say = say
        self._until_s: float | None = None
        self._planned: tuple[tuple[str, ...], FencePlan] | None = None
        self._groups: dict[Flow, FinalGroups] = {}
        self._told = ""

    # What is known before anything is done

    async def prepare(self, goal: RecoveryGoal, flow: Flow, last: JournalEntry | None) -> PreparedRun:
        """See ``RecoveryActions.prepare``. Raises: CutoverRefused."""
        if goal not in (RecoveryGoal.CUTOVER, RecoveryGoal.ROLLBACK):
            _of_another_verb(goal)
        if last is not None and last.state is RecoveryState.SWITCHING:
            return PreparedRun(last.topics)  # its flow is turned round first; then it is prepared
        if goal is RecoveryGoal.ROLLBACK and last is not None and last.state is not RecoveryState.REVERSED:
            raise CutoverRefused(
                f"The {last.verb} of {last.flow} is {last.state}: it can be undone when the flow back runs.",
                remedy=f"Let it go on first: mm2py dr {last.verb} FILE '{last.flow}'.",
            )
        found = await self.preview(goal, flow, last)
        if found.refused:
            raise CutoverRefused(
                f"Nothing was begun: {found.refused[0]}",
                remedy="" if len(found.refused) == 1 else f"And {len(found.refused) - 1} more: see --plan.",
            )
        self._planned = found.fenced, found.fence
        kept = switch_kept(self._options.switch_words)
        return PreparedRun(found.topics, kept=kept, window_s=self._options.window_s)

    async def preview(self, goal: RecoveryGoal, flow: Flow, last: JournalEntry | None) -> RunPreview:
        """Return what a run that begins would do, and everything that stands in its way. Nothing is changed."""
        pair, options = self._pair, self._options
        undone: JournalEntry | None = None
        wanted: Sequence[str] = options.topics
        if goal is RecoveryGoal.ROLLBACK:
            assert last is not None  # noqa: S101  (the runner begins no rollback without a run)
            undone, flow, wanted = last, turned(last.flow), last.topics
        settings = pair.settings[flow]
        refused = [str(one) for one in await self._obstacles(flow)]
        there = (await fetch_metadata(pair.brokers[flow.source], None)).topics
        topics = tuple(wanted) if undone else chosen_topics(settings, [*there], wanted)
        fenced = self._fenced(flow, topics, there)
        refused += await self._refused_by_flows(flow, topics, fenced, undone)
        fence = await RunFence(pair, flow, options).plan(fenced)
        refused += _said_by(lambda: refuse_plan(fence, accepts_unproven=options.accepts_unproven))
        coupled, notes = await self._coupled(flow, fenced, there)
        refused += [] if options.accepts_coupled else [refusal_text(one, flow) for one in coupled]
        ends: PartitionOffsets = {}
        copied: PartitionOffsets = {}
        groups: list[JudgedGroup] = []
        try:
            ends = await RunFence(pair, flow, options).ends(fenced)
            so_far = await copied_so_far(pair, flow, ends)
            copied = so_far.copied
            if lag_of(ends, copied) and not so_far.positions:
                refused.append(str(PositionsLost(flow, settings.offsets_topic)))
            verb = RecoveryVerb.CUTOVER if undone is None else RecoveryVerb.ROLLBACK
            left = await self._left_topics(flow, topics, verb)
            # Producers go on: a group may have read beyond the ends that were read above. It is judged by later ones.
            groups = await self._groups_of(flow).judged({}, left_topics=left)
        except Mm2Error as error:
            refused.append(str(error))
        refused += _said_by(lambda: refuse_groups(groups))
        lag = lag_of(ends, copied)
        if lag > options.max_lag:
            refused.append(f"{lag:,} records are not copied; --max-lag is {options.max_lag:,}. Wait, or raise it.")
        return RunPreview(
            goal=goal,
            flow=flow,
            topics=topics,
            fenced=fenced,
            fence=fence,
            ends=ends,
            copied=copied,
            groups=tuple(groups),
            switch=" ".join(options.switch_words[:1]),
            turns=pair.keeps_names(flow),
            coupled=tuple(str(one) for one in coupled),
            notes=tuple(notes),
            refused=tuple(refused),
        )

    async def _coupled(
        self, flow: Flow, fenced: Sequence[str], there: Iterable[str]
    ) -> tuple[Sequence[Coupling], Sequence[str]]:
        """Return which topics transactions couple with those that move, and what is not known of that."""
        others = [topic for topic in there if topic not in fenced and not topic.startswith("__")]
        return await RunFence(self._pair, flow, self._options).coupled(fenced, others)

    def _fenced(self, flow: Flow, topics: Sequence[str], there: Mapping[str, object]) -> tuple[str, ...]:
        """Return the topics that producers of the source may write to: of a rollback those that are there."""
        settings = self._pair.settings[flow]
        return tuple(topic for topic in topics if topic in there and settings.replicates(topic))

    async def _refused_by_flows(
        self, flow: Flow, topics: Sequence[str], fenced: Sequence[str], undone: JournalEntry | None
    ) -> list[str]:
        pair, options, back = self._pair, self._options, turned(flow)
        found: list[str] = []
        if not fenced:
            found.append(f"{flow.source} has none of the topics {in_short(topics)}: nobody can write to them there.")
        over_ms = None if undone is None else undone.undo_ends_ms
        if undone is not None and over_ms is not None and pair.clock.wall_ms() >= over_ms:
            found.append(
                f"The window in which {undone.flow} could be undone ended at {time_text(over_ms)}. Complete it"
                f" (mm2py dr complete FILE '{undone.flow}'), and cut over to {flow.target}: mm2py dr cutover FILE"
                f" '{flow}'."
            )
        missing = [topic for topic in topics if not pair.settings[back].replicates(topic)]
        if missing:
            found.append(
                f"{back} does not copy {in_short(missing)}: nothing would bring back to {flow.source} what is written"
                f" on {flow.target}. Add them to {back}.topics."
            )
        own = await (await read_turned(pair, flow)).seen()
        other = await (await read_turned(pair, back)).seen()
        if not own.is_on:
            found.append(f"{flow} is {own.text}: producers are on {flow.target}, or nothing is copied.")
        if pair.keeps_names(flow) and other.claims:
            found.append(f"{back} is {other.text}, and must not be while {flow} is.")
        standing = await RunFence(pair, back, options).standing()
        if standing is not None and standing.way is FenceWay.HOOK and options.fence_hook is None:
            found.append(
                f"The fence on {flow.target} was raised by a hook, {standing.hook}: name the command again,"
                " --hook-fence CMD. It lets producers go on there."
            )
        return found

    async def _left_topics(self, flow: Flow, topics: Sequence[str], verb: RecoveryVerb) -> frozenset[str]:
        """Return the topics of the source in which groups stay: nothing, unless only some topics move."""
        pair = self._pair
        first = turned(flow) if verb is RecoveryVerb.ROLLBACK else flow
        there = {alias: [*(await fetch_metadata(pair.brokers[alias], None)).topics] for alias in pair.brokers}
        if set(_copied(pair, first, there[first.source])) <= set(topics):
            return frozenset(self._options.left_topics)
        left = left_topics(
            there[flow.source],
            moved=topics,
            copied=_copied(pair, flow, there[flow.source]),
            policy=pair.settings[flow].policy,
            flow=flow,
        )
        return left | frozenset(self._options.left_topics)

    def _groups_of(self, flow: Flow) -> FinalGroups:
        return self._groups.setdefault(flow, FinalGroups(self._pair, flow, self._options))

    # Before the switch

    async def set_fence(self, entry: JournalEntry) -> None:
        fenced = await self._topics_of(entry)
        plan = self._planned[1] if self._planned is not None and self._planned[0] == fenced else None
        self._planned = None  # what was planned once is not true the second time
        record = await RunFence(self._pair, entry.flow, self._options).set(fenced, plan)
        self._say(f"fenced {len(fenced)} topic(s) on {entry.flow.source}, by {record.way}")

    async def verify_fence(self, entry: JournalEntry) -> RecoveryFacts:
        def tell(found: Stillness) -> None:
            self._tell(f"{len(found.open)} transaction(s) are open" if found.open else "")

        fence = RunFence(self._pair, entry.flow, self._options)
        ends = await fence.verified(await self._topics_of(entry), timeout_s=self._left_s(), tell=tell, say=self._say)
        return RecoveryFacts(source_ends=ends)

    async def drain(self, entry: JournalEntry, ends: RecoveryFacts) -> RecoveryFacts:
        """Wait until all is copied, and until each group is final: what changes nothing may take its time."""
        flow, begun_s = entry.flow, self._pair.clock.monotonic()
        while True:
            found = await self._patiently(lambda: copied_so_far(self._pair, flow, ends.source_ends))
            late = [*behind(ends.source_ends, found.copied)]
            if not late:
                break
            if not found.positions and self._pair.clock.monotonic() - begun_s >= NO_POSITION_S:
                raise PositionsLost(flow, self._pair.settings[flow].offsets_topic)
            await self._wait(f"{late[0]}, and {len(late) - 1} more" if len(late) > 1 else late[0])
        if entry.verb is RecoveryVerb.ROLLBACK and self._pair.keeps_names(flow) and not self._options.leaves_extras:
            names = {topic_of(partition)[0] for partition in ends.source_ends}
            if extras := await extras_on_target(self._pair, flow, found.positions, names):
                raise ExtraRecords(
                    f"{flow.target} has records that neither flow wrote: {'; '.join(extras[:3])}.",
                    remedy="Find out who wrote them. With --leave-extras the rollback goes on, and they stay.",
                )
        while late := waiting(await self._patiently(lambda: self._judged(entry, ends.source_ends))):
            await self._wait(f"{late[0]}; and {len(late) - 1} more" if len(late) > 1 else late[0])
        return RecoveryFacts(copied_to=found.copied)

    async def finish_groups(self, entry: JournalEntry) -> RecoveryFacts:
        """Commit each group. They were final just now: if one is not any more, nothing is committed for long."""
        until_s = self._pair.clock.monotonic() + COMMIT_WITHIN_S
        ends = self._stored_ends(entry)
        while True:
            judged = await self._judged(entry, ends)
            late = waiting(judged)
            if not late:
                break
            if self._pair.clock.monotonic() >= until_s:
                raise TimeIsOver(f"Groups are no longer final: {late[0]}.", remedy="Begin again.")
            await asyncio.sleep(LOOK_EVERY_S)
        found = await self._groups_of(entry.flow).committed(judged)
        self._say(f"committed on {entry.flow.target}: {moved_text(found.groups)}")
        for one in judged:
            if one.move.state is MoveState.LEFT:
                self._say(f"group {one.move.group} stays: {one.move.why}")
        return found

    async def confirm_switch(self, entry: JournalEntry) -> RecoveryFacts:
        """Look once more. With ``--postpone`` wait for the word before that, and look at the groups as well."""
        if self._options.postponed_by and entry.state is RecoveryState.GROUPS_FINAL:
            self._say(f"everything is ready; the switch waits until {self._options.postponed_by} is removed")
            while is_there(self._options.postponed_by):
                await self._wait("")
            for one in await self._judged(entry, self._stored_ends(entry)):
                if one.move.state is MoveState.WAITS or (one.move.state is MoveState.READY and not one.move.is_there):
                    raise CutoverRefused(
                        f"Group {one.move.group} has gone on on {entry.flow.source} since it was moved.",
                        remedy="Stop its consumers there, and begin again.",
                    )
        fence = RunFence(self._pair, entry.flow, self._options)
        return RecoveryFacts(source_ends=await fence.still_stands(await self._topics_of(entry)))

    async def take_back(self, entry: JournalEntry, kept: Sequence[Mapping[str, Any]]) -> None:
        """Give back what the fence's own record says; ``kept`` has nothing of it."""
        if entry.verb is RecoveryVerb.FAILOVER:
            _of_another_verb(RecoveryGoal.FAILOVER)
        fence = RunFence(self._pair, entry.flow, self._options)
        if self._was_set(entry) and not await fence.has_record():
            raise FenceRecordLost(entry)
        record = await fence.lift()
        what = f"lifted the fence on {entry.flow.source}" if record is not None else "no fence stood"
        self._say(f"{what}: producers go on on {entry.flow.source}")

    def _was_set(self, entry: JournalEntry) -> bool:
        """Return whether the fence of a run was set as a whole."""
        entries = () if self.journal is None else self.journal.entries
        return any(one.run == entry.run and one.event is RecoveryEvent.FENCE_SET for one in entries)

    def _was_fenced(self, flow: Flow) -> bool:
        """Return whether any run has fenced the producers of a flow's source."""
        entries = () if self.journal is None else self.journal.entries
        fenced = (RecoveryEvent.FENCE_SET, RecoveryEvent.FENCE_HOLDS)
        return any(one.flow == flow and one.event in fenced for one in entries)

    # The switch, and behind it

    async def run_hook(self, entry: JournalEntry) -> None:
        words, flow = self._options.switch_words, entry.flow
        if not words:
            self._say(f"no --hook-switch: send producers and consumers to {flow.target} now, by hand")
            return
        told = {
            "verb": "switch",
            "run": entry.run,
            "flow": str(flow),
            "from": flow.source,
            "to": flow.target,
            "topics": list(entry.topics),
            "by": self._pair.by,
        }
        await run_command(words, "switch", told, remedy=self.switch_remedy)
        self._say(f"{words[0]} has switched clients to {flow.target}")

    async def turn_flow_round(self, entry: JournalEntry) -> None:
        async def renew() -> None:
            journal = self.journal
            if journal is not None and not journal.may_act:
                await journal.append(RecoveryEvent.RESTARTED, entry.flow)

        await turn_round(self._pair, entry.flow, renew)
        self._say(f"{turned(entry.flow)} runs, and keeps {entry.flow.source} exact")

    async def free_producers(self, entry: JournalEntry) -> None:
        back = turned(entry.flow)
        fence = RunFence(self._pair, back, self._options)
        if await fence.lift() is not None:
            self._say(f"lifted the fence on {entry.flow.target}: producers go on there")
        elif self._was_fenced(back) and not await fence.has_record():
            self._say(
                f"note: an earlier run has fenced producers of {back.source}, and the record of that fence is lost."
                f" {by_hand(back.source, entry.topics)}"
            )

    # Steps of other verbs

    async def cut_off_writers(self, entry: JournalEntry) -> RecoveryFacts:
        _of_another_verb(RecoveryGoal.FAILOVER)

    async def place_groups(self, entry: JournalEntry) -> RecoveryFacts:
        _of_another_verb(RecoveryGoal.FAILOVER)

    async def hold_flow_back(self, entry: JournalEntry) -> None:
        _of_another_verb(RecoveryGoal.REINSTATE)

    async def settle_extras(self, entry: JournalEntry) -> RecoveryFacts:
        _of_another_verb(RecoveryGoal.REINSTATE)

    # Time

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self._say(f"another process may have been at work: waiting for {seconds:.0f} s")
            await asyncio.sleep(seconds)

    def _left_s(self) -> float:
        """Return how much of ``--timeout`` is left: it begins with the first step that is waited for."""
        now_s = self._pair.clock.monotonic()
        if self._until_s is None:
            self._until_s = now_s + self._options.timeout_s
        return self._until_s - now_s

    async def _wait(self, what: str) -> None:
        """Wait a moment. Raises: TimeIsOver."""
        if self._left_s() <= 0:
            limit = duration_text(self._options.timeout_s)
            raise TimeIsOver(
                f"It was not ready within {limit}: {what or 'the switch was postponed for longer'}.",
                remedy="Give it more time (--timeout), or leave a group that is not ready: --leave-group.",
            )
        self._tell(what)
        await asyncio.sleep(LOOK_EVERY_S)

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask again while a cluster does not answer for a moment, such as while a leader moves. Raises: TimeIsOver."""
        while True:
            try:
                return await ask()
            except KafkaError as error:
                if not error.retriable:
                    raise
                await self._wait(error.what)

    def _tell(self, what: str) -> None:
        """Say what is waited for, each time when that has changed."""
        if what and what != self._told:
            self._say(f"waits: {what}")
        self._told = what

    # What the journal says

    async def _topics_of(self, entry: JournalEntry) -> tuple[str, ...]:
        there = (await fetch_metadata(self._pair.brokers[entry.flow.source], None)).topics
        return self._fenced(entry.flow, entry.topics, there)

    async def _judged(self, entry: JournalEntry, ends: PartitionOffsets) -> list[JudgedGroup]:
        """Judge all groups at the verified ends. Raises: CutoverRefused, one can never move as it is."""
        left = await self._left_topics(entry.flow, entry.topics, entry.verb)
        found = await self._groups_of(entry.flow).judged(ends, left_topics=left)
        refuse_groups(found)
        return found

    def _stored_ends(self, entry: JournalEntry) -> PartitionOffsets:
        assert self.journal is not None  # noqa: S101  (set before the first step)
        ends = [
            one.facts.source_ends
            for one in self.journal.entries
            if one.run == entry.run and one.event is RecoveryEvent.FENCE_HOLDS
        ]
        return ends[-1]


def is_there(path: str) -> bool:
    """Return whether a file of the operator is there."""
    return Path(path).exists()


def _copied(pair: RecoveryPair, flow: Flow, there: Sequence[str]) -> Sequence[str]:
    """Return what a flow copies from producers of its source."""
    try:
        return chosen_topics(pair.settings[flow], there, ())
    except Mm2Error:
        return ()  # it copies none


def _said_by(check: Callable[[], None]) -> list[str]:
    try:
        check()
    except Mm2Error as error:
        return [str(error)]
    return []


def _of_another_verb(goal: RecoveryGoal) -> NoReturn:
    raise CutoverRefused(
        f"This is a step of mm2py dr {goal}, which a cutover does not take.",
        remedy=f"Call mm2py dr {goal} FILE 'A->B'.",
    )
