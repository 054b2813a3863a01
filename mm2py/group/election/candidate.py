"""When a member is a candidate: only while the control log accepts its heartbeats.

A member that may claim leadership and cannot write to the log would block all others, so it withdraws. The story: one
of three brokers dies, and for nine seconds the log accepts nothing. All members withdraw, and when the log is back the
first candidate may claim. If that were a follower, the leader would resign, and an outage that cost nothing else would
cause an election. So the leader becomes a candidate again first. It resigns only if the backend does not name it within
a session time-out. Until then no other member can claim, because the leader's session has not expired.
"""

from __future__ import annotations

import asyncio
import contextlib

from mm2py.clock import Clock
from mm2py.config.settings import GroupSettings
from mm2py.group.election.backend import CandidateState, ElectionBackend
from mm2py.group.member_handle import MemberHandle


class Candidate:
    """One member as a candidate. ``run`` it while the member takes part."""

    def __init__(self, backend: ElectionBackend, member: MemberHandle, group: GroupSettings, clock: Clock) -> None:
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
        """Wait until ``state`` differs from ``seen``, and return it. Cancelling costs nothing."""
        while self.state is seen:
            with contextlib.suppress(TimeoutError):  # a suspension after a withdrawal ends with time, without an event
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
