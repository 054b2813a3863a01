"""ACLs follow their source topics on a schedule: denials come first, and nobody gets more rights than upstream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from mm2py.dr.fence.record import FenceBinding, FencedKind, FenceRecord, FenceState, FenceWay, encode_fence
from mm2py.kafka.messages import CreateAclsRequest, DescribeAclsRequest
from mm2py.topics.acls import Operation, Pattern, Permission
from mm2py_connectors.source.topic_sync import NEWS_EVERY_S
from tests.scenarios.sync_world import EVERY_MINUTE, HOUR_S, IDENTITY, MINUTE_S, acl, lines, times_of, until, world_with
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=HOUR_S)


async def test_acls_are_printed_then_created_and_later_ones_at_the_next_interval() -> None:
    world = world_with("orders", "bills")
    jane = "User:CN=Jane, OU=R&D, O=Wörks"
    world.source.acls = {
        acl("orders", principal=jane, host="10.0.0.7"),
        acl("orders", Operation.ALL),
        acl("orders", Operation.WRITE),
        acl("orders", Operation.ALL, Permission.DENY, principal="User:mallory"),
        acl("mm2-offsets.B.internal"),
        acl("*"),
        acl("*", Operation.DESCRIBE, Permission.DENY, principal="User:eve"),
        acl("ord", pattern=Pattern.PREFIXED),
        acl("ord", Operation.ALL, Permission.DENY, pattern=Pattern.PREFIXED, principal="User:eve"),
    }
    world.target.acls = {acl("A.orders", Operation.READ)}
    expected = {
        acl("A.orders", principal=jane, host="10.0.0.7"),
        acl("A.orders", Operation.READ),
        acl("A.orders", Operation.ALL, Permission.DENY, principal="User:mallory"),
        acl("A.", Operation.DESCRIBE, Permission.DENY, pattern=Pattern.PREFIXED, principal="User:eve"),
        acl("A.ord", Operation.ALL, Permission.DENY, pattern=Pattern.PREFIXED, principal="User:eve"),
    }
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await until(lambda: len(lines(world, "topic_acls.created")) == 2, deadline_s=10.0)
        assert world.target.acls == expected
        # Nothing was copied before the first round: DENY ACLs precede the topic, ALLOW ACLs follow soon after it.
        for number, kind in enumerate(("DENY", "ALLOW")):
            names = lines(world, "topic_acls.named")[number]
            assert names.count(kind) == names.count("User:") > 0
        plan, done = (lines(world, event)[0] for event in ("topic_acls.planned", "topic_acls.created"))
        text = world.log_text.getvalue()
        assert text.index(plan) < text.index("topic_acls.named") < text.index(done)
        assert f"ALLOW READ on LITERAL A.orders for {jane} from 10.0.0.7" in text
        assert len(lines(world, "topic_acls.named")) == 2
        world.source.acls.add(acl("bills"))
        world.source.acls.discard(acl("orders", Operation.ALL))
        await asyncio.sleep(5 * MINUTE_S)
        assert world.target.acls == {*expected, acl("A.bills")}  # ACLs are never deleted
        assert len(lines(world, "topic_acls.left_out")) == 2
        asked_s = times_of(world.source, "sync.acls", "DescribeAcls")
        assert [at_s - asked_s[0] for at_s in asked_s] == pytest.approx(
            [0.0, NEWS_EVERY_S, *(60.0 * number for number in range(1, 6))], abs=0.02
        )
        assert len(times_of(world.target, "sync.acls", "CreateAcls")) == 3


async def test_under_the_identity_policy_a_denial_on_many_topics_is_created_for_each_copied_topic() -> None:
    world = world_with("orders", "bills", **IDENTITY)
    eve = {"principal": "User:eve"}
    world.source.acls = {
        acl("*", Operation.READ, Permission.DENY, **eve),
        acl("ord", Operation.DESCRIBE, Permission.DENY, pattern=Pattern.PREFIXED, **eve),
    }
    world.target.acls = set()
    async with world.worker():
        await world.copied({"orders": "orders", "bills": "bills"})
        await asyncio.sleep(MINUTE_S)
        assert world.target.acls == {
            acl("orders", Operation.READ, Permission.DENY, **eve),
            acl("bills", Operation.READ, Permission.DENY, **eve),
            acl("orders", Operation.DESCRIBE, Permission.DENY, **eve),
        }


@pytest.mark.parametrize("without", ["A", "B"])
@pytest.mark.virtual_time(limit_s=3 * HOUR_S)
async def test_a_cluster_without_an_authorizer_is_logged_once_and_noticed_when_it_gets_one(without: str) -> None:
    world = world_with("orders")
    world.source.acls, world.target.acls = {acl("orders")}, set()
    bare = world.source if without == "A" else world.target
    kept, bare.acls = bare.acls, None
    async with world.worker():
        await asyncio.sleep(6 * MINUTE_S)
        (line,) = lines(world, "topic_acls.no_authorizer")
        assert f"cluster={without}" in line
        assert " INFO " in line
        bare.acls = kept
        await asyncio.sleep(MINUTE_S)
        assert world.target.acls == {acl("A.orders")}


@pytest.mark.parametrize(
    ("denied", "right"), [("A", "Grant DESCRIBE on the cluster resource of A"), ("B", "Grant ALTER on the cluster")]
)
@pytest.mark.virtual_time(limit_s=3 * HOUR_S)
async def test_the_missing_right_on_the_cluster_is_named_once(denied: str, right: str) -> None:
    world = world_with("orders")
    world.source.acls, world.target.acls = {acl("orders")}, set()
    (world.source if denied == "A" else world.target).denied_on_cluster = {"DESCRIBE" if denied == "A" else "ALTER"}
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(6 * MINUTE_S)
        (line,) = lines(world, "topic_acls.denied")
        assert f"cluster={denied}" in line
        assert right in line
        assert "CLUSTER_AUTHORIZATION_FAILED" in line
        world.source.denied_on_cluster = world.target.denied_on_cluster = set()
        await asyncio.sleep(MINUTE_S)
        assert world.target.acls == {acl("A.orders")}


async def test_a_dry_run_asks_for_the_right_to_read_acls_only() -> None:
    world = world_with("orders", **{"sync.topic.acls.dry.run": "true"})
    world.source.acls, world.target.acls = {acl("orders")}, set()
    world.target.denied_on_cluster = {"DESCRIBE"}
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(MINUTE_S)
        (line,) = lines(world, "topic_acls.denied")
        assert "Grant DESCRIBE on the cluster resource of B" in line


@pytest.mark.parametrize("policy", [{}, IDENTITY])
async def test_rights_on_topics_are_withheld_until_the_topics_are_copied(policy: dict[str, str]) -> None:
    """Under the identity policy, topics of B can have the names that A's ACLs are about. A reader of A's topic must not
    get to read B's.

    The copy of ``salaries`` is refused, because B has a topic of that name with its own records; ``payroll`` exists
    only on B.
    """
    world = world_with("orders", "salaries", **policy)
    prefix = "" if policy else "A."
    for name in ("payroll", "salaries"):
        world.target.create_topic(prefix + name, 1)
        world.target.append(prefix + name, 0, [b"own"])
    eve = {"principal": "User:eve"}
    world.source.acls = {
        acl("orders", **eve),
        *(acl(name, operation, **eve) for name in ("payroll", "salaries", "later") for operation in Operation),
        acl("payroll", Operation.READ, Permission.DENY, **eve),
    }
    world.target.acls = set()
    expected = {acl(prefix + "orders", **eve), acl(prefix + "payroll", Operation.READ, Permission.DENY, **eve)}
    async with world.worker():
        await world.copied({"orders": prefix + "orders"})
        await asyncio.sleep(3 * MINUTE_S)
        assert len(lines(world, "topic.refused")) == 1
        assert world.target.acls == expected
        world.source.create_topic("later", 1)
        await until(lambda: acl(prefix + "later", **eve) in world.target.acls, deadline_s=10.0)


async def test_under_the_identity_policy_a_later_denial_of_many_topics_reaches_copies_of_deleted_topics() -> None:
    world = world_with("orders", "old", **IDENTITY)
    world.target.create_topic("own", 1)
    world.source.acls, world.target.acls = set(), set()
    async with world.worker():
        await world.copied({"orders": "orders", "old": "old"})
        world.source.delete_topic("old")
        await until(lambda: bool(lines(world, "topic.gone")))
        world.source.acls = {acl("*", permission=Permission.DENY)}
        await asyncio.sleep(MINUTE_S)
        assert world.target.acls == {acl(name, permission=Permission.DENY) for name in ("orders", "old")}


async def test_an_acl_with_a_too_long_remote_name_does_not_prevent_the_creation_of_a_denial() -> None:
    """Brokers close the connection on a string over 32,767 bytes, and everything else in the request is lost."""
    world = world_with("orders")
    denials = {acl("orders", permission=Permission.DENY, principal=f"User:{number}") for number in range(3)}
    world.source.acls = {
        acl("a" * 32_766),
        acl("a" * 32_766, permission=Permission.DENY),
        acl("a" * 32_766, permission=Permission.DENY, pattern=Pattern.PREFIXED),
        *denials,
    }
    world.target.acls = set()
    world.target.cut_off_by = lambda request: (
        isinstance(request, CreateAclsRequest) and any(len(one.resource_name) > 32_767 for one in request.creations)
    )
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(10 * MINUTE_S)
        assert world.target.acls == {replace(one, name="A.orders") for one in denials}
        (line,) = lines(world, "topic_acls.left_out")
        assert "acls=2" in line
        assert not lines(world, "topic_acls.failing")


def cut_off_by_acl_for(principal: str) -> Callable[[object], bool]:
    return lambda request: (
        isinstance(request, CreateAclsRequest) and any(one.principal == principal for one in request.creations)
    )


@pytest.mark.parametrize("permission", Permission)
async def test_after_a_failed_request_the_other_requests_are_sent(permission: Permission) -> None:
    world = world_with("orders")
    world.source.acls = {acl("orders", permission=permission, principal=f"User:{number:04}") for number in range(1001)}
    world.target.acls = set()
    world.target.cut_off_by = cut_off_by_acl_for("User:0000")
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(MINUTE_S / 2)
        assert len(world.target.acls) == 501
        await asyncio.sleep(3 * MINUTE_S)
        (line,) = lines(world, "topic_acls.failing")
        assert "it closed the connection" in line
        world.target.cut_off_by = lambda _: False
        await asyncio.sleep(MINUTE_S)
        assert len(world.target.acls) == 1001
        assert len(lines(world, "topic_acls.in_step")) == 1


async def test_no_right_is_granted_before_all_denials_are_in_place() -> None:
    """All but zed may read. The ACLs took two requests: the first had the grant, and the second was lost."""
    world = world_with("orders")
    grants = {acl("orders", principal=f"User:a{number:04}") for number in range(600)} | {
        acl("orders", principal="User:*")
    }
    zed = acl("orders", permission=Permission.DENY, principal="User:zed")
    world.source.acls = {*grants, zed}
    world.target.acls = set()
    world.target.cut_off_by = cut_off_by_acl_for("User:zed")
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(3 * MINUTE_S)
        assert world.target.acls == set()
        (line,) = lines(world, "topic_acls.held_back")
        assert "acls=601" in line
        assert "DENY READ on LITERAL A.orders for User:zed from *" in line
        world.target.cut_off_by = lambda _: False
        await asyncio.sleep(MINUTE_S)
        assert world.target.acls == {replace(one, name="A.orders") for one in {*grants, zed}}
        assert len(lines(world, "topic_acls.held_back")) == 1


async def test_a_denial_that_the_target_refuses_holds_grants_back_and_is_logged_once() -> None:
    """Each round has a different denial that is refused first."""
    world = world_with("orders")
    denials = {acl("orders", permission=Permission.DENY, principal=f"odd{number}") for number in range(5)}
    world.source.acls = {acl("orders"), acl("orders", permission=Permission.DENY), *denials}
    world.target.acls = set()
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        for number in range(5):
            await asyncio.sleep(MINUTE_S)
            assert world.target.acls == {acl("A.orders", permission=Permission.DENY)}
            world.source.acls.discard(acl("orders", permission=Permission.DENY, principal=f"odd{number}"))
        (line,) = lines(world, "topic_acls.refused")
        assert "INVALID_REQUEST" in line
        await asyncio.sleep(MINUTE_S)
        assert acl("A.orders") in world.target.acls


async def test_a_lasting_failure_is_logged_once_whichever_broker_reports_it() -> None:
    world = World(7, nodes=5, extra=EVERY_MINUTE)
    world.source.create_topic("orders", 1)
    world.source.append("orders", 0, [b"1"])
    world.source.acls, world.target.acls = {acl("orders")}, set()
    world.target.cut_off_by = lambda request: isinstance(request, DescribeAclsRequest)
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(20 * MINUTE_S)
        assert len(lines(world, "topic_acls.failing")) == 1
        world.target.cut_off_by = lambda _: False
        await asyncio.sleep(MINUTE_S)
        assert len(lines(world, "topic_acls.in_step")) == 1


async def test_an_acl_that_was_deleted_by_hand_on_the_target_is_logged_before_it_is_created_again() -> None:
    world = world_with("orders")
    world.source.acls, world.target.acls = {acl("orders")}, set()
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(MINUTE_S)
        assert len(lines(world, "topic_acls.named")) == 1
        world.target.acls.clear()
        await asyncio.sleep(MINUTE_S)
        assert world.target.acls == {acl("A.orders")}
        assert len(lines(world, "topic_acls.named")) == 2


async def test_a_hostile_source_cannot_create_more_grants_than_the_flow_may_have() -> None:
    """S23. Denials are created nonetheless."""
    world = world_with("orders", **{"A->B.remote.acls.max": "10"})
    denials = {acl("orders", permission=Permission.DENY, principal=f"User:d{number}") for number in range(4)}
    own = acl("A.orders", principal="User:own")
    world.target.acls = {own}
    async with world.worker():
        for number in range(3):
            world.source.acls = {acl("orders", principal=f"User:{number}-{one}") for one in range(20)}
            await asyncio.sleep(MINUTE_S)
            assert len(world.target.acls) == 10
        (line,) = lines(world, "topic_acls.too_many")
        assert "acls=21 most=10" in line
        assert "Raise remote.acls.max" in line
        world.source.acls |= denials
        await asyncio.sleep(MINUTE_S)
        assert len(world.target.acls) == 14
        assert world.target.acls >= {replace(one, name="A.orders") for one in denials} | {own}


FENCES = "mm2-dr-fences.internal"


async def test_a_fence_of_producers_stays_on_its_side_until_it_is_lifted() -> None:
    """Under the identity policy its DENY would stop the producers that have moved to the target."""
    world = world_with("orders", **IDENTITY)
    ours = acl("orders", Operation.WRITE, Permission.DENY, principal="User:app")
    theirs = acl("orders", Operation.WRITE, Permission.DENY, principal="User:mallory")
    binding = FenceBinding(FencedKind.TOPIC, "orders", "User:app")
    record = FenceRecord("A->B", 1, "mark", FenceState.STANDING, FenceWay.ACLS, ("orders",), (binding,))
    world.source.acls, world.target.acls = {ours, theirs}, set()
    world.source.create_topic(FENCES, 1)
    world.source.append(FENCES, 0, [encode_fence(record)])
    async with world.worker():
        await until(lambda: theirs in world.target.acls)
        await asyncio.sleep(3 * MINUTE_S)
        assert world.target.acls == {theirs}
        (line,) = lines(world, "topic_acls.fence_held_back")
        assert "acls=1" in line
        lifted = replace(record, serial=2, state=FenceState.LIFTED)
        world.source.append(FENCES, 0, [encode_fence(lifted)])
        await until(lambda: ours in world.target.acls)  # by now it is an operator's


async def test_where_the_records_of_fences_may_not_be_read_what_could_be_one_waits() -> None:
    world = world_with("orders", **IDENTITY)
    write = acl("orders", Operation.WRITE, Permission.DENY, principal="User:app")
    read = acl("orders", Operation.READ, Permission.DENY, principal="User:app")
    world.source.acls, world.target.acls = {write, read}, set()
    world.source.create_topic(FENCES, 1)
    world.source.deny(FENCES)
    async with world.worker():
        await until(lambda: read in world.target.acls)
        await asyncio.sleep(3 * MINUTE_S)
        assert world.target.acls == {read}
        (line,) = lines(world, "topic_acls.fence_unknown")
        assert f"Grant READ on {FENCES}" in line
