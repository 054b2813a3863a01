"""A stretch of a log of which only what would be copied is wanted, planned as when copying."""

from __future__ import annotations

import uuid
from typing import Final

from mm2py.clock import Clock
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import FetchedPartition
from mm2py.replication.planning.planner import plan
from mm2py.replication.planning.steps import Plan, TargetRules
from mm2py.replication.reading.log_reader import Stretch

_ANY_SIZE: Final = TargetRules(max_message_bytes=(1 << 31) - 1)


class PlannedStretch(Stretch):
    """Plans what is read. A batch that came damaged is not in the plan: it is read again."""

    def __init__(
        self,
        topic: str,
        topic_id: uuid.UUID | None,
        partition: int,
        *,
        offset: int,
        read_committed: bool,
        clock: Clock,
    ) -> None:
        super().__init__(topic, topic_id, partition)
        self.read_committed = read_committed
        self._offset = offset
        self._clock = clock
        self._give_up_at_s = float("inf")

    @property
    def offset(self) -> int:
        return self._offset

    def refused(self, error: BrokerRefused) -> bool:
        return True

    def _plan(self, fetched: FetchedPartition) -> Plan:
        planned = plan(
            fetched.records,
            wanted_offset=self._offset,
            read_committed=self.read_committed,
            aborted=fetched.aborted,
            rules=_ANY_SIZE,
        )
        if planned.steps:
            self._give_up_at_s = float("inf")
        self._offset = planned.next_offset
        return planned

    def _is_patient(self, patience_s: float) -> bool:
        """Whether to try again; asked when a read brought nothing new."""
        now_s = self._clock.monotonic()
        self._give_up_at_s = min(self._give_up_at_s, now_s + patience_s)
        return now_s < self._give_up_at_s
