"""What the return of the old side does to the clusters: the ``RecoveryActions`` of ``mm2py dr reinstate``.

The old side is A, the flow of the failover A->B. A's fence, its verification and the turn are those of a cutover. Here
is what is added: nothing copies while the list is made; the list; what becomes of it; and where both flows go on.

* With topics of one name B->A begins on B behind the last copy of A->B. Records that were replayed to B are left out on
  the way back, by the id of their producer. A->B, when it is turned on again one day, begins behind A's fenced end.
* With other names A->B itself copies what is to be replayed. For topics that are left it is set behind A's fenced end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mm2py.connector_offsets.altering import ConnectorOffsets
from mm2py.connector_offsets.turning import stored_positions, turn_off, turn_on
from mm2py.dr.cutover.actions import CutoverActions
from mm2py.dr.cutover.drained import behind, copied_so_far
from mm2py.dr.cutover.pair import CutoverOptions, CutoverRefused, RecoveryPair, turned
from mm2py.dr.cutover.run_fence import RunFence, refuse_plan
from mm2py.dr.cutover.turning_round import read_turned, turn_round, until_drained
from mm2py.dr.extras.extras_inquiry import ExtrasInquiry
from mm2py.dr.extras.found import ExtrasFound, PartitionExtras
from mm2py.dr.extras.parquet_export import export_parquet, require_pyarrow
from mm2py.dr.extras.preview import ReinstatePreview
from mm2py.dr.extras.replaying import ExtrasReplay
from mm2py.dr.extras.settlement import (
    ExtrasChoice,
    ExtrasMemory,
    ExtrasWay,
    SettledTopic,
    open_text,
    remembered,
    replay_kept,
    settled_kept,
)
from mm2py.dr.extras.topic_export import TopicExport
from mm2py.dr.fence.plan import in_short
from mm2py.dr.journal import JournalEntry, stored_facts
from mm2py.dr.journal_writer import JournalWriter
from mm2py.dr.runner import PreparedRun, RecoveryGoal
from mm2py.dr.states import RecoveryEvent, RecoveryFacts, RecoveryState, RecoveryVerb, moved_since
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.port import TopicPartition

SETTLE_REMEDY = (
    "Decide with mm2py dr reinstate, or mm2py dr extras: --replay, --export DIR, --export-topic NAME, --leave TOPIC,"
    " or --leave-all."
)


class ExtrasOpen(Mm2Error):
    """Nobody has decided yet what becomes of records that only the old side has. The run stays where it is."""


class ReinstateActions(CutoverActions):
    """The steps of one call. The caller sets ``journal`` before the first one that changes something."""

    def __init__(
        self, pair: RecoveryPair, options: CutoverOptions, choice: ExtrasChoice, *, say: Callable[[str], None]
    ) -> None:
        super().__init__(pair, options, obstacles=_no_obstacle, say=say)
        self._choice = choice

    # What is known before anything is done

    async def prepare(self, goal: RecoveryGoal, flow: Flow, last: JournalEntry | None) -> PreparedRun:
        """See ``RecoveryActions.prepare``. Raises: CutoverRefused."""
        if goal is not RecoveryGoal.REINSTATE or last is None:
            return await super().prepare(goal, flow, last)
        found = await self.reinstate_preview(flow, last, [])
        if found.refused:
            raise CutoverRefused(
                f"Nothing was begun: {found.refused[0]}",
                remedy="" if len(found.refused) == 1 else f"And {len(found.refused) - 1} more: see --plan.",
            )
        return PreparedRun()

    async def reinstate_preview(
        self, flow: Flow, last: JournalEntry, entries: Sequence[JournalEntry]
    ) -> ReinstatePreview:
        """Return what a reinstatement would do, and everything that stands in its way. Nothing is changed."""
        pair, back = self._pair, turned(flow)
        refused: list[str] = []
        if last.verb is not RecoveryVerb.FAILOVER or last.state is RecoveryState.FAILING_OVER:
            refused.append(f"The {last.verb} of {flow} is {last.state}: let it come to its end first.")
        missing = [topic for topic in last.topics if not pair.settings[back].replicates(topic)]
        if missing:
            refused.append(f"{back} does not copy {in_short(missing)}: nothing would bring them back. Add them to it.")
        fenced = await self._topics_of(last)
        plan = await RunFence(pair, flow, self._options).plan(fenced)
        try:
            refuse_plan(plan, accepts_unproven=self._options.accepts_unproven)
        except Mm2Error as error:
            refused.append(str(error))
        if self._choice.folder:
            try:
                require_pyarrow()
            except Mm2Error as error:
                refused.append(str(error))
        own = await (await read_turned(pair, flow)).seen()
        if own.claims and last.state is RecoveryState.FAILED_OVER:
            refused.append(
                f"{flow} is {own.text}: it copies what only {flow.source} has. Turn it off: mm2py dr turn FILE"
                f" '{flow}' --off."
            )
        refused += await self._refused_by_way_back(flow, entries or self._entries, last)
        refused += await self._refused_by_copies(flow, entries or self._entries, last)
        found: ExtrasFound | None = None
        try:
            found = await self.look(last)
        except Mm2Error as error:
            refused.append(str(error))
        return ReinstatePreview(
            flow=flow,
            topics=last.topics,
            fence=plan,
            found=found,
            choice=self._choice,
            memory=remembered(entries or self._entries),
            turns=pair.keeps_names(flow),
            refused=tuple(refused),
        )

    async def _refused_by_way_back(self, flow: Flow, entries: Sequence[JournalEntry], last: JournalEntry) -> list[str]:
        """Return why the list cannot be made: the flow back has written behind what only the old side has."""
        back = turned(flow)
        if not self._pair.keeps_names(flow) or self._choice.leaves_all:
            return []
        was_drained = any(one.run == last.run and one.event is RecoveryEvent.ALL_COPIED for one in entries)
        other = await (await read_turned(self._pair, back)).seen()
        if was_drained or not other.claims:
            return []
        return [
            f"{back} is {other.text}, and has written behind what only {flow.source} has: that cannot be told any more."
            f" mm2py dr turn has named it. Say --leave-all, and it goes on without it."
        ]

    async def _refused_by_copies(self, flow: Flow, entries: Sequence[JournalEntry], last: JournalEntry) -> list[str]:
        """Return why the way back would not be whole: the flow has copied after the failover ended it.

        The story: something turned A->B on when A came back. What only A had lies on B behind what clients have written
        there, and B->A begins behind that: A would never get what they wrote.
        """
        if not self._pair.keeps_names(flow) or self._choice.leaves_all:
            return []
        ended, back = stored_facts(entries).copied_to, turned(flow)
        positions = await stored_positions(
            self._pair.settings[flow], self._pair.brokers[flow.target], rng=self._pair.rng
        )
        found = {f"{name}-{number}": at.next_source for (name, number), at in positions.items() if name in last.topics}
        late = [f"{name} up to {at:,}" for name, at in sorted(found.items()) if at > ended.get(name, at)]
        if not late:
            return []
        return [
            f"{flow} has copied {in_short(late)} since the failover ended it, behind what clients had written to"
            f" {flow.target}. {back} begins behind that: {flow.source} would not get what they wrote before. Find out"
            f" who turned {flow} on. With --leave-all it goes on, and {flow.source} lacks these records."
        ]

    async def look(self, entry: JournalEntry) -> ExtrasFound:
        """Return what only the old side has now. Raises: as ``ExtrasInquiry.look``."""
        topics = [topic for topic in entry.topics if self._pair.settings[entry.flow].replicates(topic)]
        return await ExtrasInquiry(self._pair, entry.flow).look(topics)

    # The steps

    async def hold_flow_back(self, entry: JournalEntry) -> None:
        """Turn off whatever would change the list while it is made."""
        pair, flow = self._pair, entry.flow
        for one in (flow, turned(flow)) if pair.keeps_names(flow) else (flow,):
            there = await read_turned(pair, one)
            if (await there.seen()).claims:
                await until_drained(pair, lambda held=there: turn_off(held, by=pair.by, author=pair.author))  # type: ignore[misc]
                self._say(f"turned {one} off, until what only {flow.source} has is settled")

    async def settle_extras(self, entry: JournalEntry) -> RecoveryFacts:
        found = await self.look(entry)
        for line in found.lines:
            self._say(line)
        await self.settle(entry, found)
        memory = self._memory
        if topics := memory.open_topics(found):
            raise ExtrasOpen(open_text(found, topics), remedy=SETTLE_REMEDY)
        if not self._pair.keeps_names(entry.flow):
            await self._carry_on(entry, found, memory)
        return RecoveryFacts()

    async def settle(self, entry: JournalEntry, found: ExtrasFound) -> None:
        """Do what the call asks for with the topics that are open, and remember each.

        Raises: ExportRefused, ReplayRefused; KafkaError, a cluster refuses, or does not answer. What was done counts.
        """
        ways: dict[ExtrasWay, list[str]] = {}
        for topic in self._memory.open_topics(found):
            parts = found.of_topic(topic)
            gap = any(one.has_gap or one.open_from is not None for one in parts)
            way = self._choice.way_of(topic, has_gap=gap)
            if way is not None:
                ways.setdefault(way, []).append(topic)
        if left := ways.get(ExtrasWay.LEFT):
            await self._note(entry, found, left, ExtrasWay.LEFT)
        moved = [*ways.get(ExtrasWay.EXPORTED, []), *ways.get(ExtrasWay.REPLAYED, [])]
        if moved and self._choice.exports:
            await self._export(entry, [one for topic in moved for one in found.of_topic(topic)])
        if exported := ways.get(ExtrasWay.EXPORTED):
            await self._note(entry, found, exported, ExtrasWay.EXPORTED)
        if replayed := ways.get(ExtrasWay.REPLAYED):
            if self._pair.keeps_names(entry.flow):
                await self._replay(entry, [one for topic in replayed for one in found.of_topic(topic)])
            await self._note(entry, found, replayed, ExtrasWay.REPLAYED)

    async def still_fenced(self, entry: JournalEntry) -> None:
        """Raises: CutoverRefused, a part of the fence is missing, or the old side has moved since it was verified."""
        fence = RunFence(self._pair, entry.flow, self._options)
        ends = await fence.still_stands(await self._topics_of(entry))
        if why := moved_since(stored_facts(self._entries), RecoveryFacts(source_ends=ends)):
            raise CutoverRefused(
                f"{entry.flow.source} has moved since its fence was verified: {why}.",
                remedy=f"mm2py dr reinstate FILE '{entry.flow}' verifies it again.",
            )

    async def turn_flow_round(self, entry: JournalEntry) -> None:
        if entry.verb is not RecoveryVerb.FAILOVER:
            await super().turn_flow_round(entry)
            return
        pair, flow, memory = self._pair, entry.flow, self._memory

        async def renew() -> None:
            journal = self._journal
            if not journal.may_act:
                await journal.append(RecoveryEvent.RESTARTED, flow)

        if not pair.keeps_names(flow):
            there = await read_turned(pair, flow)
            if not (await there.seen()).is_on:
                await renew()
                await until_drained(pair, lambda: turn_on(there, None, by=pair.by, author=pair.author))
        await turn_round(pair, flow, renew, force=True, leaves_out=memory.producers)
        if pair.keeps_names(flow):
            await renew()
            await self._set_behind(flow, memory.settled)
        self._say(f"{turned(flow)} runs, and keeps {flow.source} exact; it begins behind what {flow} has brought")

    # What becomes of a topic

    async def _export(self, entry: JournalEntry, parts: Sequence[PartitionExtras]) -> None:
        inquiry, choice = ExtrasInquiry(self._pair, entry.flow), self._choice
        with_records = [one for one in parts if one.records]
        if choice.folder:
            count = await export_parquet(with_records, inquiry, Path(choice.folder))
            self._say(f"exported {count:,} record(s) to {choice.folder}")
        if choice.export_topic:
            count = await TopicExport(self._pair, entry.flow, inquiry, choice.export_topic).run(with_records)
            self._say(f"exported {count:,} record(s) to topic {choice.export_topic} on {entry.flow.target}")

    async def _replay(self, entry: JournalEntry, parts: Sequence[PartitionExtras]) -> None:
        """Replay under a producer id that the journal knows before the first record."""
        flow, journal = entry.flow, self._journal
        replay = ExtrasReplay(self._pair, flow, ExtrasInquiry(self._pair, flow))
        wanted = [one for one in parts if one.records]
        known = self._memory
        new = sorted({one.topic for one in wanted if one.partition not in known.replay_begins})
        ends = await replay.ends(new) if new else {}
        begins = {name: end for name, end in ends.items() if name not in known.replay_begins}
        producer = await replay.producer_id()
        if begins or producer not in known.producers:
            text = f"{sum(one.records for one in wanted):,} record(s) are about to be replayed, by producer {producer}"
            await journal.append(RecoveryEvent.EXTRAS_NOTED, flow, text=text, kept=replay_kept(begins, [producer]))
        known = self._memory
        await replay.run(wanted, known.replay_begins, known.producers, self._say)

    async def _note(self, entry: JournalEntry, found: ExtrasFound, topics: Sequence[str], way: ExtrasWay) -> None:
        where = self._choice.where if way is ExtrasWay.EXPORTED else ""
        told = {topic: SettledTopic(way, found.ends(topic), where) for topic in topics}
        count = sum(one.records for topic in topics for one in found.of_topic(topic))
        what = next(iter(told.values())).text
        if way is ExtrasWay.REPLAYED and not self._pair.keeps_names(entry.flow):
            what = f"to be copied by {entry.flow} itself"
        text = f"{count:,} record(s) of {in_short(topics)}: {what}"
        await self._journal.append(RecoveryEvent.EXTRAS_NOTED, entry.flow, text=text, kept=settled_kept(told))

    async def _carry_on(self, entry: JournalEntry, found: ExtrasFound, memory: ExtrasMemory) -> None:
        """Let the flow copy what is to be replayed; it begins behind what is left. For flows with other names."""
        pair, flow = self._pair, entry.flow
        settled = {name: one for name, one in memory.settled.items() if memory.is_settled(found, name)}
        await self._set_behind(flow, {name: one for name, one in settled.items() if one.way is not ExtrasWay.REPLAYED})
        ends = {
            one.partition: one.end
            for name, at in settled.items()
            for one in found.of_topic(name)
            if at.way is ExtrasWay.REPLAYED and one.first < one.end
        }
        if not ends:
            return
        there = await read_turned(pair, flow)
        await until_drained(pair, lambda: turn_on(there, None, by=pair.by, author=pair.author))
        while late := [*behind(ends, (await self._patiently(lambda: copied_so_far(pair, flow, ends))).copied)]:
            await self._wait(late[0])
        self._say(f"{flow} has copied them")

    async def _set_behind(self, flow: Flow, settled: Mapping[str, SettledTopic]) -> None:
        """Set a flow that is off behind the fenced ends of topics. It may be repeated."""
        metadata = await fetch_metadata(self._pair.brokers[flow.source], None)
        starts: dict[TopicPartition, int] = {
            (name, int(number)): end
            for name, one in settled.items()
            for number, end in one.ends.items()
            if name in metadata.topics and int(number) in metadata.topics[name].partitions
        }
        if starts:
            there = await read_turned(self._pair, flow)
            await until_drained(self._pair, lambda: ConnectorOffsets(there.settings, there.clusters).begin_at(starts))

    # What the journal says

    @property
    def _journal(self) -> JournalWriter:
        assert self.journal is not None  # noqa: S101  (set before the first step)
        return self.journal

    @property
    def _entries(self) -> Sequence[JournalEntry]:
        return () if self.journal is None else self.journal.entries

    @property
    def _memory(self) -> ExtrasMemory:
        return remembered(self._entries)


async def _no_obstacle(_: Flow) -> Sequence[str]:
    """Return nothing: ``mm2py dr check`` of the flow would name what the failover has done to it."""
    return ()
