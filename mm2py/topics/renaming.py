"""Rules that give topics other names on the target (``topics.rename``), and the replication policy that follows them.

A rule is ``orders -> sales.orders`` or, with a Java pattern on the left, ``(.*)\\.v1 -> $1``. The first rule that
matches the whole name of a source topic gives its new name; a topic that no rule matches keeps its own. The policy then
makes the remote name of it: under the default policy ``orders`` of A becomes ``A.sales.orders``. So every name still
shows where its topic comes from, and what comes back in a ring is recognised.

Never renamed: heartbeats, and under the default policy what is a copy already (``C.orders``). The clusters in these
names tell tools and rings where records come from.

From a remote name alone a rule cannot always be undone: ``A.orders`` may come from ``orders.v1`` or from ``orders``.
Only a list of the source topics that are copied tells (``mm2py/offsets/checkpoint_rule.py``). Two topics with one
remote name are never both copied (``mm2py/group/topic_claims.py``).

Counterpart: the transform RegexRouter of Kafka Connect, see ``mm2py/config/regex_router.py``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import regex

from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias, TopicName
from mm2py.topics.filters import (
    MATCH_TIMEOUT_S,
    REMEMBERED_NAMES,
    SIZE_MAX,
    SLOW_NAMES_MOST,
    NotTranslatable,
    PatternTooSlow,
    check,
    compile_java,
)
from mm2py.topics.names import ReplicationPolicy, is_own_topic, remote_name_problem

RENAME_KEY: Final = "topics.rename"
RULE_ARROW: Final = "->"
UNDECIDED_NAME: Final = "/undecided"
"""How the remote name of a topic ends that no rule could decide about in time. No topic can have that name."""
_LITERAL: Final = regex.compile(r"[a-zA-Z0-9._-]+")
_REPLACEMENT: Final = regex.compile(r"(?P<text>[a-zA-Z0-9._-]+)|\$(?P<digits>[0-9]+)")
_REMEDY: Final = "Write orders -> sales.orders, or (.*)\\.v1 -> $1 with a Java pattern; a comma ends a rule."


@dataclass(frozen=True, slots=True)
class RenameRule:
    """One rule."""

    left: str
    pattern: regex.Pattern[str] | None
    """None: the rule is for the one topic that is called ``left``."""
    parts: tuple[str | int, ...]
    """The new name: texts, and the numbers of the pattern's groups."""
    size: int = 0
    """What compiling costs, as ``SIZE_MAX`` counts."""

    @classmethod
    def of(cls, text: str) -> RenameRule:
        """Return the rule that a text says. Raises: ConfigError."""
        left, arrow, right = (part.strip() for part in text.partition(RULE_ARROW))
        if not arrow or not left or not right or RULE_ARROW in right:
            raise _wrong(text, "it is no rule")
        if _LITERAL.fullmatch(left):
            if (problem := remote_name_problem(right)) is not None:
                raise _wrong(text, f"{right!r} is no name of a topic, {problem}")
            return cls(left, None, (right,))
        try:
            size, pattern = check(left), compile_java(left)
        except NotTranslatable as refused:
            raise _wrong(text, f"character {refused.position + 1}: {refused.reason}") from refused
        return cls(left, pattern, tuple(_parts(text, right, pattern.groups)), size)

    def __str__(self) -> str:
        new = "".join(f"${part}" if isinstance(part, int) else part for part in self.parts)
        return f"{self.left} {RULE_ARROW} {new}"

    def new_name(self, name: str) -> str | None:
        """Return the new name of a topic; None if the rule does not match the whole of its name.

        Like ``replaceFirst`` of Java's Matcher, it replaces what the pattern finds first: the whole name but for
        patterns such as ``(.*?)``.
        Raises: TimeoutError, the pattern finds no answer in time.
        """
        if self.pattern is None:
            return "".join(map(str, self.parts)) if name == self.left else None
        if self.pattern.fullmatch(name, timeout=MATCH_TIMEOUT_S) is None:
            return None
        found = self.pattern.search(name, timeout=MATCH_TIMEOUT_S)
        assert found is not None, "what matches as a whole is found"  # noqa: S101
        made = "".join((found[part] or "") if isinstance(part, int) else part for part in self.parts)
        return f"{made}{name[found.end() :]}"  # it begins at the front, where the whole name matches

    @property
    def beginning(self) -> str:
        """The text with which every name begins that it gives; of a rule for one topic, the whole name."""
        first = self.parts[0] if self.parts else ""
        return first if isinstance(first, str) else ""


def _parts(text: str, right: str, groups: int) -> Iterator[str | int]:
    """Yield the parts of a replacement, as Java reads it: as many digits belong to ``$`` as make a group's number."""
    at = 0
    while at < len(right):
        part = _REPLACEMENT.match(right, at)
        if part is None:
            raise _wrong(text, f"{right[at:]!r} is neither part of a topic's name nor a group such as $1")
        if part["text"]:
            yield part["text"]
        else:
            digits = part["digits"]
            number = next((digits[:end] for end in range(len(digits), 0, -1) if int(digits[:end]) <= groups), None)
            if number is None:
                raise _wrong(text, f"${digits}: its pattern has {groups} group(s)")
            yield int(number)
            if rest := digits[len(number) :]:
                yield rest
        at = part.end()


def _wrong(text: str, why: str) -> ConfigError:
    return ConfigError(f"{RENAME_KEY}: {text!r}: {why}.", remedy=_REMEDY)


class RenameRules:
    """The rules of one flow, in their order."""

    def __init__(self, entries: Sequence[str]) -> None:
        """Raises: ConfigError, one is no rule, can never apply, or gives two topics one name."""
        self.entries = tuple(entries)
        self.rules = tuple(map(RenameRule.of, entries))
        if sum(rule.size for rule in self.rules) > SIZE_MAX:
            raise ConfigError(
                f"{RENAME_KEY}: its patterns are too large together.", remedy="Write fewer or shorter ones."
            )
        lefts: set[str] = set()
        rights: dict[tuple[str | int, ...], RenameRule] = {}
        for rule in self.rules:
            if rule.left in lefts:
                raise _wrong(str(rule), "an earlier rule is for the same topics")
            lefts.add(rule.left)
            if rule.pattern is None and (other := rights.setdefault(rule.parts, rule)) is not rule:
                raise _wrong(str(rule), f"{other.left} gets that name, too: one remote topic has one upstream topic")
        self._too_slow_for: set[str] = set()
        self._remembered = functools.lru_cache(maxsize=REMEMBERED_NAMES)(self._find)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RenameRules) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __str__(self) -> str:
        return ", ".join(map(str, self.rules))

    @property
    def has_patterns(self) -> bool:
        """Whether a rule is for more than one topic."""
        return any(rule.pattern is not None for rule in self.rules)

    def applied(self, name: str) -> tuple[RenameRule, str] | None:
        """Return the rule that names a topic, and the new name; None: no rule matches. Raises: PatternTooSlow."""
        if name in self._too_slow_for:
            raise self._too_slow(name)
        return self._remembered(name)

    def _find(self, name: str) -> tuple[RenameRule, str] | None:
        if len(self._too_slow_for) >= SLOW_NAMES_MOST:
            raise self._too_slow(name)
        for _ in range(2):  # a process that was stopped in the middle has used up the time too: try again
            with contextlib.suppress(TimeoutError):
                found = ((rule, rule.new_name(name)) for rule in self.rules)
                return next(((rule, new) for rule, new in found if new is not None), None)
        self._too_slow_for.add(name)
        raise self._too_slow(name)

    def _too_slow(self, name: str) -> PatternTooSlow:
        return PatternTooSlow(RENAME_KEY, self.entries, name)

    def may_make(self, name: str) -> bool:
        """Return whether a rule may give this name to some topic. It says yes too often, never too rarely."""
        return any(
            name == rule.beginning if rule.pattern is None else name.startswith(rule.beginning) for rule in self.rules
        )


@dataclass(frozen=True)
class RenamingPolicy:
    """A replication policy that gives topics new names by rules, and then makes remote names as ``base`` does.

    What it answers about a name on the target, such as where it comes from, is what ``base`` says: of the new name.
    """

    base: ReplicationPolicy
    source_alias: ClusterAlias
    rules: RenameRules
    aliases: frozenset[ClusterAlias] = frozenset()
    """Of all known clusters: a name that begins with one of them, and the separator, is a copy's."""
    renames: ClassVar[bool] = True

    @property
    def separator(self) -> str:
        return self.base.separator

    @property
    def keeps_names(self) -> bool:
        return self.base.keeps_names

    @property
    def made_names(self) -> tuple[str, ...]:
        """See ``ReplicationPolicy.made_names``."""
        begins = [(rule.beginning.replace(".", "\\."), rule.pattern is None) for rule in self.rules.rules]
        return tuple(begin if is_whole else f"{begin}.*" for begin, is_whole in begins)

    def rule_of(self, topic: str) -> RenameRule | None:
        """Return the rule that renames a topic of the source. Raises: PatternTooSlow."""
        applied = None if self._keeps(TopicName(topic)) else self.rules.applied(topic)
        return None if applied is None else applied[0]

    def format_remote_topic(self, source_alias: ClusterAlias, topic: TopicName) -> TopicName:
        """Return the remote name; of a topic of another source, without the rules, which are not for that flow.

        If no rule decides in time, it is a name that no topic can have. The topic is not copied then, and
        ``rule_of`` says why.
        """
        if source_alias != self.source_alias or self._keeps(topic):
            return self.base.format_remote_topic(source_alias, topic)
        try:
            applied = self.rules.applied(topic)
        except PatternTooSlow:
            return TopicName(f"{topic}{UNDECIDED_NAME}")
        new = topic if applied is None else TopicName(applied[1])
        return self.base.format_remote_topic(source_alias, new)

    def unrenamed(self, topic: TopicName) -> TopicName:
        """Return the remote name that a topic would have without rules."""
        return self.base.format_remote_topic(self.source_alias, topic)

    def name_problem(self, topic: TopicName) -> str | None:
        """Return why a topic must not get the name that a rule gives it, as half a sentence; None if it may."""
        remote = self.format_remote_topic(self.source_alias, topic)
        if remote == self.unrenamed(topic) or remote_name_problem(remote) is not None:
            return None
        if self.is_heartbeats_topic(remote):
            return f"{RENAME_KEY} makes it a heartbeats topic's"
        if self.is_internal_topic(remote) or is_own_topic(remote, (self.separator,), aliases=self.aliases):
            return f"{RENAME_KEY} makes it an internal topic's"
        return None

    def upstream_among(self, remote: TopicName, known: Iterable[str]) -> TopicName | None:
        """Return the topic of the source that has a remote name; None: there is none, or it is not known.

        Args:
            known: topics of the source that are or were copied. The others are found only if no rule has a pattern.
        """
        found = [*map(TopicName, known)]
        if not self.rules.has_patterns:
            found += [TopicName(rule.left) for rule in self.rules.rules]
            plain = self.base.upstream_topic(remote) if self.base.topic_source(remote) == self.source_alias else None
            found += [] if plain is None else [plain]
        return next((name for name in found if self.format_remote_topic(self.source_alias, name) == remote), None)

    def _keeps(self, topic: TopicName) -> bool:
        is_copy = not self.keeps_names and self.base.topic_source(topic) in self.aliases
        return is_copy or self.is_heartbeats_topic(topic)

    def topic_source(self, topic: TopicName) -> ClusterAlias | None:
        return self.base.topic_source(topic)

    def upstream_topic(self, topic: TopicName) -> TopicName | None:
        return self.base.upstream_topic(topic)

    def original_topic(self, topic: TopicName) -> TopicName:
        return self.base.original_topic(topic)

    def heartbeats_topic(self) -> TopicName:
        return self.base.heartbeats_topic()

    def offset_syncs_topic(self, cluster_alias: ClusterAlias) -> TopicName:
        return self.base.offset_syncs_topic(cluster_alias)

    def checkpoints_topic(self, cluster_alias: ClusterAlias) -> TopicName:
        return self.base.checkpoints_topic(cluster_alias)

    def is_heartbeats_topic(self, topic: TopicName) -> bool:
        return self.base.is_heartbeats_topic(topic)

    def is_checkpoints_topic(self, topic: TopicName) -> bool:
        return self.base.is_checkpoints_topic(topic)

    def is_mm2_internal_topic(self, topic: TopicName) -> bool:
        return self.base.is_mm2_internal_topic(topic)

    def is_internal_topic(self, topic: TopicName) -> bool:
        return self.base.is_internal_topic(topic)


def with_rules(
    policy: ReplicationPolicy, source_alias: ClusterAlias, entries: Sequence[str], aliases: Collection[str]
) -> ReplicationPolicy:
    """Return a policy that follows rules as well; the same policy if there are none. Raises: ConfigError."""
    if not entries:
        return policy
    return RenamingPolicy(policy, source_alias, RenameRules(entries), frozenset(map(ClusterAlias, aliases)))


def renaming(
    policy: ReplicationPolicy, source_alias: str, rules: str, *, aliases: Collection[str] = ()
) -> ReplicationPolicy:
    """Return the policy of a flow out of ``source_alias`` that has ``topics.rename``, for ``mm2py.client``.

    Args:
        rules: as the flow's file has them, ``orders -> sales.orders, (.*)\\.v1 -> $1``, but with single backslashes.
        aliases: all ``clusters`` of that file, if topics are copied that were copies already.
    Raises:
        ConfigError: a rule is wrong.
    """
    return with_rules(policy, ClusterAlias(source_alias), [rule.strip() for rule in rules.split(",")], aliases)
