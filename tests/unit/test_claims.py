"""Several flows into one remote topic: who keeps it, who is refused, and that nobody waits for a dead source."""

from __future__ import annotations

import asyncio

from connectors.source.claims import SETTLE_S, RemoteTopicClaims
from mm2py.flow import Flow, parse_flow
from tests.fakes.virtual_time import run_virtual

A, B, C = (parse_flow(f"{source}->X") for source in "ABC")
NOTHING: frozenset[str] = frozenset()


def claims_of(*flows: Flow) -> RemoteTopicClaims:
    return RemoteTopicClaims(frozenset(flows))


def test_a_topic_of_one_flow_is_its_own() -> None:
    shared = claims_of(A, B)
    shared.claim(A, ["orders"], held=NOTHING)
    shared.claim(B, ["bills"], held=NOTHING)
    assert shared.others(A, "orders") == NOTHING
    assert shared.others(B, "bills") == NOTHING
    assert shared.others(A, "of nobody") == NOTHING


def test_two_newcomers_refuse_each_other() -> None:
    shared = claims_of(A, B, C)
    for flow in (A, B, C):
        shared.claim(flow, ["orders"], held=NOTHING)
    assert shared.others(A, "orders") == {B, C}
    assert shared.others(B, "orders") == {A, C}


def test_who_has_copied_a_topic_keeps_it_and_the_newcomer_is_refused() -> None:
    """A->X has run for months; somebody adds B->X with the same topics. A->X must not stop because of that."""
    shared = claims_of(A, B)
    shared.claim(A, ["orders"], held=frozenset({"orders"}))
    shared.claim(B, ["orders"], held=NOTHING)
    assert shared.others(A, "orders") == NOTHING
    assert shared.others(B, "orders") == {A}


def test_two_that_both_hold_positions_are_both_refused() -> None:
    """many.to.one was true and was taken out of the file: nobody can tell whose topic it is."""
    shared = claims_of(A, B)
    for flow in (A, B):
        shared.claim(flow, ["orders"], held=frozenset({"orders"}))
    assert shared.others(A, "orders") == {B}
    assert shared.others(B, "orders") == {A}


def test_positions_of_other_topics_claim_nothing() -> None:
    shared = claims_of(A, B)
    shared.claim(A, ["orders"], held=frozenset({"bills"}))
    shared.claim(B, ["bills"], held=NOTHING)
    assert shared.others(B, "bills") == NOTHING


def test_a_later_claim_replaces_the_earlier_one() -> None:
    shared = claims_of(A, B)
    shared.claim(A, ["orders"], held=frozenset({"orders"}))
    shared.claim(B, ["orders"], held=NOTHING)
    shared.claim(A, [], held=NOTHING)
    assert shared.others(B, "orders") == NOTHING
    shared.claim(A, ["orders"], held=NOTHING)
    assert shared.others(B, "orders") == {A}


def test_a_refused_flow_is_in_nobodys_way() -> None:
    shared = claims_of(A, B)
    shared.claim(A, ["orders"], held=frozenset({"orders"}))
    shared.leave(A)
    shared.claim(B, ["orders"], held=NOTHING)
    assert shared.others(B, "orders") == NOTHING


def test_the_first_round_waits_until_all_have_claimed() -> None:
    async def main() -> None:
        shared = claims_of(A, B)
        shared.claim(A, ["orders"], held=NOTHING)
        first = asyncio.create_task(shared.settled())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not first.done()
        shared.leave(B)
        await asyncio.wait_for(first, 1)

    asyncio.run(main())


def test_a_dead_source_holds_the_others_for_seconds_and_only_once() -> None:
    async def main() -> None:
        shared = claims_of(A, B)
        shared.claim(A, ["orders"], held=NOTHING)
        loop = asyncio.get_running_loop()
        await shared.settled()
        assert loop.time() == SETTLE_S
        await shared.settled()
        assert loop.time() == SETTLE_S

    run_virtual(main())
