"""How ranges are cut into tasks, how a batch of a stream is limited, and what WHERE leaves out."""

from itertools import pairwise

from mm2py.backfill.frames.options import ClusterSide
from mm2py.backfill.frames.pairing import RangePairing
from mm2py.backfill.frames.pruning import Pruning
from mm2py.backfill.frames.ranges import LogRange, cut, limited
from mm2py.offsets.ledger import Ledger
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.runs import Hole, HoleCause, Run


def ranges(*bounds: tuple[int, int]) -> list[LogRange]:
    return [LogRange("t", None, number, start, end) for number, (start, end) in enumerate(bounds)]


def test_long_ranges_are_cut_without_a_hole_and_short_ones_stay_whole() -> None:
    found = cut(ranges((0, 10), (100, 1_000_100)), 8)
    assert found[0] == LogRange("t", None, 0, 0, 10)
    rest = found[1:]
    assert (len(rest), rest[0].start, rest[-1].end) == (8, 100, 1_000_100)
    assert all(one.end == other.start for one, other in pairwise(rest))


def test_fewer_records_than_tasks_make_a_task_each() -> None:
    assert [(one.start, one.end) for one in cut(ranges((5, 7)), 100)] == [(5, 6), (6, 7)]
    assert cut([], 4) == []


def test_each_partition_has_its_part_of_a_limited_batch() -> None:
    assert limited({0: 0, 1: 50}, {0: 900, 1: 150}, 100) == {0: 90, 1: 60}
    assert limited({0: 0}, {0: 900, 1: 4}, None) == {0: 900, 1: 4}
    assert limited({0: 0, 1: 3}, {0: 1_000_000, 1: 4}, 10) == {0: 9, 1: 4}  # one that is far behind starves no other
    assert limited({0: 7}, {0: 5}, None) == {0: 7}  # the log was cut back: reading says so when it goes on


def test_conditions_leave_out_partitions_offsets_and_what_is_older() -> None:
    pruning = Pruning()
    for condition in (("partition", "in", [0, 1]), ("partition", "=", 1), ("offset", ">", 19), ("offset", "<=", 29)):
        pruning.note(*condition)
    pruning.note("key", "=", b"x")
    pruning.note("timestamp", ">=", 7)
    pruning.note("timestamp", "<", 9)
    assert pruning.pruned(ranges((0, 100), (0, 100))) == [LogRange("t", None, 1, 20, 30)]
    assert pruning.since_ms == 7
    assert pruning.begun(ranges((5, 100)), {0: 40}) == ranges((40, 100))


def test_offsets_of_the_other_side_come_from_runs_only() -> None:
    ledger = Ledger(0, 0, is_whole=True)
    for entry in (Run(0, 0, 3), Hole(3, 3, 2, 2, HoleCause.COUNTED), Run(7, 6, 2)):
        ledger.append(entry)
    partition = PartitionLedger()
    partition.start(1, ledger)
    assert RangePairing(partition, ClusterSide.SOURCE, 0, 100).others([1, 2, 3, 7, 8, 9]) == [1, 2, None, 6, 7, None]
    assert RangePairing(partition, ClusterSide.TARGET, 0, 100).others([0, 4, 5, 6, 7]) == [0, None, None, 7, 8]


def test_the_newest_ledger_answers_first() -> None:
    older, newer = Ledger(0, 0, is_whole=True), Ledger(5, 10, is_whole=False)
    older.append(Run(0, 0, 10))
    newer.append(Run(5, 10, 5))
    partition = PartitionLedger()
    partition.start(1, older)
    partition.start(2, newer)
    assert RangePairing(partition, ClusterSide.SOURCE, 0, 100).others([4, 5, 9]) == [4, 10, 14]
    assert RangePairing(partition, ClusterSide.TARGET, 0, 100).others([4, 5, 10]) == [4, 5, 5]
