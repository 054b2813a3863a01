"""Whether a flow is on or standby: our record under ``mm2py-direction`` in the flow's configs topic. Pure.

A flow that is standby is configured, its workers serve its target, and it copies nothing. Two flows that lead back and
forth under the identity policy are on in turns. The record outlives restarts; the setting ``standby`` of the file is
only the first value of it. Of two turns at the same time one counts, the same for all readers (``replaced_record.py``).

MirrorMaker 2 has nothing like it; Connect skips the key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mm2py.records.author import UNKNOWN, Author, author_of, plain, with_reason
from mm2py.records.operator_request import BY_MOST, MalformedRequest, Target, TargetState, dump, is_count, load
from mm2py.records.replaced_record import ReplacedRecords, VersionTooNew, over_in, text_in

DIRECTION_KEY: Final = b"mm2py-direction"
FORMAT_VERSION: Final = 2
"""A reader that is older than ``readable_from`` in a record must not run the flow."""
LEAVES_OUT_SINCE: Final = 2
"""Only a record that leaves producers out needs a reader of this version: an older one would copy their records."""
BY_FILE: Final = "its file"
"""Who has decided the first value."""
FAILOVER: Final = "mm2py dr failover"
"""The command that ends a flow for good, because its source is lost."""


class DirectionTooNew(VersionTooNew):
    """A newer mm2py has turned the flow on or off in a way that this one does not know."""

    def __init__(self, topic: str, written_by: str) -> None:
        super().__init__(
            f"{topic} says whether the flow is on in a way that this mm2py cannot read: mm2py {written_by} wrote it.",
            remedy=f"Run mm2py {written_by} or later.",
        )


class DirectionState(StrEnum):
    """Whether a flow copies."""

    ON = "on"
    TURNING_ON = "turning-on"
    """Where it begins is being stored. It copies nothing yet, and the flow back cannot be turned on."""
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Direction:
    """What counts of a flow: on or standby."""

    state: DirectionState
    generation: int
    """Each turn adds one."""
    by: str
    """Who has turned it, in words."""
    at_ms: int
    """When, by the clock of the machine that stored it."""
    write_id: str = ""
    """See ``replaced_record.Version``; likewise ``based_on`` and ``over``."""
    based_on: str = ""
    over: tuple[str, ...] = ()
    author: Author = field(default=UNKNOWN)
    """Who has turned it, for programs, and why."""
    written_by: str = ""
    """The version of mm2py."""
    leaves_out: tuple[int, ...] = ()
    """Ids of producers on the flow's source whose records it does not copy: they came from its target. ``mm2py dr
    reinstate`` replays records with such a producer."""

    @property
    def is_on(self) -> bool:
        """Whether the flow copies."""
        return self.state is DirectionState.ON

    @property
    def who_and_why(self) -> str:
        """Who has turned it, and why, in words."""
        return with_reason(self.by, self.author.reason)

    @property
    def text(self) -> str:
        """What counts, with who has turned it and why."""
        word = {DirectionState.ON: "on", DirectionState.OFF: "standby"}.get(self.state, "being turned on")
        return f"{word} by {self.who_and_why} (generation {self.generation})"

    def hold(self, offset: int) -> Target | None:
        """Return why the connectors of the flow are held; None: they are not.

        Args:
            offset: where the record is in the configs topic.
        """
        return None if self.is_on else Target(TargetState.STANDBY, self.by, self.at_ms, offset, self.author)


def is_by_failover(by: str) -> bool:
    """Whether a failover has turned a flow off, by the words that say who has done it."""
    return f"({FAILOVER})" in by


def encode_direction(direction: Direction) -> bytes:
    """Return the value of a record; its key is DIRECTION_KEY."""
    fields: dict[str, object] = {
        "format": FORMAT_VERSION,
        "readable_from": LEAVES_OUT_SINCE if direction.leaves_out else 1,
        "state": direction.state,
        "generation": direction.generation,
        "by": direction.by[:BY_MOST],
        "at_ms": direction.at_ms,
        "write_id": direction.write_id,
        "based_on": direction.based_on,
        "over": list(direction.over),
        "mm2py": direction.written_by,
        **direction.author.fields,
    }
    if direction.leaves_out:
        fields["leaves_out"] = list(direction.leaves_out)
    return dump(fields)


def decode_direction(value: bytes, topic: str) -> Direction:
    """Return what a record says.

    Raises:
        MalformedRequest: it is not as mm2py writes it.
        DirectionTooNew: a newer mm2py wrote it, and this one must not ignore it.
    """
    fields = load(value)
    readable_from, generation, at_ms = fields.get("readable_from"), fields.get("generation"), fields.get("at_ms")
    if not isinstance(readable_from, int) or isinstance(readable_from, bool):
        raise MalformedRequest("it has no format")
    if readable_from > FORMAT_VERSION:
        raise DirectionTooNew(topic, text_in(fields, "mm2py", default="of a later version"))
    state, write_id = text_in(fields, "state"), text_in(fields, "write_id")
    if state not in list(DirectionState) or not write_id:
        raise MalformedRequest("it says no state, or has no write_id")
    if not is_count(generation) or not is_count(at_ms):
        raise MalformedRequest("it has no generation, or no time")
    leaves_out = fields.get("leaves_out", [])
    if not isinstance(leaves_out, list) or not all(is_count(one) for one in leaves_out):
        raise MalformedRequest("leaves_out is no list of producer ids")
    return Direction(
        DirectionState(state),
        generation,
        plain(fields.get("by"), BY_MOST),
        at_ms,
        write_id,
        text_in(fields, "based_on"),
        over_in(fields),
        author_of(fields),
        text_in(fields, "mm2py"),
        tuple(leaves_out),
    )


class DirectionRecords(ReplacedRecords[Direction]):
    """Whether a flow is on, after the turns read so far, in the order of the log."""

    def __init__(self, topic: str) -> None:
        super().__init__(lambda value: decode_direction(value, topic))

    @property
    def hold(self) -> Target | None:
        """Why the connectors of the flow are held; None: they are not, or nothing is stored."""
        return None if self.current is None else self.current.hold(self.offset)
