"""The page of metrics: what an operator reads there of a worker, and of one that copies more than a page may hold."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from mm2py.copying import states
from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.planning.steps import MERGE_ALL, MERGE_SMALL, PASS_REFUSED
from mm2py.flow import parse_flow
from mm2py.metrics.worker_numbers import (
    ConnectorSnapshot,
    FlowSnapshot,
    GroupSnapshot,
)
from mm2py.records.lag_seen import LagSeen
from mm2py.records.source_offset import StoredPosition
from mm2py.status.return_flow import ReturnFlow
from mm2py_rest.metrics.metric import Summary
from mm2py_rest.metrics.page import METRICS, render
from mm2py_rest.metrics.values import ALL, STATES
from tests.fakes.metrics_page import Page
from tests.fakes.worker_snapshot import NOW_MS, NOW_S, checkpoints, copied, flow, many, worker

ROOT = Path(__file__).resolve().parents[3]
LATENCY = "kafka_connect_mirror_mirrorsourceconnector_replication_latency_ms"
RECORDS = "kafka_connect_mirror_mirrorsourceconnector_record_count"


def test_each_metric_is_on_the_page_once_with_its_meaning() -> None:
    text = Page(worker()).text
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# HELP ")]
    assert names == [metric.name for metric in METRICS]
    assert [name for name, times in Counter(names).items() if times > 1] == []
    assert all(metric.help.endswith(".") for metric in METRICS)


def test_a_flow_that_leads_back_is_on_the_page_only_while_a_cutover_can_be_undone() -> None:
    back = parse_flow("B->A")
    name = "mm2py_recovery_return_flow_dead"
    for dead, value in (("no worker runs it", 1.0), ("", 0.0)):
        text = render(worker(), partitions_max=10, return_flows=[ReturnFlow(back, dead)]).decode()
        assert f'{name}{{flow="B->A"}} {value}' in text
    assert f"{name}{{" not in render(worker(), partitions_max=10).decode()


def test_no_series_is_on_the_page_twice() -> None:
    series = [(one.name, tuple(sorted(one.labels.items()))) for one in Page(many(30, topics=4)).samples]
    assert [one for one, times in Counter(series).items() if times > 1] == []


def test_a_partition_has_the_numbers_of_mirrormaker_2_under_the_name_of_its_remote_topic() -> None:
    page = Page(worker(flow([copied(records=20, newest_ms=NOW_MS - 500)])))
    at = {"source": "A", "target": "B", "topic": "A.orders", "partition": "0"}
    assert page.labels(RECORDS) == [at]
    assert page.value(RECORDS, **at) == 20
    assert page.value("kafka_connect_mirror_mirrorsourceconnector_byte_count", **at) == 2000
    assert page.value("kafka_connect_mirror_mirrorsourceconnector_record_rate", **at) == pytest.approx(20 / 30)
    for suffix in ("", "_avg", "_min", "_max"):
        assert page.value(f"{LATENCY}{suffix}", **at) == 500
        age = page.value(f"kafka_connect_mirror_mirrorsourceconnector_record_age_ms{suffix}", **at)
        assert age == pytest.approx(300)


def test_the_numbers_of_mirrormaker_2_are_gauges_totals_included() -> None:
    kinds = {family.name: family.type for family in Page(worker()).families}
    mirror = {name: kind for name, kind in kinds.items() if name.startswith("kafka_connect_mirror_")}
    assert len(mirror) == 16
    assert set(mirror.values()) == {"gauge"}


def test_a_partition_of_which_nothing_was_copied_has_no_latency_and_no_lag_in_seconds() -> None:
    page = Page(worker(flow([copied(records=0, end=7)])))
    assert math.isnan(page.value(f"{LATENCY}_avg"))
    assert page.value(LATENCY) == 0
    assert page.value("mm2py_lag_records") == 7
    assert page.labels("mm2py_lag_seconds") == page.labels("mm2py_lag_bytes") == []


def test_before_a_worker_has_copied_anything_the_stored_position_tells_the_age() -> None:
    stored = StoredPosition(3, newest_ms=NOW_MS - 60_000, record_bytes=100)
    at_it = copied(records=0, end=12, start=3, stored=stored)
    assert Page(worker(flow([at_it]))).value("mm2py_lag_records") == 9
    assert Page(worker(flow([at_it]))).value("mm2py_lag_seconds") == 60.0

    has_copied = copied(records=5, end=12, start=3, stored=stored, newest_ms=NOW_MS - 4000)
    assert Page(worker(flow([has_copied]))).value("mm2py_lag_seconds") == 4.0

    silent = copied(records=0, end=None, start=3, stored=stored)
    assert Page(worker(flow([silent]))).labels("mm2py_lag_seconds") == [], "as the records are"
    of_mm2 = copied(records=0, end=12, start=3, stored=StoredPosition(3))
    assert Page(worker(flow([of_mm2]))).labels("mm2py_lag_seconds") == []


def test_a_partition_that_starts_before_its_stored_position_has_no_lag_in_seconds() -> None:
    """The target has lost what was copied last: how old the last of the rest is, is not known."""
    set_back = copied(records=0, end=12, start=2, stored=StoredPosition(3, newest_ms=NOW_MS - 60_000))
    assert Page(worker(flow([set_back]))).labels("mm2py_lag_seconds") == []


def test_a_partition_that_was_not_read_yet_has_no_lag() -> None:
    assert Page(worker(flow([copied(records=0, end=None)]))).labels("mm2py_lag_records") == []


def test_lag_is_told_in_records_in_seconds_and_about_in_bytes() -> None:
    page = Page(worker(flow([copied(records=20, end=50, newest_ms=NOW_MS - 4000)])))
    assert page.value("mm2py_lag_records", flow="A->B", topic="orders", partition="0") == 30
    assert page.value("mm2py_lag_seconds") == 4.0
    assert page.value("mm2py_lag_bytes") == 3000
    behind_nothing = Page(worker(flow([copied(records=20, end=20, newest_ms=NOW_MS - 4000)])))
    assert behind_nothing.value("mm2py_lag_seconds") == behind_nothing.value("mm2py_lag_bytes") == 0


def behind(
    *,
    end: int,
    before: LagSeen | None,
    safe_ms: int | None = NOW_MS - 300_000,
    number: int = 0,
    newest_ms: int | None = None,
) -> CopiedPartition:
    """Return a partition that was copied to offset 20 and is behind since its safe time."""
    part = copied(number=number, end=end, newest_ms=NOW_MS - 500 if newest_ms is None else newest_ms)
    part.safe.at_ms = safe_ms
    if before is not None:
        part.lag_trend.keep(before)
    part.look_at_lag(NOW_S, NOW_MS)
    return part


def test_a_topic_says_how_fast_its_lag_moves_since_when_and_when_it_is_caught_up() -> None:
    growing = behind(end=120, before=LagSeen(NOW_MS - 10_000, 70, 20, NOW_MS - 10_500))
    page = Page(worker(flow([growing, copied(number=1)])))
    assert page.labels("mm2py_lag_growth_records_per_second") == [{"flow": "A->B", "topic": "orders"}]
    assert page.value("mm2py_lag_growth_records_per_second") == 5.0
    assert page.value("mm2py_lag_catch_up_seconds") == math.inf
    assert page.value("mm2py_lag_since_seconds") == NOW_MS / 1000 - 300
    assert page.labels("mm2py_lag_expires_seconds") == page.labels("mm2py_lag_retention_ratio") == []

    shrinking = behind(end=120, before=LagSeen(NOW_MS - 10_000, 120, 0, NOW_MS - 90_000))
    page = Page(worker(flow([shrinking])))
    assert (page.value("mm2py_lag_growth_records_per_second"), page.value("mm2py_lag_catch_up_seconds")) == (-2.0, 50.0)

    unknown = Page(worker(flow([behind(end=120, before=None)])))
    assert unknown.labels("mm2py_lag_growth_records_per_second") == unknown.labels("mm2py_lag_catch_up_seconds") == []


def test_a_topic_that_keeps_up_is_told_to_be_well_and_one_that_is_not_read_is_not() -> None:
    """An alert that has fired must end: missing series would leave it to chance."""
    page = Page(worker())
    assert page.value("mm2py_lag_growth_records_per_second") == page.value("mm2py_lag_catch_up_seconds") == 0
    assert (page.value("mm2py_lag_retention_ratio"), page.value("mm2py_lag_expires_seconds")) == (0, math.inf)
    assert page.labels("mm2py_lag_since_seconds") == []
    page = Page(worker(flow([copied(), copied(number=1, records=0, end=None)])))
    for name in ("growth_records_per_second", "catch_up_seconds", "retention_ratio", "expires_seconds"):
        assert page.labels(f"mm2py_lag_{name}") == [], name


def test_a_topic_says_when_the_source_deletes_what_is_not_copied() -> None:
    standing = behind(end=120, before=LagSeen(NOW_MS - 10_000, 70, 20), newest_ms=NOW_MS - 300_500)
    page = Page(worker(flow([standing], retentions=(("orders", 1_200_000, None),))))
    assert page.value("mm2py_lag_retention_ratio") == pytest.approx(0.25, abs=0.01)
    assert page.value("mm2py_lag_expires_seconds") == pytest.approx(900, abs=1)
    compacted = Page(worker(flow([standing], retentions=(("orders", None, None),))))
    assert (compacted.value("mm2py_lag_retention_ratio"), compacted.value("mm2py_lag_expires_seconds")) == (0, math.inf)


def test_a_record_that_comes_to_a_topic_at_rest_is_not_as_old_as_the_one_before() -> None:
    """The topic rested for ten hours; then a record came, and the target does not take it for five minutes."""
    rested = behind(end=21, before=LagSeen(NOW_MS - 10_000, 21, 20), newest_ms=NOW_MS - 36_000_000)
    rested.meter.latency_ms = 200.0
    page = Page(worker(flow([rested], retentions=(("orders", 3_600_000, None),))))
    assert page.value("mm2py_lag_retention_ratio") == pytest.approx(300.2 / 3600)
    rested.meter.latency_ms = 36_000_000.0  # timestamps of this topic are ten hours old when records come
    page = Page(worker(flow([rested], retentions=(("orders", 3_600_000, None),))))
    assert page.value("mm2py_lag_retention_ratio") == 10.0


def test_partitions_beyond_the_bound_share_a_series_for_each_topic_and_are_counted() -> None:
    whole, bounded = Page(many(40, topics=4)), Page(many(40, topics=4), partitions_max=15)
    assert whole.value("mm2py_partitions_left_out") == 0
    assert bounded.value("mm2py_partitions_left_out") == 25
    labels = bounded.labels(RECORDS)
    assert len([one for one in labels if one["partition"] != ALL]) == 15
    assert [one["topic"] for one in labels if one["partition"] == ALL] == ["A.t0001", "A.t0002", "A.t0003"]
    for name in (RECORDS, "mm2py_lag_records", "kafka_consumer_fetch_manager_records_lag"):
        total = sum(one.value for one in whole.samples if one.name == name)
        assert sum(one.value for one in bounded.samples if one.name == name) == total
    highest = max(one.value for one in whole.samples if one.name == "mm2py_lag_seconds")
    assert max(one.value for one in bounded.samples if one.name == "mm2py_lag_seconds") == highest


def test_the_bound_may_be_zero() -> None:
    assert [one["partition"] for one in Page(many(8, topics=2), partitions_max=0).labels(RECORDS)] == [ALL, ALL]


def test_counters_of_a_topic_do_not_go_back_when_a_partition_moves_to_another_worker() -> None:
    first, second = copied(number=0, records=20), copied(number=1, records=5)
    first.copier.tally.dropped["quarantined"] = 2
    before, after = Page(worker(flow([first, second]))), Page(worker(flow([second], departed=[first])))
    for name, labels in (
        ("mm2py_batches_total", {"how": "pass"}),
        ("mm2py_quarantined_records_total", {}),
        ("mm2py_append_to_fetch_seconds_count", {}),
        ("mm2py_append_to_fetch_seconds_sum", {}),
        ("mm2py_fetch_to_acknowledgement_seconds_sum", {}),
        ("kafka_connect_source_task_source_record_write_total", {}),
    ):
        assert before.value(name, **labels) == after.value(name, **labels) > 0, name


def test_latency_is_split_at_the_fetch() -> None:
    page = Page(worker(flow([copied(records=20, newest_ms=NOW_MS - 500)])))
    at = {"flow": "A->B", "topic": "orders"}
    assert page.value("mm2py_append_to_fetch_seconds_count", **at) == 20
    assert page.value("mm2py_append_to_fetch_seconds_sum", **at) == pytest.approx(20 * 0.3)
    assert page.value("mm2py_fetch_to_acknowledgement_seconds_sum", **at) == pytest.approx(20 * 0.2)


def test_partitions_are_counted_by_state_and_stalled_ones_apart() -> None:
    stalled = copied(number=1)
    stalled.stalled = "the target does not answer"
    page = Page(worker(flow([copied(number=0), stalled])))
    assert page.value("mm2py_flow_partitions", state="copying") == 2
    assert page.value("mm2py_flow_partitions", state="reconciling") == 0
    assert page.value("mm2py_flow_stalled_partitions", flow="A->B") == 1


def test_states_of_the_page_are_those_that_a_copier_has() -> None:
    kinds = [kind for kind in vars(states).values() if isinstance(kind, type) and issubclass(kind, states.State)]
    assert {kind.__name__.lower() for kind in kinds} - {"state", "ending"} == set(STATES)


def test_a_flow_says_whether_it_is_exactly_once() -> None:
    degraded = "at-least-once (no right to transactional ids)"
    assert Page(worker(flow())).value("mm2py_flow_exactly_once") == 1
    assert Page(worker(flow(guarantee="exactly-once (others write to A.orders as well)"))).value(
        "mm2py_flow_exactly_once"
    )
    assert Page(worker(flow(guarantee=degraded))).value("mm2py_flow_exactly_once") == 0
    assert "mm2py_flow_exactly_once{" not in Page(worker(flow(guarantee=""))).text, "before the source has answered"


def test_how_batches_travel_is_told_with_the_reason() -> None:
    rules = {"auto": MERGE_SMALL, "pass": PASS_REFUSED, "repack": MERGE_ALL}
    for mode, rule in rules.items():
        part = copied()
        part.reading.merging = rule
        page = Page(worker(flow([part])))
        assert page.value("mm2py_copy_mode_partitions", topic="orders", mode=mode, why=rule.why) == 1


def test_a_worker_that_has_not_joined_its_group_shows_that_and_counts_as_rebalancing() -> None:
    page = Page(worker(groups=(GroupSnapshot("B", "mm2py", ""),)))
    assert page.value("mm2py_group_member_state", state="preparing") == 1
    assert page.value("mm2py_group_has_leader") == 0
    assert page.value("kafka_connect_worker_rebalance_rebalancing") == 1
    assert Page(worker()).value("kafka_connect_worker_rebalance_rebalancing") == 0


def test_a_connector_that_failed_is_shown_as_failed() -> None:
    failed = worker(connectors=(ConnectorSnapshot("A->B", "MirrorSourceConnector", "failed", 3),))
    page = Page(failed)
    assert page.labels("kafka_connect_connector_status") == [
        {"connector": '"A->B.MirrorSourceConnector"', "task": "0", "status": "failed"}
    ]
    assert page.value("kafka_connect_worker_connector_count") == 0
    assert page.value("kafka_connect_worker_connector_failed_task_count") == 1
    assert page.value("mm2py_connector_starts_total") == 3


def test_a_task_of_which_a_partition_has_failed_is_failed_as_over_rest() -> None:
    denied = Page(worker(flow([copied()], not_copied=(("source-denied", 0, 1),))))
    connector = '"A->B.MirrorSourceConnector"'
    assert denied.value("kafka_connect_connector_status", connector=connector, status="failed") == 1
    waiting = Page(worker(flow([copied()], not_copied=(("no-leader", 0, 1), ("refused", 1, 0)))))
    assert waiting.value("kafka_connect_connector_status", connector=connector, status="running") == 1


def test_a_worker_without_flows_has_a_page() -> None:
    idle = worker(flow(), connectors=(), checkpoints=(), paths=(), gaps=(), groups=())
    assert Page(idle).value("process_cpu_seconds_total") == 12.5


def test_a_flow_that_is_prepared_has_a_page() -> None:
    page = Page(worker(FlowSnapshot("A", "B", "starting", "exactly-once", 0.0)))
    assert page.value("mm2py_flow_state", flow="A->B", state="starting") == 1
    assert math.isnan(page.value("kafka_connect_connector_task_offset_commit_avg_time_ms"))


def test_connections_over_a_long_link_are_told_with_what_bounds_the_rate() -> None:
    page = Page(worker(flow([copied()])))
    assert page.value("mm2py_flow_connections", flow="A->B", limit="the link") == 14
    assert page.value("mm2py_flow_partitions_from_followers", flow="A->B") == 2
    assert page.labels("mm2py_flow_connections") == [{"flow": "A->B", "limit": "the link"}]


def test_a_flow_over_one_connection_tells_no_number() -> None:
    assert Page(worker(flow([copied()], link=None))).labels("mm2py_flow_connections") == []


def test_groups_whose_checkpoints_have_no_series_are_counted() -> None:
    told = checkpoints(("readers", "A.orders", 0), ("payers", "A.orders", 0), groups=5)
    page = Page(worker(checkpoints=(told, checkpoints(groups=2))))
    assert page.value("mm2py_checkpoints_left_out") == 3 + 2


def test_label_values_are_kept_whatever_a_group_is_called() -> None:
    name = 'a"b\\c\nd'
    page = Page(worker(checkpoints=(checkpoints((name, "A.orders", 0)),)))
    latency = "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms"
    assert page.labels(latency)[0]["group"] == name
    assert page.value(latency) == 7.0


# --- docs/metrics.md --------------------------------------------------------------------------------------------------


def table() -> list[str]:
    """Return the lines of the table in docs/metrics.md."""
    lines = ["| name | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        name = f"{metric.name}_count, {metric.name}_sum" if isinstance(metric, Summary) else metric.name
        lines.append(
            f"| {', '.join(f'`{one}`' for one in name.split(', '))} | {metric.kind} | {labels} | {metric.help} |"
        )
    return lines


def test_the_documented_table_is_that_of_the_page() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    shown = [line for line in text.splitlines() if line.startswith("| ")]
    assert shown == table(), "\n".join(table())
