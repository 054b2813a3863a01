"""A partition being copied, and why it stands still.

Fetch lanes and produce lanes share it. A *lane* is the asyncio shell around copiers on the side of one broker. It
decides nothing: it passes each event to the partition (``CopiedPartition.tell``), whose ``shell`` carries out what the
copier asks for.

A partition stands still when records wait at the source and none is acknowledged for a while. MM2 shows such a
partition as RUNNING; ``why_stalled`` says in words what it waits for.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from mm2py.copying.copier import Copier
from mm2py.copying.events import Event
from mm2py.copying.planning.steps import PASS_ALL, MergeRule, TargetRules
from mm2py.copying.planning.transforming import PartitionTransforms
from mm2py.copying.reading.read_replica import LEADER, ReadReplica
from mm2py.copying.safe_time import SafeTime
from mm2py.copying.states import Copying, Storing
from mm2py.kafka.port import BrokerId
from mm2py.metrics.lag_trend import LagTrend
from mm2py.metrics.windows import CopyMeter
from mm2py.records.source_offset import StoredPosition

END_KNOWN_S: Final = 15.0
"""How long an end of a source log counts as known. At the end of a log, reads bring it twice a second."""


class Shell(Protocol):
    """Carries out the effects of copiers, and is called by lanes: the source task of a flow."""

    def tell(self, part: CopiedPartition, event: Event, /) -> None:
        """Give an event to the copier of a partition, and carry out its effects."""
        ...

    def sent(self, part: CopiedPartition, /) -> None:
        """Note that a batch of the partition was sent, so the partition may be read again."""
        ...

    def read_elsewhere(self, part: CopiedPartition, /) -> None:
        """Note that the partition must be read from another broker from now on, see ``Leaders.replica``."""
        ...


@dataclass(slots=True, eq=False)
class Leaders:
    """The brokers of a partition on both sides. The task sets them from metadata."""

    source: BrokerId | None = None
    source_epoch: int = -1
    replica: ReadReplica = LEADER
    """Whether it is read from a follower; valid under this source leader and epoch. Fetch lanes set it as well."""
    target: BrokerId | None = None


@dataclass(slots=True, eq=False)
class Reading:
    """What fetch lanes and pools keep of a partition from read to read."""

    current: object | None = None
    """The read under way; None: the partition may be read."""
    fetch_bytes: int = 0
    """How much to ask for if a batch is larger than the setting; 0: the setting is enough."""
    usual_bytes: int = 0
    """How many bytes a read by its lane brings: as many as the last read did, or half of what was usual before."""
    bytes_per_offset: float = 0.0
    """How many bytes the last read brought for each offset; 0 before the first read."""
    merged_bytes: int | None = None
    """How many bytes become one merged batch; reads bring multiples of it. None: the last read was not merged."""
    merging: MergeRule = PASS_ALL
    """Which batches were merged in the last read."""
    is_heavy: bool = False
    """The last plan took longer than one step of the event loop may. The next one is made beside the loop at once."""
    transactional_seen: bool = False
    log_end: int = 0
    """The end of the source log at the last read, including records that an open transaction hides from readers."""
    active_at_s: float = -math.inf
    """When it last had something to read."""
    answered_at_s: float = -math.inf
    """When a read of it was last answered."""
    end_told_at_s: float = -math.inf
    """When an answer to a read last had the end of the source log, or said that nothing is new."""
    ends_at: int | None = None
    """The source offset after the last batch before the seam; None until a read has shown it."""


@dataclass(slots=True, eq=False)
class AskedEnd:
    """The end of a source log that is not being read, as ``SourceEnds`` has looked it up."""

    end: int = 0
    """0: it was not looked up since the partition was read last."""
    readable_end: int = 0
    """The same, as far as it may be read: under read_committed, up to the first open transaction."""
    at_s: float = -math.inf
    """When the source answered."""


@dataclass(slots=True, eq=False)
class LedgerPlace:
    """How far the ledger of a partition is written (see ``LedgerKeeper``)."""

    number: int | None = None
    """The number of the ledger that is being written; None before it starts."""
    run: tuple[int, int, bool] | None = None
    """See ``StoredPosition.ledger_run``. It ends with the last records that were given to the ledger."""


@dataclass(slots=True, eq=False)
class CopiedPartition:
    """A partition being copied: its names, its copier, and the state that each part of the way keeps about it."""

    source_topic: str
    target_topic: str
    partition: int
    copier: Copier
    rules: TargetRules
    """What the remote topic accepts. Lookups replace them."""
    shell: Shell = field(repr=False)
    source_topic_id: uuid.UUID | None = None
    target_topic_id: uuid.UUID | None = None
    stored: StoredPosition | None = None
    """The stored position that it started from; None: nothing of the partition was copied before. Fields of a newer
    version in it are written back unchanged."""
    transforms: PartitionTransforms | None = None
    """What is done to each of its records on the way; None: nothing."""
    seam: int | None = None
    """Batches that reach beyond this source offset are not copied; None: all are. See ``is_over``."""
    leaders: Leaders = field(default_factory=Leaders)
    reading: Reading = field(default_factory=Reading)
    asked: AskedEnd = field(default_factory=AskedEnd)
    ledger: LedgerPlace = field(default_factory=LedgerPlace)
    safe: SafeTime = field(default_factory=SafeTime)
    """Up to which moment it is copied. Fetch lanes and ``SafeTimes`` give it the answers of the source."""
    lag_trend: LagTrend = field(default_factory=LagTrend)
    """How its lag moves. ``look_at_lag`` gives it what is known."""
    meter: CopyMeter = field(default_factory=CopyMeter)
    connection: int = 0
    """The connection to its target broker over which it is written. Its produce lane sets it."""
    stalled: str = ""
    """Why records wait here and none is acknowledged; empty unless that has lasted. ``Stalls`` sets it."""
    position_problem: str = ""
    """Why its position cannot be stored; empty unless that has lasted. The position keeper sets it."""

    def __post_init__(self) -> None:
        if self.stored is not None:
            self.lag_trend.behind_since_ms = self.stored.behind_since_ms

    def tell(self, event: Event) -> None:
        """Give an event to the copier of the partition. Its effects start at once."""
        self.shell.tell(self, event)

    @property
    def read_from(self) -> BrokerId | None:
        """The source broker that it is read from; None while it has no leader."""
        return self.leaders.source if self.leaders.replica.follower is None else self.leaders.replica.follower

    @property
    def has_reached_seam(self) -> bool:
        """All that lies before the seam was read."""
        if self.seam is None:
            return False
        return self.copier.fetch_offset >= (self.seam if self.reading.ends_at is None else self.reading.ends_at)

    @property
    def is_over(self) -> bool:
        """All that lies before the seam is copied."""
        copier = self.copier
        return self.has_reached_seam and type(copier.state) is Copying and copier.in_flight.is_idle

    @property
    def lacks_leader(self) -> str | None:
        """Which leader is missing; None if there are both."""
        if self.leaders.source is None:
            return "the source partition has no leader"
        return "the remote partition has no leader" if self.leaders.target is None else None

    def known_end(self, now_s: float) -> int | None:
        """Return the end of the source log if it was read in the last seconds. An older end would give a wrong lag.

        The story: a partition is at the end of its log when READ is revoked, and then 25 records arrive. By the end
        that the last read brought, none waits.
        """
        end = self.copier.end_offset
        if end is not None and now_s - self.reading.end_told_at_s <= END_KNOWN_S:
            return end
        return self.asked.readable_end if now_s - self.asked.at_s <= END_KNOWN_S else None

    def look_at_lag(self, now_s: float, now_ms: int) -> None:
        """Note how far it is behind now, by both clocks."""
        trend, safe_ms = self.lag_trend, self.safe.at_ms
        if not trend.has_nothing_to_note(now_ms, safe_ms):
            position = self.copier.position.source_offset
            trend.look(now_ms, self.known_end(now_s), position, self.newest_ms, safe_ms)

    @property
    def newest_ms(self) -> int | None:
        """Return the newest timestamp of the batch that was copied last; None: it had none, or none is known.

        Until this worker has copied a batch, the stored position has this timestamp. It is not used if the partition
        starts before that position: then the last record of the copy is another one.

        The story: a worker restarts while the target refuses writes. It has copied nothing itself, and the copy is as
        old as the last batch of the previous incarnation.
        """
        if self.copier.tally.records:
            at_ms = self.copier.tally.last_timestamp_ms
            return None if at_ms < 0 else at_ms
        if self.stored is None or self.copier.position.source_offset < self.stored.next_source:
            return None
        return self.stored.newest_ms

    @property
    def waits_for_position(self) -> bool:
        """It must store its position before it sends anything, and that is not possible now."""
        return isinstance(self.copier.state, Storing) and bool(self.position_problem)

    @property
    def key(self) -> tuple[str, int]:
        return self.source_topic, self.partition

    @property
    def transforms_digest(self) -> str | None:
        """What its positions say of its transforms; None: it has none."""
        return None if self.transforms is None else self.transforms.digest


class LaneProblem:
    """Why a broker does not answer us; ``text`` is None while it does."""

    def __init__(self, report: Callable[[str | None], None], lost: Callable[[], None] = lambda: None) -> None:
        """``report`` is called when the problem changes, ``lost`` for each request without an answer."""
        self.text: str | None = None
        self._report = report
        self._lost = lost

    def set(self, text: str | None) -> None:
        if text != self.text:
            self.text = text
            self._report(text)
        if text is not None:
            self._lost()


NOT_STORED: Final = "its position is not stored on the target yet"
"""What a partition waits for before anything is read."""


class Watch:
    """Watches one partition. A partition with nothing to copy never stands still."""

    __slots__ = ("_acknowledged", "_since_s", "said")

    def __init__(self) -> None:
        self._acknowledged = -1
        self._since_s: float | None = None
        self.said: dict[str, float] = {}
        """The reasons for the standstill that were logged, and when."""

    def look(self, end_offset: int, acknowledged: int, now_s: float) -> float:
        """Return for how long records have waited while none was acknowledged; 0 if none waits.

        Args:
            end_offset: the last known end of the source log; 0 before that.
            acknowledged: the next source offset to be copied. It passes dropped records, too.
        """
        if acknowledged >= end_offset:
            self._since_s = None
        elif self._since_s is None or acknowledged != self._acknowledged:
            self._since_s = now_s
        self._acknowledged = acknowledged
        return 0.0 if self._since_s is None else now_s - self._since_s


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known of a partition that stands still. Texts are empty or None where there is nothing to say."""

    lacks_leader: str | None = None
    reason: str = ""
    """Why its copier waits or has stopped, if it does."""
    is_storing: bool = False
    """Its position has to be stored before anything is read."""
    position_problem: str = ""
    """Why no position of it can be stored."""
    has_unacknowledged: bool = False
    """Records were read, and not acknowledged yet."""
    hidden_by_transaction: bool = False
    """All records that readers of committed records may see are copied, and the log has more after them."""
    target_problem: str | None = None
    source_problem: str | None = None
    throttled_s: float = 0.0
    memory_is_full: bool = False
    is_reading: bool = False


def why_stalled(seen: Circumstances) -> str:
    """Return in words what the partition waits for: of several reasons, the first in the order of a batch's way."""
    if seen.lacks_leader:
        return seen.lacks_leader
    if seen.reason:
        return seen.reason
    if seen.is_storing:
        return f"{NOT_STORED}{_because(seen.position_problem or seen.target_problem)}"
    if seen.has_unacknowledged:
        return f"the target has not acknowledged what was read{_because(seen.target_problem)}"
    if seen.hidden_by_transaction:
        return (
            "a transaction on the source has not ended, and what stands behind its beginning is hidden from readers of"
            " committed records; kafka-transactions.sh find-hanging, or describe-producers, names its producer"
        )
    if seen.throttled_s > 0:
        return "bytes.per.second.max holds reading back"
    if seen.memory_is_full:
        return "memory.max.bytes is used up by records that wait for the target"
    if seen.source_problem:
        return f"the source does not answer: {seen.source_problem}"
    if seen.is_reading:
        return "the source was asked for records and has not sent any"
    return "nothing that it waits for is known; this is a defect in mm2py"


def _because(problem: str | None) -> str:
    return f": {problem}" if problem else ""
