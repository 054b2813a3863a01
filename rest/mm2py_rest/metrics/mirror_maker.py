"""The metrics of MirrorMaker 2 and of Kafka Connect, under the names that dashboards ask for. Pure.

There are two families of such names, as Strimzi's two dashboards for MirrorMaker 2 show: those of Prometheus's JMX
exporter with Strimzi's rules, and those of Strimzi's Metrics Reporter. MirrorMaker 2's own metrics have the same name
in both. All of them are gauges, also the totals. Names of connectors and clients are those of Connect mode. In labels
of the JMX exporter they are *in quotation marks*, which belong to the label's value: dashboards ask for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from mm2py.metrics.windows import Stats, stats
from mm2py.metrics.worker_numbers import SOURCE_CONNECTOR, CheckpointRow, ConnectorSnapshot
from mm2py_rest.metrics.metric import AnyMetric, Metric, Series, of_flows, of_partitions, of_worker
from mm2py_rest.metrics.values import FlowValues, PartitionValues, Values, is_rebalancing

TASK: Final = "0"
"""The number of a connector's task: each worker has one task of each connector that it runs."""
_PARTITION_LABELS: Final = ("source", "target", "topic", "partition")
_GROUP_LABELS: Final = ("source", "target", "group", "topic", "partition")
_STATS: Final[Sequence[tuple[str, str, Callable[[Stats], float]]]] = (
    ("", "of the last batch", lambda found: 0.0 if math.isnan(found.last) else found.last),
    ("_avg", "the average of the last minute", lambda found: found.avg),
    ("_min", "the lowest of the last minute", lambda found: found.low),
    ("_max", "the highest of the last minute", lambda found: found.high),
)
_COUNTED: Final = ("running", "paused", "failed", "unassigned", "destroyed", "restarting")


def connector_name(flow: str, kind: str = SOURCE_CONNECTOR) -> str:
    return f"{flow}.{kind}"


def _quoted(text: str) -> str:
    return f'"{text}"'


def _consumer(flow: str) -> str:
    return f"{flow}|{connector_name(flow)}-{TASK}|replication-consumer"


def _producer(flow: str) -> str:
    return f"connector-producer-{connector_name(flow)}-{TASK}"


def _object_name(flow: str) -> str:
    """Return the label by which Strimzi's second dashboard finds the first task. It counts tasks from 1."""
    what = "source-record-active-count"
    return f'kafka.connect<type=source-task-metrics, connector="{connector_name(flow)}", task=1><>{what}'


# --- MirrorMaker 2's own ----------------------------------------------------------------------------------------------


def _source_metrics() -> Iterable[AnyMetric]:
    def labels(one: PartitionValues) -> Sequence[str]:
        return one.source, one.target, one.remote_topic, one.partition

    def gauge(name: str, text: str, read: Callable[[PartitionValues], float]) -> Metric:
        name = f"kafka_connect_mirror_mirrorsourceconnector_{name}"
        return Metric(name, "gauge", text, _PARTITION_LABELS, of_partitions(labels, read))

    yield gauge("record_count", "Records that the target has acknowledged.", lambda one: one.records)
    yield gauge("record_rate", "The same in a second, over the last minute.", lambda one: one.record_rate)
    yield gauge("byte_count", "Bytes of acknowledged batches, as sent.", lambda one: one.bytes)
    yield gauge("byte_rate", "The same in a second, over the last minute.", lambda one: one.byte_rate)
    for suffix, text, read in _STATS:
        yield gauge(
            f"record_age_ms{suffix}",
            f"From a batch's newest timestamp until it was fetched: {text}.",
            lambda one, read=read: read(one.age_ms),  # type: ignore[misc]
        )
        yield gauge(
            f"replication_latency_ms{suffix}",
            f"From a batch's newest timestamp until it was acknowledged: {text}.",
            lambda one, read=read: read(one.latency_ms),  # type: ignore[misc]
        )


def _checkpoint_metrics() -> Iterable[AnyMetric]:
    for suffix, text, read in _STATS:

        def series(values: Values, read: Callable[[Stats], float] = read) -> Iterable[Series]:
            for flow in values.worker.checkpoints:
                for row in map(CheckpointRow._make, flow.rows):
                    found = stats(row.last_ms, row.samples, values.worker.now_s)
                    yield (flow.source, flow.target, row.group, row.topic, str(row.partition)), read(found)

        yield Metric(
            f"kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms{suffix}",
            "gauge",
            f"From a checkpoint's timestamp until it was acknowledged: {text}.",
            _GROUP_LABELS,
            series,
        )


# --- Kafka Connect's: the worker --------------------------------------------------------------------------------------


def _worker_metrics() -> Iterable[AnyMetric]:
    def running(values: Values) -> float:
        return sum(one.state == "running" for one in values.worker.connectors)

    def assigned(values: Values) -> float:
        return sum(one.state != "unassigned" for one in values.worker.connectors)

    def epoch(values: Values) -> float:
        return max((one.generation for one in values.worker.groups), default=0)

    def rebalancing(values: Values) -> float:
        return float(any(is_rebalancing(one) for one in values.worker.groups))

    for prefix in ("kafka_connect_worker_", "kafka_connect_connect_worker_metrics_"):
        for what in ("connector", "task"):
            name = f"{prefix}{what}_count"
            yield Metric(name, "gauge", "Connectors that this worker runs, each with one task.", (), of_worker(running))
        yield from _task_counts(prefix)
    for prefix in ("kafka_connect_coordinator_", "kafka_connect_connect_coordinator_metrics_"):
        for what in ("connectors", "tasks"):
            name = f"{prefix}assigned_{what}"
            text = "Connectors that this worker runs or is starting again, each with one task."
            yield Metric(name, "gauge", text, (), of_worker(assigned))
    for prefix in ("kafka_connect_worker_rebalance_", "kafka_connect_connect_worker_rebalance_metrics_"):
        yield Metric(f"{prefix}epoch", "gauge", "The highest generation of this worker's groups.", (), of_worker(epoch))
        text = "1 while partitions leave this worker, or while it takes no part in one of its groups."
        yield Metric(f"{prefix}rebalancing", "gauge", text, (), of_worker(rebalancing))


def _task_counts(prefix: str) -> Iterable[AnyMetric]:
    def name_of(one: ConnectorSnapshot) -> str:
        name = connector_name(one.flow, one.kind)
        return _quoted(name) if prefix == "kafka_connect_worker_" else name

    def total(values: Values) -> Iterable[Series]:
        return (((name_of(one),), 1) for one in values.worker.connectors)

    yield Metric(f"{prefix}connector_total_task_count", "gauge", "Tasks of a connector.", ("connector",), total)
    for state in _COUNTED:

        def series(values: Values, state: str = state) -> Iterable[Series]:
            return (((name_of(one),), one.state == state) for one in values.worker.connectors)

        name, text = f"{prefix}connector_{state}_task_count", f"Tasks of a connector that are {state}."
        yield Metric(name, "gauge", text, ("connector",), series)


# --- Kafka Connect's: connectors, tasks and their clients -------------------------------------------------------------


def _connector_metrics() -> Iterable[AnyMetric]:
    def status(values: Values) -> Iterable[Series]:
        for one in values.worker.connectors:
            yield (_quoted(connector_name(one.flow, one.kind)), TASK, one.state), 1

    text = "1 for the state in which a connector's task is."
    yield Metric("kafka_connect_connector_status", "gauge", text, ("connector", "task", "status"), status)
    for prefix, named in (("", _quoted), ("metrics_", str)):
        for what, text, read in _TASK_NUMBERS:
            name = f"kafka_connect_{what.format(prefix)}"
            yield Metric(
                name,
                "counter" if name.endswith("_total") else "gauge",
                text,
                ("connector", "task"),
                of_flows(lambda one, named=named: (named(connector_name(one.name)), TASK), read),  # type: ignore[misc]
            )
    yield Metric(
        "kafka_connect_source_task_source_record_active_count",
        "gauge",
        "Source offsets that were read and whose copies are not acknowledged.",
        ("connector", "task", "_objectname"),
        of_flows(lambda one: (_quoted(connector_name(one.name)), TASK, _object_name(one.name)), lambda one: one.active),
    )


def _commit(read: Callable[[Stats], float]) -> Callable[[FlowValues], float]:
    def of_flow(one: FlowValues) -> float:
        window = one.snapshot.position_writes_ms
        return math.nan if window is None else read(stats(window.last, window.samples, one.now_s))

    return of_flow


def _quarantined(one: FlowValues) -> float:
    return sum(topic.dropped["quarantined"] for topic in one.topics.values())


_TASK_NUMBERS: Final[Sequence[tuple[str, str, Callable[[FlowValues], float]]]] = (
    (
        "connector_task_{}offset_commit_avg_time_ms",
        "How long storing positions took, the average of the last minute.",
        _commit(lambda found: found.avg),
    ),
    (
        "connector_task_{}offset_commit_max_time_ms",
        "How long storing positions took, the highest of the last minute.",
        _commit(lambda found: found.high),
    ),
    (
        "source_task_{}source_record_write_rate",
        "Acknowledged records in a second, over the last minute.",
        lambda one: one.record_rate,
    ),
    (
        "source_task_{}source_record_write_total",
        "Records that the target has acknowledged.",
        lambda one: one.records,
    ),
    ("task_error_{}total_records_skipped", "Records that are kept in quarantine.", _quarantined),
)


def _client_metrics() -> Iterable[AnyMetric]:
    lag = "Source records behind the last acknowledged one, by the end of the log at the last read."
    read_text, sent_text = "Bytes received from the source in fetches.", "Bytes of batches sent to the target."
    free_text = "What records in memory may still take, over all flows."

    def lag_of(one: PartitionValues) -> float | None:
        return one.lag_records

    yield Metric(
        "kafka_consumer_fetch_manager_records_lag",
        "gauge",
        lag,
        ("clientid", "topic", "partition"),
        of_partitions(lambda one: (_quoted(_consumer(one.flow)), one.source_topic, one.partition), lag_of),
    )
    yield Metric(
        "kafka_consumer_consumer_fetch_manager_metrics_records_lag",
        "gauge",
        lag,
        ("clientid", "client_id", "topic", "partition"),
        of_partitions(
            lambda one: (_quoted(_consumer(one.flow)), _consumer(one.flow), one.source_topic, one.partition), lag_of
        ),
    )
    yield _of_clients("kafka_consumer_incoming_byte_total", read_text, _consumer, lambda one: one.snapshot.read_bytes)
    yield _of_clients("kafka_producer_outgoing_byte_total", sent_text, _producer, lambda one: one.snapshot.sent_bytes)
    reporter: Sequence[tuple[str, str, Callable[[str], str], Callable[[FlowValues], float]]] = (
        ("consumer_consumer_metrics_incoming_byte", read_text, _consumer, lambda one: one.snapshot.read_bytes),
        ("producer_producer_metrics_outgoing_byte", sent_text, _producer, lambda one: one.snapshot.sent_bytes),
    )
    for name, text, client, read in reporter:
        yield _of_clients(f"kafka_{name}", text, client, read)
    for name in ("kafka_producer_buffer_available_bytes", "kafka_producer_producer_metrics_buffer_available_bytes"):
        yield _of_clients(name, free_text, _producer, lambda one: one.free_bytes)


def _of_clients(name: str, text: str, client: Callable[[str], str], read: Callable[[FlowValues], float]) -> Metric:
    """Return a metric of one client of each flow, which the two families of names label differently."""
    if "_metrics_" not in name:
        labels = of_flows(lambda one: (_quoted(client(one.name)),), read)
        return Metric(name, "counter" if name.endswith("_total") else "gauge", text, ("clientid",), labels)
    both = of_flows(lambda one: (_quoted(client(one.name)), client(one.name)), read)
    return Metric(name, "gauge", text, ("clientid", "client_id"), both)


def _process_metrics() -> Iterable[AnyMetric]:
    numbers: Sequence[tuple[str, str, Callable[[Values], float]]] = (
        ("process_cpu_seconds_total", "CPU time of the worker.", lambda values: values.worker.process.cpu_s),
        (
            "process_resident_memory_bytes",
            "Memory of the worker.",
            lambda values: values.worker.process.resident_bytes,
        ),
        (
            "process_start_time_seconds",
            "When the worker started, in epoch seconds.",
            lambda values: values.worker.process.started_at_s,
        ),
    )
    for name, text, read in numbers:
        yield Metric(name, "counter" if name.endswith("_total") else "gauge", text, (), of_worker(read))


METRICS: Final[Sequence[AnyMetric]] = (
    *_source_metrics(),
    *_checkpoint_metrics(),
    *_worker_metrics(),
    *_connector_metrics(),
    *_client_metrics(),
    *_process_metrics(),
)
