"""Election backends, and when a member is a candidate: only while the control log accepts its heartbeats.

With ``leader.election=log`` every member may claim leadership, and the control log decides. With ``zookeeper`` a znode
decides which member may claim. Either way the leader is the member whose claim the control log accepted, and the leader
epoch is the log's. Connect's workers are led through a broker's coordinator, and elect after its outages.

A member that may claim leadership and cannot write to the log would block all others, so it withdraws. The story: one
of three brokers dies, and for nine seconds the log accepts nothing. All members withdraw, and when the log is back the
first candidate may claim. If that were a follower, the leader would resign, and an outage that cost nothing else would
be an election. So the leader becomes a candidate again first, and resigns only if the backend does not name it within a
session time-out. Until then no other member can claim, because the leader's session has not expired.

A new backend needs a module, a case in ``make_backend``, its settings in ``config/groups.py`` and
``config/settings.py``, the names of its addresses and credentials in ``secret.py``, and an extra in ``pyproject.toml``.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from enum import Enum
from typing import TYPE_CHECKING, Protocol, assert_never

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.settings import GroupSettings
from mm2py.group.group_state import GroupRefused

if TYPE_CHECKING:
    from mm2py.group.member import Member


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
    match group.election:
        case "log":
            return LogElection()
        case "zookeeper":
            return _zookeeper(group, cluster_id=cluster_id, worker=worker, clock=clock, rng=rng, log=log)
        case _:
            assert_never(group.election)


def _zookeeper(
    group: GroupSettings,
    *,
    cluster_id: str | None,
    worker: str,
    clock: Clock,
    rng: random.Random,
    log: FilteringBoundLogger,
) -> ElectionBackend:
    if cluster_id is None:
        raise GroupRefused(
            f"{group.target} has no cluster id, by which workers would find each other in ZooKeeper.",
            remedy=f"Set {group.target}.leader.election=log.",
        )
    try:
        from mm2py.group.zookeeper.election import ZooKeeperElection  # noqa: PLC0415  (kazoo is an extra)
    except ImportError as error:
        raise GroupRefused(
            "leader.election=zookeeper needs the package kazoo, which is not installed.",
            remedy="Install it with: pip install 'mm2py[zookeeper]'; or write leader.election = log.",
        ) from error
    return ZooKeeperElection(group, cluster_id=cluster_id, worker=worker, clock=clock, rng=rng, log=log)


class Candidate:
    """One member as a candidate. ``run`` it while the member takes part."""

    def __init__(self, backend: ElectionBackend, member: Member, group: GroupSettings, clock: Clock) -> None:
        self._backend = backend
        self._member = member
        self._gate = member.gate
        self._session_timeout_s = group.session_timeout_s
        self._look_every_s = group.heartbeat_interval_s
        self._clock = clock
        self._has_withdrawn = False
        self._lost_counts_from_s = float("-inf")

    @property
    def state(self) -> CandidateState:
        """Like the backend's, but a leader that withdrew by itself is only suspended, for a session time-out."""
        state = self._backend.state
        if state is CandidateState.LOST and self._clock.boottime() < self._lost_counts_from_s:
            return CandidateState.SUSPENDED
        return state

    @property
    def evidence(self) -> str:
        return self._backend.evidence

    async def changed(self, seen: CandidateState) -> CandidateState:
        """Wait until ``state`` is another than ``seen``, and return it. Cancelling costs nothing."""
        while self.state is seen:
            with contextlib.suppress(TimeoutError):  # the suspension after a withdrawal ends by the clock alone
                async with asyncio.timeout(self._look_every_s):
                    await self._backend.changed(self._backend.state)
        return self.state

    async def run(self) -> None:
        """Be a candidate, withdraw and come back, until cancelled. Raises: as ``ElectionBackend.run``."""
        fresh_since_s: float | None = None
        while True:
            if not self._gate.is_fresh:
                fresh_since_s = None
            else:
                now_s = self._clock.boottime()
                fresh_since_s = now_s if fresh_since_s is None else fresh_since_s
                if self._is_next(now_s - fresh_since_s):
                    await self._until_withdrawn()
                    fresh_since_s = None  # the log may accept heartbeats again by the next look
            await asyncio.sleep(self._look_every_s)

    def _is_next(self, fresh_s: float) -> bool:
        view = self._member.view
        return (
            not self._has_withdrawn
            or view.leader == self._member.id
            or view.can_be_claimed()
            or fresh_s >= self._session_timeout_s
        )

    async def _until_withdrawn(self) -> None:
        """Be a candidate until the control log has accepted no heartbeat for a session time-out."""
        if self._has_withdrawn:
            self._lost_counts_from_s = self._clock.boottime() + self._session_timeout_s
        running = asyncio.create_task(self._backend.run(), name=f"{self._member.id} election backend")
        try:
            while self._gate.is_fresh and not running.done():
                await asyncio.wait([running], timeout=self._look_every_s)
            self._has_withdrawn = True
            self._lost_counts_from_s = float("inf")
        finally:
            running.cancel()
            await asyncio.wait([running])
        if not running.cancelled():
            running.result()
