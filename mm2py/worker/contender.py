"""How a member stands for election: while the control log takes its beats, and no longer.

Who may claim and cannot write to the log stands in everybody's way, so it withdraws. The story: one of three brokers
dies, for nine seconds the log takes nothing. All members withdraw, and when it is back the first to stand again may
claim. Were that a follower, the leader would resign, and an outage that cost nothing else would be an election. So the
leader stands again first, and resigns only if it has not come to stand first for a session time-out. Until then nobody
else can claim: it is not silent. Connect's workers are led through a broker's coordinator, and elect after its outages.
"""

from __future__ import annotations

import asyncio
import contextlib

from mm2py.clock import Clock
from mm2py.kafka.gate import Gate
from mm2py.worker.candidacy import Candidacy, Standing
from mm2py.worker.terms import Terms
from mm2py.worker.voice import Voice


class Contender:
    """One member's candidacy, as its duties see it. ``run`` it while the member lives."""

    def __init__(self, candidacy: Candidacy, member: Voice, gate: Gate, terms: Terms, clock: Clock) -> None:
        self._candidacy = candidacy
        self._member = member
        self._gate = gate
        self._session_timeout_s = terms.session_timeout_s
        self._look_every_s = terms.heartbeat_interval_s
        self._clock = clock
        self._has_withdrawn = False
        self._lost_counts_from_s = float("-inf")

    @property
    def standing(self) -> Standing:
        """As the candidacy's; but a leader whose own withdrawal it is that lost it is suspended only, for a while."""
        standing = self._candidacy.standing
        if standing is Standing.LOST and self._clock.boottime() < self._lost_counts_from_s:
            return Standing.SUSPENDED
        return standing

    @property
    def evidence(self) -> str:
        return self._candidacy.evidence

    async def changed(self, seen: Standing) -> Standing:
        """Wait until ``standing`` is another than ``seen``, and return it. Cancelling costs nothing."""
        while self.standing is seen:
            with contextlib.suppress(TimeoutError):  # a grace ends by the clock alone
                async with asyncio.timeout(self._look_every_s):
                    await self._candidacy.changed(self._candidacy.standing)
        return self.standing

    async def run(self) -> None:
        """Stand, withdraw and stand again, until cancelled. Raises: as ``Candidacy.run``."""
        fresh_since_s: float | None = None
        while True:
            if not self._gate.is_fresh:
                fresh_since_s = None
            else:
                now_s = self._clock.boottime()
                fresh_since_s = now_s if fresh_since_s is None else fresh_since_s
                if self._is_next(now_s - fresh_since_s):
                    await self._stand()
            await asyncio.sleep(self._look_every_s)

    def _is_next(self, fresh_s: float) -> bool:
        view = self._member.view
        return (
            not self._has_withdrawn
            or view.leader == self._member.id
            or view.can_be_claimed()
            or fresh_s >= self._session_timeout_s
        )

    async def _stand(self) -> None:
        """Return when the control log has taken no beat for a session time-out."""
        if self._has_withdrawn:
            self._lost_counts_from_s = self._clock.boottime() + self._session_timeout_s
        contending = asyncio.create_task(self._candidacy.run(), name=f"{self._member.id} contending")
        try:
            while self._gate.is_fresh and not contending.done():
                await asyncio.wait([contending], timeout=self._look_every_s)
            self._has_withdrawn = True
            self._lost_counts_from_s = float("inf")
        finally:
            contending.cancel()
            await asyncio.wait([contending])
        if not contending.cancelled():
            contending.result()
