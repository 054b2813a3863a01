"""Who may still write for a stopped flow, by what its group says."""

from __future__ import annotations

from mm2py.connector_offsets.altering import why_running
from mm2py.flow import Flow, parse_flow
from mm2py.group.membership import GroupState
from mm2py.records.control_record import (
    Beat,
    Claim,
    ControlRecord,
    Entry,
    Evicted,
    Fenced,
    Joined,
    Left,
    MemberId,
    Writer,
    Writes,
)
from mm2py.records.operator_request import Target, TargetState

A_TO_B, C_TO_B = parse_flow("A->B"), parse_flow("C->B")
W1, W2 = MemberId("0000000a"), MemberId("0000000b")
STOP = Target(TargetState.STOPPED, offset=12)


def joined(member: MemberId, flow: Flow = A_TO_B) -> Joined:
    return Joined(member, f"host-{member}", "0.1.0", "", (flow,), (), {}, "id-B", "log", 3000)


class Log:
    def __init__(self, *records: ControlRecord) -> None:
        self.view = GroupState()
        self.at_ms = 1_000
        self.add(*records)

    def add(self, *records: ControlRecord) -> None:
        for record in records:
            self.at_ms += 1_000
            self.view.take(Entry(self.view.next_offset, self.at_ms, record))

    def says(self) -> str:
        return why_running(self.view, A_TO_B, STOP)


def test_where_no_worker_ever_joined_or_all_have_left_drained_nothing_writes() -> None:
    assert why_running(None, A_TO_B, STOP) == ""
    log = Log(joined(W1), Writes(W1, Writer(A_TO_B, "t", 7, 0)), Left(W1, outcome_unknown=False))
    assert log.says() == ""


def test_every_worker_of_the_flow_must_have_followed_this_very_stop() -> None:
    log = Log(joined(W1), joined(W2), Beat(W1, {}, {A_TO_B: 12}), Beat(W2, {}, {A_TO_B: 10}))
    assert log.says() == "worker host-0000000b has not said that A->B is drained there"
    log.add(Beat(W2, {}, {A_TO_B: 12}))
    assert log.says() == ""
    log.add(Beat(W1))
    assert log.says() == "worker host-0000000a has not said that A->B is drained there"


def test_workers_of_other_flows_do_not_count() -> None:
    assert Log(joined(W1, C_TO_B)).says() == ""


def test_a_dead_worker_counts_until_it_is_evicted_and_fenced() -> None:
    log = Log(joined(W1), joined(W2), Writes(W1, Writer(A_TO_B, "t", 7, 0)), Claim(W2, 1, "c"))
    for _ in range(5):
        log.add(Beat(W2, {}, {A_TO_B: 12}))
    assert "host-0000000a" in log.says()
    log.add(Evicted(W2, 1, W1))
    assert log.says() == "member 0000000a is not fenced yet"
    log.add(Fenced(W2, 1, W1, {7: 3}))
    assert log.says() == ""
