"""What ``mm2py dr cutover --plan`` prints: every action, with its positions."""

from __future__ import annotations

import json
from dataclasses import replace

from mm2py.dr.cutover.preview import RunPreview
from mm2py.dr.fence.plan import FencePlan, FenceWanted
from mm2py.dr.fence.record import FenceBinding, FencedKind, FenceWay
from mm2py.dr.groups.judgement import GroupToMove, PartitionToMove, judge_at_ends
from mm2py.dr.groups.moving import JudgedGroup
from mm2py.dr.runner import RecoveryGoal
from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.consumer_groups import Commit
from mm2py.offsets.answers import Answer, AnswerKind

BINDING = FenceBinding(FencedKind.TOPIC, "orders", "User:app")
PART = PartitionToMove(
    *("orders", 0, "orders", Commit(8)),
    log_end=10,
    stable_end=10,
    end_there=9,
    place=Answer(AnswerKind.COPIED, 7, True),
)
GROUP = GroupToMove("pay", "A", "B", protocol_type="consumer", partitions=(PART,))
SHARES = GroupToMove("shares", "A", "B", protocol_type="share")
PREVIEW = RunPreview(
    goal=RecoveryGoal.CUTOVER,
    flow=Flow(ClusterAlias("A"), ClusterAlias("B")),
    topics=("orders",),
    fenced=("orders",),
    fence=FencePlan(FenceWanted("A", ("orders",), FenceWay.ACLS), bindings=(BINDING,)),
    ends={"orders-0": 1010},
    copied={"orders-0": 1000},
    groups=tuple(JudgedGroup(one, judge_at_ends(one)) for one in (GROUP, SHARES)),
    switch="dns",
    turns=True,
    coupled=("bills and orders together (transactional id pay-1)",),
    notes=(),
    refused=(),
)


def test_every_action_is_listed_in_order_with_positions() -> None:
    lines = PREVIEW.lines
    assert [line[:2] for line in lines if line[:1].isdigit()] == ["1.", "2.", "3.", "4.", "5.", "6."]
    text = "\n".join(lines)
    for part in (
        "cutover of A->B: 1 topic(s) move: orders",
        "DENY WRITE on topic orders for User:app",
        "orders-0: ends at 1,010, copied to 1,000",
        "orders-0  8 -> orders-0  7, exact",
        "group shares: left, it is a share group",
        "run dns switch",
        "stop A->B, and start B->A behind what it has brought",
        "lift the fence of producers on B, if one stands; A stays fenced",
        "transactions write to bills and orders together (transactional id pay-1)",
    ):
        assert part in text, part
    assert "refused" not in text


def test_without_a_hook_and_with_prefixes_the_operator_switches_and_both_flows_run() -> None:
    text = "\n".join(replace(PREVIEW, switch="", turns=False, refused=("A is away. Mend it.",)).lines)
    assert "nothing: send clients to B by hand" in text
    assert "5. B->A runs on" in text
    assert text.endswith("refused: A is away. Mend it.")


def test_programs_get_the_same() -> None:
    body = json.loads(json.dumps(PREVIEW.body))
    assert (body["ends"], body["copied_to"]) == ({"orders-0": 1010}, {"orders-0": 1000})
    assert body["fence"]["adds"] == ["DENY WRITE on topic orders for User:app"]
    assert [(one["group"], one["state"]) for one in body["groups"]] == [("pay", "ready"), ("shares", "left")]
    assert body["groups"][0]["partitions"]["orders-0"] == {
        "committed": 8,
        "goes_on_in": "orders-0",
        "goes_on_at": 7,
    }
