"""Filters: lists of names and Java patterns that say which topics and topic settings a flow copies.

Answers to MM2's DefaultTopicFilter, DefaultConfigPropertyFilter and MirrorUtils.compilePatternList:
the entries of a list are joined by ``|``, compiled once, and must match the whole name; an empty list matches nothing.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from enum import StrEnum

from mm2py.errors import ConfigError, Mm2Error
from mm2py.topics.java_regex import NotTranslatable, compile_java

TOPICS_KEY, TOPICS_EXCLUDE_KEY = "topics", "topics.exclude"
CONFIG_PROPERTIES_EXCLUDE_KEY = "config.properties.exclude"

DEFAULT_TOPICS = (".*",)
DEFAULT_TOPICS_EXCLUDE = (r"mm2.*\.internal", r".*\.replica", "__.*")
DEFAULT_CONFIG_PROPERTIES_EXCLUDE = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "message.timestamp.difference.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.after.max.ms",
    "message.timestamp.type",
    "unclean.leader.election.enable",
    "min.insync.replicas",
)
"""As in Kafka 4.3. Two name broker settings: on a topic they lack the ``log.`` (see ``MEANT_BY_BROKER_NAME``)."""
MEANT_BY_BROKER_NAME = frozenset({"message.timestamp.before.max.ms", "message.timestamp.after.max.ms"})
"""Settings of a topic that a list excludes also by their broker's name, which begins with ``log.``.

MM2's default list has those names, and so excludes nothing: there the source's limits reach the remote topic, and
refuse records that are older by the time they are copied.
"""
DEFAULT_USE_DEFAULTS_FROM = "target"

MATCH_TIMEOUT_S = 0.05
"""What one name may cost. An ordinary match takes microseconds; nothing else of this process runs meanwhile."""
REMEMBERED_NAMES = 65_536
SLOW_NAMES_MOST = 10


class PatternTooSlow(Mm2Error):
    """A list of patterns found no answer in time: it can match the same text in very many ways.

    The name stays undecided, neither copied nor left out, so whoever asked must say so. After some such names the list
    answers only what it has answered before: a refresh of thousands of topics must not wait for each.
    """

    def __init__(self, key: str, entries: Sequence[str], name: str) -> None:
        super().__init__(
            f"{key} = {', '.join(entries)}: it is not known after {MATCH_TIMEOUT_S} s whether {name!r} matches.",
            remedy="Rewrite what can match the same text in many ways, such as (a|aa)+, and restart the flow.",
        )


class PatternList:
    """The value of one setting such as ``topics``: it knows whether any of its patterns matches the whole of a name.

    Raises:
        ConfigError: an entry is empty, no Java pattern, or one whose meaning mm2py cannot keep. An entry that is there
            twice counts once, as Kafka has it.
    """

    def __init__(self, key: str, entries: Sequence[str]) -> None:
        self.key = key
        self.entries = tuple(dict.fromkeys(entries))
        if "" in self.entries:
            raise ConfigError(f"{key}: entry {entries.index('') + 1} is empty.", remedy="Remove the comma too many.")
        try:
            self._pattern = compile_java("|".join(self.entries)) if self.entries else None
        except NotTranslatable as refused:
            raise _config_error(key, self.entries, refused) from refused
        self._too_slow_for: set[str] = set()
        self._remembered = functools.lru_cache(maxsize=REMEMBERED_NAMES)(self._match)

    def matches(self, name: str) -> bool:
        """Raises: PatternTooSlow."""
        if name in self._too_slow_for:
            raise PatternTooSlow(self.key, self.entries, name)
        return self._remembered(name)

    def _match(self, name: str) -> bool:
        if self._pattern is None:
            return False
        if len(self._too_slow_for) >= SLOW_NAMES_MOST:
            raise PatternTooSlow(self.key, self.entries, name)
        for _ in range(2):  # a process that was stopped in the middle has used up the time too: ask again
            with contextlib.suppress(TimeoutError):
                return self._pattern.fullmatch(name, timeout=MATCH_TIMEOUT_S) is not None
        self._too_slow_for.add(name)
        raise PatternTooSlow(self.key, self.entries, name)


class FilteredOut(StrEnum):
    """Why a filter does not let a name pass."""

    NOT_INCLUDED = "not included"
    EXCLUDED = "excluded"


class NameFilter:
    """Lets a name pass that the include list matches and the exclude list does not."""

    def __init__(self, include: PatternList, exclude: PatternList) -> None:
        self._include = include
        self._exclude = exclude

    def why_not(self, name: str) -> FilteredOut | None:
        """Return None for a name that passes. Raises: PatternTooSlow."""
        if not self._include.matches(name):
            return FilteredOut.NOT_INCLUDED
        return FilteredOut.EXCLUDED if self._exclude.matches(name) else None

    def should_replicate(self, name: str) -> bool:
        """Raises: PatternTooSlow."""
        return self.why_not(name) is None


class TopicFilter(NameFilter):
    """Which topics a flow copies, as far as ``topics`` and ``topics.exclude`` say."""

    def __init__(
        self, include: Sequence[str] = DEFAULT_TOPICS, exclude: Sequence[str] = DEFAULT_TOPICS_EXCLUDE
    ) -> None:
        super().__init__(PatternList(TOPICS_KEY, include), PatternList(TOPICS_EXCLUDE_KEY, exclude))


class ConfigPropertyFilter:
    """Which settings of a topic its remote topic gets, and whether the source cluster's defaults are among them."""

    def __init__(
        self,
        exclude: Sequence[str] = DEFAULT_CONFIG_PROPERTIES_EXCLUDE,
        use_defaults_from: str = DEFAULT_USE_DEFAULTS_FROM,
    ) -> None:
        self._exclude = PatternList(CONFIG_PROPERTIES_EXCLUDE_KEY, exclude)
        self.replicates_source_defaults = use_defaults_from == "source"  # anything else means the target's, as in MM2

    def should_replicate(self, name: str) -> bool:
        """Raises: PatternTooSlow."""
        if name in MEANT_BY_BROKER_NAME and self._exclude.matches(f"log.{name}"):
            return False
        return not self._exclude.matches(name)


def _config_error(key: str, entries: Sequence[str], refused: NotTranslatable) -> ConfigError:
    """Say in which entry the joined pattern went wrong, counting characters from 1."""
    number, position = 0, refused.position
    while number < len(entries) - 1 and position > len(entries[number]):
        position -= len(entries[number]) + 1
        number += 1
    return ConfigError(
        f"{key}: pattern {entries[number]!r} (entry {number + 1} of {len(entries)}), character {position + 1}:"
        f" {refused.reason}.",
        remedy="A comma ends an entry, so {2,5} cannot be written there.",
    )
