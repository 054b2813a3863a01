"""The one process that writes the recovery journal of a pair of clusters. ``journal.py`` says what counts.

It shuts the previous process out, makes both journals equal, and stores each entry where it has to be before it counts.
Where the journals are kept is behind ``JournalStore``: topics, or a model in tests.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, Self

from mm2py.clock import Clock
from mm2py.dr.journal import (
    JournalEntry,
    JournalOpening,
    JournalRecord,
    StepTold,
    agreed,
    folded,
    last_term,
    needed_by,
    next_entry,
    restamped,
    standing_entry,
)
from mm2py.dr.states import (
    ACTS_WITHIN_S,
    LATE_S,
    NO_FACTS,
    RecoveryEvent,
    RecoveryFacts,
    RecoveryRow,
    is_at_rest,
)
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias, Flow
from mm2py.records.author import Author


class JournalTakenOver(Mm2Error):
    """Another process has begun to write the journal. This one does nothing more."""

    def __init__(self) -> None:
        super().__init__(
            "Another mm2py dr has begun to work on this pair of clusters.",
            remedy="This one has stopped. See mm2py dr check FILE 'A->B', and let one of them work.",
        )


class JournalNotStored(Mm2Error):
    """A cluster does not answer, or refuses to store an entry. Whether it is stored is not known."""


class ClusterNeeded(Mm2Error):
    """A step counts only if a cluster that does not answer has stored it."""

    def __init__(self, alias: ClusterAlias, state: str) -> None:
        super().__init__(
            f"{alias} does not answer, and {state} counts only when it has stored it.",
            remedy=f"Make {alias} answer, or fail over.",
        )


@dataclass(frozen=True, slots=True)
class KeptJournal:
    """What one cluster has."""

    records: tuple[JournalRecord, ...]
    topic_id: str
    """Empty: it has no journal."""
    where: str
    """How errors name it."""

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """The entries that count. Raises: JournalUnreadable."""
        return folded(self.records, where=self.where)


class JournalStore(Protocol):
    """Where journals are kept, on the clusters that answer."""

    @property
    def clusters(self) -> Sequence[ClusterAlias]: ...
    async def begin(self, alias: ClusterAlias) -> None:
        """Make the journal if there is none, and get a newer epoch than all previous writers: see ``write``."""

    async def read(self, alias: ClusterAlias) -> KeptJournal: ...
    async def write(self, alias: ClusterAlias, records: Sequence[JournalRecord], *, is_optional: bool = False) -> None:
        """Append records, all or none.

        From the first write under a newer epoch on, those of older epochs are refused.

        Args:
            is_optional: the caller does without it: give up soon.
        Raises:
            JournalTakenOver: a newer epoch has written.
            JournalNotStored: the cluster does not answer, or refuses.
        """


@dataclass(slots=True)
class JournalWriter:
    """Writes one pair's journal. After an error it is at its end: the next writer reads what was stored."""

    store: JournalStore
    author: Author
    clock: Clock
    rng: random.Random
    term: int = 0
    entries: tuple[JournalEntry, ...] = ()
    """What counts, in order."""
    tell: Callable[[JournalEntry], None] = lambda _: None
    """Is told each entry that counts as soon as it is stored."""
    _left: set[ClusterAlias] = field(default_factory=set)
    """Clusters that no longer answered when an entry could do without them."""
    _kept_in: dict[str, str] = field(default_factory=dict)
    _stored_s: float = float("-inf")
    """When the last entry was on its way, by the clock that goes on while the machine sleeps."""

    @classmethod
    async def open(cls, store: JournalStore, *, author: Author, clock: Clock, rng: random.Random) -> Self:
        """Begin to write.

        Raises:
            JournalsDisagree, JournalUnreadable: it is not known what was done.
            JournalTakenOver: another process has begun since.
            JournalNotStored: a cluster refuses, or does not answer.
        Cancelling leaves an opening record at most, which changes nothing but who may write.
        """
        found = cls(store, author, clock, rng)
        for alias in store.clusters:
            await store.begin(alias)
        before = [await store.read(alias) for alias in store.clusters]
        highest = max((last_term(one.records) for one in before), default=0)
        while True:
            found.term = highest + 1
            for alias in store.clusters:
                await store.write(alias, [JournalOpening(found.term, clock.wall_ms(), author)])
            # Only now previous writers are shut out: what they stored until here is read, and nothing comes later.
            after = {alias: await store.read(alias) for alias in store.clusters}
            highest = max((last_term(one.records) for one in after.values()), default=0)
            if highest == found.term:
                break
            # The story: another process chose term 7, and its opening record was late. We had read the journal before
            # it arrived, and chose term 3. All that we store would be taken for records that came too late.
        ids = {alias: one.topic_id for alias, one in after.items()}
        told = agreed({alias: one.entries for alias, one in after.items()}, ids)
        for alias, missing in told.missing.items():
            await store.write(alias, restamped(missing, found.term))
        known = told.entries[-1].kept_in if told.entries else {}
        found._kept_in = {**known, **{str(alias): one for alias, one in ids.items()}}
        found.entries = told.entries
        return found

    @property
    def standing(self) -> JournalEntry | None:
        """How the pair of clusters stands."""
        return standing_entry(self.entries)

    @property
    def waits_s(self) -> float:
        """How long to wait after ``open`` before anything is changed: see ``is_at_rest``."""
        last = self.entries[-1] if self.entries else None
        return 0.0 if last is None or is_at_rest(last.state, last.event) else LATE_S

    @property
    def may_act(self) -> bool:
        """Whether the last entry is so fresh that something may be changed without storing another one."""
        return self.clock.boottime() - self._stored_s < ACTS_WITHIN_S

    async def append(
        self,
        event: RecoveryEvent,
        flow: Flow,
        *,
        seen: RecoveryFacts = NO_FACTS,
        text: str = "",
        topics: Sequence[str] = (),
        window_s: int | None = None,
        kept: Mapping[str, Any] = MappingProxyType({}),
    ) -> RecoveryRow:
        """Store an entry where it has to be before it counts; return what to do now. Arguments: see ``next_entry``.

        Raises:
            RunRefused, NoSuchTransition, PromiseBroken: nothing was stored.
            ClusterNeeded: a cluster is away without which the entry does not count. Nothing was stored.
            JournalTakenOver: another process has begun since. The entry does not count.
            JournalNotStored: a cluster does not answer, or refuses. The entry does not count.
        """
        mark = f"{self.rng.getrandbits(64):016x}"
        told = StepTold(
            self.term,
            self.clock.wall_ms(),
            mark,
            self.author,
            text,
            tuple(topics),
            window_s,
            kept,
            dict(self._kept_in),
        )
        entry, row = next_entry(self.entries, event, flow, told, seen)
        needed, other = needed_by(entry)
        reached = [alias for alias in self.store.clusters if alias not in self._left]
        for alias in needed:
            if alias not in reached:
                raise ClusterNeeded(alias, entry.state)
        begun_s = self.clock.boottime()
        for alias in needed:
            await self.store.write(alias, [entry])
        if other in reached:
            try:
                await self.store.write(other, [entry], is_optional=True)
            except (JournalNotStored, JournalTakenOver):
                self._left.add(other)  # the next process that reaches both makes it equal
        self._stored_s = begun_s
        self.entries = (*self.entries, entry)
        self.tell(entry)
        return row
