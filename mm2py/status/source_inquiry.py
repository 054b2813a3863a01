"""Where the source partitions of a flow begin and end, and which topics its settings select."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Container, Sequence
from typing import Final

from mm2py.config.settings import FlowSettings
from mm2py.flow import TopicName
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import name_of
from mm2py.kafka.list_offsets import EARLIEST, LATEST, list_offsets
from mm2py.kafka.port import BrokerId
from mm2py.status.asking import Side
from mm2py.status.facts import Key
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.selection import should_replicate

TOPICS_KEPT_S: Final = 15.0
"""How long a list of all topics is used again while watching. On a large cluster it is large."""


class SourceInquiry:
    """The source of one flow."""

    def __init__(self, settings: FlowSettings, source: Side) -> None:
        self.selected: dict[str, int] | None = None
        self.starts: dict[Key, int] = {}
        self.ends: dict[Key, int] = {}
        self.unread: list[str] = []
        self._settings = settings
        self._source = source
        self._topics: list[TopicMetadata] = []
        self._listed_at_s: float | None = None
        self._decided: dict[str, bool] = {}
        self._errors: Counter[int] = Counter()

    async def look(self, positions: Container[Key], *, with_starts: bool) -> None:
        """Ask where all selected partitions end, and where those without a position begin.

        Args:
            positions: the partitions that have a position.
            with_starts: False if ``positions`` could not be read.
        """
        self.unread, self.starts, self.ends, self._errors = [], {}, {}, Counter()
        why = await self._source.why_not("listing its topics", self._list_topics)
        if why:
            self.selected = None
            self.unread.append(why)
            return
        self._select()
        leaders: dict[BrokerId, list[Key]] = {}
        headless = 0
        for topic in self._topics:
            for number, part in topic.partitions.items():
                if part.leader is None:
                    headless += 1
                else:
                    leaders.setdefault(part.leader, []).append((topic.name, number))
        if headless:
            self.unread.append(f"{headless} partition(s) on {self._source.alias} have no leader.")
        async with asyncio.TaskGroup() as tasks:
            for leader, keys in leaders.items():
                new = [key for key in keys if key not in positions] if with_starts else []
                tasks.create_task(self._ask(leader, keys, new), name=f"status: {self._source.alias} {leader}")
        for code, count in sorted(self._errors.items()):
            self.unread.append(f"{count} partition(s) on {self._source.alias} have no answer: {name_of(code)}.")
        if self.unread:
            self._listed_at_s = None  # their leaders may have moved

    async def _list_topics(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._listed_at_s is None or now_s - self._listed_at_s >= TOPICS_KEPT_S:
            found = await fetch_metadata(self._source.brokers, None)
            self._topics = [topic for topic in found.topics.values() if self._is_selected(topic.name)]
            self._listed_at_s = now_s

    def _is_selected(self, topic: str) -> bool:
        if topic not in self._decided:
            settings = self._settings
            try:
                self._decided[topic] = should_replicate(
                    TopicName(topic),
                    policy=settings.policy,
                    topic_filter=settings.topic_filter,
                    heartbeats_replication=settings.heartbeats_replication,
                    target_alias=settings.flow.target,
                ).replicate
            except PatternTooSlow:
                self._decided[topic] = False  # the worker says so in its log, and copies none of it
        return self._decided[topic]

    def _select(self) -> None:
        self.selected = {topic.name: len(topic.partitions) for topic in self._topics}
        refused = Counter(topic.error_code for topic in self._topics if topic.error_code)
        for code, count in sorted(refused.items()):
            self.unread.append(f"{count} topic(s) on {self._source.alias} have no answer: {name_of(code)}.")

    async def _ask(self, leader: BrokerId, keys: Sequence[Key], new: Sequence[Key]) -> None:
        async def ask() -> None:
            await self._offsets(leader, keys, LATEST, self.ends)
            await self._offsets(leader, new, EARLIEST, self.starts)

        why = await self._source.why_not(f"asking broker {leader} for its offsets", ask)
        if why:
            self.unread.append(why)

    async def _offsets(self, leader: BrokerId, keys: Sequence[Key], timestamp: int, into: dict[Key, int]) -> None:
        committed = self._settings.read_committed and timestamp == LATEST
        answers = await list_offsets(
            self._source.brokers, dict.fromkeys(keys, leader), timestamp, read_committed=committed
        )
        for key, answer in answers.items():
            if answer.error_code:
                self._errors[answer.error_code] += 1
            else:
                into[key] = answer.offset
