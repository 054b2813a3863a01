"""The line of contenders in ZooKeeper: who may claim to lead, until when, and what a session that ended leaves."""

from __future__ import annotations

import random

import pytest

from mm2py.worker.candidacy import Standing
from mm2py.worker.election_line import (
    Connected,
    Disconnected,
    Ended,
    Event,
    Line,
    Place,
    Seen,
    Tick,
    ahead_of,
    own_place,
    place_prefix,
    places,
    step,
)

OURS, THEIRS, EARLIER = 0xA0, 0xB0, 0x90
FIRST, SECOND = Place(4, OURS), Place(5, THEIRS)
LEAD, SUSPENDED, LOST = Standing.LEAD, Standing.SUSPENDED, Standing.LOST
TIMEOUT_S = 3.0


def after(*events: Event) -> Line:
    line = Line(TIMEOUT_S)
    for event in events:
        line = step(line, event)
    return line


UP = Connected(OURS, TIMEOUT_S, at_s=0.0)
ELECTED = (UP, Seen((FIRST, SECOND), asked_at_s=1.0, at_s=1.1))


def test_whoever_has_not_been_seen_first_may_not_lead() -> None:
    assert after().standing(0.0) is LOST
    assert after(UP).standing(0.0) is LOST
    behind = after(UP, Seen((Place(3, THEIRS), FIRST), asked_at_s=1.0, at_s=1.1))
    assert (behind.standing(1.1), behind.evidence) == (LOST, "")


def test_the_first_in_line_may_lead_and_says_why() -> None:
    line = after(*ELECTED)
    assert line.standing(1.1) is LEAD
    assert line.evidence == "zookeeper session 0x00000000000000a0 sequence 0000000004"


def test_what_was_confirmed_counts_from_the_moment_of_asking() -> None:
    line = after(*ELECTED)
    assert [line.standing(at_s) for at_s in (2.9, 3.1, 3.9, 4.1)] == [LEAD, SUSPENDED, SUSPENDED, LOST]
    assert line.next_change_s(2.9) == pytest.approx(3.0)
    assert line.next_change_s(3.1) == pytest.approx(4.0)
    assert line.next_change_s(4.1) is None


def test_a_lost_connection_suspends_at_once_and_comes_back_after_a_look() -> None:
    line = step(after(*ELECTED), Disconnected(at_s=1.5))
    assert line.standing(1.5) is SUSPENDED
    line = step(line, Connected(OURS, TIMEOUT_S, at_s=2.0))
    assert line.standing(2.0) is SUSPENDED
    assert step(line, Seen((FIRST, SECOND), asked_at_s=2.0, at_s=2.1)).standing(2.1) is LEAD


def test_an_answer_from_before_the_connection_broke_does_not_lift_the_suspension() -> None:
    line = step(after(*ELECTED), Disconnected(at_s=1.5))
    assert step(line, Seen((FIRST, SECOND), asked_at_s=1.4, at_s=1.6)).standing(1.6) is SUSPENDED


def test_whoever_stalls_for_longer_than_its_session_does_not_lead_on_by_the_answer_it_finds_waiting() -> None:
    late = Seen((FIRST, SECOND), asked_at_s=3.9, at_s=9.0)
    line = after(*ELECTED, late)
    assert line.is_over
    assert line.standing(9.0) is LOST
    assert line.evidence == ""


@pytest.mark.parametrize(
    "end",
    [
        Ended(at_s=1.5),
        Tick(at_s=4.0),
        Seen((SECOND,), asked_at_s=1.4, at_s=1.5),
        Connected(THEIRS, TIMEOUT_S, at_s=1.5),
    ],
    ids=["expired", "silence", "its node was deleted", "another session"],
)
def test_a_session_that_is_over_never_leads_again(end: Event) -> None:
    line = after(*ELECTED, end)
    assert line.is_over
    for event in (Connected(OURS, TIMEOUT_S, at_s=4.1), Seen((FIRST,), asked_at_s=4.2, at_s=4.3)):
        line = step(line, event)
    assert line.standing(4.3) is LOST


def test_a_follower_keeps_its_session_over_an_outage() -> None:
    line = after(UP, Seen((Place(3, THEIRS), FIRST), asked_at_s=1.0, at_s=1.1), Disconnected(at_s=2.0), Tick(at_s=99.0))
    assert not line.is_over


def test_a_session_that_is_over_still_knows_whether_its_server_can_be_told() -> None:
    line = after(*ELECTED, Disconnected(at_s=1.5), Tick(at_s=9.0))
    assert (line.is_over, line.is_connected) == (True, False)
    assert step(line, Connected(OURS, TIMEOUT_S, at_s=9.5)).is_connected


def test_a_server_that_took_another_session_can_be_told_that_this_one_is_over() -> None:
    line = after(*ELECTED, Disconnected(at_s=1.5), Connected(THEIRS, TIMEOUT_S, at_s=1.6))
    assert (line.is_over, line.is_connected) == (True, True)


def test_everybody_waits_for_the_one_right_ahead() -> None:
    line = (Place(1, 1), Place(2, 2), Place(3, 3))
    assert [ahead_of(place, line) for place in line] == [None, line[0], line[1]]


def test_a_node_of_an_earlier_session_of_ours_is_somebody_elses() -> None:
    left_over = Place(2, EARLIER)
    line = after(UP, Seen((left_over, FIRST), asked_at_s=1.0, at_s=1.1))
    assert line.standing(1.1) is LOST
    assert own_place(line, (left_over, SECOND)) is None
    assert ahead_of(FIRST, (left_over, FIRST, SECOND)) == left_over


def test_a_shorter_session_than_asked_for_counts() -> None:
    line = after(Connected(OURS, 1.5, at_s=0.0), ELECTED[1])
    assert [line.standing(at_s) for at_s in (1.9, 2.1, 2.6)] == [LEAD, SUSPENDED, LOST]


def test_names_hold_session_and_sequence_and_strangers_do_not_stand_in_line() -> None:
    assert FIRST.name == f"{place_prefix(OURS)}0000000004" == "00000000000000a0-0000000004"
    names = [SECOND.name, "notes", FIRST.name, "00000000000000a0-", "xyz-0000000001"]
    assert places(names) == (FIRST, SECOND)
    assert place_prefix(-1) == "ffffffffffffffff-"
    assert places([Place(1, 2**64 - 1).name]) == (Place(1, 2**64 - 1),)


def test_of_two_nodes_of_one_session_the_lower_counts() -> None:
    line = after(UP, Seen((FIRST, SECOND, Place(6, OURS)), asked_at_s=1.0, at_s=1.1))
    assert line.place == FIRST


class ForgetfulZooKeeper:
    """Numbers nodes in the order of their coming, and forgets a session that it has not heard of for the time-out."""

    def __init__(self) -> None:
        self.nodes: dict[int, Place] = {}
        self.heard_at_s: dict[int, float] = {}
        self.sessions = 0

    def forget(self, at_s: float) -> None:
        for session in [session for session in self.nodes if at_s - self.heard_at_s[session] >= TIMEOUT_S]:
            del self.nodes[session]

    def new_session(self, at_s: float) -> Line:
        self.sessions += 1
        self.nodes[self.sessions] = Place(self.sessions, self.sessions)
        self.heard_at_s[self.sessions] = at_s
        return step(Line(TIMEOUT_S), Connected(self.sessions, TIMEOUT_S, at_s))


@pytest.mark.parametrize("seed", range(200))
def test_two_contenders_never_both_lead_whatever_breaks_between_them_and_zookeeper(seed: int) -> None:
    """Looks take a while on their ways, their answers come late and out of order, connections break, workers stall."""
    rng = random.Random(seed)
    zookeeper = ForgetfulZooKeeper()
    lines = [zookeeper.new_session(0.0), zookeeper.new_session(0.0)]
    answers: list[tuple[int, Seen]] = []
    led: set[int] = set()
    at_s = 0.0
    for _ in range(400):
        at_s += rng.choice([0.01, 0.01, 0.1, 0.5])
        zookeeper.forget(at_s)
        who = rng.randrange(2)
        session = lines[who].session or 0
        match rng.choice(["ask", "ask", "ask", "answer", "answer", "answer", "break", "return", "begin anew"]):
            case "ask" if session in zookeeper.nodes and lines[who].is_connected:
                zookeeper.heard_at_s[session] = at_s
                way_s = rng.random() * 0.3
                line = tuple(sorted(zookeeper.nodes.values()))
                answers.append((session, Seen(line, asked_at_s=at_s - way_s, at_s=at_s)))
            case "answer" if ours := [asked for asked in answers if asked[0] == session]:
                answers.remove(asked := rng.choice(ours))
                seen = asked[1]
                lines[who] = step(lines[who], Seen(seen.line, seen.asked_at_s, at_s))
            case "break":
                lines[who] = step(lines[who], Disconnected(at_s))
            case "return" if session in zookeeper.nodes:
                zookeeper.heard_at_s[session] = at_s
                lines[who] = step(lines[who], Connected(session, TIMEOUT_S, at_s))
            case "begin anew" if lines[who].is_over or session not in zookeeper.nodes:
                lines[who] = zookeeper.new_session(at_s)
        leading = [line.session for line in lines if line.standing(at_s) is LEAD]
        assert len(leading) <= 1, f"seed {seed}: both lead at {at_s}"
        assert all(s in zookeeper.nodes for s in leading), f"seed {seed}: one leads at {at_s} whose session is gone"
        led.update(s for s in leading if s is not None)
    assert led, f"seed {seed}: nobody ever led, so nothing was shown"
