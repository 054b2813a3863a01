"""A source that never answers its workers is told in all six places, beside a flow of the same workers that is well.

The log, ``status``, ``/v1``, Connect's status, metrics and alerts: see ``six_places.py``. A worker that has heard
nothing of a source runs nothing of the flow, and was green.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

from deploy.local.kafka import KafkaCluster
from deploy.local.prometheus import Prometheus
from tests.cluster.copies import make_topic
from tests.cluster.kafka_client import new_name, record_count, write
from tests.cluster.kafka_proxy import KafkaProxy
from tests.cluster.kafka_rules import Drop
from tests.cluster.rest.serving import Asked, asked
from tests.cluster.running import Mm2py, Value, one_way_properties
from tests.cluster.six_places import SLOW_S, expression_of
from tests.cluster.why_table import wait_for_cause

RECORDS = [b"%d" % number for number in range(10)]
REASON = "source-silent"


class TwoFlows:
    """Flow ``N->B``, whose source is found at an address of the test's, and ``H->B``, whose source is well."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, address: str) -> None:
        self.source, self.target = source, target
        self.stem = new_name("never")
        self.silent = new_name("N").replace("-", "")
        self.well = new_name("H").replace("-", "")
        self.topics = {alias: f"{self.stem}-{alias}" for alias in (self.silent, self.well)}
        for topic in self.topics.values():
            make_topic(source, topic, 1)
            write(source, topic, RECORDS)
        extra: dict[str, Value] = {
            "clusters": f"{self.silent},{self.well},B",
            f"{self.well}.bootstrap.servers": source.bootstrap,
            f"{self.well}->B.enabled": True,
            **{f"{alias}->B.topics": topic for alias, topic in self.topics.items()},
            "config.storage.replication.factor": 1,
            "sync.topic.acls.enabled": False,
            "sync.topic.configs.enabled": False,
            "listeners": "http://127.0.0.1:0",
        }
        self.file = one_way_properties(address, target, names=(self.silent, "B"), **extra)

    @property
    def flow(self) -> str:
        return f"{self.silent}->B"

    def copied(self, run: Mm2py, alias: str) -> None:
        remote = f"{alias}.{self.topics[alias]}"
        run.wait_until(lambda: record_count(self.target, remote) == len(RECORDS), remote, deadline_s=SLOW_S)


def of(report: Any, flow: str) -> Any:
    return next(one for one in report["flows"] if one["flow"] == flow)


@contextlib.contextmanager
def scraped(rest: Asked) -> Iterator[Prometheus]:
    with Prometheus([rest.address.removeprefix("http://")], {}) as prometheus:
        yield prometheus


def says_it_everywhere(flows: TwoFlows, run: Mm2py, rest: Asked, prometheus: Prometheus) -> None:
    flow, well = flows.flow, f"{flows.well}->B"
    logged = run.wait_for_event("flow.waiting", flow=flow, reason=REASON, deadline_s=SLOW_S)
    assert logged["why"] and f"Look whether {flows.silent} runs" in logged["remedy"]
    assert not any(event.get("flow") == well for event in run.events("flow.waiting"))

    def in_v1() -> bool:
        told = rest.told("GET", f"/v1/flows/{flow}", 200)
        reasons = [one["reason"] for one in told["report"]["not_copied"]]
        return reasons == [REASON] and "has not answered" in told["summary"]["why"]

    run.wait_until(in_v1, "/v1 tells it", deadline_s=SLOW_S)
    assert rest.told("GET", f"/v1/flows/{flow}", 200)["summary"]["guarantee"]["level"] == "unknown"
    of_well = rest.told("GET", f"/v1/flows/{well}", 200)
    assert (of_well["summary"]["why"], of_well["report"]["not_copied"]) == ("", [])
    assert of_well["summary"]["guarantee"]["level"] == "exactly-once"

    code, found = run.status()
    assert code == 1, "the command does not reach the source either"
    (said,) = of(found, flow)["not_copied"]
    assert (said["reason"], said["waits_for_operator"]) == (REASON, False)
    assert said["since_ms"] and said["why"] and said["remedy"], said
    assert of(found, flow)["guarantee"]["level"] == "unknown"
    problems = [(one["kind"], one["where"]) for one in found["problems"]]
    assert problems == [("unreachable", flows.silent), ("not-copied", flow)], found["problems"]
    assert of(found, well)["guarantee"]["level"] == "exactly-once"
    assert [one["not_copied"] for one in of(found, well)["topics"]] == [[]]

    status = rest.told("GET", f"{rest.connector()}/status", 200)["connector"]
    assert "has not answered" in status["trace"], status
    status = rest.told("GET", f"/connectors/{well}.MirrorSourceConnector/status", 200)
    assert not any(one.get("trace") for one in (status["connector"], *status["tasks"])), status

    def series(query: str) -> set[str]:
        return {one["metric"]["flow"] for one in prometheus.query(query) if float(one["value"][1]) > 0}

    run.wait_until(lambda: series(f'mm2py_flow_not_copied_topics{{reason="{REASON}"}}') == {flow}, "it is counted")
    run.wait_until(lambda: series(expression_of("Mm2pyFlowWaiting")) == {flow}, "the alert has a series")
    exactly_once = {one["metric"]["flow"]: one["value"][1] for one in prometheus.query("mm2py_flow_exactly_once")}
    assert exactly_once == {well: "1"}, "what is not known is neither 0 nor 1"


def test_a_source_at_an_address_where_nobody_answers(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen: connections are refused
        flows = TwoFlows(source_cluster, target_cluster, f"127.0.0.1:{closed.getsockname()[1]}")
        with Mm2py(flows.file) as run:
            flows.copied(run, flows.well)
            rest = asked(run, flows.flow)
            with scraped(rest) as prometheus:
                says_it_everywhere(flows, run, rest, prometheus)


def test_a_source_that_accepts_connections_and_says_nothing_after_a_restart_with_everything_copied(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """No record waits, so positions tell nothing: only the worker knows."""
    with KafkaProxy(source_cluster.bootstrap) as proxy:
        flows = TwoFlows(source_cluster, target_cluster, proxy.bootstrap)
        with Mm2py(flows.file) as run:
            flows.copied(run, flows.silent)
            flows.copied(run, flows.well)
        proxy.rule(Drop(), times=None)
        with Mm2py(flows.file) as run:
            rest = asked(run, flows.flow)
            with scraped(rest) as prometheus:
                says_it_everywhere(flows, run, rest, prometheus)
                items = rest.told("GET", f"/v1/flows/{flows.flow}/topics", 200)["items"]
                assert [(one["topic"], one["reason"]) for one in items] == [(flows.topics[flows.silent], REASON)]
                why = f"/v1/flows/{flows.flow}/why?topic={flows.topics[flows.silent]}"
                assert wait_for_cause("source-silent", lambda: rest.told("GET", why, 200))["exit_code"] == 3
            proxy.end_rules()

            def is_well() -> bool:
                code, found = run.status()
                return (code, found["problems"]) == (0, [])

            run.wait_until(is_well, "all is well again", deadline_s=SLOW_S)
            levels = {one["flow"]: one["guarantee"]["level"] for one in run.status()[1]["flows"]}
            assert set(levels.values()) == {"exactly-once"}
