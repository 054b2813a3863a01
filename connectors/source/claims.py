"""Which flows lead into which remote topics of one target cluster, so that two do not mix their records unasked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from mm2py.flow import Flow

SETTLE_S: Final = 5.0
"""How long the first round of a flow waits for the others' first round: one with a dead source must not hold it."""


@dataclass(slots=True)
class RemoteTopicClaims:
    """Shared by all flows into one target. A flow that already copies a topic keeps it; newcomers are refused."""

    flows: frozenset[Flow]
    _claims: dict[str, dict[Flow, bool]] = field(default_factory=dict)
    _seen: set[Flow] = field(default_factory=set)
    _all_seen: asyncio.Event = field(default_factory=asyncio.Event)

    def claim(self, flow: Flow, remote_topics: Iterable[str], *, held: frozenset[str]) -> None:
        """Say which remote topics a flow leads into; ``held`` are those it has stored positions for."""
        for claimants in self._claims.values():
            claimants.pop(flow, None)
        for remote in remote_topics:
            self._claims.setdefault(remote, {})[flow] = remote in held
        self._seen.add(flow)
        if self._seen >= self.flows:
            self._all_seen.set()

    def leave(self, flow: Flow) -> None:
        """A flow that was refused claims nothing and is not waited for."""
        self.claim(flow, (), held=frozenset())

    async def settled(self) -> None:
        """Wait until every flow has claimed once, or for ``SETTLE_S``; later calls return at once."""
        if self._all_seen.is_set():
            return
        try:
            async with asyncio.timeout(SETTLE_S):
                await self._all_seen.wait()
        except TimeoutError:
            self._all_seen.set()

    def others(self, flow: Flow, remote_topic: str) -> frozenset[Flow]:
        """Return the flows because of which ``flow`` must not copy into ``remote_topic``: none if it alone holds it."""
        claimants = self._claims.get(remote_topic, {})
        holders = [other for other, held in claimants.items() if held]
        if holders == [flow]:
            return frozenset()
        return frozenset(claimants) - {flow}
