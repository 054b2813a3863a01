"""The records of the control log ``mm2-cluster.<group>.internal``, by which workers communicate. Pure.

The messages of Connect's groups go through a broker's coordinator and are not kept. These records stay in a log that
all workers read in the same order. Appends are retried, so any record may be in the log twice, the second time long
after the first. ``control_codec.py`` writes them.

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
from mm2py.records.flow_waits import FlowWaits
from mm2py.records.link_use import LinkUse
from mm2py.records.safe_point import SafePoint

MOST_TASKS: Final = 1_000_000
"""Limit of the tasks in one text: a range that a foreign writer invented must not fill the memory."""
_WHOLE: Final = "*"

Ranges = dict[str, dict[str, dict[str, str]]]


def pack(numbers: Mapping[TaskName, int]) -> Ranges:
    """Return tasks and their numbers (>= 0) as JSON. The order of ``numbers`` does not change the result."""
    topics: defaultdict[tuple[Flow, Kind, str], list[tuple[int, int]]] = defaultdict(list)
    for (flow, kind, topic, partition), number in numbers.items():
        topics[flow, kind, topic].append((partition, number))
    packed: Ranges = {}
    for (flow, kind, topic), partitions in sorted(topics.items()):
        packed.setdefault(str(flow), {}).setdefault(kind.value, {})[topic] = _text(sorted(partitions))
    return packed


def unpack(packed: Any) -> dict[TaskName, int]:
    """Return the tasks and numbers that ``pack`` was given.

    Raises:
        ValueError, TypeError, AttributeError, ConfigError: ``packed`` is not a result of ``pack``.
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
"""In ``Assigned``: the task is revoked from its owner, and has no owner from then on."""

NOT_A_PARTITION = -1

UNDIVIDED: Final = (Kind.HEARTBEAT, Kind.CHECKPOINT)
"""Kinds of which a flow has a single task, which one worker runs as a whole."""


class TaskName(NamedTuple):
    """The smallest piece of work that one worker owns: a source partition of a flow, or a task that is not divided.

    The task ``(flow, Kind.SOURCE, "", NOT_A_PARTITION)`` is the flow coordinator's: its owner finds topics, creates
    remote topics, synchronizes configurations and ACLs, and lists partitions. Heartbeats and checkpoints are likewise
    one task each, of their kinds.
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


_WHOLE_NAME: Final = "/"


class TopicClaim(NamedTuple):
    """The remote topic that a source topic is copied into."""

    prefix: str
    """What comes before the source topic's name in the remote topic's name. If it ends in ``/``, which no name has, it
    is the whole remote name: ``topics.rename`` has given another one. A worker that does not know this copies nothing
    into such a topic: its own claim differs."""
    mixes: bool
    """Whether other flows may copy into the same remote topic (``many.to.one``), if their claims say so too."""

    @classmethod
    def of(cls, topic: str, remote_topic: str, *, mixes: bool) -> TopicClaim:
        if not remote_topic.endswith(topic):
            return cls(f"{remote_topic}{_WHOLE_NAME}", mixes)
        return cls(remote_topic[: len(remote_topic) - len(topic)], mixes)

    def remote_topic(self, topic: str) -> str:
        """Return the remote topic of a source topic that has this claim."""
        is_whole = self.prefix.endswith(_WHOLE_NAME)
        return self.prefix.removesuffix(_WHOLE_NAME) if is_whole else f"{self.prefix}{topic}"


@dataclass(frozen=True, slots=True)
class Joined:
    """A worker joins the group. Its flows are those into this target that its file and ``--clusters`` name."""

    member: MemberId
    name: str
    """For people: host and process."""
    runs: str
    """The version of mm2py."""
    url: str
    """The address of its REST interface, empty if it has none."""
    flows: tuple[Flow, ...]
    """The flows whose partitions it may copy."""
    heartbeats: tuple[Flow, ...]
    """The flows whose heartbeats it may emit."""
    tasks_max: Mapping[Flow, int]
    """``tasks.max`` of the flows for which its file sets it."""
    cluster_id: str | None
    """The id of the target, as this worker sees it."""
    election: str
    """``log`` or ``zookeeper``."""
    session_timeout_ms: int
    """After this long without a record of it, other members may declare its session expired; it stops before that."""
    checkpoints: tuple[Flow, ...] = ()
    """The flows whose checkpoints it may emit."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Connectors that must not run on this worker, and why; named as ``A->B.MirrorSourceConnector``."""
    core: str = ""
    """Whether it runs with the compiled core, and if not why, in a few words. Empty: an older version."""

    @property
    def undivided(self) -> Mapping[Kind, tuple[Flow, ...]]:
        """The flows of which the worker may run the undivided tasks, by kind."""
        return dict(zip(UNDIVIDED, (self.heartbeats, self.checkpoints), strict=True))


@dataclass(frozen=True, slots=True)
class NotStarted:
    """Why a flow has not started on a member: its source has not answered yet, or each attempt fails."""

    since_ms: int
    """Since when, by the member's clock."""
    reason: str
    """The value of a ``status.not_copied.Reason``."""
    why: str
    """The last error, in words."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat: a member is alive. It may write only while its heartbeats are acknowledged."""

    member: MemberId
    applied: Mapping[Flow, int] = field(default_factory=dict)
    """The version of each flow's configuration that the member runs."""
    held: Mapping[Flow, int] = field(default_factory=dict)
    """Flows that operators hold and of which nothing runs on this member any more: all its requests were answered. The
    value is the offset, in the flow's configs topic, of the record that asks for the hold."""
    links: Mapping[Flow, LinkUse] = field(default_factory=dict)
    """The links of flows that use several connections to one broker."""
    troubles: Mapping[Flow, str] = field(default_factory=dict)
    """Flows for which the member cannot store in the status topic what it does not copy: why, and what to do."""
    not_started: Mapping[Flow, NotStarted] = field(default_factory=dict)
    """Flows that the member should run but could not start, so that nothing stores the reason in the status topic."""
    safe: Mapping[Flow, SafePoint] = field(default_factory=dict)
    """Up to which moment it has copied its partitions of each flow that it copies."""
    waits: Mapping[Flow, FlowWaits] = field(default_factory=dict)
    """What it waits for in the partitions of each flow that it copies."""


@dataclass(frozen=True, slots=True)
class Loads:
    """The rates of a member's tasks, in whole bytes/s; only those that changed much since its last such record."""

    member: MemberId
    bytes_per_s: Mapping[TaskName, float]


REASON_MOST: Final = 1000
"""How many characters the reason for a refusal may have: a record may have 1 MiB."""


def shortened(why: str) -> str:
    """Return a reason, cut to ``REASON_MOST`` characters; a cut one ends in three dots."""
    return why if len(why) <= REASON_MOST else f"{why[: REASON_MOST - 1]}…"


@dataclass(frozen=True, slots=True)
class Writes:
    """A member is about to write under a producer id, which must be fenced if its session expires."""

    member: MemberId
    writer: Writer


@dataclass(frozen=True, slots=True)
class Listed:
    """The partitions that a flow copies, from its coordinator. A topic with 0 partitions is not copied any more."""

    member: MemberId
    flow: Flow
    partitions: Mapping[str, int]
    """How many partitions each source topic has; only topics whose number changed."""
    widths: Mapping[str, int] = field(default_factory=dict)
    """How many partitions topics had when the flow first copied them; written once, the first value counts."""
    source_cluster: str | None = None
    """The id of the cluster with these topics; written once for a flow, the first value counts."""
    claims: Mapping[str, TopicClaim] = field(default_factory=dict)
    """By topics of ``partitions``. The listing of a topic is void if its claim conflicts with another flow's."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A member claims leadership. It counts if it is the next leader epoch, and the group has no leader."""

    member: MemberId
    leader_epoch: int
    claim_id: str
    """Random: distinguishes two claims of one member."""
    evidence: str = ""
    """What allowed the claim, from an election backend other than the log."""


@dataclass(frozen=True, slots=True)
class Resigned:
    """The leader resigns, but stays a member: its election backend does not let it lead."""

    member: MemberId
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Assigned:
    """The leader assigns tasks; tasks that are not named keep their owners. Valid when all its parts are read."""

    member: MemberId
    leader_epoch: int
    generation: int
    owners: Mapping[TaskName, MemberId]
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, slots=True)
class Released:
    """The previous owner of tasks has drained them: all its requests were answered."""

    member: MemberId
    generation: int
    """The generation in which it had to release them: a late duplicate releases no task that was assigned later."""
    tasks: frozenset[TaskName]


@dataclass(frozen=True, slots=True)
class Evicted:
    """The leader evicts a member whose session has expired: this member's later records in the control log are void."""

    member: MemberId
    leader_epoch: int
    dead: MemberId


@dataclass(frozen=True, slots=True)
class Fenced:
    """Producers were fenced in the internal topics of their flow: they can store no more positions."""

    member: MemberId
    leader_epoch: int
    of: MemberId | None
    """The member whose producers are now all fenced; None: producers that the control log does not know."""
    epochs: Mapping[int, int]
    """The fence epoch of each producer id. Other members fence it in further partitions with the same epoch."""
    unfenced: Mapping[int, str] = field(default_factory=dict)
    """Producer ids that could not be fenced, and why."""


@dataclass(frozen=True, slots=True)
class Left:
    """A member has left for good. ``outcome_unknown``: a request of it was not answered, so it must be fenced."""

    member: MemberId
    outcome_unknown: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The leader's state of the group after all records below ``covers``: a joiner reads from here. In parts."""

    member: MemberId
    leader_epoch: int
    covers: int
    """The state has the records below this offset; a joiner also reads those between this offset and the snapshot."""
    snapshot_id: str
    state: str
    """This part of the JSON text of the state, see ``state_snapshot.py``."""
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record of a newer mm2py that an older one may skip. It still shows that its member is alive."""

    member: MemberId
    kind: str
    version: str
    """The version of the mm2py that wrote it."""


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
    """When it was appended, by the clock of the partition's leader, which may step back."""
    record: ControlRecord
