"""Topics and partitions that operators have paused: records of the configs topic of their flow. Pure.

The key is ``mm2py-paused-<topic>``, or ``mm2py-paused-<topic>/<partition>``; no topic has a slash in its name. The
record is deleted when the topic or the partition is resumed. Each has a record of its own, so two operators who pause
different topics at the same moment cannot overwrite each other, and of two who change the same one the later counts.
Connect skips the key. It pauses whole connectors only (``operator_request.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mm2py.errors import Mm2Error
from mm2py.kafka.port import TopicPartition
from mm2py.records.author import UNKNOWN, Author, author_of, plain, with_reason
from mm2py.records.operator_request import BY_MOST, MalformedRequest, dump, load, read_author

PAUSE_KEY: Final = b"mm2py-paused-"
FORMAT_VERSION: Final = 1
"""A reader that is older than ``readable_from`` in a record must not ignore it: the key says what is paused."""
VERSION_CHARS_MOST: Final = 40

PausedPart = tuple[str, int | None]
"""A source topic, and one partition of it; None: all partitions, also those that are added later."""


@dataclass(frozen=True, slots=True)
class TopicPause:
    """An operator has paused a topic, or one partition of it: no worker reads it."""

    topic: str
    """Its name on the source."""
    partition: int | None = None
    """None: all its partitions, also those that are added later."""
    by: str = ""
    """Who has paused it, in words."""
    at_ms: int | None = None
    """When, by the clock of the machine that stored it; None: not known."""
    author: Author = UNKNOWN
    """Who has paused it, for programs, and why."""

    @property
    def part(self) -> PausedPart:
        """What is paused."""
        return self.topic, self.partition

    @property
    def who_and_why(self) -> str:
        """Who has paused it, and why, in words."""
        return with_reason(self.by or "an unknown user", self.author.reason)


@dataclass(frozen=True, slots=True)
class Pauses:
    """All that is paused of one flow."""

    topics: Mapping[str, TopicPause] = field(default_factory=dict)
    """Topics that are paused as a whole."""
    partitions: Mapping[TopicPartition, TopicPause] = field(default_factory=dict)
    """Partitions that are paused alone."""

    @classmethod
    def of(cls, pauses: Iterable[TopicPause]) -> Pauses:
        """Return these pauses, by what they concern."""
        pauses = list(pauses)
        topics = {one.topic: one for one in pauses if one.partition is None}
        return cls(topics, {(one.topic, one.partition): one for one in pauses if one.partition is not None})

    def find(self, topic: str, partition: int) -> TopicPause | None:
        """Return why a partition is paused; None: it is not."""
        return self.topics.get(topic) or self.partitions.get((topic, partition))

    def all(self) -> list[TopicPause]:
        """Return all pauses, by topic and partition."""
        found = [*self.topics.values(), *self.partitions.values()]
        return sorted(found, key=lambda one: (one.topic, -1 if one.partition is None else one.partition))


class PausedAsAWhole(Mm2Error):
    """One partition is to go on, and its topic is paused as a whole."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(
            f"{topic} is paused as a whole, so {topic}-{partition} cannot be resumed alone.",
            remedy=f"Resume {topic}, and pause the partitions that must wait.",
        )


def name_of_part(part: PausedPart) -> str:
    """Return it for people: ``orders`` or ``orders-3``."""
    topic, partition = part
    return topic if partition is None else f"{topic}-{partition}"


def parts_to_resume(pauses: Pauses, wanted: Iterable[PausedPart]) -> list[PausedPart]:
    """Return which stored pauses end when these are resumed: with a topic, those of its partitions end, too.

    Raises:
        PausedAsAWhole: a partition is wanted, and its topic is paused.
    """
    wanted = set(wanted)
    for topic, partition in sorted(wanted, key=str):
        if partition is not None and topic in pauses.topics and (topic, None) not in wanted:
            raise PausedAsAWhole(topic, partition)
    return [one.part for one in pauses.all() if one.part in wanted or (one.topic, None) in wanted]


def pause_key(topic: str, partition: int | None) -> bytes:
    """Return the key of a record."""
    return PAUSE_KEY + (topic if partition is None else f"{topic}/{partition}").encode()


def paused_part(key: bytes) -> PausedPart:
    """Return what the record with this key is about.

    Raises:
        MalformedRequest: mm2py writes no such key.
    """
    topic, slash, number = key[len(PAUSE_KEY) :].decode(errors="replace").partition("/")
    if not topic or (slash and not (number.isascii() and number.isdecimal() and len(number) < 10)):
        raise MalformedRequest("its key names no topic, or no partition")
    return topic, int(number) if slash else None


def encode_pause(pause: TopicPause, written_by: str) -> bytes:
    """Return the value of a record. ``written_by``: the version of mm2py."""
    ours = {"format": FORMAT_VERSION, "readable_from": FORMAT_VERSION, "mm2py": written_by}
    return dump({**ours, "by": pause.by[:BY_MOST], "at_ms": pause.at_ms, **pause.author.fields})


def decode_pause(key: bytes, value: bytes) -> TopicPause:
    """Return the pause of a record. What a newer mm2py has written in a way that this one cannot read is paused, too.

    Raises:
        MalformedRequest: mm2py does not write such a record.
    """
    topic, partition = paused_part(key)
    fields: Mapping[str, Any] = load(value)
    readable_from = fields.get("readable_from")
    if not isinstance(readable_from, int) or isinstance(readable_from, bool):
        raise MalformedRequest("it has no format")
    if readable_from > FORMAT_VERSION:
        version = plain(fields.get("mm2py"), VERSION_CHARS_MOST) or "of a later version"
        return TopicPause(topic, partition, f"mm2py {version}, in a way that this mm2py cannot read")
    by, at_ms = read_author(fields)
    return TopicPause(topic, partition, by, at_ms, author_of(fields))
