"""What the benches of several workers say of what they saw: shares, gaps in arrivals, partitions that stood still."""

from __future__ import annotations

import pytest

from bench import arrivals, failover_beside, moves, new_topic, workers
from bench.fault_mirrors import MM2PY, Plan, properties
from bench.measure import Reading
from bench.owners import assigned_since
from bench.runs import Run
from bench.workloads import UNCOMPRESSED
from mm2py.flow import Kind, parse_flow
from mm2py.records.control_record import (
    Assigned,
    Beat,
    Claim,
    ControlRecord,
    Entry,
    Joined,
    Listed,
    MemberId,
    Released,
    TaskName,
)

FLOW = parse_flow("A->B")
ONE, TWO = MemberId("0a"), MemberId("0b")
FACTS = {"date": "2026-11-22", "machine": {"cores": 2}}


# Several workers


def _joined(member: MemberId) -> Joined:
    return Joined(member, "host", "1", "", (FLOW,), (), {}, "cluster", "log", 3_000)


def _partition(number: int) -> TaskName:
    return TaskName(FLOW, Kind.SOURCE, "orders", number)


def _log(*records: ControlRecord) -> list[Entry]:
    """Return the entries of a log, a second apart, the first at 1,000 ms."""
    return [Entry(at, (at + 1) * 1_000, record) for at, record in enumerate(records)]


def _reading(at_s: float, copied: int) -> Reading:
    return Reading(at_s, copied, at_s * 0.5, at_s * 0.1, at_s * 0.4, at_s, at_s)


def test_each_round_begins_with_another_number_of_workers() -> None:
    assert [workers.order_of(number, [1, 2, 4]) for number in range(4)] == [[1, 2, 4], [2, 4, 1], [4, 1, 2], [1, 2, 4]]


HEARTBEATS = TaskName(FLOW, Kind.SOURCE, "heartbeats", 0)
BEGUN = (
    *(_joined(ONE), _joined(TWO), Claim(ONE, 1, "c1"), Assigned(ONE, 1, 1, {TaskName(FLOW, Kind.SOURCE): ONE})),
    Listed(ONE, FLOW, {"orders": 2, "heartbeats": 1}),
)


def test_partitions_are_assigned_once_both_workers_have_some_and_wait_for_nobody() -> None:
    log = _log(
        *BEGUN,
        Assigned(ONE, 1, 2, {_partition(0): ONE, _partition(1): ONE, HEARTBEATS: TWO}),
        Assigned(ONE, 1, 3, {_partition(1): TWO}),
        Beat(ONE),
        Released(ONE, 3, frozenset([_partition(1)])),
        Beat(TWO),
    )
    assert assigned_since(log, "orders", partitions=2, workers=2) == (9_000, 0)
    assert assigned_since(log[:8], "orders", partitions=2, workers=2) == (None, 0)
    assert assigned_since(log, "orders", partitions=2, workers=1) == (None, 0)


def test_partitions_that_move_after_all_was_shared_are_counted() -> None:
    log = _log(
        *BEGUN,
        Assigned(ONE, 1, 2, {_partition(0): ONE, _partition(1): TWO, HEARTBEATS: ONE}),
        Assigned(ONE, 1, 3, {_partition(0): TWO, HEARTBEATS: TWO}),
        Beat(ONE),
    )
    assert assigned_since(log, "orders", partitions=2, workers=2) == (6_000, 1)


def test_before_all_is_shared_the_steady_time_has_not_started() -> None:
    readings = [_reading(at_s, copied) for at_s, copied in ((1, 0), (2, 1_000), (4, 3_000), (8, 8_000))]
    found = workers.steady_measures(UNCOMPRESSED, readings, 3.0, _reading(9.0, 13_000))
    assert found["records_per_s"] == pytest.approx(2_000)
    assert found["mb_per_s"] == pytest.approx(2.048)
    assert found["cpu_s_per_million_steady"] == pytest.approx(250)
    assert found["source_cpu_steady"] == pytest.approx(50)
    assert found["target_cpu_steady"] == pytest.approx(200)
    assert found["cores"] == pytest.approx(1.0)


def test_steady_time_begins_with_the_first_record_where_all_was_shared_before() -> None:
    readings = [_reading(1, 0), _reading(2, 0), _reading(4, 1_000)]
    found = workers.steady_measures(UNCOMPRESSED, readings, 0.5, _reading(9.0, 11_000))
    assert found["records_per_s"] == pytest.approx(2_000)


def test_a_copy_that_was_complete_before_all_was_shared_has_no_steady_time() -> None:
    assert workers.steady_measures(UNCOMPRESSED, [_reading(1, 500)], 2.0, _reading(1.5, 1_000)) == {}


def test_the_table_of_workers_says_how_many_times_one_worker_each_number_copies() -> None:
    runs = [
        Run("workers", workers.name_of(count), number, 10, {"mb_per_s": rate, "other_cpu_percent": 3.0})
        for count, rates in ((1, (90.0, 100.0, 150.0)), (2, (170.0, 180.0)))
        for number, rate in enumerate(rates)
    ]
    page = workers.report([*runs, Run("workers", "4 workers", 0, 10, failed="ended")], UNCOMPRESSED, [1, 2, 4], FACTS)
    (one, two, four) = [line for line in page.splitlines() if line.startswith(("| 1", "| 2", "| 4"))][:3]
    assert one.endswith("| 1.00x |")
    assert "| 100 (90–150) |" in one
    assert two.endswith("| 1.75x |")
    assert four.endswith("| - |")
    assert "Round 1, 4 workers, failed: ended" in page
    assert "3 % of a core at most" in page


# A new topic


def test_a_gap_that_reaches_into_a_window_counts_whole_and_one_before_it_does_not() -> None:
    assert arrivals.longest_gap_s([1.0, 9.0, 10.5, 11.0, 19.8], 10.0, 20.0) == pytest.approx(8.8)
    assert arrivals.longest_gap_s([1.0, 9.9, 10.0, 10.1], 10.0, 10.1) == pytest.approx(0.1)
    assert arrivals.longest_gap_s([4.0, 10.5, 11.0], 10.0, 11.0) == pytest.approx(6.5)


def test_a_partition_that_never_goes_on_has_a_gap_up_to_the_end_of_the_window() -> None:
    assert arrivals.longest_gap_s([9.0, 9.9, 12.0], 10.0, 20.0) == pytest.approx(8.0)
    assert arrivals.longest_gap_s([9.0], 10.0, 20.0) == pytest.approx(11.0)
    assert arrivals.longest_gap_s([], 10.0, 20.0) == pytest.approx(10.0)


def test_the_longest_gap_of_any_partition_is_compared_with_the_quiet_window_before() -> None:
    steady = [at / 10 for at in range(400)]
    held_up = [at for at in steady if not 20.5 < at < 22.0]
    found = new_topic.gap_measures({("A.a", 0): steady, ("A.b", 0): steady, ("A.c", 0): held_up}, steady, 20.0, 10.0)
    assert found["quiet_s"] == pytest.approx(0.1)
    assert found["around_s"] == pytest.approx(1.5)
    assert found["more_s"] == pytest.approx(1.4)
    assert found["around_median_s"] == pytest.approx(0.1)
    assert found["around_writer_s"] == pytest.approx(0.1)


def test_the_sample_is_spread_over_all_topics() -> None:
    assert new_topic.sampled(1_000, 4) == ["topic-0000", "topic-0250", "topic-0500", "topic-0750"]
    assert len(set(new_topic.sampled(1_000, 100))) == 100


def test_the_page_of_a_new_topic_names_the_longest_gap_of_all_creations() -> None:
    runs = [Run("new topic", "mm2py", at, 1_000, {"around_s": gap}) for at, gap in enumerate((0.1, 0.2, 0.9))]
    page = new_topic.report([*runs, Run("new topic", "mm2py", 3, 1_000, failed="late")], 1_000, 100, 10.0, FACTS)
    assert f"| {new_topic.ROWS['around_s']} | 0.200 s | 0.900 s |" in page
    assert page.endswith("Creation 4 failed: late\n")


# Planned moves


def test_the_gaps_of_what_moved_stand_beside_those_of_what_stayed_and_of_a_quiet_time_before() -> None:
    steady = [at / 10 for at in range(400)]
    held_up = [at for at in steady if not 20.55 < at < 21.25]
    before, after = {0: "w1", 1: "w1", 2: "w2"}, {0: "w1", 1: "w3", 2: "w2"}
    found = moves.move_measures({0: steady, 1: held_up, 2: steady}, steady, (20.0, 25.0), before, after)
    assert found["moved-1"] == pytest.approx(0.8)
    assert found["stayed-0"] == found["stayed-2"] == found["quiet-1"] == pytest.approx(0.1)
    assert found["writer"] == pytest.approx(0.1)
    assert "moved-0" not in found


def test_the_table_of_moves_counts_each_partition_of_each_move_and_tells_a_missed_goal() -> None:
    gaps_s = [0.1] * 8 + [0.3, 1.5]
    runs = [
        Run("stop", "mm2py", at, 24, {"moved-0": gap, "stayed-1": 0.06, "quiet-0": 0.05, "writer": 0.05})
        for at, gap in enumerate(gaps_s)
    ]
    runs.append(Run("join", "mm2py", 0, 24, {"moved-3": 0.2, "moved-4": 0.4, "stayed-1": 0.06}))
    page = moves.report(runs, FACTS)
    assert "| a worker stops: partitions that moved | 10 | 0.100 s | 1.500 s | 1.500 s |" in page
    assert "| a worker joins: partitions that moved | 2 | 0.200 s | 0.400 s | 0.400 s |" in page
    assert "| a worker joins | less than 1 s | 0.400 s | held |" in page
    assert "| a worker stops | less than 1 s | 1.500 s | **missed** |" in page


# Failover beside MirrorMaker 2

ASSIGNED = (
    "10:00:00.000 [DistributedHerder-connect-1] INFO DistributedHerder - [Worker clientId=sx->tx, groupId=sx-mm2] "
    "Joined group at generation 3 with protocol version 2 and got assignment: Assignment{{error=0, "
    "offset=9, connectorIds=[MirrorSourceConnector], taskIds=[{tasks}], revokedConnectorIds=[], "
    "revokedTaskIds=[MirrorSourceConnector-3], delay=0}} with rebalance delay: 0"
)


def test_a_worker_of_mm2_has_the_copying_tasks_of_its_last_assignment_in_that_flow() -> None:
    first = ASSIGNED.format(tasks="MirrorSourceConnector-0, MirrorSourceConnector-1")
    last = ASSIGNED.format(tasks="MirrorSourceConnector-2, MirrorHeartbeatConnector-0, MirrorSourceConnector-0")
    other = ASSIGNED.format(tasks="MirrorSourceConnector-1").replace("clientId=sx->tx", "clientId=tx->sx")
    found = failover_beside.source_tasks("\n".join([first, last, other, "something else"]), "sx->tx")
    assert found == ["MirrorSourceConnector-2", "MirrorSourceConnector-0"]
    assert failover_beside.source_tasks(ASSIGNED.format(tasks=""), "sx->tx") == []


def test_tasks_are_assigned_when_each_has_one_worker_and_each_worker_one_at_least() -> None:
    assert failover_beside.tasks_are_assigned([["t-0", "t-1", "t-2"], ["t-3"]], 4)
    assert not failover_beside.tasks_are_assigned([["t-0", "t-1", "t-2", "t-3"], []], 4)
    assert not failover_beside.tasks_are_assigned([["t-0", "t-1"], ["t-2"]], 4)
    assert not failover_beside.tasks_are_assigned([["t-0", "t-1", "t-2", "t-3"], ["t-3"]], 4)


def test_the_partitions_of_the_dead_worker_are_those_that_stood_still() -> None:
    found = failover_beside.stood_still({0: 100.02, 1: 103.5, 2: 100.9, 3: 104.0}, 100.0)
    assert found == {1: pytest.approx(3.5), 3: pytest.approx(4.0)}


def test_only_the_delay_tells_the_two_mm2_apart() -> None:
    files = {}
    for setup in failover_beside.SETUPS:
        plan = Plan(
            *(setup.mirror, "x", "source:1", "target:1", ["orders"]),
            source_replicas=1,
            target_replicas=1,
            mm2_settings=failover_beside.mm2_settings(setup, 8_083),
        )
        files[setup.name] = properties(plan, rest_port=8_083)
    assert files["mm2-0"].items() - files["mm2"].items() == {("tx.scheduled.rebalance.max.delay.ms", "0")}
    assert files["mm2"]["dedicated.mode.enable.internal.rest"] == "true"
    assert not {name for name in files[MM2PY] if "rest" in name or "tasks.max" in name}


def test_a_kill_that_was_not_got_over_is_counted_and_told() -> None:
    measures = [{"partitions": 12.0, "first_s": 1.0, "last_s": last_s} for last_s in (3.0, 9.0, 5.0)]
    runs = [Run("failover", "mm2", number, 24, each) for number, each in enumerate(measures)]
    page = failover_beside.report([*runs, Run("failover", "mm2", 3, 24, failed="no record within 400 s")], FACTS)
    assert "| MM2, defaults | 4 | 12 | 1.00 s | 3.00 s | 5.00 s | 9.00 s | 1 |" in page
    assert "* MM2, defaults, kill 4: no record within 400 s" in page
    assert "| mm2py | 0 | - | - | - | - | - | 0 |" in page
