"""Which topics a flow copies, which settings of topics, and the patterns that select both.

The package ``regex`` reads some Java patterns differently, and a filter must never be silently different. So ``check``
accepts only those constructs on which both agree for topic names, and refuses the others with their position.
``compile_java`` then hands the unchanged pattern to ``regex``: with ``ASCII``, so that ``\\d``, ``\\w``, ``\\s`` and
``(?i)`` know only ASCII, and with ``V1``, so that ``(?i:..)`` applies to its group alone.

Refused although Java accepts them: sets within sets (``[a-z&&[^b]]``), ``\\D \\W \\S`` within sets (``regex`` reads
``[^\\D\\d]`` wrongly), ``\\p{..}`` and all other escapes of letters but ``\\d \\w \\s \\b`` and their capitals,
``\\Q..\\E``, back references, named and atomic groups, all flags but ``i``, quantifiers within a look-behind, and a
few combinations in which Java's own way of matching is surprising.

Patterns come from files, REST and the topics that workers share, so they are not trusted. Only ``check`` bounds what
compiling costs, and it runs before anything is compiled: a count makes ``regex`` build the repeated part that many
times, so 17 characters can cost gigabytes.

Counterpart: DefaultTopicFilter, DefaultConfigPropertyFilter and shouldReplicateTopic of MirrorMaker 2, whose patterns
are Java's.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

import regex

from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow import ClusterAlias, TopicName
from mm2py.topics.names import ReplicationPolicy, is_own_topic

MAX_DEPTH: Final = 50
"""How many groups may be open inside one another."""
MAX_REPEATS: Final = 10_000
"""Largest count in ``{n,m}``. Names are shorter by far, and huge counts cost memory."""
SIZE_MAX: Final = 300_000
"""Characters of a whole list, each counted as often as the counts around it make ``regex`` build it.

Measured with regex 2026.11 and Python 3.11 beside other work. Near the limit compiling takes up to 2.2 s of CPU and
70 MB, the most for 5,000 names of 53 characters: 270,000, 2.2 s, 67 MB. 5,000 names of 11: 60,000, 0.5 s, 15 MB.
``(a|b)`` 14,250 times: 299,250, 1.2 s, 38 MB. ``(?:a{300}){300}``: 97,000, 0.04 s, 23 MB. Refused:
``(?:a{3000}){3000}``: 9,000,000, 36 s, 2,350 MB; ``(a|b)`` 60,000 times: 2.4 to 6.4 s, 170 MB.
"""
GROUP_SIZE: Final = 16
"""What a group counts in addition to its characters: ``regex`` takes that much longer for it."""
CACHED_SIZE_MIN, CACHED_SIZE_MAX = 1_000, 2 * SIZE_MAX
"""The size that a cached pattern counts at least, and the size of all of them at most. Their lists may be gone."""
EMPTY_GROUPS_MAX: Final = 1_000
"""``()`` in a whole list. They match nothing, and the time for them grows with the square: 21 s for 20,000."""
SHOWN_MAX_CHARS: Final = 100
"""How many characters of a refused pattern are shown."""

_PART: Final = regex.compile(
    r"""
    (?P<flag> ^\(\?i\) )
    | (?P<open> \( (?: (?!\?) | \?(?: : | = | ! | <= | <! | -?i: ) ) )
    | (?P<close> \) )
    | (?P<set> \[ \^?+ (?!\]) (?: \\[^A-Za-z0-9] | \\[dws] | [^\\\[\]] )+ \] )
    | (?P<times> (?: [?*+] | \{[0-9]+(?:,[0-9]*)?\} ) [?+]? )
    | (?P<anchor> [\^$] | \\[bB] )
    | (?P<or> \| )
    | (?P<one> \\[^A-Za-z0-9] | \\[dDwWsS] | [^\\\[({] )
    """,
    regex.VERBOSE | regex.DOTALL,
)
_AMBIGUOUS_IN_SET: Final = regex.compile(r"&&|\|\||--|~~|-\\[dws]")
_REASONS: Final = (
    ("\\p", "\\p{..} is not supported; list the characters, for example [a-zA-Z]"),
    ("\\P", "\\P{..} is not supported; list the characters, for example [^a-zA-Z]"),
    ("\\Q", "\\Q..\\E is not supported; write a dot as \\. instead"),
    ("\\", "this escape is unknown or not supported; write the character itself, or one of \\d \\w \\s \\b"),
    ("[", "this character class is not closed or not supported; list characters and ranges, and write \\[ for a '['"),
    ("{", "'{' does not begin a count such as {2} or {2,5}; write a literal brace as \\{"),
    ("(?>", "an atomic group is not supported; write (?:..)"),
    ("(?<", "a named group is not supported; write (..)"),
    ("(?i)", "(?i) may only stand before the whole list; write (?i:..)"),
    ("(?", "'(?' may only begin (?:..) (?=..) (?!..) (?<=..) (?<!..) and (?i:..)"),
)


class NotTranslatable(ValueError):
    """The pattern is no Java pattern, or one whose meaning cannot be kept; ``position`` counts characters from 0."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"{reason} at character {position + 1}")
        self.reason = reason
        self.position = position


class TooCostly(NotTranslatable):
    """Compiling the pattern would take too much time or memory."""


_COMPILED: Final[dict[str, tuple[regex.Pattern[str], int]]] = {}
"""The patterns that were compiled last, with their sizes. Threads compile too, so each step leaves it consistent."""


def _keep(pattern: str, compiled: regex.Pattern[str], size: int) -> None:
    """Cache a compiled pattern, and forget the oldest ones beyond ``CACHED_SIZE_MAX``."""
    _COMPILED[pattern] = compiled, max(size, CACHED_SIZE_MIN)
    while sum(size for _, size in list(_COMPILED.values())) > CACHED_SIZE_MAX:
        oldest, *_ = list(_COMPILED)
        _COMPILED.pop(oldest, None)


def compile_java(pattern: str) -> regex.Pattern[str]:
    """Return the compiled pattern; call its ``fullmatch`` with a timeout.

    Raises:
        NotTranslatable: the pattern has a syntax error or a construct that is refused.
    """
    if known := _COMPILED.get(pattern):
        return known[0]
    size = check(pattern)
    try:
        compiled = regex.compile(pattern, regex.V1 | regex.ASCII, cache_pattern=False)
    except regex.error as error:
        reason = str(error).partition(" at position ")[0]
        raise NotTranslatable(f"the pattern cannot be compiled ({reason})", getattr(error, "pos", 0)) from error
    _keep(pattern, compiled, size)
    return compiled


@dataclass(slots=True)
class _Group:
    """A group that is open. ``conditional``: whether it matches depends on more than the text it matches."""

    opening: str
    position: int
    in_look_behind: bool = False
    conditional: bool = False
    size: int = 0
    """The size of its content so far, as ``SIZE_MAX`` counts."""

    @property
    def is_look(self) -> bool:
        return self.opening.startswith(("(?=", "(?!", "(?<"))


def check(pattern: str) -> int:
    """Check a pattern without compiling it, and return its size, as ``SIZE_MAX`` counts.

    Raises:
        TooCostly: the pattern is larger than ``SIZE_MAX``, or has too many empty groups.
        NotTranslatable: at the first construct that is not known to mean the same in Java and in ``regex``.
    """
    if len(pattern) > SIZE_MAX:
        raise TooCostly(f"the list has {len(pattern):,} characters, and may have {SIZE_MAX:,}", SIZE_MAX)
    empty_groups = 0
    groups = [_Group("", 0)]
    repeatable: _Group | str = ""
    """What a quantifier would apply to: a group, or the text of one character or character class."""
    at = 0
    while at < len(pattern):
        part = _PART.match(pattern, at)
        if part is None:
            raise NotTranslatable(next(why for start, why in _REASONS if pattern.startswith(start, at)), at)
        text, before, repeatable = part.group(), repeatable, ""
        groups[-1].size += len(text)
        match part.lastgroup:
            case "open":
                groups.append(_Group(text, at, text.startswith("(?<") or groups[-1].in_look_behind))
                if len(groups) > MAX_DEPTH:
                    raise NotTranslatable(f"more than {MAX_DEPTH} brackets are open", at)
            case "close":
                if len(groups) == 1:
                    raise NotTranslatable("there is a ')' without its '('", at)
                closed = groups.pop()
                empty_groups += closed.size == len(text)
                closed.size += GROUP_SIZE
                groups[-1].conditional |= closed.conditional or closed.is_look
                groups[-1].size += closed.size
                repeatable = "" if closed.is_look else closed
                if empty_groups > EMPTY_GROUPS_MAX:
                    raise TooCostly(f"the list has more than {EMPTY_GROUPS_MAX:,} empty groups", at)
            case "times":
                _check_quantifier(text, before, groups[-1], at)
                size = before.size if isinstance(before, _Group) else len(before)
                groups[-1].size += size * (_copies(text) - 1)
            case "anchor":
                groups[-1].conditional = True
            case "set" if ambiguous := _AMBIGUOUS_IN_SET.search(text):
                why = f"{ambiguous.group()!r} in a character class is ambiguous; put a backslash before '-' '&' '|' '~'"
                raise NotTranslatable(why, at + ambiguous.start())
            case "set" | "one":
                repeatable = text
        if groups[-1].size > SIZE_MAX:
            so_far = (
                f"up to here the list has {groups[-1].size:,} characters, with counts written out and 16 for a group"
            )
            raise TooCostly(f"{so_far}, and may have {SIZE_MAX:,}", at)
        at = part.end()
    if len(groups) > 1:
        raise NotTranslatable("a group is not closed", groups[-1].position)
    return groups[0].size


def _copies(quantifier: str) -> int:
    """Return how often ``regex`` builds the repeated part: for each required round, and once for the optional ones."""
    if quantifier[0] in "?*":
        return 1
    rounds = 1 if quantifier[0] == "+" else int(quantifier[1:].partition("}")[0].partition(",")[0])
    return 1 if quantifier.startswith("{1}") else rounds + 1


def _check_quantifier(text: str, repeated: _Group | str, around: _Group, at: int) -> None:
    """Raises: NotTranslatable, if Java and ``regex`` may repeat differently."""
    counts = [int(count) for count in regex.findall("[0-9]+", text)]
    is_possessive = len(text) > 1 and text.endswith("+")
    if not repeated:
        raise NotTranslatable(f"there is nothing for '{text}' to repeat", at)
    if around.in_look_behind:
        raise NotTranslatable("a quantifier is not supported in a look behind", at)
    if max(counts, default=0) > MAX_REPEATS:
        raise NotTranslatable(f"no count may be over {MAX_REPEATS}", at)
    if isinstance(repeated, _Group) and is_possessive:
        raise NotTranslatable("a possessive quantifier on a group is not supported; remove its second '+'", at)
    if isinstance(repeated, _Group) and repeated.conditional and max(counts, default=0) > 1:
        # After an empty round Java skips the remaining rounds, even those that the count demands.
        raise NotTranslatable("a counted group must hold no anchor, look-around or possessive quantifier", at)
    around.conditional |= is_possessive


TOPICS_KEY, TOPICS_EXCLUDE_KEY = "topics", "topics.exclude"

GROUPS_KEY, GROUPS_EXCLUDE_KEY = "groups", "groups.exclude"

DEFAULT_TOPICS = (".*",)
DEFAULT_TOPICS_EXCLUDE = (r"mm2.*\.internal", r".*\.replica", "__.*")
DEFAULT_GROUPS = (".*",)
DEFAULT_GROUPS_EXCLUDE = ("console-consumer-.*", "connect-.*", "__.*")
IGNORE_CASE: Final = "(?i)"
MATCH_TIMEOUT_S = 0.05
"""How long matching one name may take. An ordinary match takes microseconds; this process does nothing else then."""
REMEMBERED_NAMES = 65_536
SLOW_NAMES_MOST = 10


class PatternTooSlow(Mm2Error):
    """A list of patterns found no answer in time: it can match the same text in very many ways.

    The name stays undecided, neither copied nor left out, so the caller must say so. After some such names the list
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
        ConfigError: an entry is empty, no Java pattern, or one whose meaning mm2py cannot keep. A repeated entry counts
            once, as in Kafka.
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
        self._first = functools.lru_cache(maxsize=REMEMBERED_NAMES)(self._find_first)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same setting with the same entries."""
        return isinstance(other, PatternList) and (self.key, self.entries) == (other.key, other.entries)

    def __hash__(self) -> int:
        return hash((self.key, self.entries))

    def matches(self, name: str) -> bool:
        """Raises: PatternTooSlow."""
        if name in self._too_slow_for:
            raise PatternTooSlow(self.key, self.entries, name)
        return self._remembered(name)

    def first_match(self, name: str) -> int | None:
        """Return the number, from 0, of the first entry that matches a name.

        Returns:
            None: no entry matches, or single entries cannot be tried: that takes too long, or one of them is no pattern
            without the others, such as ``(a`` and ``b)``.
        """
        return self._first(name)

    @functools.cached_property
    def singles(self) -> Sequence[tuple[str, regex.Pattern[str]]]:
        """The entries one by one, each with its pattern; none if one is no pattern without the others. A flag at the
        front of the first one counts for all."""
        flag = IGNORE_CASE if self.entries and self.entries[0].startswith(IGNORE_CASE) else ""
        bare = [entry.removeprefix(flag) for entry in self.entries]
        try:
            return [(entry, compile_java(flag + entry)) for entry in bare]
        except NotTranslatable:
            return []

    def _find_first(self, name: str) -> int | None:
        with contextlib.suppress(TimeoutError):
            for number, (_, pattern) in enumerate(self.singles):
                if pattern.fullmatch(name, timeout=MATCH_TIMEOUT_S) is not None:
                    return number
        return None

    def _match(self, name: str) -> bool:
        if self._pattern is None:
            return False
        if len(self._too_slow_for) >= SLOW_NAMES_MOST:
            raise PatternTooSlow(self.key, self.entries, name)
        for _ in range(2):  # a process that was stopped in the middle has used up the time too: try again
            with contextlib.suppress(TimeoutError):
                return self._pattern.fullmatch(name, timeout=MATCH_TIMEOUT_S) is not None
        self._too_slow_for.add(name)
        raise PatternTooSlow(self.key, self.entries, name)


class FilteredOut(StrEnum):
    """Why a filter does not let a name pass."""

    NOT_INCLUDED = "not included"
    EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True)
class FilterDecision:
    """What a filter decides about a name, and by which of its patterns."""

    why_not: FilteredOut | None
    """None: the name passes."""
    key: str
    """The list that decided, by the name of its setting."""
    number: int | None = None
    """The number of the entry that decided, from 1. None: no entry matches, or it is not known which."""
    pattern: str | None = None
    """That entry."""


class NameFilter:
    """Lets a name pass that the include list matches and the exclude list does not."""

    def __init__(self, include: PatternList, exclude: PatternList) -> None:
        self._include = include
        self._exclude = exclude

    def __eq__(self, other: object) -> bool:
        """Whether both let the same names pass, by the same lists."""
        return isinstance(other, NameFilter) and (self._include, self._exclude) == (other._include, other._exclude)

    def __hash__(self) -> int:
        return hash((self._include, self._exclude))

    def why_not(self, name: str) -> FilteredOut | None:
        """Return None for a name that passes. Raises: PatternTooSlow."""
        if not self._include.matches(name):
            return FilteredOut.NOT_INCLUDED
        return FilteredOut.EXCLUDED if self._exclude.matches(name) else None

    def decision(self, name: str) -> FilterDecision:
        """Return the same with the pattern that decided. It takes longer than ``why_not``. Raises: PatternTooSlow."""
        why_not = self.why_not(name)
        if why_not is FilteredOut.NOT_INCLUDED:
            return FilterDecision(why_not, self._include.key)
        return self._decided_by(self._include if why_not is None else self._exclude, name, why_not)

    def exclusion(self, name: str) -> FilterDecision | None:
        """Return the decision of the exclude list alone, None if it lets a name pass. Raises: PatternTooSlow."""
        return self._decided_by(self._exclude, name, FilteredOut.EXCLUDED) if self._exclude.matches(name) else None

    @staticmethod
    def _decided_by(decided: PatternList, name: str, why_not: FilteredOut | None) -> FilterDecision:
        at = decided.first_match(name)
        if at is None:
            return FilterDecision(why_not, decided.key)
        return FilterDecision(why_not, decided.key, at + 1, decided.entries[at])

    def should_replicate(self, name: str) -> bool:
        """Raises: PatternTooSlow."""
        return self.why_not(name) is None

    @property
    def included(self) -> PatternList:
        """The include list."""
        return self._include


class TopicFilter(NameFilter):
    """Which topics a flow copies, as far as ``topics`` and ``topics.exclude`` say."""

    def __init__(
        self, include: Sequence[str] = DEFAULT_TOPICS, exclude: Sequence[str] = DEFAULT_TOPICS_EXCLUDE
    ) -> None:
        super().__init__(PatternList(TOPICS_KEY, include), PatternList(TOPICS_EXCLUDE_KEY, exclude))


SHADOW_GROUPS: Final = "mm2py-drill."
"""How the groups begin that a drill of a failover makes on the target and deletes again."""


class GroupFilter(NameFilter):
    """Which consumer groups get checkpoints. Those of drills never do. Counterpart: DefaultGroupFilter."""

    def __init__(
        self, include: Sequence[str] = DEFAULT_GROUPS, exclude: Sequence[str] = DEFAULT_GROUPS_EXCLUDE
    ) -> None:
        super().__init__(PatternList(GROUPS_KEY, include), PatternList(GROUPS_EXCLUDE_KEY, exclude))

    def why_not(self, name: str) -> FilteredOut | None:
        """See ``NameFilter.why_not``."""
        return FilteredOut.EXCLUDED if name.startswith(SHADOW_GROUPS) else super().why_not(name)


def _config_error(key: str, entries: Sequence[str], refused: NotTranslatable) -> ConfigError:
    """Return an error that names the entry in which the joined pattern is wrong; characters count from 1."""
    number, position = 0, refused.position
    while number < len(entries) - 1 and position > len(entries[number]):
        position -= len(entries[number]) + 1
        number += 1
    entry, more = entries[number], len(entries[number]) - SHOWN_MAX_CHARS
    shown = repr(entry) if more <= 0 else f"{entry[:SHOWN_MAX_CHARS]!r} and {more:,} characters more"
    return ConfigError(
        f"{key}: pattern {shown} (entry {number + 1} of {len(entries)}), character {position + 1}: {refused.reason}.",
        remedy="Write smaller counts, or fewer and shorter entries."
        if isinstance(refused, TooCostly)
        else "A comma ends an entry, so {2,5} cannot be written there.",
    )


class WhyNot(StrEnum):
    """The one word for a topic that is not copied; the first that applies, in this order."""

    OWN_TOPIC = "own topic"
    INTERNAL = "internal"
    CYCLE = "cycle"
    NOT_INCLUDED = "not included"
    EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True)
class TopicDecision:
    """Whether a flow copies a topic; ``why_not`` is None if it does."""

    why_not: WhyNot | None

    @property
    def replicate(self) -> bool:
        return self.why_not is None


def should_replicate(
    topic: TopicName,
    *,
    policy: ReplicationPolicy,
    topic_filter: TopicFilter,
    heartbeats_replication: bool,
    target_alias: ClusterAlias,
    aliases: Collection[ClusterAlias],
) -> TopicDecision:
    """Decide about one topic of the source cluster. Rules that no filter can change come first.

    Args:
        aliases: of all clusters of the file.
        heartbeats_replication: copy heartbeats topics even if the filter does not let them pass.
    Raises:
        PatternTooSlow: the filter found no answer in time; the topic is undecided.
    """
    if is_own_topic(topic, separators=(policy.separator,), aliases=aliases):
        return TopicDecision(WhyNot.OWN_TOPIC)
    if policy.is_internal_topic(topic):
        return TopicDecision(WhyNot.INTERNAL)
    if is_cycle(topic, policy, target_alias):
        return TopicDecision(WhyNot.CYCLE)
    if heartbeats_replication and policy.is_heartbeats_topic(topic):
        return TopicDecision(None)
    match topic_filter.why_not(topic):
        case FilteredOut.NOT_INCLUDED:
            return TopicDecision(WhyNot.NOT_INCLUDED)
        case FilteredOut.EXCLUDED:
            return TopicDecision(WhyNot.EXCLUDED)
        case None:
            return TopicDecision(None)


def is_cycle(topic: TopicName, policy: ReplicationPolicy, target_alias: ClusterAlias) -> bool:
    """Return whether the topic's name shows that its records have been on the target: any hop of it is the target."""
    source = policy.topic_source(topic)
    while source is not None:
        if source == target_alias:
            return True
        upstream = policy.upstream_topic(topic)
        if upstream is None or upstream == topic:  # identity: the name shows nothing more
            return False
        topic, source = upstream, policy.topic_source(upstream)
    return False


PASS_TOPICS_KEY = "copy.mode.pass.topics"  # noqa: S105  (the name of a setting)
REPACK_TOPICS_KEY = "copy.mode.repack.topics"


class CopyMode(Enum):
    """How batches are copied that could pass unchanged."""

    AUTO = "auto"
    PASS = "pass"  # noqa: S105  (a way of copying)
    REPACK = "repack"


class CopyModes:
    """The copy mode of each topic of a flow: a list that matches it overrides the flow's mode, the pass list first.

    Raises:
        ConfigError: an entry of a list is no pattern.
    """

    def __init__(
        self, mode: CopyMode = CopyMode.AUTO, pass_topics: Sequence[str] = (), repack_topics: Sequence[str] = ()
    ) -> None:
        self.mode = mode
        self._pass = PatternList(PASS_TOPICS_KEY, pass_topics)
        self._repack = PatternList(REPACK_TOPICS_KEY, repack_topics)

    def of(self, topic: str) -> CopyMode:
        """Return the mode of a topic. A pattern that finds no answer in time leaves the choice to the flow's mode."""
        try:
            if self._pass.matches(topic):
                return CopyMode.PASS
            return CopyMode.REPACK if self._repack.matches(topic) else self.mode
        except PatternTooSlow:
            return self.mode
