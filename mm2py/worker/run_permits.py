"""When a connector runs on this worker, by what its group says.

Answers to what DistributedHerder does with connectors and tasks after each rebalance. A source connector runs on every
member, and copies what partitions are its own; a flow's heartbeats, and its checkpoints, are emitted by one.
"""

from __future__ import annotations

import asyncio
import contextlib

from mm2py.flow import Flow
from mm2py.group.factory import Entrance
from mm2py.group.group import Group
from mm2py.group.join_metadata import GroupRefused
from mm2py.group.log.topic import ControlLogUnusable
from mm2py.group.member import Member
from mm2py.kafka.gate import IncarnationEnded
from mm2py.records.control_codec import NewerFormat
from mm2py.records.control_record import Released, Share


class MemberTurn:
    """As long as this worker is the same member of its group."""

    def __init__(self, group: Group, entrance: Entrance, flow: Flow) -> None:
        self._group = group
        self._entrance = entrance
        self._flow = flow
        self._member: Member | None = None

    @property
    def member(self) -> Member:
        """In whose name the connector runs that this turn has begun for."""
        if self._member is None:
            raise AssertionError("no turn has begun")
        return self._member

    async def begins(self) -> None:
        """See ``Turn``. Raises: Mm2Error if this worker takes no part in the group."""
        self._member = await self._group.joined()

    async def ends(self) -> bool:
        """See ``Turn``: who can follow the group no more, but is part of it, has time to drain."""
        await self.member.until(lambda: False)
        return self.member.can_drain

    async def over(self, *, in_doubt: bool) -> None:
        """See ``Turn``: the member may wait for that before it leaves."""
        self.member.flow_ended(self._flow, in_doubt=in_doubt)

    def give_way(self) -> None:
        """See ``Turn``: the group gives what this worker has of the flow to others, who wait until it is let go."""
        self._entrance.renounce(self._flow, self._member)

    async def renounce(self, *, in_doubt: bool) -> None:
        """See ``Turn``: tell the group that this worker does not run the flow, and let go of what it got of it.

        The story: w2 may not see the source. Its group knows nothing of that and gives it a third of the partitions:
        nobody would copy them as long as w2 lives, and other flows keep it alive.
        """
        self._entrance.renounce(self._flow, self._member)
        if in_doubt and self._member is not None:
            why = f"{self._flow} is refused, and something it sent was not answered"
            await self._member.leave(in_doubt=True, cause=IncarnationEnded(why))
        with contextlib.suppress(GroupRefused, IncarnationEnded, ControlLogUnusable, NewerFormat):
            while True:
                await self._release_all(await self._group.joined())

    async def _release_all(self, member: Member) -> None:
        shares = member.shares(self._flow)
        with contextlib.suppress(IncarnationEnded):
            while not member.is_over:
                shares.changed.clear()
                await shares.release(shares.to_release())
                await shares.changed.wait()


class ShareTurn(MemberTurn):
    """As long as a share that is run as a whole is this worker's."""

    def __init__(self, group: Group, entrance: Entrance, share: Share) -> None:
        super().__init__(group, entrance, share.flow)
        self._share = share

    async def begins(self) -> None:
        """See ``Turn``. Raises: as there."""
        while True:
            await super().begins()
            await self.over(in_doubt=False)  # it may have been ours, and gone again, before anything began
            await self.member.until(lambda: self._may_run() or self._is_awaited())
            if self._may_run() and not self.member.is_over:
                return
            await asyncio.sleep(0)

    async def ends(self) -> bool:
        """See ``Turn``."""
        await self.member.until(lambda: not self._may_run())
        return False

    async def over(self, *, in_doubt: bool) -> None:
        """See ``Turn``: let whoever is next begin. What is run as a whole writes nothing that could be fenced."""
        member = self.member
        if self._is_awaited():
            with contextlib.suppress(IncarnationEnded):  # nobody waits for a word from who is out
                await member.say([Released(member.id, member.view.generation, frozenset({self._share}))])

    def give_way(self) -> None:
        """It moves when the worker leaves."""

    async def renounce(self, *, in_doubt: bool) -> None:
        """Nobody else could run it either: what is refused is an account, or a name."""

    def _may_run(self) -> bool:
        return self.member.view.may_run(self._share, self.member.id)

    def _is_awaited(self) -> bool:
        return not self.member.is_over and self._share in self.member.view.awaited_of(self.member.id)
