"""Where an offset is in the other cluster's log, if that is exact, or why not. Pure.

The program that keeps the offset leaves one cluster, called *here*, and goes on on the other one, *there*. Only an
exact place counts: from it on the program misses no record and reads none again.

MirrorMaker 2 has no counterpart: it translates offsets of consumer groups only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mm2py.dr.groups.judgement import place_in_other_log
from mm2py.offsets.answers import Answer, AnswerKind
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.status.offset_report import WORDS

ANEW: Final = "Or start it on {there} with a new checkpoint."


@dataclass(frozen=True, slots=True)
class TwoLogs:
    """What both clusters say of one partition."""

    here: str
    """The alias of the cluster that is left."""
    there: str
    """The alias of the other one."""
    name: str
    """The partition here, such as ``orders-0``."""
    name_there: str
    outward: PartitionLedger
    """The ledger of the flow from here to there; empty if there is none."""
    homeward: PartitionLedger | None
    """The ledger of the flow the other way; empty if there is none. None: it could not be read."""
    bounds: tuple[int, int] | None
    """Where the log here begins and ends. None: the cluster does not answer."""
    bounds_there: tuple[int, int]


@dataclass(frozen=True, slots=True)
class PlaceInLog:
    """Where to go on there."""

    offset: int | None
    """The next offset to read there; None: it is not known exactly."""
    text: str
    """What the offset is, or why its place is not known."""
    remedy: str = ""
    """What an operator can do if it is not known."""


@dataclass(frozen=True, slots=True)
class KeptOffset:
    """An offset that a program keeps. It names its topic, or has the topic's id."""

    topic: str
    """Empty: it has the id alone."""
    topic_id: str
    """Empty: it has the name alone."""
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class PlacedOffset:
    """An offset of a program, and where that is on the other cluster."""

    kept: KeptOffset
    topic: str
    """The name of its topic; empty: no topic has this id."""
    other_topic: str
    """The topic there; empty if the topic is not known."""
    other_topic_id: str
    """Its id; empty if brokers have none."""
    place: PlaceInLog


def refused(text: str, remedy: str) -> PlaceInLog:
    """Return that no exact place is known."""
    return PlaceInLog(None, text, remedy)


def place_exactly(offset: int, facts: TwoLogs) -> PlaceInLog:
    """Return where a program goes on there whose next offset here is ``offset``."""
    here, there, (start_there, end_there) = facts.here, facts.there, facts.bounds_there
    anew = ANEW.format(there=there)
    if facts.bounds is not None and offset > facts.bounds[1]:
        text = f"it is beyond the end of {facts.name} on {here}, which is {facts.bounds[1]:,}"
        return refused(text, f"Is it a checkpoint of {here}? Else records were lost there, or the topic was recreated.")
    if not facts.outward.ledgers and (facts.homeward is None or not facts.homeward.ledgers):
        return _without_ledger(offset, facts)
    place = place_in_other_log(offset, facts.outward, facts.homeward or PartitionLedger())
    if place.kind is AnswerKind.NOT_YET:
        text = f"what it has read is not copied to {there} yet, or not in the ledger"
        return refused(text, f"Let {here}->{there} run on, and ask again. {anew}")
    if place.kind is AnswerKind.EXPIRED:
        return refused(f"the first copies on {there} are behind it", f"Let it read on on {here}. {anew}")
    if place.offset is None:
        return refused(WORDS[place.kind], f"mm2py rebuild-ledger FILE '{here}->{there}' writes what is missing. {anew}")
    if not place.is_exact:
        return refused(f"not exact: {WORDS[place.kind]}", f"Let it read on on {here}, and ask again. {anew}")
    return _in_log(place, start_there, end_there, facts)


def _in_log(place: Answer, start: int, end: int, facts: TwoLogs) -> PlaceInLog:
    """Return a known place, if the log there still has the records behind it."""
    there, offset = facts.there, place.offset or 0
    if offset < start and place.kind is not AnswerKind.END:
        text = f"{there} has deleted the records before {start:,} of {facts.name_there}, which it has not read"
        return refused(text, f"Let it read on on {facts.here}. {ANEW.format(there=there)}")
    if offset > end:
        text = f"its place is {offset:,}, and {facts.name_there} ends at {end:,} on {there}: records were lost there"
        return refused(text, "See mm2py gaps FILE. If they are copied again, ask again then.")
    return PlaceInLog(max(offset, start), WORDS[place.kind])


def _without_ledger(offset: int, facts: TwoLogs) -> PlaceInLog:
    """Return the first offset of a partition of which nothing was ever copied, if nothing of it was read either."""
    has_read_nothing = offset <= (0 if facts.bounds is None else facts.bounds[0])
    if facts.bounds_there == (0, 0) and has_read_nothing:
        return PlaceInLog(0, "nothing was copied or read yet")
    text = f"no ledger on {facts.there} knows a copy of {facts.name}"
    if facts.homeward is None:
        text += f", and a ledger on {facts.here} cannot be read"
    return refused(text, f"mm2py rebuild-ledger FILE '{facts.here}->{facts.there}' writes one, if it was copied.")
