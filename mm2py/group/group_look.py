"""Whether live members of a group run a flow: reads the group's control log as members do, without joining.

A worker of another group looks before it takes a flow over, and ``mm2py apply`` and REST look before they store its
settings. As for members, only the log shows that a member is silent, because clocks of machines may differ. A member
may write to the target only for one session time-out after its last acknowledged heartbeat. So if no member that runs
the flow writes a record for a whole session time-out while the log can be read, none of them may write. The new owner
fences what they sent before.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.errors import Mm2Error
from mm2py.flow import Flow, Kind
from mm2py.group.control_log import ControlLog, ControlLogLost
from mm2py.group.control_topic import ControlLogMissing
from mm2py.group.membership import GroupState, KnownMember
from mm2py.group.state_snapshot import read_snapshot
from mm2py.kafka.port import Brokers
from mm2py.records.control_record import MemberId, Writer
from mm2py.topics.names import control_log

POLL_S: Final = 0.2
SLACK_S: Final = 0.5
"""Added to the session time-out: a record that was sent within it may take a moment to get into the log."""


@dataclass(frozen=True, slots=True)
class GroupLook:
    """What the control log of one group says about a flow."""

    group: str
    running: tuple[str, ...] = ()
    """The live members that run it, by worker."""
    writers: tuple[Writer, ...] = ()
    """Producers of its members that may have sent something for the flow which was not answered."""
    fence_epochs: Mapping[int, int] = field(default_factory=dict)
    """The epoch to which its leaders have raised a producer already, by producer id."""
    is_missing: bool = False
    """The group has no control log, so no member."""
    unread: str = ""
    """Why the control log cannot be read, although it exists; empty if it can."""
    remedy: str = ""
    """What to do about that."""


def runners(state: GroupState, flow: Flow) -> dict[MemberId, KnownMember]:
    """Return the members that run a flow, or must still drain it, unless their session has expired.

    A member that only emits a flow's heartbeats does not run it. Heartbeats belong to a pair of clusters, and are
    emitted also while the flow is switched off, for example by a worker of the reverse flow.

    The story: a worker stops. It first leaves the flow to others (its ``Joined`` does not name it any more), and then
    drains it.
    """
    return {
        name: member
        for name, member in state.members.items()
        if not member.expired and (flow in member.joined.flows or _has_tasks(state, name, flow))
    }


def has_begun(member: KnownMember, flow: Flow) -> bool:
    """Whether a member has decided with which settings it runs a flow, or has a producer for it.

    The story: groups g and h start at the same time for a flow that has no owner yet. Both have live members that name
    it. If each assumed that the other runs it, both would be refused. A member of this version claims the flow before
    it begins.
    """
    return flow in member.applied or any(writer.flow == flow for writer in member.writers.values())


def _has_tasks(state: GroupState, name: MemberId, flow: Flow) -> bool:
    tasks = itertools.chain(state.owned_by(name), state.awaited_of(name))
    return any(task.flow == flow and task.kind is not Kind.HEARTBEAT for task in tasks)


def unfenced_writers(state: GroupState, flow: Flow) -> tuple[Writer, ...]:
    """Return the producers of a flow that no member has fenced, and whose requests may be under way."""
    of_members = [member.writers for member in state.members.values()]
    return tuple(
        writer for writers in (*of_members, *state.to_fence.values()) for writer in writers.values()
        if writer.flow == flow
    )  # fmt: skip


class GroupLooks:
    """Looks at the control log of one group. Each look continues where the previous one ended."""

    def __init__(
        self,
        group: str,
        flow: Flow,
        brokers: Brokers,
        *,
        is_owner: bool,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """``is_owner``: the group owns the flow. Of other groups only members that have begun to run the flow count."""
        self.group = group
        self._flow = flow
        self._is_owner = is_owner
        self._clock = clock
        self._log = ControlLog(
            brokers,
            control_log(group, producer_expiry_ms=0),
            poll_s=POLL_S,
            append_timeout_s=1.0,
            replication_factor=None,
            clock=clock,
            rng=rng,
            log=log,
        )
        self._view: GroupState | None = None
        self._since = 0
        """Where the log ended when this look began."""
        self._silent_to = 0
        """An earlier look found that members without a record from this offset on may not write any more."""

    async def look(self) -> GroupLook:
        """Read to the end. If members run the flow then, wait until one of them writes, or none may write any more.

        Waits as long as the target does not answer. Cancelling loses nothing.
        """
        try:
            return await self._look()
        except ControlLogMissing:
            self._forget()
            return GroupLook(self.group, is_missing=True)
        except Mm2Error as error:  # without the right to read it, damaged, or of a newer version
            self._forget()
            return GroupLook(self.group, unread=error.what, remedy=error.remedy)

    async def _look(self) -> GroupLook:
        while True:
            try:
                view = await self._read()
                await self._watch(view)
            except ControlLogLost:
                self._forget()
                continue
            alive = self._alive(view)
            if not alive:
                self._silent_to = view.next_offset
            return GroupLook(
                self.group,
                tuple(sorted(member.joined.name for member in alive)),
                unfenced_writers(view, self._flow),
                {producer_id: epoch for producer_id, (epoch, _) in view.fences.items()},
            )

    def _forget(self) -> None:
        self._view, self._silent_to = None, 0

    async def _read(self) -> GroupState:
        """Return the present state of the group. Do not wait for records that may come soon: each start would wait."""
        if self._view is None:
            opening = await self._log.open()
            self._view = GroupState() if opening.state is None else read_snapshot(opening.state, where=self._log.topic)
            for entry in opening.entries:
                self._view.take(entry)
        self._since = self._view.next_offset
        end, waits = None, False
        while end is None or self._log.next_offset < end or self._log.trouble:
            end = await self._log.end() if end is None else end
            if self._log.denied is None:  # read at the end too: only that shows whether the log was cut back
                entries = await self._log.read(waits=waits)
                for entry in entries:
                    self._view.take(entry)
                if not entries:  # a new leader does not show all yet, or the log was cut back to here: ask again
                    end = end if self._log.next_offset >= (end or 0) else None
                    waits = True
            if self._log.denied is not None:
                raise self._log.denied
        return self._view

    async def _watch(self, view: GroupState) -> None:
        """Read more until a member that runs the flow writes, or none has written for a whole session time-out."""
        quiet_s = 0.0
        while suspects := self._suspects(view):
            longest_s = max(one.joined.session_timeout_ms for one in suspects) / 1000
            if self._alive(view) or quiet_s >= longest_s + SLACK_S:
                return
            begun_s = self._clock.monotonic()
            for entry in await self._log.read():
                view.take(entry)
            if self._log.denied is not None:
                raise self._log.denied
            if not self._log.trouble:
                quiet_s += self._clock.monotonic() - begun_s

    def _suspects(self, view: GroupState) -> list[KnownMember]:
        return [
            one
            for one in runners(view, self._flow).values()
            if one.last_offset >= self._silent_to and (self._is_owner or has_begun(one, self._flow))
        ]

    def _alive(self, view: GroupState) -> list[KnownMember]:
        """Return the members that run the flow, if one of them has written since the look began.

        The others count as well: they have written since their last session time-out.
        """
        found = self._suspects(view)
        return found if any(one.last_offset >= self._since for one in found) else []
