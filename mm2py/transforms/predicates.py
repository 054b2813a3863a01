"""Predicates: which records a transform is for. Pure.

``TopicNameMatches`` depends on the topic alone, so it is decided once for each topic (see ``TransformChain.for_topic``)
and not here.

Counterpart: the package ``org.apache.kafka.connect.transforms.predicates``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from mm2py.records.batch import Record
from mm2py.topics.filters import PatternList


@dataclass(frozen=True, slots=True)
class TopicNameMatches:
    """True if a pattern of Java matches the whole name of the remote topic, as in MirrorMaker 2."""

    pattern: str

    def matches(self, remote_topic: str) -> bool:
        """Raises: PatternTooSlow."""
        return _list_of(self.pattern).matches(remote_topic)


@lru_cache
def _list_of(pattern: str) -> PatternList:
    """Return the pattern with what it has answered before."""
    return PatternList("pattern", (pattern,))


@dataclass(frozen=True, slots=True)
class HasHeaderKey:
    """True if a record has at least one header of this name."""

    name: str

    def matches(self, record: Record) -> bool:
        return any(key == self.name for key, _ in record.headers)


@dataclass(frozen=True, slots=True)
class RecordIsTombstone:
    """True if a record has no value. An empty value is a value."""

    def matches(self, record: Record) -> bool:
        return record.value is None


Predicate = TopicNameMatches | HasHeaderKey | RecordIsTombstone
