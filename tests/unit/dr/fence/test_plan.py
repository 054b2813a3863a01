"""Whom a fence denies, by a cluster's ACLs, and what it says that it cannot prove."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from mm2py.checks.rights import PLACEHOLDER
from mm2py.dr.fence.facts import FenceFacts, KnownAcls, SeenTransaction
from mm2py.dr.fence.plan import FencePlan, FenceWanted, plan_fence
from mm2py.dr.fence.record import FenceBinding, FencedKind, FenceWay
from mm2py.kafka.port import TopicPartition
from mm2py.kafka.producer.transactions import ActiveProducer
from mm2py.topics.acls import Operation, Pattern, Permission, TopicAcl

OURS = "User:mm2py"
ORDERS, BILLS = "orders", "bills"


def allow(
    name: str,
    principal: str = "User:app",
    operation: Operation = Operation.WRITE,
    *,
    host: str = "*",
    pattern: Pattern = Pattern.LITERAL,
) -> TopicAcl:
    return TopicAcl(name, int(pattern), principal, host, int(operation), int(Permission.ALLOW))


def on(topic: str, principal: str = "User:app") -> FenceBinding:
    return FenceBinding(FencedKind.TOPIC, topic, principal)


def on_id(name: str, principal: str = "User:app") -> FenceBinding:
    return FenceBinding(FencedKind.TRANSACTIONAL_ID, name, principal)


def producer(number: int, *, coordinator_epoch: int = -1, start: int = -1) -> ActiveProducer:
    return ActiveProducer(number, 0, 7, 1, start, coordinator_epoch)


def facts(
    *acls: TopicAcl,
    ids: Sequence[TopicAcl] = (),
    has_authorizer: bool = True,
    open_without_acl: bool = False,
    super_users: str | None = None,
    producers: Mapping[TopicPartition, Sequence[ActiveProducer]] | None = None,
    transactions: Sequence[SeenTransaction] = (),
    unknown: Sequence[str] = (),
) -> FenceFacts:
    known = KnownAcls(acls, ids) if has_authorizer else None
    sizes = {ORDERS: None}
    return FenceFacts(known, open_without_acl, super_users, producers or {}, transactions, sizes, unknown)


def plan(
    found: FenceFacts,
    *topics: str,
    principals: Sequence[str] = (),
    way: FenceWay = FenceWay.ACLS,
    own: str = OURS,
    keeps_names: bool = False,
) -> FencePlan:
    wanted = FenceWanted("A", topics or (ORDERS,), way, tuple(principals), frozenset({own}), keeps_names)
    return plan_fence(wanted, found)


@pytest.mark.parametrize(
    ("acls", "denied"),
    [
        ([allow(ORDERS)], ["User:app"]),
        ([allow(ORDERS, operation=Operation.ALL)], ["User:app"]),
        ([allow(ORDERS, host="10.0.0.7")], ["User:app"]),  # from everywhere, for a host may change
        ([allow(ORDERS, operation=Operation.READ)], []),
        ([allow(BILLS)], []),
        ([allow(ORDERS, OURS), allow(ORDERS, "User:b"), allow(ORDERS, "User:a")], ["User:a", "User:b"]),
        ([allow("ord", pattern=Pattern.PREFIXED)], ["User:app"]),
        ([allow("*")], ["User:app"]),
        ([allow(ORDERS, "User:*")], []),
        ([TopicAcl(ORDERS, 3, "User:app", "*", int(Operation.WRITE), int(Permission.DENY))], []),
    ],
)
def test_who_may_write_is_denied_by_name_and_mm2py_stays_free(acls: list[TopicAcl], denied: list[str]) -> None:
    assert plan(facts(*acls)).bindings == tuple(on(ORDERS, one) for one in denied)


def test_each_topic_has_its_own_writers_and_those_that_the_operator_names() -> None:
    found = plan(facts(allow(ORDERS), allow(BILLS, "User:bank")), ORDERS, BILLS, principals=["User:batch"])
    assert found.bindings == (on(BILLS, "User:bank"), on(BILLS, "User:batch"), on(ORDERS), on(ORDERS, "User:batch"))
    assert not found.unproven and not found.refused


def test_a_binding_that_was_there_is_not_the_fences() -> None:
    here = on(ORDERS).acl
    found = plan(facts(allow(ORDERS), allow(ORDERS, "User:b"), here))
    assert found.bindings == (on(ORDERS), on(ORDERS, "User:b"))
    assert found.added == (on(ORDERS, "User:b"),)
    assert plan(facts(allow(ORDERS), ids=[here])).added == (on(ORDERS),)  # a transactional id of the same name


@pytest.mark.parametrize(
    ("found", "what", "way_out"),
    [
        (facts(allow(ORDERS, "User:*")), "lets everybody write to topic orders", "--principal User:NAME"),
        (facts(allow("ord", pattern=Pattern.PREFIXED)), "reaches beyond topic orders", "a rule for each name"),
        (facts(allow("*")), "reaches beyond topic orders", "a rule for each name"),
        (facts(allow(ORDERS), super_users=""), "super users (whose names brokers do not tell)", "super.users"),
        (facts(allow(ORDERS), super_users="User:root"), "super users (User:root)", "super.users"),
        (facts(open_without_acl=True), "No ACL names orders", "Give it ACLs"),
        (facts(allow(ORDERS), unknown=["Broker 2 does not tell."]), "Broker 2 does not tell", "--accept-unproven"),
    ],
)
def test_what_no_named_denial_reaches_is_named_with_its_way_out(found: FenceFacts, what: str, way_out: str) -> None:
    made = plan(found)
    assert [what in one.what for one in made.unproven] == [True]
    assert way_out in made.unproven[0].remedy
    assert "--accept-unproven-fence" in made.unproven[0].remedy
    assert not made.refused


def test_a_first_acl_that_would_shut_out_the_readers_is_refused() -> None:
    """Everybody may do everything with a topic until it has its first ACL: our DENY would be that."""
    found = plan(facts(open_without_acl=True), principals=["User:app"])
    assert ["the first ACL, even a DENY, would shut out its readers" in one.what for one in found.refused] == [True]
    with_acl = plan(facts(allow(ORDERS, "User:reader", Operation.READ), open_without_acl=True), principals=["User:app"])
    assert not with_acl.refused and with_acl.added == (on(ORDERS),)
    assert not plan(facts(), principals=["User:app"]).refused  # without that setting nobody may write there anyway


@pytest.mark.parametrize(
    ("principals", "own", "why"),
    [
        ([OURS], OURS, "mm2py's own"),
        (["User:*"], OURS, "would deny mm2py, too"),
        ([], PLACEHOLDER, "is not told by the file"),
    ],
)
def test_a_fence_that_might_stop_mm2py_itself_is_refused(principals: list[str], own: str, why: str) -> None:
    (refused,) = plan(facts(allow(ORDERS)), principals=principals, own=own).refused
    assert why in refused.what


def test_transactional_ids_that_write_to_the_topics_are_denied_to_whom_their_acls_name() -> None:
    found = plan(
        facts(
            allow(ORDERS),
            ids=[allow("tx-1"), allow("tx-2", "User:other"), allow("tx", "User:wide", pattern=Pattern.PREFIXED)],
            producers={(ORDERS, 0): [producer(11), producer(13)]},
            transactions=[
                SeenTransaction("tx-1", 11, "Empty"),
                SeenTransaction("tx-2", 12, "Ongoing", frozenset({("elsewhere", 0)})),
                SeenTransaction("tx-3", 14, "Ongoing", frozenset({(ORDERS, 1), ("coupled", 0)})),
                SeenTransaction("mm2py-workers-0123abcd-1-B->A", 13, "Empty"),
            ],
        )
    )
    assert set(found.bindings) == {on(ORDERS), on_id("tx-1"), on_id("tx-1", "User:wide"), on_id("tx-3", "User:wide")}
    assert any("tx-3 also writes to coupled" in one for one in found.notes)
    assert any("reaches beyond transactional id tx-1" in one.what for one in found.unproven)


def test_without_an_authorizer_the_ways_that_are_possible_are_offered() -> None:
    (refused,) = plan(facts(has_authorizer=False)).refused
    assert "SECURITY_DISABLED" in refused.what
    assert "--hook-fence" in refused.remedy and "--by-size" in refused.remedy
    for found in (
        plan(facts(has_authorizer=False), keeps_names=True),
        plan(facts(has_authorizer=False, producers={(ORDERS, 0): [producer(1, coordinator_epoch=0)]})),
    ):
        assert "--hook-fence" in found.refused[0].remedy and "--by-size" not in found.refused[0].remedy


@pytest.mark.parametrize(
    ("found", "keeps_names", "why"),
    [
        (facts(), True, "identity policy"),
        (facts(producers={(ORDERS, 0): [producer(1, coordinator_epoch=3)]}), False, "transactional producers"),
        (facts(producers={(ORDERS, 0): [producer(1, start=5)]}), False, "transactional producers"),
        (
            facts(producers={(ORDERS, 0): [producer(1)]}, transactions=[SeenTransaction("tx", 1, "Empty")]),
            False,
            "transactional producers",
        ),
        (facts(transactions=[SeenTransaction("tx", 1, "Ongoing", frozenset({(ORDERS, 0)}))]), False, "transactional"),
        (facts(unknown=["The producers of orders-0 are not told."]), False, "are not told"),
    ],
)
def test_the_size_is_refused_where_it_would_hang_transactions_or_stop_the_way_back(
    found: FenceFacts, keeps_names: bool, why: str
) -> None:
    (refused,) = plan(found, way=FenceWay.SIZE, keeps_names=keeps_names).refused
    assert why in refused.what


def test_the_size_says_that_small_records_may_pass_and_why_transactions_refuse_it() -> None:
    found = plan(facts(producers={(ORDERS, 0): [producer(1)]}, has_authorizer=False), way=FenceWay.SIZE)
    assert not found.refused and found.sizes == {ORDERS: None} and not found.bindings
    assert "Small records may pass" in found.notes[0]
    assert "would hang" in found.notes[1]
    assert "for a day" in found.unproven[0].what


def test_a_hook_changes_nothing_by_itself() -> None:
    found = plan(facts(allow(ORDERS, "User:*"), super_users=""), way=FenceWay.HOOK)
    assert not found.bindings and found.sizes is None and not found.unproven and not found.refused


def test_what_is_the_same_for_many_topics_is_told_once() -> None:
    """A rule for a prefix matches thousands of topics: a line for each would hide what else is not proven."""
    topics = [f"ord-{number}" for number in range(3_000)]
    wide = [allow("ord", pattern=Pattern.PREFIXED), allow("*", "User:*")]
    made = plan(facts(*wide, super_users=""), *topics)
    assert len(made.unproven) == 3 and len(made.bindings) == 3_000
    assert sum("ord-0, ord-1, ord-2, ord-3, ord-4 and 2995 more" in one.what for one in made.unproven) == 2
    opened = plan(facts(open_without_acl=True), *topics)
    assert ["ord-0, ord-1, ord-2, ord-3, ord-4 and 2995 more" in one.what for one in opened.unproven] == [True]
    closed = plan(facts(open_without_acl=True), *topics, principals=["User:app"])
    assert len(closed.refused) == 1


def test_a_plan_is_the_same_although_a_transactional_producer_has_something_else_open() -> None:
    """An application that is transactional commits many times a second, and writes to other topics, too. Its fence
    could not be raised if the plan counted as changed by that."""

    def at_a_moment(*others: str) -> FencePlan:
        partitions = frozenset({(ORDERS, 0), *((one, 0) for one in others)})
        return plan(
            facts(
                allow(ORDERS),
                ids=[allow("tx-1")],
                producers={(ORDERS, 0): [producer(11)]},
                transactions=[SeenTransaction("tx-1", 11, "Ongoing", partitions)],
            )
        )

    assert at_a_moment().notes != at_a_moment("__consumer_offsets").notes
    assert at_a_moment().is_same(at_a_moment("__consumer_offsets"))
    for other in (plan(facts(allow(ORDERS))), plan(facts(allow(ORDERS), super_users=""))):
        assert not at_a_moment().is_same(other)


def test_a_fence_too_large_for_its_record_is_refused() -> None:
    acls = [allow(ORDERS, f"User:app-{number}") for number in range(10_001)]
    assert "10,001 ACLs" in plan(facts(*acls)).refused[0].what
