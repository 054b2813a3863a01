"""A worker's part in one group, over all lives of it: each that ends is followed by the next, under a new id.

Answers to Connect's rebalance after a worker was away too long: it joins again as a new member. Connectors begin anew
with each life, for all that an earlier one wrote under is shut out.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Awaitable, Callable
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.errors import Mm2Error
from mm2py.group.join_metadata import GroupRefused
from mm2py.group.log.topic import ControlLogUnusable
from mm2py.group.member import Member
from mm2py.kafka.gate import IncarnationEnded
from mm2py.kafka.retry import Backoff
from mm2py.records.control_codec import NewerFormat
from mm2py.records.control_record import MemberId

HEALTHY_AFTER_S: Final = 60.0
"""A life that lasted so long is followed by the next without waiting."""
ID_BITS: Final = 48


class Group:
    """``run`` it; ``member`` is the present life, which ``joined`` waits for."""

    def __init__(
        self,
        make: Callable[[MemberId], Awaitable[Member]],
        *,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """Make one.

        Args:
            make: returns the member of each life, once the target answers.
            rng: must differ between processes: ids are drawn from it.
        """
        self.member: Member | None = None
        self.refused: Mm2Error | None = None
        """Why this worker takes no part, or no longer, if so."""
        self._make = make
        self._clock = clock
        self._rng = rng
        self._log = log
        self._news = asyncio.Event()
        self._leaving = False

    async def run(self) -> None:
        """Take part until ``leave``.

        Raises:
            GroupRefused, ControlLogUnusable, NewerFormat: this worker cannot take part; the error names the way out.
        """
        backoff = Backoff(self._rng, first_s=0.1, most_s=10.0)
        while not self._leaving:
            begun_s = self._clock.monotonic()
            member_id = MemberId(f"{self._rng.getrandbits(ID_BITS):012x}")
            crash: dict[str, str] = {}
            try:
                self.member = await self._make(member_id)
                self._news.set()
                if not self._leaving:
                    await self.member.run()
                self._end(IncarnationEnded("it has left"))
                return
            except (GroupRefused, ControlLogUnusable, NewerFormat) as error:
                self._end(error)
                self._log.error("group.refused", why=str(error))
                raise
            except Mm2Error as error:
                why = str(error)
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                why = f"{type(error).__name__}: {error}"
                crash = {
                    "at": f"{where.name}:{where.lineno}",
                    "remedy": "This is a defect in mm2py; please report it with this line.",
                }
            if self._leaving:
                self._end(IncarnationEnded(why))
                return
            if self._clock.monotonic() - begun_s >= HEALTHY_AFTER_S:
                backoff.reset()
            pause_s = backoff.next_s()
            self._log.warning("group.rejoining", member=member_id, why=why, again_in_s=round(pause_s, 1), **crash)
            await asyncio.sleep(pause_s)

    async def joined(self) -> Member:
        """Return the present member once its group knows it; it may be over at any time after.

        Raises:
            Mm2Error: this worker takes no part, or no longer.
        """
        while self.refused is None:
            member = self.member
            if member is not None:
                await member.joined()
                if not member.is_stopping:
                    return member
            if self.refused is None and self.member is member:
                self._news.clear()
                await self._news.wait()
        raise self.refused

    def begin_no_more(self) -> None:
        """Let the present life be the last: ``run`` returns when it ends.

        The story: w1 drains, and is cut off meanwhile; the others evict it. If it came back, they would give partitions
        to it that nobody copies as long as it drains.
        """
        self._leaving = True

    async def leave(self, *, in_doubt: bool) -> None:
        """Leave for good, see ``Member.leave``; ``run`` returns."""
        self.begin_no_more()
        if self.member is not None and not self.member.is_over:
            await self.member.leave(in_doubt=in_doubt)

    def _end(self, why: Mm2Error) -> None:
        self.refused = why
        self._news.set()
