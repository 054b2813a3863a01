"""What a run demands of its fence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mm2py.dr.cutover.pair import CutoverRefused
from mm2py.dr.cutover.run_fence import ends_of, missing_bindings, refuse_plan
from mm2py.dr.fence.facts import KnownAcls
from mm2py.dr.fence.plan import FenceObstacle, FencePlan, FenceWanted
from mm2py.dr.fence.record import FenceBinding, FencedKind, FenceRecord, FenceState, FenceWay
from mm2py.dr.fence.stillness import FenceSample

TOPIC = FenceBinding(FencedKind.TOPIC, "orders", "User:app")
ID = FenceBinding(FencedKind.TRANSACTIONAL_ID, "orders", "User:app")
RECORD = FenceRecord("A->B", 1, "m", FenceState.STANDING, FenceWay.ACLS, ("orders",), (TOPIC, ID))
PLAN = FencePlan(FenceWanted("A", ("orders",), FenceWay.ACLS))
DOUBT = FenceObstacle("A has super users.", "See to them.")


def test_each_binding_of_a_fence_is_looked_for_by_its_kind() -> None:
    assert missing_bindings(RECORD, KnownAcls([TOPIC.acl], [ID.acl])) == []
    assert missing_bindings(RECORD, KnownAcls([TOPIC.acl], [])) == [ID]
    assert missing_bindings(RECORD, None) == [TOPIC, ID]


def test_a_fence_that_proves_too_little_is_refused_unless_it_is_accepted() -> None:
    refuse_plan(PLAN, accepts_unproven=False)
    doubtful = replace(PLAN, unproven=(DOUBT,))
    refuse_plan(doubtful, accepts_unproven=True)
    with pytest.raises(CutoverRefused, match=r"A has super users\. See to them\. Or accept it: --accept"):
        refuse_plan(doubtful, accepts_unproven=False)
    with pytest.raises(CutoverRefused, match="A has super users"):
        refuse_plan(replace(PLAN, refused=(DOUBT,)), accepts_unproven=True)


def test_ends_have_the_names_of_partitions() -> None:
    sample = FenceSample(0.0, {("orders", 1): 5, ("orders", 0): 4}, {}, {})
    assert ends_of(sample) == {"orders-0": 4, "orders-1": 5}
