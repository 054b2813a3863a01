"""Strimzi's two dashboards for MirrorMaker 2 show data of mm2py, but for what only a JVM or a container runtime has.

Each line is what a panel asks for: the metric, the labels by which it selects (regular expressions that match a whole
value, as in Prometheus), and the labels by which it divides. Labels that a pod monitor adds are left out.
"""

from __future__ import annotations

import re

import pytest

from tests.fakes.metrics_page import Page
from tests.fakes.worker_snapshot import worker

Query = tuple[str, dict[str, str], tuple[str, ...]]

SOURCE = "kafka_connect_mirror_mirrorsourceconnector_"
CHECKPOINT = "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms"
GROUP = ("source", "target", "group", "topic", "partition")
CONSUMER = {"clientid": r'.*replication-consumer"'}

BOTH: list[Query] = [
    (f"{SOURCE}record_rate", {}, ()),
    (f"{SOURCE}byte_rate", {}, ()),
    *((f"{SOURCE}record_age_ms{suffix}", {}, ("partition", "topic")) for suffix in ("", "_avg", "_min", "_max")),
    *(
        (f"{SOURCE}replication_latency_ms{suffix}", {}, ("partition", "topic"))
        for suffix in ("", "_avg", "_min", "_max")
    ),
    (CHECKPOINT, {}, GROUP),
]
JMX_EXPORTER: list[Query] = [
    ("kafka_connect_worker_connector_count", {}, ()),
    ("kafka_connect_worker_task_count", {}, ()),
    ("kafka_consumer_fetch_manager_records_lag", CONSUMER, ("topic", "partition")),
    ("kafka_consumer_incoming_byte_total", {}, ()),
    ("kafka_producer_outgoing_byte_total", {}, ()),
    ("kafka_producer_buffer_available_bytes", {"clientid": r'".*SourceConnector-[0-9]+"'}, ("clientid",)),
    (
        "kafka_connect_connector_task_offset_commit_avg_time_ms",
        {"connector": r'".*SourceConnector"', "task": "[0-9]+"},
        (),
    ),
    ("kafka_connect_source_task_source_record_active_count", {"connector": r'".*SourceConnector"'}, ()),
    ("kafka_connect_coordinator_assigned_connectors", {}, ()),
    ("kafka_connect_coordinator_assigned_tasks", {}, ()),
    ("kafka_connect_worker_rebalance_rebalancing", {}, ()),
    ("kafka_connect_connector_status", {"status": "running"}, ("connector", "task", "status")),
]
METRICS_REPORTER: list[Query] = [
    ("kafka_connect_connect_worker_metrics_connector_count", {}, ()),
    ("kafka_connect_connect_worker_metrics_task_count", {}, ()),
    (
        "kafka_consumer_consumer_fetch_manager_metrics_records_lag",
        {"client_id": ".*replication-consumer"},
        ("topic", "partition"),
    ),
    ("kafka_consumer_consumer_metrics_incoming_byte", {}, ()),
    ("kafka_producer_producer_metrics_outgoing_byte", {}, ()),
    ("kafka_producer_producer_metrics_buffer_available_bytes", {}, ("client_id",)),
    (
        "kafka_connect_connector_task_metrics_offset_commit_avg_time_ms",
        {"connector": ".*SourceConnector", "task": "[0-9]+"},
        (),
    ),
    (
        "kafka_connect_source_task_source_record_active_count",
        {
            "_objectname": r'kafka.connect<type=source-task-metrics, connector=".*MirrorSourceConnector", task=1>'
            "<>source-record-active-count"
        },
        ("_objectname",),
    ),
    ("kafka_connect_connect_coordinator_metrics_assigned_connectors", {}, ()),
    ("kafka_connect_connect_coordinator_metrics_assigned_tasks", {}, ()),
    ("kafka_connect_connect_worker_rebalance_metrics_rebalancing", {}, ()),
    ("process_cpu_seconds_total", {}, ()),
]
NOT_HERE = (
    "jvm_memory_used_bytes",
    "jvm_memory_bytes_used",
    "jvm_gc_collection_seconds_sum",
    "jvm_threads_current",
    "container_cpu_usage_seconds_total",
    "container_last_seen",
)
"""They ask for these as well. mm2py has no JVM, and containers are measured by who runs them."""


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(worker())


@pytest.mark.parametrize(("name", "selected_by", "divided_by"), [*BOTH, *JMX_EXPORTER, *METRICS_REPORTER])
def test_a_panel_finds_its_series(
    page: Page, name: str, selected_by: dict[str, str], divided_by: tuple[str, ...]
) -> None:
    found = [
        one.labels
        for one in page.samples
        if one.name == name
        and all(re.fullmatch(wanted, one.labels.get(label, "")) for label, wanted in selected_by.items())
    ]
    assert found
    assert all(labels.get(label) for labels in found for label in divided_by)


def test_what_only_a_jvm_or_a_container_has_is_not_on_the_page(page: Page) -> None:
    names = {one.name for one in page.samples}
    assert not names & set(NOT_HERE)
    assert not any(name.startswith(("jvm_", "container_")) for name in names)
