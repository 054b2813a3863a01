"""Topics that transactions couple with those that move: found in what brokers remember of producers."""

from __future__ import annotations

from mm2py.dr.cutover.coupling import couplings, refusal_text
from mm2py.dr.fence.facts import SeenTransaction
from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.producer.transactions import ActiveProducer

FLOW = Flow(ClusterAlias("A"), ClusterAlias("B"))


def wrote(producer_id: int, *, coordinator_epoch: int = 0, txn_start_offset: int = -1) -> list[ActiveProducer]:
    return [ActiveProducer(producer_id, 0, 5, 1, txn_start_offset, coordinator_epoch)]


def test_a_topic_that_stays_and_shares_transactions_with_one_that_moves_is_named() -> None:
    seen = {("orders", 0): wrote(7), ("bills", 1): wrote(7), ("logs", 0): wrote(8)}
    (found,) = couplings({"orders"}, seen, [SeenTransaction("pay-1", 7, "Empty")])
    assert str(found) == "bills and orders together (transactional id pay-1)"
    assert "Move it as well (--topics, and A->B.topics), or accept it: --accept-coupled" in refusal_text(found, FLOW)
    (unlisted,) = couplings({"orders"}, seen, [])
    assert "producer id 7" in str(unlisted)


def test_topics_that_move_together_are_no_matter() -> None:
    seen = {("orders", 0): wrote(7), ("bills", 1): wrote(7)}
    assert couplings({"orders", "bills"}, seen, []) == ()


def test_an_open_transaction_of_a_new_producer_couples_as_well() -> None:
    new = wrote(7, coordinator_epoch=-1, txn_start_offset=3)
    assert len(couplings({"orders"}, {("orders", 0): new, ("bills", 0): new}, [])) == 1


def test_a_producer_without_transactions_couples_nothing() -> None:
    plain = wrote(7, coordinator_epoch=-1)
    assert couplings({"orders"}, {("orders", 0): plain, ("bills", 0): plain}, []) == ()


def test_the_markers_of_fences_of_mm2py_couple_nothing() -> None:
    seen = {("orders", 0): wrote(7), ("bills", 0): wrote(7)}
    assert couplings({"orders"}, seen, [SeenTransaction("mm2py-group-0123abcd-0-B->A", 7, "Empty")]) == ()
