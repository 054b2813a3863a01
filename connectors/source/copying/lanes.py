"""The lanes of one flow: which broker each partition is read from, and which it is written to, as leaders move.

Answers to the connections of the consumer and the producer that each MirrorSourceTask of MirrorMaker 2 has for itself.
Here one fetch lane serves all partitions that a source broker leads, and one produce lane all of a target broker.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from structlog.typing import FilteringBoundLogger

from connectors.source.copying.stalls import circumstances_of
from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.kafka.port import BrokerId, Brokers
from mm2py.replication.copying.copied_partition import CopiedPartition, Handler
from mm2py.replication.copying.stalls import Circumstances
from mm2py.replication.reading.fetch_lane import FetchLane, ReadSettings
from mm2py.replication.reading.memory import MemoryAccount, MemoryBudget
from mm2py.replication.reading.rate import RateLimit
from mm2py.replication.sending.produce_lane import ProduceLane


class Lanes:
    """Begun as brokers are met, and kept until the flow's task ends."""

    def __init__(
        self,
        settings: FlowSettings,
        source: Brokers,
        target: Brokers,
        *,
        budget: MemoryBudget,
        producer_expiry_ms: int,
        handle: Handler,
        stale: Callable[[], None],
        start: Callable[[Coroutine[Any, Any, None], str], None],
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """Make it, without lanes.

        Args:
            stale: is told that a broker was lost, so that others may lead its partitions.
            start: runs a lane under a name, until the flow's task ends.
        """
        self._settings = settings
        self._source = source
        self._target = target
        self._budget = budget
        self._producer_expiry_ms = producer_expiry_ms
        self._handle = handle
        self._stale = stale
        self._start = start
        self._clock = clock
        self._rng = rng
        self._log = log
        self._fetch: dict[BrokerId, FetchLane] = {}
        self._produce: dict[BrokerId, ProduceLane] = {}
        self._accounts: dict[BrokerId, MemoryAccount] = {}
        """What is read and not acknowledged yet, by target broker."""
        self._rate = RateLimit(settings.bytes_per_second_max)
        self._part_of_rate = 1.0
        self._reading = _reading(settings)

    def lead(self, partitions: Collection[CopiedPartition]) -> None:
        """Put every partition into the lanes of the brokers that lead it now."""
        for part in partitions:
            for broker, lane in self._fetch.items():
                if broker != part.source_leader:
                    lane.partitions.pop(part.key, None)
            if part.source_leader is not None:
                self._fetch_lane(part.source_leader).partitions[part.key] = part
            if part.target_leader is not None:
                self._produce_lane(part.target_leader).offer(part)
        for fetch_lane in self._fetch.values():
            fetch_lane.wake()

    def take_part_of_rate(self, part: float) -> None:
        """Read no faster than this part of ``bytes.per.second.max``: other workers read the rest."""
        self._part_of_rate = part
        most = self._settings.bytes_per_second_max
        self._rate.change(None if most is None else max(1, int(most * part)), self._clock.monotonic())

    def change(self, settings: FlowSettings) -> None:
        """Take other settings up; reads under way are answered as they were asked for."""
        self._settings = settings
        self._reading = _reading(settings)
        for lane in self._fetch.values():
            lane.settings = self._reading
        self.take_part_of_rate(self._part_of_rate)

    def offer_read(self, part: CopiedPartition) -> None:
        """It may be read."""
        if part.source_leader is not None:
            self._fetch[part.source_leader].offer(part)

    def offer_batches(self, part: CopiedPartition) -> None:
        """It may have batches to send."""
        if part.copier.has_batches and part.target_leader is not None:
            self._produce[part.target_leader].offer(part)

    def forget(self, part: CopiedPartition) -> None:
        """It is copied no more."""
        if part.source_leader in self._fetch:
            self._fetch[part.source_leader].partitions.pop(part.key, None)

    def close(self) -> None:
        """Give all memory back."""
        for account in self._accounts.values():
            account.close()

    def circumstances(self, part: CopiedPartition) -> Circumstances:
        """Return what is known of a partition just now."""
        account = None if part.target_leader is None else self._accounts.get(part.target_leader)
        return circumstances_of(
            part,
            fetch_lanes=self._fetch,
            produce_lanes=self._produce,
            throttled_s=self._rate.wait_s(self._clock.monotonic()),
            memory_is_full=account is not None and account.is_waited_for,
        )

    def _fetch_lane(self, broker: BrokerId) -> FetchLane:
        if broker not in self._fetch:
            lane = FetchLane(
                broker,
                self._source,
                self._reading,
                account=self._account,
                rate=self._rate,
                clock=self._clock,
                rng=self._rng,
                handle=self._handle,
                lost=self._stale,
            )
            lane.problem.report = self._reporter(self._settings.source.alias, broker)
            self._fetch[broker] = lane
            for account in self._accounts.values():
                account.lanes = len(self._fetch)
            self._start(lane.run(), f"fetch lane {broker}")
        return self._fetch[broker]

    def _produce_lane(self, broker: BrokerId) -> ProduceLane:
        if broker not in self._produce:
            request_ms = int(self._settings.target_request_timeout_s * 1000)
            lane = ProduceLane(
                broker,
                self._target,
                timeout_ms=max(request_ms // 2, request_ms - 5_000),
                retained_after_ms=lambda: self._clock.wall_ms() - self._producer_expiry_ms // 2,
                clock=self._clock,
                handle=self._handle,
                sent=self.offer_read,
            )
            lane.problem.report = self._reporter(self._settings.target.alias, broker)
            self._produce[broker] = lane
            self._start(lane.run(), f"produce lane {broker}")
        return self._produce[broker]

    def _account(self, target: BrokerId) -> MemoryAccount:
        if target not in self._accounts:
            self._accounts[target] = self._budget.open()
            self._accounts[target].lanes = len(self._fetch)
        return self._accounts[target]

    def _reporter(self, alias: str, broker: BrokerId) -> Callable[[str | None], None]:
        def report(problem: str | None) -> None:
            if problem is None:
                self._log.info("broker.back", cluster=alias, broker=broker)
            else:
                self._log.warning("broker.lost", cluster=alias, broker=broker, why=problem)

        return report


def _reading(settings: FlowSettings) -> ReadSettings:
    return ReadSettings(
        partition_max_bytes=settings.fetch_partition_max_bytes,
        max_bytes=settings.fetch_max_bytes,
        min_bytes=settings.fetch_min_bytes,
        max_wait_ms=settings.fetch_max_wait_ms,
        read_committed=settings.read_committed,
        copy_modes=settings.copy_modes,
        linger_s=settings.linger_s,
    )
