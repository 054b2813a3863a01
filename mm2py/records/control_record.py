"""The records of the control log ``mm2-cluster.<group>.internal``: what workers tell each other. Pure.

The messages of Connect's groups go through a broker's coordinator and are gone. These records stay in a log that all
workers read in the same order. Appends are retried, so any record may stand there twice, the second time long after
the first. ``control_codec.py`` writes them.

``pack`` writes many tasks as little JSON: ranges of partitions by flow, kind and topic, each with a number.
``{"A->B": {"MirrorSourceConnector": {"orders": "0-11,12=1", "": "*=1"}}}`` gives the partitions 0 to 11 of ``orders``
the number 0, which is not written; partition 12 and the flow's coordinator task have the number 1.

Counterpart: the join, sync and assignment messages of Connect's group protocol
(IncrementalCooperativeConnectProtocol).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, NewType

from mm2py.flow import Flow, Kind, parse_flow
from mm2py.records.link_use import LinkUse

MOST_TASKS: Final = 1_000_000
"""In one text: a range that a foreign writer made up must not fill the memory."""
_WHOLE: Final = "*"

Ranges = dict[str, dict[str, dict[str, str]]]


def pack(numbers: Mapping[TaskName, int]) -> Ranges:
    """Return tasks and their numbers (>= 0), the same for the same in whatever order they come."""
    topics: defaultdict[tuple[Flow, Kind, str], list[tuple[int, int]]] = defaultdict(list)
    for (flow, kind, topic, partition), number in numbers.items():
        topics[flow, kind, topic].append((partition, number))
    packed: Ranges = {}
    for (flow, kind, topic), partitions in sorted(topics.items()):
        packed.setdefault(str(flow), {}).setdefault(kind.value, {})[topic] = _text(sorted(partitions))
    return packed


def unpack(packed: Any) -> dict[TaskName, int]:
    """Return what was packed.

    Raises:
        ValueError, TypeError, AttributeError, ConfigError: it is not what ``pack`` makes.
    """
    numbers: dict[TaskName, int] = {}
    for flow_name, kinds in packed.items():
        flow = parse_flow(flow_name)
        for kind_name, topics in kinds.items():
            kind = Kind(kind_name)
            for topic, text in topics.items():
                for token in text.split(","):
                    span, _, digits = token.partition("=")
                    if (number := int(digits or 0)) < 0:
                        raise ValueError(f"{token[:40]!r} has a number below 0")
                    for partition in _partitions(span, MOST_TASKS - len(numbers)):
                        numbers[TaskName(flow, kind, topic, partition)] = number
    return numbers


def _text(partitions: list[tuple[int, int]]) -> str:
    runs: list[list[int]] = []
    for partition, number in partitions:
        if runs and partition == runs[-1][1] + 1 and number == runs[-1][2] and runs[-1][0] != NOT_A_PARTITION:
            runs[-1][1] = partition
        else:
            runs.append([partition, partition, number])
    return ",".join(_span(first, last) + (f"={number}" if number else "") for first, last, number in runs)


def _span(first: int, last: int) -> str:
    if first == NOT_A_PARTITION:
        return _WHOLE
    return str(first) if first == last else f"{first}-{last}"


def _partitions(span: str, most: int) -> range:
    if span == _WHOLE:
        return range(NOT_A_PARTITION, NOT_A_PARTITION + 1)
    first, _, last = span.partition("-")
    partitions = range(int(first), int(last or first) + 1)
    if partitions.start < 0 or not 0 < len(partitions) <= most:
        raise ValueError(f"{span[:40]!r} is no range of partitions")
    return partitions


MemberId = NewType("MemberId", str)
"""A member's id, hexadecimal, and part of its transactional ids (``TransactionalId.process``)."""

UNASSIGNED = MemberId("")
"""In ``Assigned``: a task is taken from its owner, and has none from then on."""

NOT_A_PARTITION = -1

UNDIVIDED: Final = (Kind.HEARTBEAT, Kind.CHECKPOINT)
"""Kinds of tasks of which a flow has one that runs as a whole on one worker."""


class TaskName(NamedTuple):
    """The smallest piece of work that one worker owns: a source partition of a flow, or a task that is not divided.

    The task ``(flow, Kind.SOURCE, "", NOT_A_PARTITION)`` is the coordinator's: its owner finds topics, makes remote
    topics, keeps configurations and ACLs in step, and lists partitions. Heartbeats and checkpoints are such tasks of
    their kinds.
    """

    flow: Flow
    kind: Kind
    topic: str = ""
    partition: int = NOT_A_PARTITION

    @property
    def is_partition(self) -> bool:
        return self.partition != NOT_A_PARTITION


class Writer(NamedTuple):
    """A producer of a member: one producer id of one attempt of a flow."""

    flow: Flow
    transactional_id: str | None
    producer_id: int
    epoch: int


class TopicClaim(NamedTuple):
    """Into which remote topic a source topic is copied."""

    prefix: str
    """The remote topic has the name of the source topic behind this, by all replication policies."""
    mixes: bool
    """Whether records of other flows may be mixed in (``many.to.one``), if they have it so as well."""

    @classmethod
    def of(cls, topic: str, remote_topic: str, *, mixes: bool) -> TopicClaim:
        if not remote_topic.endswith(topic):
            raise ValueError(f"the remote topic {remote_topic} does not end like {topic}")
        return cls(remote_topic[: len(remote_topic) - len(topic)], mixes)


@dataclass(frozen=True, slots=True)
class Joined:
    """A worker wants to take part. Its flows are those into this target that its file and ``--clusters`` name."""

    member: MemberId
    name: str
    """For people: host and process."""
    runs: str
    """The version of mm2py."""
    url: str
    """Where its REST interface is, empty if it has none."""
    flows: tuple[Flow, ...]
    """The flows whose partitions it may copy."""
    heartbeats: tuple[Flow, ...]
    """The flows whose heartbeats it may emit."""
    tasks_max: Mapping[Flow, int]
    """``tasks.max`` of flows where its file sets it."""
    cluster_id: str | None
    """Of the target, as this worker sees it."""
    election: str
    """``log`` or ``zookeeper``."""
    session_timeout_ms: int
    """After so long without a record of it, its session may be expired by others; it stops by itself before."""
    checkpoints: tuple[Flow, ...] = ()
    """The flows whose checkpoints it may emit."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Connectors that must not run there, and why; named as ``A->B.MirrorSourceConnector``."""
    core: str = ""
    """Whether it runs with the compiled core, and why not, as a few words. Older versions do not say it."""

    @property
    def undivided(self) -> Mapping[Kind, tuple[Flow, ...]]:
        """The flows of which it may run a task that is not divided, by kind."""
        return dict(zip(UNDIVIDED, (self.heartbeats, self.checkpoints), strict=True))


@dataclass(frozen=True, slots=True)
class NotStarted:
    """Why a flow does not get to run on a member: its source has not answered yet, or attempt after attempt fails."""

    since_ms: int
    """When that began, by the member's clock."""
    reason: str
    """``status.not_copied.Reason`` in a word."""
    why: str
    """What went wrong last."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat: a member is alive. It may write only while its heartbeats are acknowledged."""

    member: MemberId
    applied: Mapping[Flow, int] = field(default_factory=dict)
    """The version of each flow's configuration that it runs."""
    held: Mapping[Flow, int] = field(default_factory=dict)
    """Flows that operators hold and of which nothing runs there: all was answered. By flow, the offset in its configs
    topic of the record that asks for it."""
    links: Mapping[Flow, LinkUse] = field(default_factory=dict)
    """Of flows that use several connections to one broker."""
    troubles: Mapping[Flow, str] = field(default_factory=dict)
    """Of flows of which it cannot store in the status topic what it does not copy: why, and what to do."""
    not_started: Mapping[Flow, NotStarted] = field(default_factory=dict)
    """Flows that it is to run, and of which nothing runs there that could store why in the status topic."""


@dataclass(frozen=True, slots=True)
class Loads:
    """What tasks of a member carry, in whole bytes/s; only those that changed much since it said so last."""

    member: MemberId
    bytes_per_s: Mapping[TaskName, float]


REASON_MOST: Final = 1000
"""How many characters the reason for a refusal may have: a record may have 1 MiB."""


def shortened(why: str) -> str:
    """Return a reason as it is told; one that is longer ends in three dots."""
    return why if len(why) <= REASON_MOST else f"{why[: REASON_MOST - 1]}…"


@dataclass(frozen=True, slots=True)
class Writes:
    """A member is about to write under a producer id, which must be fenced if its session expires."""

    member: MemberId
    writer: Writer


@dataclass(frozen=True, slots=True)
class Listed:
    """Which partitions a flow copies, by its coordinator. A topic with 0 partitions is copied no more."""

    member: MemberId
    flow: Flow
    partitions: Mapping[str, int]
    """By source topic; only topics whose number changed."""
    widths: Mapping[str, int] = field(default_factory=dict)
    """How many partitions topics had when the flow first copied them; said once, the first word counts."""
    source_cluster: str | None = None
    """The id of the cluster that they were found on; said once for a flow, the first word counts."""
    claims: Mapping[str, TopicClaim] = field(default_factory=dict)
    """By topics of ``partitions``. Of one that would be mixed with another flow's unasked, the listing is void."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A member claims leadership. It counts if it is the next leader epoch, and the group has no leader."""

    member: MemberId
    leader_epoch: int
    claim_id: str
    """Random: tells two claims of one member apart."""
    evidence: str = ""
    """What allowed it, from another election backend."""


@dataclass(frozen=True, slots=True)
class Resigned:
    """The leader leads no more, and stays a member: its election backend does not let it lead."""

    member: MemberId
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Assigned:
    """The leader assigns tasks; those that are not named keep their owners. It counts when all its parts are read."""

    member: MemberId
    leader_epoch: int
    generation: int
    owners: Mapping[TaskName, MemberId]
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, slots=True)
class Released:
    """The previous owner of tasks has drained them: all it sent was answered."""

    member: MemberId
    generation: int
    """Of the view in which it had to release them: a late duplicate releases nothing that was assigned after that."""
    tasks: frozenset[TaskName]


@dataclass(frozen=True, slots=True)
class Evicted:
    """The leader evicts a member whose session has expired: what it still writes to the control log is void."""

    member: MemberId
    leader_epoch: int
    dead: MemberId


@dataclass(frozen=True, slots=True)
class Fenced:
    """Producers were fenced in the internal topics of their flow: they store no more positions."""

    member: MemberId
    leader_epoch: int
    of: MemberId | None
    """The member whose producers are now all fenced; None: producers that the control log does not know."""
    epochs: Mapping[int, int]
    """The fence epoch of each producer id. A fence of it elsewhere goes on with this one."""
    unfenced: Mapping[int, str] = field(default_factory=dict)
    """Producer ids that could not be fenced, and why."""


@dataclass(frozen=True, slots=True)
class Left:
    """A member is gone for good. ``outcome_unknown``: something it sent was not answered, so it must be fenced."""

    member: MemberId
    outcome_unknown: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The leader's state of the group after all records below ``covers``: a joiner reads from here. In parts."""

    member: MemberId
    leader_epoch: int
    covers: int
    """The offset up to which records are in it; those behind it and before the snapshot are read as well."""
    snapshot_id: str
    state: str
    """This part of the JSON text of the state, see ``state_snapshot.py``."""
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record of a younger mm2py that an older one may skip. It still shows that its member lives."""

    member: MemberId
    kind: str
    version: str
    """Of the mm2py that wrote it."""


ControlRecord = (
    Joined
    | Beat
    | Loads
    | Writes
    | Listed
    | Claim
    | Resigned
    | Assigned
    | Released
    | Evicted
    | Fenced
    | Left
    | Snapshot
    | Skipped
)


class Entry(NamedTuple):
    """A record with its place in the log."""

    offset: int
    time_ms: int
    """When it was appended, by the clock of the partition's leader: that may step back."""
    record: ControlRecord
