"""The metrics that only mm2py has. They begin with ``mm2py_`` and have base units; totals are counters. Pure.

MirrorMaker 2 has no metric of lag, gaps or guarantees. ``flow`` is ``A->B`` in all of them, ``topic`` the name on the
source cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from mm2py.metrics.windows import Stats, stats
from mm2py.metrics.worker_numbers import GroupSnapshot
from mm2py.status.bottleneck import cause_of
from mm2py.status.lag_movement import Expiry, LagMovement, LagTrendWord
from mm2py_rest.metrics.metric import AnyMetric, Metric, Series, Summary, Sums, of_flows, of_partitions, of_worker
from mm2py_rest.metrics.values import FlowValues, PartitionValues, TopicValues, Values

MEMBER_STATES: Final = ("preparing", "joining", "active", "suspended", "draining", "leaving", "ended")


def _partition_metrics() -> Iterable[AnyMetric]:
    numbers: Sequence[tuple[str, str, Callable[[PartitionValues], float | None]]] = (
        (
            "records",
            "Source records behind the last acknowledged one. Missing while the source does not tell its end, or"
            " hides it.",
            lambda one: one.lag_records,
        ),
        (
            "seconds",
            "The age of the last acknowledged record, by any worker; 0 if none waits. Missing as the records are.",
            lambda one: one.lag_s,
        ),
        (
            "bytes",
            "mm2py_lag_records times the average size of the records copied so far. Missing as these are.",
            lambda one: one.lag_bytes,
        ),
    )
    for name, text, read in numbers:
        yield Metric(
            f"mm2py_lag_{name}",
            "gauge",
            text,
            ("flow", "topic", "partition"),
            of_partitions(lambda one: (one.flow, one.source_topic, one.partition), read),
        )


def _lag_metrics() -> Iterable[AnyMetric]:
    """Return how the lag of a topic moves: of the partitions that this worker copies."""
    numbers: Sequence[tuple[str, str, Callable[[LagMovement], float | None]]] = (
        (
            "growth_records_per_second",
            "By how many records in a second the lag of a topic grows; below 0: it shrinks. 0 while it keeps up."
            " Missing while not known.",
            lambda one: one.per_s,
        ),
        (
            "catch_up_seconds",
            "In how many seconds no record of a topic waits at this rate; 0 while it keeps up, +Inf where it does not"
            " shrink. Missing while not known.",
            _catch_up_s,
        ),
        (
            "since_seconds",
            "Since when a topic is behind, in epoch seconds. Missing while it keeps up.",
            lambda one: None if one.since_ms is None else one.since_ms / 1000,
        ),
        (
            "retention_ratio",
            "How much of the source's retention the oldest waiting record of a topic has used up: at 1 it may be"
            " deleted. 0 while it keeps up. Missing while not known.",
            lambda one: one.retention_share,
        ),
        (
            "expires_seconds",
            "In how many seconds the source may delete records of a topic that are not copied, at this rate; +Inf:"
            " never. Missing while not known.",
            _expires_s,
        ),
    )

    def of_topics(read: Callable[[LagMovement], float | None]) -> Callable[[Values], Iterable[Series]]:
        return lambda values: (
            ((flow.name, name), read(movement))
            for flow in values.flows
            for name, topic in flow.topics.items()
            if (movement := topic.movement) is not None
        )

    for name, text, read in numbers:
        yield Metric(f"mm2py_lag_{name}", "gauge", text, ("flow", "topic"), of_topics(read))


def _catch_up_s(movement: LagMovement) -> float | None:
    if movement.catch_up_s is None and movement.trend in {LagTrendWord.GROWING, LagTrendWord.STEADY}:
        return math.inf
    return movement.catch_up_s


def _expires_s(movement: LagMovement) -> float | None:
    return math.inf if movement.expires_s is None and movement.expiry is not Expiry.UNKNOWN else movement.expires_s


def _by_topic(read: Callable[[TopicValues], Iterable[tuple[str, float]]]) -> Callable[[Values], Iterable[Series]]:
    return lambda values: (
        ((flow.name, name, label), number)
        for flow in values.flows
        for name, topic in flow.topics.items()
        for label, number in read(topic)
    )


def _topic_metrics() -> Iterable[AnyMetric]:
    def quarantined(values: Values) -> Iterable[Series]:
        for flow in values.flows:
            for name, topic in flow.topics.items():
                yield (flow.name, name), topic.dropped["quarantined"]

    def copy_modes(values: Values) -> Iterable[Series]:
        for flow in values.flows:
            for name, topic in flow.topics.items():
                for why, partitions in topic.copy_modes.items():
                    yield (flow.name, name, why.split()[0].rstrip(",:"), why), partitions

    def gaps(values: Values) -> Iterable[Series]:
        return ((found[:3], found[3]) for found in values.worker.gaps)

    def times(read: Callable[[TopicValues], float]) -> Callable[[Values], Iterable[Sums]]:
        return lambda values: (
            Sums((flow.name, name), topic.timed, read(topic) / 1000)
            for flow in values.flows
            for name, topic in flow.topics.items()
        )

    yield Metric(
        "mm2py_batches_total",
        "counter",
        "Acknowledged batches, by how they travelled: pass, or why they were repacked or rebuilt.",
        ("flow", "topic", "how"),
        _by_topic(lambda topic: topic.batches.items()),
    )
    yield Metric(
        "mm2py_dropped_records_total",
        "counter",
        "Source records without a copy, by reason: transaction markers, aborted transactions, quarantine, ...",
        ("flow", "topic", "reason"),
        _by_topic(lambda topic: topic.dropped.items()),
    )
    text = "Records that the target refused, and that quarantine keeps."
    yield Metric("mm2py_quarantined_records_total", "counter", text, ("flow", "topic"), quarantined)
    text = "Partitions by how their batches travel now (pass, repack, auto), and why."
    yield Metric("mm2py_copy_mode_partitions", "gauge", text, ("flow", "topic", "mode", "why"), copy_modes)
    text = "Gaps met, one for each partition, by kind: see docs/reference.md."
    yield Metric("mm2py_gaps_total", "counter", text, ("flow", "topic", "kind"), gaps)
    yield Summary(
        "mm2py_append_to_fetch_seconds",
        "From a record's timestamp until it was fetched; with append times, from its append on.",
        ("flow", "topic"),
        times(lambda topic: topic.age_ms),
    )
    yield Summary(
        "mm2py_fetch_to_acknowledgement_seconds",
        "From the fetching of a record until the target had acknowledged its copy.",
        ("flow", "topic"),
        times(lambda topic: topic.held_ms),
    )


def _flow_metrics() -> Iterable[AnyMetric]:
    numbers: Sequence[tuple[str, str, Callable[[FlowValues], float | None]]] = (
        (
            "exactly_once",
            "1 if each record is in the copy once, also after a crash; 0 if not surely; none until the source answers.",
            lambda one: one.snapshot.guarantee.startswith("exactly-once") if one.snapshot.guarantee else None,
        ),
        (
            "stalled_partitions",
            "Partitions of which records wait, and none was acknowledged for stall.timeout.ms.",
            lambda one: one.stalled,
        ),
        ("refused_topics", "Topics that are not copied, or not all of them.", lambda one: one.snapshot.refused_topics),
        ("held_topics", "Topics that wait until a backfill has copied them.", lambda one: one.snapshot.held_topics),
        (
            "paused_partitions",
            "Partitions that this worker owns and does not read, because an operator has paused them.",
            lambda one: one.snapshot.paused_partitions,
        ),
        (
            "recorder_failing",
            "1 while the flight recorder cannot be written: mm2py why --at will not know this time.",
            lambda one: int(one.snapshot.recorder_failing),
        ),
        (
            "partitions_from_followers",
            "Partitions read from a follower, which is nearer than the leader: client.rack.",
            lambda one: one.snapshot.from_followers,
        ),
        (
            "positions_unstored_seconds",
            "How long the oldest change of a position has waited to be stored: so much is reconciled after a crash.",
            lambda one: one.snapshot.positions_unstored_s,
        ),
        (
            "safe_time_seconds",
            "This worker's partitions of the flow are copied up to this moment, by its clock; 0 while not known.",
            lambda one: None if one.snapshot.safe_ms is None else one.snapshot.safe_ms / 1000,
        ),
        (
            "ledger_entries_waiting",
            "Stretches of acknowledged records that the ledger has not taken up yet.",
            lambda one: one.ledger_waiting,
        ),
        (
            "ledger_chunks_written_total",
            "Records written to the ledger; a chunk that grows is written and counted again.",
            lambda one: one.snapshot.ledger_chunks,
        ),
        (
            "ledger_runs_written_total",
            "Runs in these chunks.",
            lambda one: one.snapshot.ledger_entries,
        ),
    )
    for name, text, read in numbers:
        labels = of_flows(lambda one: (one.name,), read)
        yield Metric(f"mm2py_flow_{name}", "counter" if name.endswith("_total") else "gauge", text, ("flow",), labels)

    def partitions(values: Values) -> Iterable[Series]:
        for flow in values.flows:
            for state, count in flow.states.items():
                yield (flow.name, state), count

    def topics_not_copied(values: Values) -> Iterable[Series]:
        return (((flow.name, why), topics) for flow in values.flows for why, topics, _ in flow.snapshot.not_copied)

    def partitions_not_copied(values: Values) -> Iterable[Series]:
        return (((flow.name, why), number) for flow in values.flows for why, _, number in flow.snapshot.not_copied)

    def connections(values: Values) -> Iterable[Series]:
        for flow in values.flows:
            if (link := flow.snapshot.link) is not None:
                yield (flow.name, link.limit), link.connections

    def bottlenecks(values: Values) -> Iterable[Series]:
        return (((flow.name, str(cause_of(flow.snapshot.waits))), 1) for flow in values.flows)

    def dead_return_flows(values: Values) -> Iterable[Series]:
        return (((str(one.flow),), 1.0 if one.dead else 0.0) for one in values.return_flows)

    text = (
        "1 if a flow does not copy all, although it must while a cutover can be undone; 0 if it does. By what the"
        " clusters say, at most a minute old. Missing while no cutover can be undone, or it is not known."
    )
    yield Metric("mm2py_recovery_return_flow_dead", "gauge", text, ("flow",), dead_return_flows)

    def states(values: Values) -> Iterable[Series]:
        return (((flow.name, flow.snapshot.state), 1) for flow in values.flows)

    yield Metric("mm2py_flow_state", "gauge", "1 for the state of a flow on this worker.", ("flow", "state"), states)
    text = "Partitions that this worker owns of a flow, by state; docs/internals/copier-states.md tells them."
    yield Metric("mm2py_flow_partitions", "gauge", text, ("flow", "state"), partitions)
    text = (
        "Topics that this worker copies nothing of, by reason (docs/status.md); a flow without a first answer is one."
    )
    yield Metric("mm2py_flow_not_copied_topics", "gauge", text, ("flow", "reason"), topics_not_copied)
    text = "Partitions that this worker owns and does not copy, by reason."
    yield Metric("mm2py_flow_not_copied_partitions", "gauge", text, ("flow", "reason"), partitions_not_copied)
    text = "Connections that read or send a backlog over a long link, by what bounds the rate. None if one is enough."
    yield Metric("mm2py_flow_connections", "gauge", text, ("flow", "limit"), connections)
    text = "1 for what limits this worker in a flow: see docs/status.md. nothing-waits while its partitions keep up."
    yield Metric("mm2py_flow_bottleneck", "gauge", text, ("flow", "cause"), bottlenecks)
    text = "Checkpoints that this worker has emitted."
    yield Metric("mm2py_checkpoints_total", "counter", text, ("flow",), _checkpoints)
    text = "The age of the last heartbeat that came through the flow."
    yield Metric("mm2py_heartbeat_age_seconds", "gauge", text, ("flow",), _of_paths(lambda one: one[0]))
    text = "How long that heartbeat took; below 0 if the clocks differ more."
    yield Metric("mm2py_path_latency_seconds", "gauge", text, ("flow",), _of_paths(lambda one: one[1]))


def _checkpoints(values: Values) -> Iterable[Series]:
    for flow in values.worker.checkpoints:
        yield (f"{flow.source}->{flow.target}",), flow.emitted


def _of_paths(
    read: Callable[[tuple[float | None, float | None]], float | None],
) -> Callable[[Values], Iterable[Series]]:
    return lambda values: (
        (
            (f"{path.source}->{path.target}",),
            read((path.heartbeat_age_s, None if path.latency_ms is None else path.latency_ms / 1000)),
        )
        for path in values.worker.paths
    )


def _group_metrics() -> Iterable[AnyMetric]:
    labels: Final = ("group", "target")
    numbers: Sequence[tuple[str, str, Callable[[GroupSnapshot], float]]] = (
        ("members", "Members that this worker knows.", lambda one: one.members),
        ("has_leader", "1 while there is a leader.", lambda one: one.has_leader),
        ("is_leader", "1 while this worker leads.", lambda one: one.is_leader),
        ("leader_epoch", "The term of the leader; each election adds one.", lambda one: one.leader_epoch),
        ("generation", "The round of assignment; each rebalance adds one.", lambda one: one.generation),
        ("tasks", "Tasks that this worker owns: partitions, and what is not divided.", lambda one: one.tasks),
        ("tasks_to_release", "Tasks that other workers wait for.", lambda one: one.tasks_to_release),
        (
            "unfenced_producers",
            "Producers of former members that could not be fenced: flows that they wrote for are at-least-once.",
            lambda one: one.unfenced_producers,
        ),
    )

    def of_groups(read: Callable[[GroupSnapshot], float]) -> Callable[[Values], Iterable[Series]]:
        return lambda values: (((one.name, one.target), read(one)) for one in values.worker.groups)

    for name, text, read in numbers:
        yield Metric(f"mm2py_group_{name}", "gauge", text, labels, of_groups(read))

    def states(values: Values) -> Iterable[Series]:
        for one in values.worker.groups:
            for state in MEMBER_STATES:
                yield (one.name, one.target, state), (one.state.lower() or "preparing") == state

    text = "1 for the state of this worker in a group; docs/internals/group-member.md tells them."
    yield Metric("mm2py_group_member_state", "gauge", text, (*labels, "state"), states)


def _worker_metrics() -> Iterable[AnyMetric]:
    def info(values: Values) -> Iterable[Series]:
        return [((values.worker.name, values.worker.version), 1)]

    def starts(values: Values) -> Iterable[Series]:
        return (((one.flow, one.kind), one.attempts) for one in values.worker.connectors)

    def delay(read: Callable[[Stats], float]) -> Callable[[Values], float | None]:
        def of_loop(values: Values) -> float | None:
            window = values.worker.process.loop_delay_s
            found = read(stats(window.last, window.samples, values.worker.now_s))
            return None if math.isnan(found) else found

        return of_loop

    numbers: Sequence[tuple[str, str, Callable[[Values], float | None]]] = (
        (
            "event_loop_delay_seconds_avg",
            "How late the worker's event loop ran what was due, the average of the last minute.",
            delay(lambda found: found.avg),
        ),
        ("event_loop_delay_seconds_max", "The same, the highest of the last minute.", delay(lambda found: found.high)),
        ("memory_held_bytes", "Records in memory.", lambda values: values.worker.process.held_bytes),
        (
            "memory_max_bytes",
            "What they may take: memory.max.bytes.",
            lambda values: values.worker.process.held_max_bytes,
        ),
        (
            "partitions_left_out",
            "Partitions beyond metrics.partitions.max: they share series with partition=all.",
            lambda values: values.left_out,
        ),
        (
            "checkpoints_left_out",
            "Groups in remote partitions beyond metrics.partitions.max: their checkpoints have no latency here.",
            lambda values: sum(one.groups - len(one.rows) for one in values.worker.checkpoints),
        ),
    )
    text = "1; the worker's name and its version."
    yield Metric("mm2py_worker_info", "gauge", text, ("worker", "version"), info)
    text = "How often a connector was started; more than once: it has failed, or its tasks moved."
    yield Metric("mm2py_connector_starts_total", "counter", text, ("flow", "connector"), starts)
    for name, text, read in numbers:
        yield Metric(f"mm2py_{name}", "gauge", text, (), of_worker(read))


METRICS: Final[Sequence[AnyMetric]] = (
    *_partition_metrics(),
    *_lag_metrics(),
    *_topic_metrics(),
    *_flow_metrics(),
    *_group_metrics(),
    *_worker_metrics(),
)
