"""The candidates' znodes: which may lead, until when, and what a session that ended leaves behind."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from mm2py.group.election.backend import CandidateState
from mm2py.group.election.zookeeper.znodes import Confirmation, Node, candidates, name_prefix, own_node

OURS, THEIRS, EARLIER = 0xA0, 0xB0, 0x90
FIRST, SECOND = Node(4, OURS), Node(5, THEIRS)
MAY_LEAD, SUSPENDED, LOST = CandidateState.MAY_LEAD, CandidateState.SUSPENDED, CandidateState.LOST
TIMEOUT_S = 3.0
CONFIRMED = Confirmation(FIRST, asked_at_s=1.0)


def states(confirmation: Confirmation, *at_s: float) -> list[CandidateState]:
    return [confirmation.state(one_s, TIMEOUT_S) for one_s in at_s]


def test_a_confirmation_names_session_and_sequence_as_evidence() -> None:
    assert CONFIRMED.evidence == "zookeeper session 0x00000000000000a0 sequence 0000000004"


def test_what_was_confirmed_counts_from_the_moment_of_asking() -> None:
    assert states(CONFIRMED, 1.1, 2.9, 3.1, 3.9, 4.1) == [MAY_LEAD, MAY_LEAD, SUSPENDED, SUSPENDED, LOST]
    assert CONFIRMED.falls_at_s(2.9, TIMEOUT_S) == pytest.approx(3.0)
    assert CONFIRMED.falls_at_s(3.1, TIMEOUT_S) == pytest.approx(4.0)
    assert CONFIRMED.falls_at_s(4.1, TIMEOUT_S) is None


def test_a_broken_connection_suspends_at_once() -> None:
    assert states(replace(CONFIRMED, is_connected=False), 1.1, 3.9, 4.1) == [SUSPENDED, SUSPENDED, LOST]


def test_a_node_of_an_earlier_session_of_ours_is_another_candidate() -> None:
    left_over = Node(2, EARLIER)
    assert own_node(OURS, (left_over, FIRST, SECOND)) == FIRST
    assert own_node(OURS, (left_over, SECOND)) is None


def test_of_two_nodes_of_one_session_the_lower_counts() -> None:
    assert own_node(OURS, (FIRST, SECOND, Node(6, OURS))) == FIRST


def test_names_hold_session_and_sequence_and_other_nodes_are_ignored() -> None:
    assert FIRST.name == f"{name_prefix(OURS)}0000000004" == "00000000000000a0-0000000004"
    names = [SECOND.name, "notes", FIRST.name, "00000000000000a0-", "xyz-0000000001"]
    assert candidates(names) == (FIRST, SECOND)
    assert name_prefix(-1) == "ffffffffffffffff-"
    assert candidates([Node(1, 2**64 - 1).name]) == (Node(1, 2**64 - 1),)


class ForgetfulZooKeeper:
    """Numbers nodes in the order of their creation, and forgets a session that is silent for the time-out."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.heard_at_s: dict[int, float] = {}
        self.sessions = 0

    def forget(self, at_s: float) -> None:
        for session in [session for session in self.nodes if at_s - self.heard_at_s[session] >= TIMEOUT_S]:
            del self.nodes[session]

    def new_session(self, at_s: float) -> int:
        self.sessions += 1
        self.nodes[self.sessions] = Node(self.sessions, self.sessions)
        self.heard_at_s[self.sessions] = at_s
        return self.sessions


@pytest.mark.walk(range(20))
def test_two_candidates_never_both_lead_whatever_breaks_between_them_and_zookeeper(seed: int) -> None:
    """Writes travel for a while, their answers come late and out of order, connections break, workers stall."""
    rng = random.Random(seed)
    zookeeper = ForgetfulZooKeeper()
    sessions = [zookeeper.new_session(0.0), zookeeper.new_session(0.0)]
    connected = [True, True]
    confirmed: list[Confirmation | None] = [None, None]
    answers: list[Confirmation] = []
    led: set[int] = set()
    at_s = 0.0
    for _ in range(400):
        at_s += rng.choice([0.01, 0.01, 0.1, 0.5])
        zookeeper.forget(at_s)
        who = rng.randrange(2)
        session = sessions[who]
        match rng.choice(["ask", "ask", "ask", "answer", "answer", "answer", "break", "return", "new session"]):
            case "ask" if session in zookeeper.nodes and connected[who]:
                zookeeper.heard_at_s[session] = at_s
                if zookeeper.nodes[session] == min(zookeeper.nodes.values()):
                    answers.append(Confirmation(zookeeper.nodes[session], at_s - rng.random() * 0.3))
            case "answer" if ours := [answer for answer in answers if answer.node.session == session]:
                answers.remove(answer := rng.choice(ours))
                confirmed[who] = replace(answer, is_connected=connected[who])
            case "break":
                connected[who] = False
                confirmed[who] = (was := confirmed[who]) and replace(was, is_connected=False)
            case "return" if session in zookeeper.nodes:
                zookeeper.heard_at_s[session] = at_s
                connected[who] = True
            case "new session" if session not in zookeeper.nodes:
                sessions[who], connected[who], confirmed[who] = zookeeper.new_session(at_s), True, None
        leading = [one.node for one in confirmed if one is not None and one.state(at_s, TIMEOUT_S) is MAY_LEAD]
        assert len(leading) <= 1, f"seed {seed}: both lead at {at_s}"
        assert all(node in zookeeper.nodes.values() for node in leading), f"seed {seed}: {leading} ended before {at_s}"
        led.update(node.session for node in leading)
    assert led, f"seed {seed}: nobody ever led, so nothing was shown"
