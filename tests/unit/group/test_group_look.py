"""Which members of a group run a flow, and which producers of it must be fenced, by the group's state."""

from __future__ import annotations

import random
from typing import Any, Final

from mm2py.flow import Kind, parse_flow
from mm2py.group.control_log import Opening
from mm2py.group.group_look import GroupLook, GroupLooks, has_begun, runners, unfenced_writers
from mm2py.group.membership import GroupState, KnownMember
from mm2py.logs import make_logger
from mm2py.records.control_record import Joined, MemberId, TaskName, Writer
from tests.fakes.virtual_time import VirtualClock

FLOW, OTHER = parse_flow("A->B"), parse_flow("C->B")
W1, W2 = MemberId("aa"), MemberId("bb")


def member(name: MemberId, *flows: object) -> KnownMember:
    joined = Joined(name, str(name), "0.1.0", "", flows, (), {}, None, "log", 3000)  # type: ignore[arg-type]
    return KnownMember(joined, 1, 1)


def view(*members: KnownMember) -> GroupState:
    found = GroupState()
    found.members = {one.joined.member: one for one in members}
    return found


def writer(flow: object, producer_id: int) -> Writer:
    return Writer(flow, f"t-{producer_id}", producer_id, 0)  # type: ignore[arg-type]


def test_members_that_name_the_flow_run_it_unless_their_session_has_expired() -> None:
    expired = member(W2, FLOW)
    expired.expired = True
    assert list(runners(view(member(W1, FLOW, OTHER), expired), FLOW)) == [W1]
    assert not runners(view(member(W1, OTHER)), FLOW)


def test_a_member_that_has_left_the_flow_to_others_runs_it_until_it_has_drained_it() -> None:
    state = view(member(W1, OTHER))
    task = TaskName(FLOW, Kind.SOURCE, "orders", 0)
    state.revocations.give(task, W1, 1)
    assert list(runners(state, FLOW)) == [W1]
    state.revocations.give(task, W2, 2)
    assert list(runners(state, FLOW)) == [W1], "W2 waits for it"
    state.revocations.release(W1, [task], 2)
    assert not runners(state, FLOW)


def test_a_member_that_only_emits_the_heartbeats_of_a_flow_does_not_run_it() -> None:
    state = view(member(W1, OTHER))
    state.revocations.give(TaskName(FLOW, Kind.HEARTBEAT), W1, 1)
    assert not runners(state, FLOW)
    state.revocations.give(TaskName(FLOW, Kind.CHECKPOINT), W1, 1)
    assert list(runners(state, FLOW)) == [W1]


def test_a_member_that_has_only_joined_has_not_begun() -> None:
    one = member(W1, FLOW)
    assert not has_begun(one, FLOW)
    one.applied = {FLOW: 0}
    assert has_begun(one, FLOW)
    two = member(W2, FLOW)
    two.writers = {7: writer(FLOW, 7)}
    assert has_begun(two, FLOW) and not has_begun(two, OTHER)


def test_producers_of_live_members_and_of_those_not_fenced_yet_are_found_for_their_flow_only() -> None:
    one = member(W1, FLOW)
    one.writers = {1: writer(FLOW, 1), 2: writer(OTHER, 2)}
    state = view(one)
    state.to_fence = {W2: {3: writer(FLOW, 3)}}
    assert [each.producer_id for each in unfenced_writers(state, FLOW)] == [1, 3]


class CutLog:
    """A control log whose end is told, and which an unclean election then cuts back to what was read."""

    topic: Final = "mm2py-control.g.internal"
    trouble = ""
    denied = None
    next_offset = 7

    def __init__(self, *ends: int) -> None:
        self.ends = list(ends)
        self.waited: list[bool] = []

    async def open(self) -> Opening:
        return Opening(None, 0, (), 0)

    async def end(self) -> int:
        return self.ends.pop(0)

    async def read(self, *, waits: bool) -> list[Any]:
        self.waited.append(waits)
        return []


async def test_a_look_ends_where_the_log_was_cut_back_to_what_it_has_read_and_does_not_ask_at_full_speed() -> None:
    looks = GroupLooks(
        "g",
        FLOW,
        None,  # type: ignore[arg-type]
        is_owner=True,
        clock=VirtualClock(),
        rng=random.Random(1),
        log=make_logger("error", "json"),
    )
    log = CutLog(9, 9, 7)
    looks._log = log  # type: ignore[assignment]
    assert await looks.look() == GroupLook("g")
    assert log.waited == [False, True, True]
