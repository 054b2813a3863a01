"""What happens in one simulated run: a pure function of the seed.

A schedule says what is copied, how often which fault occurs, when workers start and how they end, and how the clusters
change meanwhile. Times are virtual seconds since the run started.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tests.fakes.faults import Faults

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_DAY_MS: Final = 86_400_000
_WEEK_MS: Final = 7 * _DAY_MS
SHORT_EXPIRY_MS: Final = 90_000
"""After this time the target forgets a producer, in runs in which it forgets. Each pause of a worker is much shorter,
since a fence lasts no longer than that (docs/broker-facts.md#h4).
"""
LONGEST_PAUSE_S: Final = 20.0
NEAR_LATENCY_S: Final = (0.0002, 0.002)
FAR_LATENCY_S: Final = (0.003, 0.03)


class Times(enum.Enum):
    """The timestamps of records; a broker forgets the producers of old ones at once (docs/broker-facts.md#c1)."""

    YOUNG = "young"
    OLD = "old"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A source topic, and the records written to it."""

    name: str
    partitions: int
    codecs: Sequence[str]
    value_bytes_most: int
    times: Times
    transactions: float
    """Share of the batches that are written in a transaction."""
    compacted: bool
    poison: float
    """Share of the batches with a record that the target refuses."""

    @property
    def remote(self) -> str:
        return f"A.{self.name}"


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """One cluster."""

    nodes: int
    faults: Faults
    broker_config: Mapping[str, str]
    is_far: bool = False
    """Backlogs are read over several connections, in stripes."""


class End(enum.Enum):
    """How an incarnation ends, if the run does not end before."""

    KILL = "kill"
    """Killed at a certain time."""
    STOP = "stop"
    """Told to stop; it drains."""
    CRASH_BEFORE = "crash before an effect"
    """Killed when it is about to send its nth request that changes something."""
    CRASH_SENT = "crash behind an effect"
    """Killed right after sending that request."""
    CRASH_ANSWERED = "crash after an effect"
    """Killed right before it would have received the answer."""
    CANCEL = "cancel at a resumption"
    """Cancelled when one of its coroutines is resumed for the nth time."""


@dataclass(frozen=True, slots=True)
class IncarnationPlan:
    """One incarnation of a worker."""

    place: int
    """Incarnations at one place follow each other; those at other places run beside them, in the same group."""
    begins_s: float
    """Delay after the previous incarnation at its place ended, or with ``beside`` after it started; for the first one
    at its place, after the run started.
    """
    beside: bool
    ends: End
    lasts_s: float
    """When it is killed at the latest, or stopped."""
    count: int
    """The nth request or resumption, for those ends that count."""
    pauses: Sequence[tuple[float, float]]
    """(after, for): while it is paused nothing of it runs, and its answers wait."""
    reorder: float
    """Share of requests, and of replies, that those on other channels overtake."""
    settings: Mapping[str, str]


class ActionKind(enum.Enum):
    """A change of the clusters."""

    SOURCE_CUT = "source truncated"
    TARGET_CUT = "target truncated"
    SOURCE_DELETE = "source records deleted"
    TARGET_DELETE = "target records deleted"
    GROW = "topic grown"
    COMPACT = "topic compacted"
    LIMIT = "limit lowered"
    MOVE_ALL = "all leaders moved"
    CUT_OFF = "broker cut off"


@dataclass(frozen=True, slots=True)
class Action:
    """One planned change. ``where`` and ``how_much`` are shares, of partitions and of records."""

    at_s: float
    kind: ActionKind
    topic: str
    where: float
    how_much: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """The whole plan of a run. At ``lasts_s`` all faults end, and one last worker finishes the copy."""

    seed: int
    topics: Sequence[TopicPlan]
    source: ClusterPlan
    target: ClusterPlan
    incarnations: Sequence[IncarnationPlan]
    actions: Sequence[Action]
    settings: Mapping[str, str]
    memory_max_bytes: int
    writes_every_s: float
    lasts_s: float

    def without(self, *, actions: bool = False, incarnations: bool = False, faults: bool = False) -> Schedule:
        """Return a smaller schedule, to find out what a failure needs."""
        smaller = self
        if actions:
            smaller = replace(smaller, actions=())
        if incarnations:
            smaller = replace(smaller, incarnations=())
        if faults:
            source, target = (replace(plan, faults=Faults()) for plan in (self.source, self.target))
            smaller = replace(smaller, source=source, target=target)
        return smaller


def make_schedule(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    rng = random.Random(f"mm2py {seed}")
    poison = rng.random() < 0.15
    topics = [_topic(rng, number, poison=poison and number == 0) for number in range(rng.choice([1, 1, 2, 3]))]
    lasts_s = rng.uniform(8.0, 45.0) if rng.random() < 0.9 else rng.uniform(100.0, 250.0)
    actions = sorted(
        (_action(rng, topics, lasts_s) for _ in range(rng.choice([0, 1, 1, 2, 3, 5]))), key=lambda action: action.at_s
    )
    forgets = rng.random() < 0.35
    target_config = {}
    if forgets:
        target_config["producer.id.expiration.ms"] = str(SHORT_EXPIRY_MS)
    if rng.random() < 0.5:
        target_config["producer.id.expiration.check.interval.ms"] = str(rng.choice([1_000, 10_000]))
    if rng.random() < 0.2:
        target_config["transactional.id.expiration.ms"] = str(rng.choice([5_000, 20_000]))
    repeats = all(
        topic.times is Times.YOUNG for topic in topics
    )  # the target would at once forget the producers of old ones (docs/broker-facts.md#c1)
    settings = {
        "A.consumer.isolation.level": rng.choice(["read_committed", "read_uncommitted"]),
        "B.offset.flush.interval.ms": rng.choice(["50", "1000", "60000"]),
        "A->B.on.poison.record": rng.choice(["stop", "quarantine"]),
        "A.consumer.max.partition.fetch.bytes": rng.choice(["1048576", "1048576", "20000", "2000"]),
    }
    is_far = random.Random(f"far {seed}").random() < 0.3  # of its own: seeds from before stay as they were otherwise
    if is_far:
        settings["A.consumer.max.partition.fetch.bytes"] = "2000"  # several stripes, also of small topics
    if poison:
        settings["sync.topic.configs.enabled"] = "false"
    return Schedule(
        seed,
        topics,
        ClusterPlan(rng.choice([1, 3, 3]), _faults(rng, repeats=False), {}, is_far),
        ClusterPlan(rng.choice([1, 3, 3]), _faults(rng, repeats=repeats), target_config),
        _incarnations(rng, lasts_s),
        actions,
        settings,
        rng.choice([96 << 20, 96 << 20, 4 << 20]),
        rng.uniform(0.1, 1.5) * max(1.0, lasts_s / 45.0),
        lasts_s,
    )


def _topic(rng: random.Random, number: int, *, poison: bool) -> TopicPlan:
    return TopicPlan(
        f"topic-{number}",
        rng.choice([1, 2, 3, 4]),
        rng.choice([CODECS, ("none",), ("zstd",), ("gzip", "none")]),
        rng.choice([20, 60, 60, 900, 20_000]),
        rng.choice([Times.YOUNG, Times.YOUNG, Times.OLD, Times.MIXED]),
        rng.choice([0.0, 0.0, 0.1, 0.4]),
        compacted=not poison and rng.random() < 0.3,
        poison=0.1 if poison else 0.0,
    )


def _action(rng: random.Random, topics: Sequence[TopicPlan], lasts_s: float) -> Action:
    return Action(
        rng.uniform(1.0, lasts_s), rng.choice(list(ActionKind)), rng.choice(topics).name, rng.random(), rng.random()
    )


def _faults(rng: random.Random, *, repeats: bool) -> Faults:
    """Choose which kinds of faults occur; their rates span two orders of magnitude."""
    calm = rng.random() < 0.15

    def rate(most: float) -> float:
        drawn, chosen = most * 10 ** -rng.uniform(0.0, 2.0), rng.random() < 0.6
        return drawn if chosen and not calm else 0.0

    def mean_s(least: float) -> float | None:
        drawn, chosen = least * 10 ** rng.uniform(0.0, 1.0), rng.random() < 0.6
        return drawn if chosen and not calm else None

    return Faults(
        delay=rate(0.1),
        drop_request=rate(0.02),
        drop_reply=rate(0.05),
        reset=rate(0.05),
        duplicate_produce=rate(0.1) if repeats else 0.0,
        produce_error=rate(0.15),
        fetch_error=rate(0.1),
        flip_bit=rate(0.05),
        throttle=rate(0.05),
        leader_move_every_s=mean_s(1.0),
        broker_stop_every_s=mean_s(5.0),
    )


def _incarnations(rng: random.Random, lasts_s: float) -> list[IncarnationPlan]:
    incarnations = []
    places = [place for place in range(rng.choice([1, 2, 2, 3])) for _ in range(rng.choice([1, 1, 2, 3]))]
    for number, place in enumerate(places):
        follows = number > 0 and places[number - 1] == place
        ends = rng.choice(list(End))
        pauses = []
        if rng.random() < 0.3:
            pauses.append((rng.uniform(0.2, 6.0), rng.uniform(0.5, LONGEST_PAUSE_S)))
        incarnations.append(
            IncarnationPlan(
                place=place,
                begins_s=rng.uniform(0.0, 6.0) if number else 0.0,
                beside=follows and rng.random() < 0.25,
                ends=ends,
                lasts_s=rng.uniform(0.5, lasts_s),
                count=int(10 ** rng.uniform(0.0, 3.6 if ends is End.CANCEL else 2.2)),
                pauses=pauses,
                reorder=rng.choice([0.0, 0.02, 0.1]),
                settings={"A->B.copy.mode": rng.choice(["auto", "auto", "pass", "repack"])},
            )
        )
    return incarnations
