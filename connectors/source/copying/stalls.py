"""Which partitions of a flow stand still for ``stall.timeout.ms``, and what they wait for; and when that is over.

One line for each topic and reason: a dead target broker stalls thousands of partitions at the same moment. A reason is
said once. Another one that shows later is said as well, after ``stall.timeout.ms`` again: a target that lacks replicas
first just does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from mm2py.flow import Flow
from mm2py.kafka.port import BrokerId
from mm2py.metrics import Metrics
from mm2py.replication.copying.copied_partition import CopiedPartition
from mm2py.replication.copying.stalls import Circumstances, Watch, why_stalled
from mm2py.replication.copying.states import Drained, Draining, Reconciling, Stalled, Storing, Waiting
from mm2py.replication.reading.fetch_lane import FetchLane
from mm2py.replication.sending.produce_lane import ProduceLane

_ENDING = (Draining, Drained)
_SAYS_WHY = (Reconciling, Waiting, Stalled)


@dataclass(slots=True)
class _Said:
    """What was said of a partition since it stands still."""

    reasons: set[str] = field(default_factory=set)
    at_s: float = float("-inf")


class Stalls:
    """Looked at every second by the flow's task."""

    def __init__(self, flow: Flow, timeout_s: float, metrics: Metrics, log: FilteringBoundLogger) -> None:
        self._flow = flow
        self.timeout_s = timeout_s
        self._metrics = metrics
        self._log = log
        self._watches: dict[CopiedPartition, Watch] = {}
        self._said: dict[CopiedPartition, _Said] = {}
        """Of those that stand still."""

    def look(
        self,
        partitions: Iterable[CopiedPartition],
        now_s: float,
        circumstances: Callable[[CopiedPartition], Circumstances],
    ) -> None:
        """Compare with the last look, and say what began and what is over; ``part.stalled`` is kept up to date."""
        watches, self._watches = self._watches, {}
        said, self._said = self._said, {}
        fresh: dict[tuple[str, str], dict[int, float]] = {}
        for part in partitions:
            watch = self._watches[part] = watches.get(part) or Watch()
            end = max(part.copier.end_offset or 0, part.log_end, part.asked_end)
            waited_s = watch.look(end, part.copier.position.source_offset, now_s)
            part.stalled = ""
            if waited_s < self.timeout_s or isinstance(part.copier.state, _ENDING):
                continue
            part.stalled = why_stalled(circumstances(part))
            known = self._said[part] = said.get(part) or _Said()
            if part.stalled not in known.reasons and now_s - known.at_s >= self.timeout_s:
                known.reasons.add(part.stalled)
                known.at_s = now_s
                fresh.setdefault((part.source_topic, part.stalled), {})[part.partition] = waited_s
        over: dict[str, int] = {}
        for part in said.keys() - self._said.keys():
            over[part.source_topic] = over.get(part.source_topic, 0) + (part in self._watches)
        self._metrics.set_stalled(self._flow, len(self._said))
        for (topic, why), waited in fresh.items():
            self._log.error(
                "partition.stalled",
                topic=topic,
                partitions=len(waited),
                first=min(waited),
                why=why,
                for_s=round(min(waited.values()), 1),
            )
        for topic, count in sorted(over.items()):
            if count:
                self._log.info("partition.moving", topic=topic, partitions=count)


def circumstances_of(
    part: CopiedPartition,
    *,
    fetch_lanes: Mapping[BrokerId, FetchLane],
    produce_lanes: Mapping[BrokerId, ProduceLane],
    throttled_s: float,
    memory_is_full: bool,
) -> Circumstances:
    """Return what is known of a partition just now."""
    copier = part.copier
    source = None if part.source_leader is None else fetch_lanes.get(part.source_leader)
    target = None if part.target_leader is None else produce_lanes.get(part.target_leader)
    return Circumstances(
        lacks_leader=part.lacks_leader,
        reason=copier.kind_of_reason if isinstance(copier.state, _SAYS_WHY) else "",
        is_storing=isinstance(copier.state, Storing),
        position_problem=part.position_problem,
        has_unacknowledged=not copier.is_idle,
        hidden_by_transaction=copier.lag() == 0 and part.log_end > copier.position.source_offset,
        target_problem=None if target is None else target.problem.text,
        source_problem=None if source is None else source.problem.text,
        throttled_s=throttled_s,
        memory_is_full=memory_is_full,
        is_reading=part.reading is not None,
    )
