"""The sync of ACLs leaves a fence on its side, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from mm2py.dr.fence.held_back import HeldBackAcls, bindings_in_force, without_fences
from mm2py.dr.fence.record import FenceBinding, FencedKind, FenceRecord, FenceState, FenceWay
from mm2py.topics.acls import Operation, TopicAcl

OURS = FenceBinding(FencedKind.TOPIC, "orders", "User:app")
ON_ID = FenceBinding(FencedKind.TRANSACTIONAL_ID, "orders", "User:id")
STANDING = FenceRecord("A->B", 2, "t", FenceState.STANDING, FenceWay.ACLS, ("orders",), (OURS, ON_ID))
LIFTED = replace(STANDING, serial=3, state=FenceState.LIFTED)
THEIRS = replace(OURS.acl, principal="User:mallory")
READ = replace(OURS.acl, operation=int(Operation.READ))
UP = HeldBackAcls(frozenset({OURS.acl}))
NONE = HeldBackAcls()


def test_what_a_fence_has_added_is_held_back_until_it_is_lifted() -> None:
    for state in (FenceState.RAISING, FenceState.STANDING, FenceState.LIFTING):
        assert bindings_in_force([replace(STANDING, state=state)]) == {OURS.acl}
    assert bindings_in_force([STANDING, LIFTED]) == frozenset()
    other = replace(STANDING, flow="A->C", serial=1, bindings=(replace(OURS, principal="User:c"),))
    assert bindings_in_force([STANDING, other, LIFTED]) == {replace(OURS.acl, principal="User:c")}


def test_a_denial_of_an_operator_is_carried_over_beside_a_fence() -> None:
    assert without_fences([OURS.acl, THEIRS, READ], UP, UP) == ([THEIRS, READ], [OURS.acl])
    assert without_fences([OURS.acl, THEIRS, READ], NONE, NONE) == ([OURS.acl, THEIRS, READ], [])


def test_a_fence_that_is_lifted_between_both_reads_is_held_back() -> None:
    assert without_fences([OURS.acl], UP, NONE) == ([], [OURS.acl])
    assert without_fences([OURS.acl], NONE, UP) == ([], [OURS.acl])


def test_where_the_record_may_not_be_read_all_that_could_be_a_fence_is_held_back() -> None:
    hosts = replace(THEIRS, host="10.0.0.1")
    prefixed = replace(THEIRS, pattern=4)
    found: list[TopicAcl] = [OURS.acl, THEIRS, hosts, prefixed, READ]
    assert without_fences(found, HeldBackAcls(unknown="READ is missing"), NONE) == (
        [hosts, prefixed, READ],
        [OURS.acl, THEIRS],
    )
