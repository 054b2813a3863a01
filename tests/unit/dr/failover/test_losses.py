"""What a failover loses, and where the copies of a flow end."""

from __future__ import annotations

from mm2py.copying.recovery import LastWriter, Tail
from mm2py.dr.failover.cutting_off import by_name, copies_left, moved
from mm2py.dr.failover.losses import FailoverLoss, LostPartition, lost_partitions
from mm2py.dr.failover.placing import FailoverPoint
from mm2py.dr.failover.preview import FailoverPreview
from mm2py.flow import ClusterAlias, Flow
from mm2py.records.source_offset import StoredPosition

KEY = ("orders", 0)
AT = StoredPosition(next_source=100, next_target=90, source_end=130, source_leader_epoch=3)


def tail(stored: int, end: int) -> Tail:
    found = Tail(90, LastWriter(1, 0, 0), fence_epoch=1)
    found.stored, found.next_offset, found.is_whole = stored, end, True
    return found


def test_everything_from_the_next_source_offset_on_is_lost() -> None:
    positions = {KEY: AT, ("orders", 1): StoredPosition(next_source=7), ("other", 0): AT}
    first, second = lost_partitions(positions, ["orders"])
    assert (first, second) == (LostPartition("orders-0", 100, 130), LostPartition("orders-1", 7, None))
    assert (first.count, second.count, LostPartition("x-0", 140, 130).count) == (30, 0, 0)
    assert first.line == "orders-0  from 100 on; it ended at 130 when last seen: 30 record(s)"
    assert second.line == "orders-1  from 7 on; its end was not seen: 0 record(s)"


def test_the_loss_is_told_with_records_seconds_partitions_and_groups() -> None:
    loss = FailoverLoss((LostPartition("orders-0", 100, 130),), 12.34, 5_000, ("logs are not copied",), ("pay",))
    assert loss.lines(17_340) == [
        "lost: 30 record(s) that workers have seen, and what came later; 12.3 s: what was written since 00:00:05.0 UTC",
        "     orders-0  from 100 on; it ended at 130 when last seen: 30 record(s)",
        "     logs are not copied",
        "     groups that read these topics: pay",
    ]
    unknown = FailoverLoss((), None, None, (), ())
    assert unknown.lines(0) == [
        "lost: 0 record(s) that workers have seen, and what came later; since when is not known",
        "     groups that read these topics: none is known",
    ]
    assert loss.body["partitions"] == {"orders-0": {"lost_from": 100, "source_end": 130}}


def test_a_drained_partition_is_copied_to_its_position() -> None:
    found = copies_left({KEY: AT}, {}, {KEY: 91})
    assert (found.copied_to, found.target_ends, found.source_epochs) == (
        {"orders-0": 100},
        {"orders-0": 91},
        {"orders-0": 3},
    )
    assert found.at_least == ()


def test_what_a_killed_worker_has_written_behind_its_position_counts() -> None:
    found = copies_left({KEY: AT}, {KEY: tail(5, 96)}, {KEY: 97})
    assert found.copied_to == {"orders-0": 105}
    assert found.source_epochs == {}, "the epoch is that of another record"
    assert found.at_least == ("orders-0",)
    assert copies_left({KEY: AT}, {KEY: tail(0, 91)}, {KEY: 91}).source_epochs == {"orders-0": 3}


def test_where_clients_may_write_already_the_last_copy_is_the_end() -> None:
    assert copies_left({KEY: AT}, {}, None).target_ends == {"orders-0": 90}
    assert copies_left({KEY: AT}, {KEY: tail(5, 96)}, None).target_ends == {"orders-0": 96}
    assert copies_left({KEY: AT}, {}, {}).target_ends == {}, "the copy is not there"


def test_an_end_that_moves_or_is_not_told_is_named() -> None:
    assert moved({"orders-0": 5}, {"orders-0": 5, "orders-1": 9}) == []
    assert moved({"orders-0": 5}, {"orders-0": 6}) == ["orders-0 ended at 5, and ends at 6 now"]
    assert moved({"orders-0": 5}, {}) == ["orders-0 ended at 5, and no leader says where it ends now"]
    assert by_name({KEY: 5}) == {"orders-0": 5}


def test_the_plan_lists_every_step_and_what_forbids_it() -> None:
    found = FailoverPreview(
        flow=Flow(ClusterAlias("A"), ClusterAlias("B")),
        at_ms=0,
        topics=("orders",),
        point=FailoverPoint(),
        loss=FailoverLoss((), None, None, (), ()),
        groups=(),
        direction="on by its file",
        switch="dns",
        notes=("n",),
        refused=("r",),
    )
    assert found.lines == [
        "failover of A->B to latest: 1 topic(s): orders",
        "lost: 0 record(s) that workers have seen, and what came later; since when is not known",
        "     groups that read these topics: none is known",
        "1. mark A->B as ended on B (it is on by its file), wait until its workers stop, fence those that do not"
        " answer, and see that no end of a copy moves",
        "2. commit the groups on B; now:",
        "     no group",
        "3. look once more that A->B is ended, and then run dns switch",
        "4. lift the fence of producers on B, if one stands",
        "note: n",
        "refused: r",
    ]
    assert found.body["refused"] == ["r"]
