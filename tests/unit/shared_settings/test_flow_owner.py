"""Who may have a flow, as a function of what the control logs say."""

from __future__ import annotations

import pytest

from mm2py.flow import parse_flow
from mm2py.group.group_look import GroupLook
from mm2py.records.owner_record import Owner
from mm2py.shared_settings.flow_owner import Free, OwnerUnknown, RunByGroup, other_groups, verdict

FLOW = parse_flow("A->B")
OWNER = Owner("mm2py", "host:7", 1_790_000_000_000, "a")
ALIVE = GroupLook("mm2py", running=("host:7", "host:8"))
DEAD = GroupLook("mm2py")
UNREAD = GroupLook("mm2py", unread="It may not be read.", remedy="Grant READ.")


def test_a_group_whose_owner_has_live_workers_is_refused_by_name_with_the_way_out() -> None:
    with pytest.raises(RunByGroup) as refused:
        verdict(FLOW, "laptop", OWNER, [ALIVE])
    assert str(refused.value) == (
        "Flow A->B is refused: group mm2py runs it (2 live workers, claimed 2026-09-21T14:13:20Z by host:7)."
        " Set mm2py.group = mm2py in this file to join it. Or stop its workers, and start again: group laptop then"
        " takes the flow over."
    )


@pytest.mark.parametrize("look", [DEAD, GroupLook("mm2py", is_missing=True)])
def test_a_group_without_a_live_worker_gives_way(look: GroupLook) -> None:
    assert verdict(FLOW, "laptop", OWNER, [look]) == Free(look)


def test_an_owner_whose_control_log_cannot_be_read_keeps_the_flow_and_the_right_to_grant_is_named() -> None:
    with pytest.raises(OwnerUnknown, match=r"group mm2py may run it.*It may not be read\. Grant READ\.") as refused:
        verdict(FLOW, "laptop", OWNER, [UNREAD])
    way_out = "If no worker of group mm2py runs any more, delete topic mm2-cluster.mm2py.internal and start again."
    assert refused.value.remedy == f"Grant READ. {way_out}"


def test_a_flow_without_an_owner_is_free_where_no_other_group_runs_it() -> None:
    assert verdict(FLOW, "laptop", None, [DEAD, GroupLook("other", is_missing=True)]) == Free()
    assert verdict(FLOW, "laptop", None, []) == Free()


def test_a_flow_without_an_owner_that_another_group_runs_is_not_taken() -> None:
    with pytest.raises(RunByGroup, match=r"group mm2py runs it \(1 live worker: host:7\)"):
        verdict(FLOW, "laptop", None, [GroupLook("another"), GroupLook("mm2py", running=("host:7",))])


def test_a_group_that_runs_the_flow_is_named_before_one_that_cannot_be_read() -> None:
    unread = GroupLook("another", unread="It may not be read.", remedy="Grant READ.")
    with pytest.raises(RunByGroup, match="group mm2py runs it"):
        verdict(FLOW, "laptop", None, [unread, ALIVE])


def test_groups_are_found_by_their_control_logs() -> None:
    topics = ["mm2-cluster.mm2py.internal", "mm2-cluster.a.b.internal", "mm2-cluster.laptop.internal"]
    others = ["orders", "mm2-cluster.internal", "A.mm2-cluster.mm2py.internal", "mm2-clusterxmm2pyxinternal"]
    assert other_groups([*topics, *others], "laptop") == ["a.b", "mm2py"]
