"""A real Prometheus scrapes both workers of a machine, and what people's boards ask for is there.

The two boards that come with Strimzi, for the JMX exporter and for its own metrics reporter, ask for these series.
Strimzi's operator adds labels by relabelling; here the scrape adds them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.local.kafka import KafkaCluster
from deploy.local.prometheus import Prometheus
from tests.cluster.group_offsets import commit
from tests.cluster.kafka_client import create_topic, new_name, write
from tests.cluster.running import PATIENCE, Mm2py, one_way_properties, wait_until

POD = {
    "strimzi_io_kind": "KafkaMirrorMaker2",
    "strimzi_io_cluster": "mirror",
    "namespace": "kafka",
    "kubernetes_pod_name": "mirror-mirrormaker2-0",
    "pod": "mirror-mirrormaker2-0",
    "container": "mirror-mirrormaker2",
}
OF_POD = 'strimzi_io_kind=~"KafkaMirrorMaker2",strimzi_io_cluster="mirror"'
SOURCE, CHECKPOINT = "kafka_connect_mirror_mirrorsourceconnector", "kafka_connect_mirror_mirrorcheckpointconnector"
WINDOWED = ["", "_avg", "_min", "_max"]
BOTH_BOARDS = [
    f"sum({SOURCE}_record_rate{{{OF_POD}}})",
    f"sum({SOURCE}_byte_rate{{{OF_POD}}})",
    *(f"sum({SOURCE}_record_age_ms{each}{{{OF_POD}}}) by (partition, topic)" for each in WINDOWED),
    *(f"sum({SOURCE}_replication_latency_ms{each}{{{OF_POD}}}) by (partition, topic)" for each in WINDOWED),
    f"sum by (source, target, topic, partition, group) ({CHECKPOINT}_checkpoint_latency_ms{{{OF_POD}}})",
]
JMX_CLIENTS = rf'clientid=~".*replication-consumer\"",{OF_POD}'
JMX_TASKS = r'connector=~"\".*SourceConnector\"",task=~"[0-9]+"'
JMX_BOARD = [
    'kafka_connect_worker_connector_count{namespace="kafka", strimzi_io_kind="KafkaMirrorMaker2"}',
    f"sum(kafka_connect_worker_connector_count{{{OF_POD}}})",
    f"sum(kafka_connect_worker_task_count{{{OF_POD}}})",
    f"sum(kafka_connect_worker_rebalance_rebalancing{{{OF_POD}}})",
    f"sum(kafka_connect_coordinator_assigned_connectors{{{OF_POD}}}) by (kubernetes_pod_name)",
    f"sum(kafka_connect_coordinator_assigned_tasks{{{OF_POD}}}) by (kubernetes_pod_name)",
    f"topk(20, sum(kafka_consumer_fetch_manager_records_lag{{{JMX_CLIENTS}}}) by (partition, topic))",
    f"sum(rate(kafka_consumer_incoming_byte_total{{{OF_POD}}}[5m])) by (kubernetes_pod_name)",
    f"sum(rate(kafka_producer_outgoing_byte_total{{{OF_POD}}}[5m])) by (kubernetes_pod_name)",
    r'sum(kafka_producer_buffer_available_bytes{clientid=~"\".*SourceConnector-[0-9]+\""})',
    f"sum(kafka_connect_connector_task_offset_commit_avg_time_ms{{{JMX_TASKS}}})"
    f"/count(kafka_connect_connector_task_offset_commit_avg_time_ms{{{JMX_TASKS}}})",
    r'sum(kafka_connect_source_task_source_record_active_count{connector=~"\".*SourceConnector\""})',
]
REPORTER_TASKS = 'connector=~".*SourceConnector",task=~"[0-9]+"'
REPORTER_BOARD = [
    'kafka_connect_connect_worker_metrics_connector_count{namespace="kafka", strimzi_io_kind="KafkaMirrorMaker2"}',
    f"sum(kafka_connect_connect_worker_metrics_connector_count{{{OF_POD}}})",
    f"sum(kafka_connect_connect_worker_metrics_task_count{{{OF_POD}}})",
    f"sum(kafka_connect_connect_worker_rebalance_metrics_rebalancing{{{OF_POD}}})",
    f"sum(kafka_connect_connect_coordinator_metrics_assigned_connectors{{{OF_POD}}}) by (kubernetes_pod_name)",
    f"sum(kafka_connect_connect_coordinator_metrics_assigned_tasks{{{OF_POD}}}) by (kubernetes_pod_name)",
    "topk(20, sum(kafka_consumer_consumer_fetch_manager_metrics_records_lag"
    f'{{{OF_POD},client_id=~".*replication-consumer"}}) by (partition, topic))',
    f"sum(rate(kafka_consumer_consumer_metrics_incoming_byte{{{OF_POD}}}[5m])) by (kubernetes_pod_name)",
    f"sum(rate(kafka_producer_producer_metrics_outgoing_byte{{{OF_POD}}}[5m])) by (kubernetes_pod_name)",
    "sum(kafka_producer_producer_metrics_buffer_available_bytes) by (client_id)",
    f"sum(kafka_connect_connector_task_metrics_offset_commit_avg_time_ms{{{REPORTER_TASKS}}})"
    f"/count(kafka_connect_connector_task_metrics_offset_commit_avg_time_ms{{{REPORTER_TASKS}}})",
    "sum(kafka_connect_source_task_source_record_active_count{_objectname=~"
    r'"kafka.connect<type=source-task-metrics, connector=\".*MirrorSourceConnector\", task=1>'
    '<>source-record-active-count"}) by (_objectname)',
    'sum(rate(process_cpu_seconds_total{namespace="kafka",pod=~"mirror-mirrormaker2-.+",'
    'container="mirror-mirrormaker2"}[5m])) by (pod)',
]
OF_OTHERS = [
    f"sum(jvm_memory_used_bytes{{{OF_POD}}}) by (kubernetes_pod_name)",
    f"sum(rate(jvm_gc_collection_seconds_sum{{{OF_POD}}}[5m])) by (kubernetes_pod_name)",
    f"sum(jvm_threads_current{{{OF_POD}}}) by (kubernetes_pod_name)",
    'sum(rate(container_cpu_usage_seconds_total{namespace="kafka",pod=~"mirror-mirrormaker2-.+",'
    'container="mirror-mirrormaker2"}[5m])) by (pod)',
]
"""What else the boards ask for: a Java machine, which is not there, and what Kubernetes measures itself."""


@pytest.fixture(scope="module")
def prometheus(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[Prometheus]:
    topic, group = new_name("boards"), new_name("boards-group")
    create_topic(source_cluster, topic, partitions=4)
    for partition in range(4):
        write(source_cluster, topic, [f"record {number}" for number in range(100)], partition=partition)
    commit(source_cluster, group, topic, 7)
    settings = {"A->B.topics": topic, "groups": group, "emit.checkpoints.enabled": True}
    settings |= {"emit.checkpoints.interval.seconds": 1, "listeners": "http://127.0.0.1:0"}
    properties = one_way_properties(source_cluster, target_cluster, **settings)
    with Mm2py(properties, arguments=["--workers", "2"]) as mm2py:
        for number in (1, 2):
            mm2py.wait_for_event("topics.copying", worker=number)
        at = [event["at"].removeprefix("http://") for event in mm2py.events("parent.listening")]
        assert len(at) == 2
        with Prometheus(at, POD) as started:
            yield started


@pytest.mark.parametrize("query", [*BOTH_BOARDS, *JMX_BOARD, *REPORTER_BOARD], ids=lambda query: query[:70])
def test_every_query_of_strimzis_boards_finds_a_series(prometheus: Prometheus, query: str) -> None:
    found = wait_until(lambda: prometheus.query(query), f"a series for {query}", deadline_s=60 * PATIENCE)
    assert found


@pytest.mark.parametrize("query", OF_OTHERS, ids=lambda query: query[:70])
def test_what_the_boards_ask_of_a_java_machine_and_of_kubernetes_is_not_there(
    prometheus: Prometheus, query: str
) -> None:
    assert prometheus.query(query) == []
