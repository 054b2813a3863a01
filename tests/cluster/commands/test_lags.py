"""A flow that is too slow, on real brokers: the command, ``/v1`` and the metrics say the same of its lag."""

from __future__ import annotations

import math
from typing import Any, Final

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.local.kafka import KafkaCluster
from deploy.local.prometheus import Prometheus
from tests.cluster.copies import new_topic, producer, set_by_hand
from tests.cluster.kafka_client import new_name, record_count
from tests.cluster.rest.serving import LISTENERS, Asked, asked
from tests.cluster.running import ANSWER_S, PATIENCE, Mm2py, one_way_properties, wait_until
from tests.cluster.six_places import expression_of

LAG: Final = "mm2py_lag_"
BYTES_PER_S: Final = 40_000
EXPIRES: Final = expression_of("Mm2pyRecordsExpire")
SAFE_TIME_OLD: Final = expression_of("Mm2pySafeTimeOld").replace("> 60", "> 5")
"""With fewer seconds: the test does not wait for a minute."""


class Seen:
    """What a worker of one slow flow, and the clusters, say of the only topic."""

    def __init__(self, run: Mm2py, client: Asked, topic: str) -> None:
        self.run, self.client, self.topic = run, client, topic

    def told(self) -> dict[str, Any]:
        """Return what the command says of the flow; it is the same of its topic, and of the only partition."""
        (flow,) = self.run.status()[1]["flows"]
        (topic,) = flow["topics"]
        assert topic["movement"] == flow["movement"]
        assert [one["movement"] for one in flow["behind"]] == [topic["movement"]] * flow["partitions_behind"]
        found: dict[str, Any] = flow
        return found

    def trend(self) -> str | None:
        found: str | None = self.told()["movement"]["trend"]
        return found

    def over_rest(self) -> dict[str, Any]:
        """Return the same over REST: the list of partitions, and the flow, may be of two looks."""
        path = f"/v1/flows/{self.client.flow}"
        (partition,) = self.client.told("GET", f"{path}/topics/{self.topic}/partitions", 200)["items"]
        report = self.client.told("GET", path, 200)["report"]
        found: dict[str, Any] = report["movement"]
        assert (report["topics"][0]["movement"], partition["movement"].keys()) == (found, found.keys())
        assert partition["movement"]["since_ms"] == found["since_ms"]
        return found

    def metrics(self) -> dict[str, float]:
        text = httpx2.get(f"{self.client.address}/metrics", timeout=ANSWER_S).text
        samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
        return {
            one.name.removeprefix(LAG): one.value
            for one in samples
            if one.name.startswith(LAG) and one.labels["topic"] == self.topic
        }


def send(cluster: KafkaCluster, topic: str, records: int) -> None:
    client = producer(cluster, batch_size=16_384)
    for _ in range(records):
        client.produce(topic, b"x" * 1000)
        client.poll(0)
    assert client.flush(ANSWER_S) == 0


def test_command_rest_and_metrics_say_the_same_of_a_flow_that_is_slow_paused_and_well_again(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic = new_topic(source_cluster, "slow", configs={"retention.ms": "86400000"})
    alias = new_name("L").replace("-", "")
    flow = f"{alias}->B"
    properties = one_way_properties(
        source_cluster,
        target_cluster,
        names=(alias, "B"),
        **{
            f"{flow}.topics": topic,
            "config.storage.replication.factor": 1,
            "bytes.per.second.max": BYTES_PER_S,
            f"{alias}.consumer.max.partition.fetch.bytes": 65_536,
            "listeners": LISTENERS,
        },
    )
    send(source_cluster, topic, 10)
    with Mm2py(properties) as run, Prometheus([asked(run, flow).address.removeprefix("http://")], {}) as prometheus:
        seen = Seen(run, asked(run, flow), topic)

        def alerts() -> list[str]:
            """Return the alerts of lag that have a series."""
            return [one for one in (EXPIRES, SAFE_TIME_OLD) if prometheus.query(one)]

        run.wait_until(lambda: record_count(target_cluster, f"{alias}.{topic}") == 10, "the first are copied")
        wait_until(lambda: seen.trend() == "keeps-up", "it keeps up")
        assert (seen.told()["behind"], seen.over_rest()["expiry"]) == ([], "keeps-up")
        assert f"{topic}/0  " not in run.status_text()[1]
        page = seen.metrics()
        assert (page["growth_records_per_second"], page["expires_seconds"]) == (0, math.inf)
        assert "since_seconds" not in page
        wait_until(lambda: prometheus.query(f'mm2py_lag_expires_seconds{{flow="{flow}"}}'), "Prometheus has read it")
        assert alerts() == []

        send(source_cluster, topic, 8_000)
        wait_until(lambda: seen.trend() == "shrinking", "it is behind and comes nearer")
        wait_until(lambda: "retention_ratio" in seen.metrics(), "the worker knows how long the source keeps it")
        command, rest, page = seen.told()["movement"], seen.over_rest(), seen.metrics()
        assert command["since_ms"] == rest["since_ms"] == page["since_seconds"] * 1000
        assert command["expiry"] == rest["expiry"] == "not-at-this-rate" and page["expires_seconds"] == math.inf
        for other in (rest["per_s"], page["growth_records_per_second"]):
            assert other == pytest.approx(command["per_s"], rel=0.5) and other == pytest.approx(
                -BYTES_PER_S / 1000, rel=0.5
            )
        for other in (rest["catch_up_s"], page["catch_up_seconds"]):
            assert other == pytest.approx(command["catch_up_s"], rel=0.5)
        assert command["bytes"] == pytest.approx(rest["bytes"], rel=0.3) == pytest.approx(page["bytes"], rel=0.3)
        text = run.status_text()[1]
        assert f"\n  {topic}/0  " in text and "shrinking by" in text and "of its retention used" in text

        # The source keeps less than what waits; what it has in one segment, it does not delete yet.
        set_by_hand(source_cluster, topic, retention_bytes="1000000")
        wait_until(lambda: seen.told()["movement"]["expires_s"] == 0, "the source may delete what is not copied")
        # REST and worker ask the source once a minute how long it keeps records.
        wait_until(lambda: seen.over_rest()["expires_s"] == 0, "and so REST says", deadline_s=90 * PATIENCE)
        wait_until(
            lambda: seen.metrics().get("expires_seconds") == 0,
            "and so the metrics: the alert is at 10800",
            deadline_s=90 * PATIENCE,
        )
        assert seen.metrics()["retention_ratio"] > 1
        wait_until(lambda: alerts() == [EXPIRES, SAFE_TIME_OLD], "both alerts have a series")
        assert "the source may delete the oldest at any moment" in run.status_text()[1]
        set_by_hand(source_cluster, topic, retention_bytes=None)

        seen.client.told("PUT", f"{seen.client.connector()}/pause", 202)
        seen.client.wait_for_state("PAUSED")
        before = seen.told()
        send(source_cluster, topic, 500)
        wait_until(lambda: seen.trend() == "growing", "nothing is copied, and records come")
        paused = seen.told()
        assert paused["movement"]["since_ms"] == before["movement"]["since_ms"] == command["since_ms"]
        assert (
            paused["movement"]["catch_up_s"] is None and paused["behind"][0]["lag"] == before["behind"][0]["lag"] + 500
        )
        assert paused["movement"]["expiry"] == "at-this-rate" and paused["movement"]["expires_s"] > 80_000
        assert seen.over_rest()["since_ms"] == command["since_ms"]
        assert seen.metrics() == {}, "no worker runs the flow"

        seen.client.told("PATCH", f"{seen.client.connector()}/config", 200, json={"bytes.per.second.max": "50000000"})
        seen.client.told("PUT", f"{seen.client.connector()}/resume", 202)
        run.wait_until(lambda: record_count(target_cluster, f"{alias}.{topic}") == 8_510, "all is copied")
        wait_until(lambda: seen.trend() == "keeps-up" and not seen.told()["behind"], "it keeps up again")
        wait_until(lambda: seen.metrics().get("expires_seconds") == math.inf, "and so the metrics say")
        assert seen.over_rest()["since_ms"] is None and "since_seconds" not in seen.metrics()
        wait_until(lambda: alerts() == [], "and no alert has a series")
