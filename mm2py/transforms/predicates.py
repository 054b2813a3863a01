"""Predicates: which records a transform is for. Pure.

``TopicNameMatches`` depends on the topic alone, so it is decided once for each topic (see ``TransformChain.for_topic``)
and not here.

Counterpart: the package ``org.apache.kafka.connect.transforms.predicates``.
"""

from __future__ import annotations

from dataclasses import dataclass

from mm2py.records.batch import Record
from mm2py.topics.filters import compile_java

MATCH_TIMEOUT_S = 0.1
"""How long the pattern of a predicate may look for an answer about one name."""


@dataclass(frozen=True, slots=True)
class TopicNameMatches:
    """True if a pattern of Java matches the whole name of the remote topic, as in MirrorMaker 2."""

    pattern: str

    def matches(self, remote_topic: str) -> bool:
        """Raises: TimeoutError, the pattern found no answer in time."""
        return compile_java(self.pattern).fullmatch(remote_topic, timeout=MATCH_TIMEOUT_S) is not None


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
