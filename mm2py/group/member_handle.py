"""The view of a member that its parts have: its candidate, its leader loop, and the ownership of each flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from mm2py.flow import Flow
from mm2py.group.membership import GroupState
from mm2py.kafka.port import Brokers
from mm2py.kafka.write_gate import Gate, GatedBrokers
from mm2py.records.control_record import ControlRecord, MemberId, NotStarted, TaskName
from mm2py.records.flow_waits import FlowWaits
from mm2py.records.link_use import LinkUse
from mm2py.records.safe_point import SafePoint


class MemberHandle(Protocol):
    """One member, see ``Member``."""

    id: MemberId
    view: GroupState
    gate: Gate
    not_started: dict[Flow, NotStarted]

    @property
    def is_over(self) -> bool: ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def takes_part(self) -> bool: ...
    def gated(self, brokers: Brokers) -> GatedBrokers: ...
    def measure(self, bytes_per_s: Mapping[TaskName, float]) -> None: ...
    def uses(self, flow: Flow, link: LinkUse | None) -> None: ...
    def is_safe_to(self, flow: Flow, safe: SafePoint) -> None: ...
    def waits_for(self, flow: Flow, waits: FlowWaits | None) -> None: ...
    def cannot_store(self, flow: Flow, why: str) -> None: ...
    def cannot_start(self, flow: Flow, why: NotStarted | None) -> None: ...
    def started(self, flow: Flow) -> None: ...
    async def say(self, records: Sequence[ControlRecord]) -> None: ...
