"""How open transactions are ended: by the id that has them open, or else by a marker."""

from __future__ import annotations

from mm2py.dr.fence.facts import SeenTransaction
from mm2py.dr.fence.open_transactions import TransactionEnd, plan_ends
from mm2py.dr.fence.stillness import BegunTransaction


def opened(partition: int, producer_id: int = 1) -> BegunTransaction:
    return BegunTransaction("orders", partition, producer_id, 0, 3, 5)


def test_one_id_ends_all_its_partitions_at_once() -> None:
    known = [SeenTransaction("tx", 1, "Ongoing", frozenset({("orders", 0), ("orders", 1), ("elsewhere", 0)}))]
    assert plan_ends([opened(1), opened(0)], known) == [TransactionEnd("tx", (opened(0), opened(1)))]


def test_what_no_coordinator_has_open_hangs_and_gets_a_marker() -> None:
    """The id is there, and has another transaction open by now, or none."""
    known = [
        SeenTransaction("tx", 1, "Ongoing", frozenset({("orders", 1)})),
        SeenTransaction("other", 2, "Ongoing", frozenset({("orders", 0)})),
    ]
    assert plan_ends([opened(0)], known) == [TransactionEnd("", (opened(0),))]
    assert "a marker, for it hangs" in str(TransactionEnd("", (opened(0),)))
