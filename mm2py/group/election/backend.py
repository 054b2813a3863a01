"""Election backends: what lets one worker of a group claim leadership.

With ``leader.election=log`` every member may claim leadership, and the control log decides. With ``zookeeper`` a znode
decides which member may claim. Either way the leader is the member whose claim the control log accepted, and the leader
epoch is the log's.

Counterpart: in Connect a broker's group coordinator appoints the leader, and workers elect after its outages.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Protocol


class CandidateState(Enum):
    """What an election backend lets its worker do now."""

    MAY_LEAD = "it may claim leadership, and act as leader"
    SUSPENDED = "a leader stops acting, and does not resign yet: no other worker may claim leadership so far"
    LOST = "a leader resigns, and may not claim leadership: another worker may, now or soon"


class ElectionBackend(Protocol):
    """The candidate state of one worker in one group. It is LOST until ``run`` has made it something else."""

    @property
    def state(self) -> CandidateState:
        """Read it again after each ``await``: it falls with time, also without an event."""
        ...

    @property
    def evidence(self) -> str:
        """Why this worker may claim leadership, for the claim's record. Empty if the control log alone decides."""
        ...

    async def changed(self, seen: CandidateState) -> CandidateState:
        """Wait until the state differs from ``seen``, and return it. Cancelling costs nothing."""
        ...

    async def run(self) -> None:
        """Be a candidate until cancelled; then another worker may be elected at once. May be run again.

        A worker that may claim leadership and cannot write to the control log blocks all others: cancel this until it
        can write again.
        """
        ...


class LogElection:
    """Every worker may claim leadership at any time; the control log says which claim counts."""

    state = CandidateState.MAY_LEAD
    evidence = ""

    async def changed(self, seen: CandidateState) -> CandidateState:
        if seen is CandidateState.MAY_LEAD:
            await asyncio.get_running_loop().create_future()
        return CandidateState.MAY_LEAD

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()
