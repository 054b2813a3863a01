"""The settings with which this worker runs one flow now, and what operators ask of its connectors.

``ConfigWatch`` keeps them up to date; the schedules of the flow's connectors wait for changes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mm2py.config.settings import FlowSettings, HeartbeatSettings
from mm2py.flow import Kind
from mm2py.records.backfill_record import Holds
from mm2py.records.operator_request import RUNNING, RestartConnector, Target, TargetState
from mm2py.records.pause_record import Pauses

ASKED: Final = (Kind.SOURCE, Kind.CHECKPOINT, Kind.HEARTBEAT)
"""The connectors to which requests of operators apply."""
COPYING: Final = frozenset({Kind.SOURCE, Kind.CHECKPOINT})
"""The connectors that do not run while a flow is standby. Its heartbeats go on: they concern the flow back."""


class ConnectorRequests(NamedTuple):
    """What operators ask of one connector."""

    held: Target | None = None
    """Why it is paused, stopped or standby; None: it may run."""
    restarts: int = 0
    """How many restarts were asked for."""
    retries: int = 0
    """How many restarts were asked for only where it has failed. Where it runs, it continues."""

    def lets_run(self, before: ConnectorRequests) -> bool:
        """Whether a connector that was started under the requests ``before`` may continue."""
        return self == before._replace(retries=self.retries)


@dataclass(slots=True)
class CurrentSettings:
    """How this worker runs one flow now. A connector that was started with other settings restarts by itself."""

    settings: FlowSettings | None
    """None: it is switched off."""
    heartbeats: HeartbeatSettings | None
    """None: this worker emits none."""
    is_settled: bool = False
    """The flow may run here with the stored settings; no MirrorMaker 2 runs it."""
    holds: Holds = field(default_factory=Holds)
    """Topics that the flow leaves to backfills."""
    pauses: Pauses = field(default_factory=Pauses)
    """Topics and partitions that operators have paused."""
    standby: Target | None = None
    """Why the flow is standby; None: it is not."""
    leaves_out: frozenset[int] = frozenset()
    """Producers on the source whose records are not copied: see ``Direction.leaves_out``."""
    _targets: Mapping[Kind, Target] = field(default_factory=dict)
    _restarts: Counter[str] = field(default_factory=Counter)
    _retries: Counter[str] = field(default_factory=Counter)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def become(self, settings: FlowSettings | None, heartbeats: HeartbeatSettings | None) -> None:
        self.settings, self.heartbeats = settings, heartbeats
        self._changed.set()

    def may_run(self) -> None:
        self.is_settled = True
        self._changed.set()

    def direct(self, targets: Mapping[Kind, Target]) -> Mapping[Kind, Target]:
        """Set what the connectors are to do. Returns those for which the state to reach has changed."""
        news = {kind: target for kind, target in targets.items() if target.state is not self.target(kind).state}
        if targets != self._targets:
            self._targets = dict(targets)
            self._changed.set()
        return news

    def stand_by(self, why: Target | None) -> bool:
        """Set why the flow is standby, or that it is not. Returns whether that has changed."""
        is_new = why != self.standby
        if is_new:
            self.standby = why
            self._changed.set()
        return is_new

    def restart(self, asked: RestartConnector) -> None:
        """Let a connector restart."""
        (self._retries if asked.only_failed else self._restarts)[asked.connector] += 1
        self._changed.set()

    def target(self, kind: Kind) -> Target:
        """Return what a connector is to do."""
        return self._targets.get(kind, RUNNING)

    def asked(self, kind: Kind) -> ConnectorRequests:
        """Return what operators ask of a connector."""
        target = self.target(kind)
        held = None if target.state is TargetState.STARTED else target
        if held is None and kind in COPYING:
            held = self.standby
        return ConnectorRequests(held, self._restarts[kind], self._retries[kind])

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until ``reached()`` is true; it may depend on anything here."""
        while not reached():
            self._changed.clear()
            await self._changed.wait()
