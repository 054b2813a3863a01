"""Several flows into one remote topic: who keeps it, who is refused, and who waits for whom, and how long."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from connectors.source.claims import SETTLE_S, RemoteTopicClaims
from mm2py.config.settings import FlowSettings
from mm2py.flow import Flow, parse_flow
from tests.scenarios.world import configuration

A, B, C = (parse_flow(f"{source}->X") for source in "ABC")
NOTHING: frozenset[str] = frozenset()
IDENTITY = {"replication.policy.class": "IdentityReplicationPolicy"}


@dataclass
class StillClock:
    """Stands where it is put."""

    now_s: float = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def boottime(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return round(self.now_s * 1000)


@dataclass
class World:
    """Flows A->X, B->X, ... of one file, and their claims."""

    settings: dict[Flow, FlowSettings | None]
    clock: StillClock = field(default_factory=StillClock)

    def __post_init__(self) -> None:
        self.claims = RemoteTopicClaims(frozenset(self.settings), lambda flow: self.settings[flow], self.clock)


def world_of(*flows: Flow, **lines: str) -> World:
    aliases = {"A", "B", "X", *(str(flow.source) for flow in flows)}
    names = {key.replace("_", ".").replace("X", "->X"): value for key, value in lines.items()}
    found = configuration(
        tuple(
            {
                "clusters": ",".join(aliases),
                **{f"{alias}.bootstrap.servers": f"{alias.lower()}:1" for alias in aliases},
                "A->B.enabled": "false",
                **{f"{flow}.enabled": "true" for flow in flows},
                **IDENTITY,
                **names,
            }.items()
        )
    )
    return World({one.flow: one for one in found.flows})


def test_a_topic_of_one_flow_is_its_own() -> None:
    shared = world_of(A, B).claims
    shared.claim(A, ["orders"], held=NOTHING)
    shared.claim(B, ["bills"], held=NOTHING)
    assert shared.others(A, "orders") == NOTHING
    assert shared.others(B, "bills") == NOTHING
    assert shared.others(A, "of nobody") == NOTHING


def test_two_newcomers_refuse_each_other() -> None:
    shared = world_of(A, B, C).claims
    for flow in (A, B, C):
        shared.claim(flow, ["orders"], held=NOTHING)
    assert shared.others(A, "orders") == {B, C}
    assert shared.others(B, "orders") == {A, C}


def test_who_has_copied_a_topic_keeps_it_and_the_newcomer_is_refused() -> None:
    """A->X has run for months; somebody adds B->X with the same topics. A->X must not stop because of that."""
    shared = world_of(A, B).claims
    shared.claim(A, ["orders"], held=frozenset({"orders"}))
    shared.claim(B, ["orders"], held=NOTHING)
    assert shared.others(A, "orders") == NOTHING
    assert shared.others(B, "orders") == {A}


def test_two_that_both_hold_positions_are_both_refused() -> None:
    """many.to.one was true and was taken out of the file: nobody can tell whose topic it is."""
    shared = world_of(A, B).claims
    for flow in (A, B):
        shared.claim(flow, ["orders"], held=frozenset({"orders"}))
    assert shared.others(A, "orders") == {B}
    assert shared.others(B, "orders") == {A}


def test_positions_of_other_topics_claim_nothing() -> None:
    shared = world_of(A, B).claims
    shared.claim(A, ["orders"], held=frozenset({"bills"}))
    shared.claim(B, ["bills"], held=NOTHING)
    assert shared.others(B, "bills") == NOTHING


def test_a_later_claim_replaces_the_earlier_one() -> None:
    shared = world_of(A, B).claims
    shared.claim(A, ["orders"], held=frozenset({"orders"}))
    shared.claim(B, ["orders"], held=NOTHING)
    shared.claim(A, [], held=NOTHING)
    assert shared.others(B, "orders") == NOTHING
    shared.claim(A, ["orders"], held=NOTHING)
    assert shared.others(B, "orders") == {A}


def test_a_flow_that_was_switched_off_or_refused_is_in_nobodys_way() -> None:
    world = world_of(A, B)
    world.claims.claim(A, ["orders"], held=frozenset({"orders"}))
    world.settings[A] = None
    world.claims.claim(B, ["orders"], held=NOTHING)
    assert world.claims.others(B, "orders") == NOTHING


def test_who_has_begun_a_topic_keeps_it_from_one_whose_source_answered_too_late() -> None:
    """B was away for so long that A->X began ``orders``; B->X has positions of it, and comes back within A's round."""
    world = world_of(A, B)
    world.claims.claim(A, ["orders"], held=NOTHING)
    world.clock.now_s = SETTLE_S
    assert not world.claims.must_wait(A, "orders")
    world.claims.hold(A, ["orders"])
    world.claims.claim(B, ["orders"], held=frozenset({"orders"}))
    assert world.claims.others(B, "orders") == {A}


def test_a_topic_waits_until_all_have_claimed_that_may_lead_there() -> None:
    world = world_of(A, B)
    world.claims.claim(A, ["orders"], held=NOTHING)
    assert world.claims.must_wait(A, "orders")
    world.claims.claim(B, [], held=NOTHING)
    assert not world.claims.must_wait(A, "orders")
    assert not world.claims.must_wait(B, "orders")


def test_nobody_waits_for_a_flow_that_cannot_lead_there_is_switched_off_or_refused() -> None:
    by_name = world_of(A, B, replication_policy_class="DefaultReplicationPolicy")
    by_name.claims.claim(A, ["A.orders"], held=NOTHING)
    assert not by_name.claims.must_wait(A, "A.orders")
    by_filter = world_of(A, B, BX_topics="bills.*")
    by_filter.claims.claim(A, ["orders", "bills"], held=NOTHING)
    assert not by_filter.claims.must_wait(A, "orders")
    assert by_filter.claims.must_wait(A, "bills")
    off = world_of(A, B)
    off.claims.claim(A, ["orders"], held=NOTHING)
    off.settings[B] = None
    assert not off.claims.must_wait(A, "orders")


def test_names_of_the_default_policy_may_meet_where_separators_differ() -> None:
    dashed, dotted = parse_flow("a->X"), parse_flow("a-b->X")
    lines = {"replication_policy_class": "DefaultReplicationPolicy", "replication_policy_separator": "."}
    world = world_of(dashed, dotted, **lines, aX_replication_policy_separator="-")
    world.claims.claim(dashed, ["a-b.orders", "a-orders"], held=NOTHING)
    assert world.claims.must_wait(dashed, "a-b.orders")
    assert not world.claims.must_wait(dashed, "a-orders")


@pytest.mark.parametrize("held", [False, True])
def test_a_dead_source_holds_the_others_for_less_than_a_second_and_only_once(held: bool) -> None:
    world = world_of(A, B)
    world.claims.claim(A, ["orders", "bills"], held=frozenset({"orders"} if held else ()))
    assert world.claims.must_wait(A, "orders")
    world.clock.now_s = 0.99
    assert not world.claims.must_wait(A, "orders")
    world.clock.now_s = SETTLE_S
    world.claims.claim(A, ["orders", "found since"], held=NOTHING)
    assert not world.claims.must_wait(A, "found since")
