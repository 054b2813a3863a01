"""Questions about one flow that its clusters are asked only on request: groups, translations, quarantine, recoveries.

They use other connections than the looks at the clusters: a ledger that takes long to read delays no look.
"""

from __future__ import annotations

import asyncio
import io
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from mm2py.clock import Clock
from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import FlowSettings
from mm2py.dr.journal import JournalEntry
from mm2py.dr.journal_topic import read_agreed
from mm2py.dr.readiness import RecoveryReadiness, readiness_of, target_away
from mm2py.dr.readiness_inquiry import LookedAt, ask_readiness
from mm2py.errors import Mm2Error
from mm2py.flight.inquiry import explain_at
from mm2py.flight.why_then import PastExplanation
from mm2py.flow import ClusterAlias
from mm2py.flow_clusters import Connected
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.list_offsets import EARLIEST, find_offsets
from mm2py.logs import make_logger
from mm2py.status.cluster_inquiry import InquirySide, patience_of_commands
from mm2py.status.flow_report import FlowReport
from mm2py.status.offset_inquiry import Question
from mm2py.status.target_alone import GroupsQuestion, GroupsTold, OffsetsQuestion, OffsetsTold, TargetUnread
from mm2py.status.why import Explanation, Replicated, TopicDetails
from mm2py.status.why_group import GroupOnSource
from mm2py.status.why_inquiry import group_on_source, hidden_details
from mm2py.topics.names import quarantine
from mm2py_rest.clusters.answers import SharedAnswer
from mm2py_rest.errors import RestError
from mm2py_rest.reports.quarantine import QuarantinedRecord, QuarantineTable

ANSWER_MOST_S: Final = 30.0
STARTS_MOST_S: Final = 2.0
"""If the source does not report log starts in time, the answer has none."""
TOPICS_KEPT_MOST: Final = 200
JOURNAL_KEPT_S: Final = 0.5

T = TypeVar("T")


class FlowQuestions:
    """Asks about one flow. Nothing is connected before the first question."""

    def __init__(
        self,
        settings: FlowSettings,
        connect_source: Callable[[], Connected],
        connect_target: Callable[[], Connected],
        clock: Clock,
    ) -> None:
        self.settings = settings
        """The settings in the worker's file."""
        self._connect_source = connect_source
        self._connect_target = connect_target
        self._clock = clock
        self._log = make_logger("error", "text", io.StringIO())
        self._sides: tuple[InquirySide, InquirySide] | None = None
        self._groups: tuple[FlowSettings, SharedAnswer[GroupsTold]] | None = None
        self._offsets: tuple[FlowSettings, OffsetsQuestion] | None = None
        self._translating = asyncio.Lock()
        self._looking_back = asyncio.Lock()
        self._journal = SharedAnswer(self._ask_journal, clock, least_s=JOURNAL_KEPT_S)
        self._looked_over: tuple[SettingsFile, FlowSettings, FlowReport, Mapping[ClusterAlias, str]] | None = None
        self._readiness = SharedAnswer(self._ask_readiness, clock)
        self._quarantine: SharedAnswer[list[QuarantinedRecord]] | None = None
        self._starts: dict[str, SharedAnswer[dict[int, int]]] = {}

    @property
    def source(self) -> Connected:
        return self._connect_source()

    @property
    def target(self) -> Connected:
        return self._connect_target()

    def _both(self) -> tuple[InquirySide, InquirySide]:
        """Return source and target."""
        if self._sides is None:
            patience, flow = patience_of_commands(self._clock), self.settings.flow
            self._sides = (
                InquirySide(flow.source, self.source, patience),
                InquirySide(flow.target, self.target, patience),
            )
        return self._sides

    async def close(self) -> None:
        """Stop asking. The caller closes the connections."""
        for side in self._sides or ():
            await side.close()

    async def groups(self, settings: FlowSettings) -> GroupsTold:
        """Return the consumer groups of the flow; ``settings`` are those with which its workers run it.

        If the source does not answer, the answer comes from the target alone.

        Raises:
            RestError: the flow emits no checkpoints, or the target does not answer in time.
            TargetUnread: the target does not answer, or refuses.
        """
        if settings.checkpoints is None:
            raise RestError(409, f"{settings.flow} emits no checkpoints. Set emit.checkpoints.enabled to true.")
        if self._groups is None or self._groups[0] != settings:
            question = GroupsQuestion(settings, *self._both(), self._clock, self._log)
            self._groups = settings, SharedAnswer(question.ask, self._clock)
        return await self._in_time(self._groups[1].get(), "asking for consumer groups")

    async def translate(self, settings: FlowSettings, question: Question) -> OffsetsTold:
        """Return the offsets' places in the other log. It asks one question after the other: they share the tables.

        Raises: as ``groups``.
        """

        async def ask() -> OffsetsTold:
            async with self._translating:
                if self._offsets is None or self._offsets[0] != settings:
                    self._offsets = settings, OffsetsQuestion(settings, *self._both(), self._clock, self._log)
                return await self._offsets[1].ask(question)

        return await self._in_time(ask(), "reading the ledger")

    async def explain_at(self, file: SettingsFile, asked: tuple[str, int | None], at_ms: int) -> PastExplanation:
        """Return whether a topic, or a partition, was replicated at a moment. One is read after the other.

        Args:
            file: the worker's.
            asked: the topic, and the partition or None.
        Raises:
            PastUnread: the target does not answer, or refuses.
            RestError: not in time.
        """

        async def ask() -> PastExplanation:
            async with self._looking_back:
                target, rng = self._both()[1], random.Random()  # noqa: S311  (spreads retries; nothing secret)
                return await explain_at(file, self.settings, target, asked, at_ms, clock=self._clock, rng=rng)

        return await self._in_time(ask(), "reading the flight recorder")

    async def readiness(
        self, file: SettingsFile, settings: FlowSettings, asked: FlowReport, clusters: Mapping[ClusterAlias, str]
    ) -> RecoveryReadiness:
        """Return whether the flow is ready for a cutover and a failover. It asks much: callers share an answer.

        Args:
            file: the worker's.
            settings: those with which its workers run the flow.
            asked: of the last look; ``clusters``: why one does not answer, by the same look.
        Raises:
            RestError: not in time.
        """

        self._looked_over = file, settings, asked, clusters
        return await self._in_time(self._readiness.get(), "looking over what a recovery needs")

    async def _ask_readiness(self) -> RecoveryReadiness:
        """Answer by the last look that a caller has brought."""
        assert self._looked_over is not None  # noqa: S101
        file, settings, asked, clusters = self._looked_over
        source, target = self._both()
        await asyncio.gather(source.probe(), target.probe())
        flow, at_ms = self.settings.flow, self._clock.wall_ms()
        away = clusters.get(flow.source, "") or source.away, clusters.get(flow.target, "") or target.away
        if away[1]:
            return target_away(flow, at_ms, *away)
        reports, unread = None, ""
        if settings.checkpoints is not None:
            try:
                _, unread, reports = await self.groups(settings)
            except TargetUnread as error:
                unread = str(error)
        looked = LookedAt(at_ms, *away, asked, reports, unread)
        rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
        return readiness_of(await ask_readiness(file, looked, source, target, clock=self._clock, rng=rng))

    async def journal(self) -> tuple[JournalEntry, ...]:
        """Return what the journals of recoveries say, on the clusters that answer.

        Raises:
            JournalsDisagree, JournalUnreadable, KafkaError: they do not tell.
            RestError: neither answers, or not in time.
        """
        return await self._in_time(self._journal.get(), "reading the journals of recoveries")

    async def _ask_journal(self) -> tuple[JournalEntry, ...]:
        sides = self._both()
        await asyncio.gather(*(side.probe() for side in sides))
        answering = {side.alias: side.brokers for side in sides if not side.away}
        if not answering:
            raise RestError(503, sides[0].away, {"Retry-After": "5"})
        return tuple((await read_agreed(self.settings.flow, answering)).entries)

    async def quarantined(self) -> list[QuarantinedRecord]:
        """Return the records in quarantine. Raises: RestError, as ``groups``; others as ``QuarantineTable.follow``."""
        if self._quarantine is None:
            table = QuarantineTable(self.target, str(quarantine(self.settings.flow.source).name))

            async def ask() -> list[QuarantinedRecord]:
                await table.follow()
                return table.records()

            self._quarantine = SharedAnswer(ask, self._clock)
        return await self._in_time(self._quarantine.get(), "reading the quarantine topic")

    async def details(self, topic: str, found: Explanation) -> TopicDetails:
        """Return what ``why`` asks about a topic besides; ``found``: its answer without that. Raises: RestError."""
        if found.replicated is not Replicated.YES:
            return await self._in_time(hidden_details(topic, found, self._both()[0]), f"asking for {topic}")
        try:
            kept = await self.quarantined()
        except Mm2Error as error:
            return TopicDetails(quarantine_unread=str(error))
        waiting = (one.partition for one in kept if one.topic == topic and one.replayed_at_ms is None)
        return TopicDetails(quarantined=Counter(waiting))

    async def group_on_source(self, group: str) -> GroupOnSource | None:
        """Return what the source says of a group; None: it does not answer. Raises: RestError, not in time."""
        return await self._in_time(group_on_source(group, self._both()[0]), f"asking for group {group}")

    async def starts(self, topic: str) -> dict[int, int]:
        """Return the first offsets of a source topic's partitions, as far as the source reports them."""
        if topic not in self._starts:
            if len(self._starts) >= TOPICS_KEPT_MOST:
                del self._starts[next(iter(self._starts))]

            async def ask() -> dict[int, int]:
                try:
                    async with asyncio.timeout(STARTS_MOST_S):
                        return await self._ask_starts(topic)
                except (Mm2Error, TimeoutError):
                    return {}  # kept like any answer, so that not every caller waits for a silent cluster

            self._starts[topic] = SharedAnswer(ask, self._clock)
        return await self._starts[topic].get()

    async def _ask_starts(self, topic: str) -> dict[int, int]:
        metadata = await fetch_metadata(self.source, [topic])
        found = metadata.topics.get(topic)
        keys = [] if found is None else [(topic, number) for number in found.partitions]
        leaders = {key: metadata.leader_of(*key) for key in keys}
        return {key[1]: at for key, at in (await find_offsets(self.source, leaders, EARLIEST)).items()}

    async def _in_time(self, work: Coroutine[Any, Any, T], doing: str) -> T:
        try:
            async with asyncio.timeout(ANSWER_MOST_S):
                return await work
        except TimeoutError as error:
            flow = self.settings.flow
            why = f"{flow.source} or {flow.target} does not answer: {doing} took more than {ANSWER_MOST_S:g} s."
            raise RestError(503, why, {"Retry-After": "5"}) from error
