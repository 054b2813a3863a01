"""Election backends: whether a worker may claim to lead its group, and whether a leader may go on.

With ``leader.election=log`` every member may claim, and the control log decides. With ``zookeeper`` a znode decides who
may claim. Either way the leader is the member whose claim the control log accepted, and the leader epoch is the log's.
"""

from __future__ import annotations

import asyncio
import random
from enum import Enum
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.settings import GroupSettings
from mm2py.group.join_metadata import GroupRefused


class CandidateState(Enum):
    """What an election backend lets its worker do now."""

    MAY_LEAD = "it may claim leadership, and act as leader"
    SUSPENDED = "a leader stops acting, and does not resign yet: no other worker may claim leadership so far"
    LOST = "a leader resigns, and may not claim leadership: another worker may, now or soon"


class ElectionBackend(Protocol):
    """The candidate state of one worker in one group. It is LOST until ``run`` has made it something else."""

    @property
    def state(self) -> CandidateState:
        """Read it again after each ``await``: it falls by the clock alone."""
        ...

    @property
    def evidence(self) -> str:
        """Why this worker may claim leadership, for the claim's record. Empty if the control log alone decides."""
        ...

    async def changed(self, seen: CandidateState) -> CandidateState:
        """Wait until the state is another than ``seen``, and return it. Cancelling costs nothing."""
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


def make_backend(
    group: GroupSettings,
    *,
    cluster_id: str | None,
    worker: str,
    clock: Clock,
    rng: random.Random,
    log: FilteringBoundLogger,
) -> ElectionBackend:
    """Return the backend that ``leader.election`` names.

    Args:
        cluster_id: the target cluster's, if it has one.
        worker: its name, for people who look into ZooKeeper.
    Raises:
        GroupRefused: this worker cannot use that backend; the error names the way out.
    """
    if group.election == "log":
        return LogElection()
    if cluster_id is None:
        raise GroupRefused(
            f"{group.target} has no cluster id, by which workers would find each other in ZooKeeper.",
            remedy=f"Set {group.target}.leader.election=log.",
        )
    try:
        from mm2py.group.election.zookeeper import ZooKeeperElection  # noqa: PLC0415  (kazoo is an extra)
    except ImportError as error:
        raise GroupRefused(
            "leader.election=zookeeper needs the package kazoo, which is not installed.",
            remedy="Install it with: pip install 'mm2py[zookeeper]'; or write leader.election = log.",
        ) from error
    return ZooKeeperElection(group, cluster_id=cluster_id, worker=worker, clock=clock, rng=rng, log=log)
