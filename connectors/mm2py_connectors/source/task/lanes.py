"""The lanes of one flow, one for each broker it reads from or writes to; and which of its partitions stand still.

MirrorMaker 2 does not report that a partition stands still. ``Stalls`` logs it after ``stall.timeout.ms``, with the
reason, in one line for each topic and reason: a target broker that fails stalls thousands of partitions at once.

Counterpart: the connections of the consumer and the producer that each MirrorSourceTask of MirrorMaker 2 has for
itself. Here one fetch lane serves all partitions that a source broker leads, and one produce lane all of a target
broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable
from math import inf
from typing import Any

from mm2py.config.settings import FlowSettings
from mm2py.copying.copied_partition import (
    Circumstances,
    CopiedPartition,
    LaneProblem,
    Watch,
    why_stalled,
)
from mm2py.copying.link_tuning import NEAR_S, Limit
from mm2py.copying.produce_lane import ProduceLane, SendSettings
from mm2py.copying.reading.fetch_lane import FetchLane
from mm2py.copying.reading.limits import MemoryAccount, RateLimit, ReadLimits
from mm2py.copying.reading.read_settings import ReadSettings
from mm2py.copying.states import Copying, Drained, Draining, Reconciling, Stopped, Storing, Waiting
from mm2py.copying.waits import BrokerTimes, WaitFacts, wait_of
from mm2py.kafka.port import BrokerId
from mm2py.records.flow_waits import Wait
from mm2py.records.link_use import LinkUse
from mm2py.status.not_copied import Reason
from mm2py_connectors.source.context import FlowContext


class Lanes:
    """The lanes of one flow's task. A lane is started when a partition first needs it, and kept until the task ends."""

    def __init__(
        self,
        context: FlowContext,
        start: Callable[[Coroutine[Any, Any, None], str], None],
    ) -> None:
        """Make one, without lanes. ``start`` runs a lane under a name, until the flow's task ends."""
        self._context = context
        self._start = start
        self._clock = context.clock
        self._fetch: dict[BrokerId, FetchLane] = {}
        self._produce: dict[BrokerId, ProduceLane] = {}
        self._accounts: dict[BrokerId, MemoryAccount] = {}
        """The memory for what is read and not acknowledged yet, by target broker."""
        self.source_times, self.target_times = BrokerTimes(), BrokerTimes()
        self._rate = RateLimit(context.settings.bytes_per_second_max)
        self._part_of_rate = 1.0

    def lead(self, partitions: Collection[CopiedPartition]) -> None:
        """Put every partition into the lanes of the brokers that lead it now, or that it is read from."""
        for part in partitions:
            self._place(part)
            if part.leaders.target is not None:
                self._produce_lane(part.leaders.target).offer(part)
        for fetch_lane in list(self._fetch.values()):
            fetch_lane.wake()

    def _place(self, part: CopiedPartition) -> FetchLane | None:
        """Put a partition into the lane of the broker that it is read from, and return that."""
        for broker, lane in self._fetch.items():
            if broker != part.read_from:
                lane.partitions.pop(part.key, None)
        if part.read_from is None:
            return None
        lane = self._fetch_lane(part.read_from)
        lane.partitions[part.key] = part
        return lane

    def move(self, part: CopiedPartition) -> None:
        """Read a partition from another broker now, without waiting for the old one's answer."""
        part.reading.current = None
        if lane := self._place(part):
            lane.offer(part)
        self._context.log.debug(
            "partition.read_from", topic=part.source_topic, partition=part.partition, broker=part.read_from
        )

    def take_part_of_rate(self, part: float) -> None:
        """Read at most this part of ``bytes.per.second.max``: other workers of the flow have the rest."""
        self._part_of_rate = part
        most = self._context.settings.bytes_per_second_max
        self._rate.change(None if most is None else max(1, int(most * part)), self._clock.monotonic())

    def change(self) -> None:
        """Use other settings from the next read on."""
        for lane in self._fetch.values():
            lane.settings = _reading(self._context.settings)
        self.take_part_of_rate(self._part_of_rate)

    def offer_read(self, part: CopiedPartition) -> None:
        """Offer a partition for reading: it may be read now."""
        if (broker := part.read_from) is not None:
            self._fetch[broker].offer(part)

    def offer_batches(self, part: CopiedPartition) -> None:
        """Offer a partition for sending: it may have batches."""
        if part.copier.in_flight.has_batches and part.leaders.target is not None:
            self._produce[part.leaders.target].offer(part)

    def forget(self, part: CopiedPartition) -> None:
        """Stop reading a partition."""
        if part.read_from in self._fetch:
            self._fetch[part.read_from].partitions.pop(part.key, None)

    @property
    def read_bytes(self) -> int:
        """Bytes received since the task started."""
        return sum(lane.read_bytes for lane in self._fetch.values())

    @property
    def sent_bytes(self) -> int:
        """Bytes of batches sent since the task started."""
        return sum(lane.sent_bytes for lane in self._produce.values())

    def link_use(self) -> LinkUse | None:
        """Return how the link is used; None if there is only one connection to each broker."""
        tuners = [lane.pool.tuner for lane in self._fetch.values()] + [lane.tuner for lane in self._produce.values()]
        used = [tuner for tuner in tuners if tuner.connections > 1]
        if not used:
            return None
        most = max(used, key=lambda tuner: tuner.bytes_per_s)
        return LinkUse(
            sum(tuner.connections for tuner in used),
            round(sum(tuner.bytes_per_s for tuner in used)),
            round(100 * most.part_of_best),
            str(most.limit),
        )

    def waits(self, parts: Iterable[CopiedPartition]) -> tuple[Counter[Wait], float]:
        """Return how many of these partitions, which are behind, wait for what; and how far away a broker is for which
        one waits, 0 if none is far. Partitions that are not being copied do not count."""
        now_s = self._clock.monotonic()
        rate_s = self._rate.wait_s(now_s)
        held_up_by = {broker: lane.pool.held_up_by(now_s) for broker, lane in self._fetch.items()}
        found: Counter[Wait] = Counter()
        farthest_s = 0.0
        for part in parts:
            copier, read_from, written_to = part.copier, part.read_from, part.leaders.target
            if type(copier.state) is not Copying or copier.is_paused or read_from is None or written_to is None:
                continue
            is_answered = copier.in_flight.is_idle
            if (copier.is_at_end and is_answered) or read_from not in self._fetch or written_to not in self._produce:
                continue
            lane, account = self._fetch[read_from], self._accounts.get(written_to)
            is_full = account is not None and account.is_waited_for
            if lane.pool.has(part):
                is_full = held_up_by[read_from] is Limit.MEMORY
            source_s = self._context.source.brokers.round_trip_s(read_from) or 0.0
            target_s = self._context.target.brokers.round_trip_s(written_to) or 0.0
            wait = wait_of(
                WaitFacts(
                    is_planned=lane.is_planning(part),
                    has_room=copier.wants_fetch and (is_answered or not copier.is_at_end),
                    rate_s=rate_s,
                    memory_is_full=is_full,
                    target_is_full=self._produce[written_to].is_full,
                    is_source_far=source_s >= NEAR_S,
                    is_target_far=target_s >= NEAR_S,
                )
            )
            found[wait] += 1
            if wait is Wait.SOURCE_LINK or wait is Wait.TARGET_LINK:
                farthest_s = max(farthest_s, source_s if wait is Wait.SOURCE_LINK else target_s)
        return found, farthest_s

    def close(self) -> None:
        """Give all memory back."""
        for account in self._accounts.values():
            account.close()

    def circumstances(self, part: CopiedPartition) -> Circumstances:
        """Return what is known of a partition now."""
        copier = part.copier
        source = None if part.read_from is None else self._fetch.get(part.read_from)
        target = None if part.leaders.target is None else self._produce.get(part.leaders.target)
        account = None if part.leaders.target is None else self._accounts.get(part.leaders.target)
        return Circumstances(
            lacks_leader=part.lacks_leader,
            reason=copier.kind_of_reason if isinstance(copier.state, _SAYS_WHY) else "",
            is_storing=isinstance(copier.state, Storing),
            position_problem=part.position_problem,
            has_unacknowledged=not copier.in_flight.is_idle,
            hidden_by_transaction=copier.lag() == 0 and part.reading.log_end > copier.position.source_offset,
            target_problem=None if target is None else target.problem.text,
            source_problem=None if source is None else source.problem.text,
            throttled_s=self._rate.wait_s(self._clock.monotonic()),
            memory_is_full=account is not None and account.is_waited_for,
            is_reading=part.reading.current is not None,
        )

    def _fetch_lane(self, broker: BrokerId) -> FetchLane:
        if broker not in self._fetch:
            lane = FetchLane(
                broker,
                self._context.source.brokers,
                _reading(self._context.settings),
                ReadLimits(self._account, self._rate),
                clock=self._clock,
                rng=self._context.rng,
                problem=LaneProblem(
                    self._reporter(self._context.source.alias, broker), self._context.state.metadata_wanted.set
                ),
                times=self.source_times,
            )
            self._fetch[broker] = lane
            for account in self._accounts.values():
                account.lanes = len(self._fetch)
            self._start(lane.run(), f"fetch lane {broker}")
        return self._fetch[broker]

    def _produce_lane(self, broker: BrokerId) -> ProduceLane:
        if broker not in self._produce:
            request_ms = int(self._context.settings.target_request_timeout_s * 1000)
            expiry_ms = self._context.ownership.producer_expiry_ms
            lane = ProduceLane(
                broker,
                self._context.target.brokers,
                settings=SendSettings(
                    timeout_ms=max(request_ms // 2, request_ms - 5_000),
                    retained_after_ms=lambda: self._clock.wall_ms() - expiry_ms // 2,
                    connections_max=lambda: self._context.settings.connections_per_broker_max,
                ),
                clock=self._clock,
                problem=LaneProblem(self._reporter(self._context.target.alias, broker)),
                times=self.target_times,
            )
            self._produce[broker] = lane
            self._start(lane.run(), f"produce lane {broker}")
        return self._produce[broker]

    def _account(self, target: BrokerId) -> MemoryAccount:
        if target not in self._accounts:
            self._accounts[target] = self._context.memory.open()
            self._accounts[target].lanes = len(self._fetch)
        return self._accounts[target]

    def _reporter(self, alias: str, broker: BrokerId) -> Callable[[str | None], None]:
        def report(problem: str | None) -> None:
            if problem is None:
                self._context.log.info("broker.back", cluster=alias, broker=broker)
            else:
                self._context.log.warning("broker.lost", cluster=alias, broker=broker, why=problem)

        return report


def _reading(settings: FlowSettings) -> ReadSettings:
    return ReadSettings(
        partition_max_bytes=settings.fetch_partition_max_bytes,
        alone_max_bytes=settings.fetch_alone_max_bytes,
        max_bytes=settings.fetch_max_bytes,
        min_bytes=settings.fetch_min_bytes,
        max_wait_ms=settings.fetch_max_wait_ms,
        read_committed=settings.read_committed,
        copy_modes=settings.copy_modes,
        connections_max=settings.connections_per_broker_max,
        linger_s=settings.linger_s,
        rack=settings.client_rack,
    )


_ENDING = (Draining, Drained)
_SAYS_WHY = (Reconciling, Waiting, Stopped)


class Stalls:
    """Finds which partitions of a flow stand still, and why. The flow's task calls it every second."""

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._log = context.log
        self._watches: dict[CopiedPartition, Watch] = {}

    def look(
        self,
        partitions: Iterable[CopiedPartition],
        now_s: float,
        circumstances: Callable[[CopiedPartition], Circumstances],
    ) -> None:
        """Keep ``part.stalled`` up to date, and log which partitions stand still and which move again.

        Each reason is logged once while a partition stands still, and another reason ``stall.timeout.ms`` later: a
        target that lacks replicas only gives no answer at first.
        """
        timeout_s = self._context.settings.stall_timeout_s
        self._watches = {part: self._watches.get(part) or Watch() for part in partitions}
        fresh: dict[tuple[str, str, str], dict[int, float]] = {}
        over: Counter[str] = Counter()
        for part, watch in self._watches.items():
            end = max(part.copier.end_offset or 0, part.reading.log_end, part.asked.end)
            if part.copier.is_paused:
                end = 0  # what waits there waits for the operator
            waited_s = watch.look(end, part.copier.position.source_offset, now_s)
            part.stalled = ""
            if part.copier.is_paused:
                watch.said.clear()
                continue
            if waited_s < timeout_s or isinstance(part.copier.state, _ENDING):
                over[part.source_topic] += bool(watch.said)
                watch.said.clear()
                continue
            part.stalled = why_stalled(circumstances(part))
            if part.stalled not in watch.said and now_s - max(watch.said.values(), default=-inf) >= timeout_s:
                watch.said[part.stalled] = now_s
                reason = "" if _has_other_reason(part) else str(Reason.STALLED)
                fresh.setdefault((part.source_topic, part.stalled, reason), {})[part.partition] = waited_s
        self._context.metrics.set_stalled(self._context.flow, sum(bool(part.stalled) for part in self._watches))
        for (topic, why, reason), waited in fresh.items():
            self._log.error(
                "partition.stalled",
                topic=topic,
                partitions=len(waited),
                first=min(waited),
                why=why,
                for_s=round(min(waited.values()), 1),
                **({"reason": reason} if reason else {}),
            )
        for topic, count in sorted(over.items()):
            if count:
                self._log.info("partition.moving", topic=topic, partitions=count)


def _has_other_reason(part: CopiedPartition) -> bool:
    """Return whether another line logged why, such as a missing right: ``mm2py/status/not_copied.py`` puts that
    first."""
    state = part.copier.state
    return isinstance(state, Stopped) or (isinstance(state, Copying | Waiting) and bool(state.cause and state.reported))
