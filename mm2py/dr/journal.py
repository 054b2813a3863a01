"""The journal of recoveries of a pair of clusters: records of ``mm2-recovery.A.B.internal`` on both clusters. Pure.

It is all that a recovery remembers. An entry is stored before anything is done in its state: first on the run's source,
then on its target. It counts as soon as both have it, and then only is it acted on. While a cluster is away, the
states of ``WITHOUT_SOURCE`` count on the target alone, and those of ``WITHOUT_TARGET`` on the source alone.

One process writes at a time. It begins with a higher *term*: an opening record under a new producer epoch, so that the
brokers refuse what the previous one still sends. Then it reads both journals to their ends, and makes them equal
before it does anything else. An entry with a number that is there already replaces it, and all behind it.

Positions, durations and who asked are parts of the entries, so the journal is the report as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from mm2py.dr.states import (
    ENDED,
    MAY_HAVE_SWITCHED,
    NO_FACTS,
    WITHOUT_SOURCE,
    WITHOUT_TARGET,
    PartitionOffsets,
    RecoveryEvent,
    RecoveryFacts,
    RecoveryRow,
    RecoveryState,
    RecoveryVerb,
    transition,
)
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias, Flow
from mm2py.records.author import UNKNOWN, Author, author_of, plain

FORMAT_VERSION: Final = 1
"""A reader that is older than ``readable_from`` in a record stops: it would not know what may have been done."""
TEXT_MOST: Final = 2_000
NAME_MOST: Final = 300
VERSION_MOST: Final = 40


@dataclass(frozen=True, slots=True)
class JournalOpening:
    """A process has begun to write: what comes later with a lower term does not count."""

    term: int
    at_ms: int
    author: Author = UNKNOWN


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One step of a run."""

    term: int
    """Of the process that has stored it here."""
    number: int
    """Its place in the journal, from 0 on."""
    mark: str
    """Says whether two clusters have the same entry; random."""
    run: str
    """The run that it belongs to."""
    verb: RecoveryVerb
    flow: Flow
    """From the run's source to its target."""
    state: RecoveryState
    """The state that begins with it."""
    event: RecoveryEvent
    """What has led to it."""
    at_ms: int
    """When, by the clock of the machine that wrote it."""
    took_ms: int | None = None
    """How long the step took that ends with it; None: not known, as another process began it."""
    author: Author = UNKNOWN
    """Who asked."""
    text: str = ""
    """What has happened, in words."""
    topics: tuple[str, ...] = ()
    """The topics that move, by their names on the source."""
    window_s: int | None = None
    """For how long the run may be undone once it is reversed; None: until `dr complete`."""
    facts: RecoveryFacts = field(default_factory=RecoveryFacts)
    """What was seen."""
    kept: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What has to be restored, as the fence wrote it."""
    kept_in: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By alias, the id of the topic with the journal: another one was made later, and what the old one had is lost."""

    @property
    def undo_ends_ms(self) -> int | None:
        """When the run can be undone no more; None: it has no such end, or has not come that far."""
        if self.state is not RecoveryState.REVERSED or self.window_s is None:
            return None
        return self.at_ms + self.window_s * 1000

    def was_acted_on(self, kept_on: ClusterAlias) -> bool:
        """Return whether it counted although only this cluster has it."""
        if kept_on == self.flow.target:
            return self.state in WITHOUT_SOURCE
        return kept_on == self.flow.source and self.state in WITHOUT_TARGET


JournalRecord = JournalOpening | JournalEntry


class JournalUnreadable(Mm2Error):
    """A record of a journal is not what this mm2py can read."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"{where}: {why}.",
            remedy="Nothing is done. Use the mm2py that wrote it, or look at the record with kafka-dump-log.sh.",
        )


class RunRefused(Mm2Error):
    """A run cannot begin from where the pair of clusters stands."""


class JournalsDisagree(Mm2Error):
    """The journals of both clusters do not say what was done, so nothing is done by guess."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"The recovery journals of both clusters disagree: {why}.",
            remedy="Nothing is done. Find out which cluster takes records now and remove what is left of a fence; then"
            " delete the topic mm2-recovery.*.internal of the pair on both clusters: the next call begins anew.",
        )


def needed_by(entry: JournalEntry) -> tuple[tuple[ClusterAlias, ...], ClusterAlias | None]:
    """Return which clusters must have an entry before it counts, in this order; and one that gets it if it answers."""
    source, target = entry.flow.source, entry.flow.target
    if entry.state in WITHOUT_SOURCE:
        return (target,), source
    if entry.state in WITHOUT_TARGET:
        return (source,), target
    return (source, target), None


def folded(records: Iterable[JournalRecord], *, where: str) -> tuple[JournalEntry, ...]:
    """Return the entries that count of one cluster's journal, in order.

    Raises:
        JournalUnreadable: an entry is missing.
    """
    term, found = 0, list[JournalEntry]()
    for record in records:
        if record.term < term:
            continue
        term = record.term
        if isinstance(record, JournalOpening):
            continue
        if record.number > len(found):
            raise JournalUnreadable(where, f"entry {len(found)} is missing, before {record.number}")
        found[record.number :] = [record]
    return tuple(found)


def last_term(records: Iterable[JournalRecord]) -> int:
    """Return the highest term of a journal; 0: it is empty."""
    return max((record.term for record in records), default=0)


@dataclass(frozen=True, slots=True)
class AgreedJournal:
    """What both journals say together."""

    entries: tuple[JournalEntry, ...]
    missing: Mapping[ClusterAlias, tuple[JournalEntry, ...]]
    """By cluster, the entries that have to be stored there before anything else."""


def agreed(
    journals: Mapping[ClusterAlias, Sequence[JournalEntry]], kept_in: Mapping[ClusterAlias, str]
) -> AgreedJournal:
    """Return what the journals of both clusters say; of one, if only one answers.

    Args:
        journals: the entries that count, by the clusters that answer.
        kept_in: the ids of the journals' topics, by the same clusters.
    Raises:
        JournalsDisagree: both say that producers were switched to their own cluster, or one has lost entries.
    """
    _check_ids(journals, kept_in)
    if len(journals) < 2:
        entries = next((tuple(one) for one in journals.values()), ())
        return AgreedJournal(entries, MappingProxyType({}))
    (first, ours), (second, theirs) = journals.items()
    common = 0
    while common < min(len(ours), len(theirs)) and ours[common].mark == theirs[common].mark:
        common += 1
    tails = {first: ours[common:], second: theirs[common:]}
    for alias, tail in tails.items():
        if sum(not entry.was_acted_on(alias) for entry in tail) > 1:
            other = second if alias == first else first
            raise JournalsDisagree(f"{alias} has {len(tail)} entries from number {common} on that {other} has lost")
    winner = _winner(tails)
    missing = tuple(tails[winner])
    loser = second if winner == first else first
    return AgreedJournal((*ours[:common], *missing), MappingProxyType({loser: missing} if missing else {}))


def _winner(tails: Mapping[ClusterAlias, Sequence[JournalEntry]]) -> ClusterAlias:
    """Return the cluster whose entries count from where both journals differ.

    An entry that only one cluster has was acted on only if its state may do without the other one. One that was not is
    void: the process that wrote it had lost the other cluster, or had been fenced there.

    The story: the source takes a cutover back, and on the target, which does not see it, a failover cuts off the flow.
    If the source's entries won, nobody would turn the flow on again. A fence can be lifted twice.
    """
    acted = {alias: [one for one in tail if one.was_acted_on(alias)] for alias, tail in tails.items()}
    switched = [alias for alias, ones in acted.items() if any(one.state in MAY_HAVE_SWITCHED for one in ones)]
    if len(switched) > 1:
        raise JournalsDisagree("on each of them producers were switched to it while the other one was away")

    def rank(alias: ClusterAlias) -> tuple[bool, bool, bool, int, int]:
        tail = tails[alias]
        fails_over = any(one.state in WITHOUT_SOURCE for one in acted[alias])
        return alias in switched, fails_over, bool(acted[alias]), tail[-1].term if tail else 0, len(tail)

    return max(tails, key=rank)


def _check_ids(journals: Mapping[ClusterAlias, Sequence[JournalEntry]], kept_in: Mapping[ClusterAlias, str]) -> None:
    for entries in journals.values():
        for alias, known in entries[-1].kept_in.items() if entries else ():
            now = kept_in.get(ClusterAlias(alias))
            if now is not None and now != known:
                raise JournalsDisagree(f"that of {alias} was deleted, or made again, since the other one was written")


def restamped(entries: Iterable[JournalEntry], term: int) -> list[JournalEntry]:
    """Return entries as a process of this term stores them on the cluster that lacks them."""
    return [replace(entry, term=term) for entry in entries]


def standing_entry(entries: Sequence[JournalEntry]) -> JournalEntry | None:
    """Return the entry that says how the pair of clusters stands; None: no run has begun.

    A rollback that was taken back leaves the run that it should have undone.
    """
    for at in range(len(entries) - 1, -1, -1):
        entry = entries[at]
        if entry.verb is RecoveryVerb.ROLLBACK and entry.state is RecoveryState.TAKEN_BACK:
            before = [one for one in entries[:at] if one.run != entry.run]
            return standing_entry(before)
        return entry
    return None


@dataclass(frozen=True, slots=True)
class StepTold:
    """What a process tells of a step, beside what it is."""

    term: int
    at_ms: int
    mark: str
    author: Author = UNKNOWN
    text: str = ""
    topics: tuple[str, ...] = ()
    """Of a run that begins; the steps behind have the same."""
    window_s: int | None = None
    """Likewise."""
    kept: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    kept_in: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def next_entry(
    entries: Sequence[JournalEntry], event: RecoveryEvent, flow: Flow, told: StepTold, seen: RecoveryFacts = NO_FACTS
) -> tuple[JournalEntry, RecoveryRow]:
    """Return the entry that an event leads to, and the row of the table that says so.

    Args:
        entries: all that count.
        flow: of the run; of a rollback, the flow of the run that it undoes.
        seen: what the process has seen just now.
    Raises:
        RunRefused: the run cannot begin, or is not that of this flow.
        NoSuchTransition, PromiseBroken: as ``transition``.
    """
    last = standing_entry(entries)
    begins = last is None or last.state in ENDED
    if last is not None:
        _check_direction(last, flow)
    state = RecoveryState.READY if last is None or begins else last.state
    if event is RecoveryEvent.COMPLETE_ASKED and not has_switched(entries):
        raise RunRefused(
            "The switch hook of this run has not succeeded, and was left as it is.",
            remedy=f"Undo the run: mm2py dr rollback FILE '{flow}'.",
        )
    row = transition(state, event, seen, NO_FACTS if begins else stored_facts(entries))
    is_new = begins or row.turns or last is None
    same_process = bool(entries) and entries[-1].term == told.term and not is_new
    entry = JournalEntry(
        term=told.term,
        number=len(entries),
        mark=told.mark,
        run=told.mark if is_new or last is None else last.run,
        verb=_verb(event, last, turns=row.turns),
        flow=Flow(flow.target, flow.source) if row.turns else flow,
        state=row.following,
        event=event,
        at_ms=told.at_ms,
        took_ms=max(0, told.at_ms - entries[-1].at_ms) if same_process else None,
        author=told.author,
        text=told.text,
        topics=told.topics if is_new or last is None else last.topics,
        window_s=told.window_s if is_new or last is None else last.window_s,
        facts=seen,
        kept=told.kept,
        kept_in=told.kept_in,
    )
    return entry, row


def has_switched(entries: Sequence[JournalEntry]) -> bool:
    """Return whether the hook of the run that stands has succeeded: ``UndoAsked`` leaves it as it is."""
    last = standing_entry(entries)
    return last is not None and any(one.run == last.run and one.event is RecoveryEvent.HOOK_DONE for one in entries)


def _verb(event: RecoveryEvent, last: JournalEntry | None, *, turns: bool) -> RecoveryVerb:
    if event is RecoveryEvent.FAILOVER_ASKED:
        return RecoveryVerb.FAILOVER
    if turns:
        return RecoveryVerb.ROLLBACK
    return RecoveryVerb.CUTOVER if event is RecoveryEvent.CUTOVER_ASKED or last is None else last.verb


def _check_direction(last: JournalEntry, flow: Flow) -> None:
    """Check whether a run of this flow may begin, or go on.

    Raises:
        RunRefused: another run has not ended, or producers are on the other cluster.
    """
    if last.state not in ENDED:
        if flow != last.flow:
            raise RunRefused(
                f"The {last.verb} of {last.flow} is {last.state}.",
                remedy=f"Go on with it, or undo it, first: name '{last.flow}'.",
            )
        return
    active = last.flow.target if last.state is RecoveryState.COMPLETE else last.flow.source
    if flow.source != active:
        raise RunRefused(
            f"By the last run, the {last.verb} of {last.flow}, producers are on {active}.",
            remedy=f"Name the flow from {active}.",
        )


def stored_facts(entries: Sequence[JournalEntry]) -> RecoveryFacts:
    """Return what the last run has stored: of each kind the newest, since the fence was verified last."""
    ends: RecoveryFacts = RecoveryFacts()
    for entry in entries:
        if entry.run != entries[-1].run:
            continue
        if entry.event is RecoveryEvent.FENCE_HOLDS:
            ends = RecoveryFacts(source_ends=entry.facts.source_ends)
        ends = RecoveryFacts(
            source_ends=ends.source_ends,
            copied_to=entry.facts.copied_to or ends.copied_to,
            target_ends=entry.facts.target_ends or ends.target_ends,
            groups=entry.facts.groups or ends.groups,
            source_epochs=entry.facts.source_epochs or ends.source_epochs,
        )
    return ends


# The bytes


def encode_journal(record: JournalRecord, written_by: str) -> bytes:
    """Return the value of a record. ``written_by``: the version of mm2py."""
    found: dict[str, Any] = {"format": FORMAT_VERSION, "readable_from": FORMAT_VERSION, "mm2py": written_by}
    found |= {"term": record.term, "at_ms": record.at_ms, **record.author.fields}
    if isinstance(record, JournalOpening):
        return _dump({**found, "kind": "opening"})
    facts = record.facts
    return _dump(
        {
            **found,
            "kind": "entry",
            "number": record.number,
            "mark": record.mark,
            "run": record.run,
            "verb": record.verb,
            "source": record.flow.source,
            "target": record.flow.target,
            "state": record.state,
            "event": record.event,
            "took_ms": record.took_ms,
            "text": record.text[:TEXT_MOST],
            "topics": list(record.topics),
            "window_s": record.window_s,
            "source_ends": dict(facts.source_ends),
            "copied_to": dict(facts.copied_to),
            "target_ends": dict(facts.target_ends),
            "groups": {group: dict(offsets) for group, offsets in facts.groups.items()},
            "source_epochs": dict(facts.source_epochs),
            "kept": dict(record.kept),
            "kept_in": dict(record.kept_in),
        }
    )


def _dump(found: Mapping[str, Any]) -> bytes:
    return json.dumps(found, separators=(",", ":")).encode()


def decode_journal(value: bytes | None, *, where: str) -> JournalRecord:
    """Return a record. Fields that a later mm2py has added are ignored if it says that this is safe.

    Raises:
        JournalUnreadable: it is not what mm2py writes, or only a later one can read it.
    """
    try:
        found: Any = json.loads(value or b"")
        readable_from = found["readable_from"]
        if not _is_count(readable_from):
            raise ValueError
        if readable_from > FORMAT_VERSION:
            by = plain(found.get("mm2py"), VERSION_MOST) or "of a later version"
            raise JournalUnreadable(where, f"mm2py {by} wrote it, in a way that this mm2py cannot read")
        return _decoded(found)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise JournalUnreadable(where, "it is no record of mm2py's recovery journal") from None


def _decoded(found: Any) -> JournalRecord:
    term, at_ms = _count(found["term"]), _count(found["at_ms"])
    if found["kind"] == "opening":
        return JournalOpening(term, at_ms, author_of(found))
    if found["kind"] != "entry":
        raise ValueError
    took_ms, window_s = found["took_ms"], found.get("window_s")
    return JournalEntry(
        term=term,
        number=_count(found["number"]),
        mark=_text(found["mark"]),
        run=_text(found["run"]),
        verb=RecoveryVerb(found["verb"]),
        flow=Flow(ClusterAlias(_text(found["source"])), ClusterAlias(_text(found["target"]))),
        state=RecoveryState(found["state"]),
        event=RecoveryEvent(found["event"]),
        at_ms=at_ms,
        took_ms=None if took_ms is None else _count(took_ms),
        author=author_of(found),
        text=plain(found["text"], TEXT_MOST),
        topics=tuple(_text(topic) for topic in found["topics"]),
        window_s=None if window_s is None else _count(window_s),
        facts=RecoveryFacts(
            source_ends=_offsets(found["source_ends"]),
            copied_to=_offsets(found["copied_to"]),
            target_ends=_offsets(found["target_ends"]),
            groups=MappingProxyType({_text(group): _offsets(one) for group, one in found["groups"].items()}),
            source_epochs=_offsets(found.get("source_epochs", {})),
        ),
        kept=MappingProxyType(dict(found["kept"])),
        kept_in=MappingProxyType({_text(alias): _text(one) for alias, one in found["kept_in"].items()}),
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _count(value: Any) -> int:
    if not _is_count(value):
        raise ValueError
    return int(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > NAME_MOST:
        raise ValueError
    return value


def _offsets(value: Any) -> PartitionOffsets:
    return MappingProxyType({_text(partition): _count(offset) for partition, offset in value.items()})
