"""What operators do over REST about records that are not in the copy, between real brokers: accepted and replayed."""

from __future__ import annotations

from typing import Any

from deploy.local.kafka import KafkaCluster
from tests.checker.traffic import Planned
from tests.cluster.copies import make_topic, new_topic, send
from tests.cluster.copying.test_gaps import delete_before, numbered
from tests.cluster.copying.test_quarantine import properties_of
from tests.cluster.kafka_client import new_name, values, write
from tests.cluster.rest.serving import LISTENERS, asked
from tests.cluster.running import Mm2py
from tests.cluster.topics.test_topic_sync import set_by_hand


def test_a_gap_is_accepted_and_a_refused_record_is_replayed_over_rest(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    alias = new_name("R").replace("-", "")
    topic = new_topic(source_cluster, "lost", configs={"max.message.bytes": "200000"})
    remote, flow = f"{alias}.{topic}", f"{alias}->B"
    make_topic(target_cluster, remote, configs={"max.message.bytes": "30000"})
    write(source_cluster, topic, numbered(0, 9))
    properties = properties_of(
        source_cluster,
        target_cluster,
        alias,
        topic,
        **{"on.source.gap": "stop", "config.storage.replication.factor": 1, "listeners": LISTENERS},
    )
    with Mm2py(properties) as run:
        run.wait_until(lambda: len(values(target_cluster, remote)) == 10, "the first ten are copied")
        client = asked(run, flow)
        at = f"/v1/flows/{flow}/topics/{topic}"

        send(source_cluster, topic, [Planned(0, 1_000, b"large", bytes(100_000), ())])
        write(source_cluster, topic, numbered(11, 11))
        run.wait_until(lambda: b"11" in values(target_cluster, remote), "copying goes on behind the refused record")
        kept = run.wait_until(lambda: client.told("GET", f"/v1/flows/{flow}/quarantine", 200)["items"], "it is kept")
        assert [(one["offset"], one["replayed_at_ms"]) for one in kept] == [(10, None)]
        refused = client.told("POST", f"{at}/replay", 409)["message"]
        assert f"{remote} still refuses {topic}-0 at offset 10" in refused
        set_by_hand(target_cluster, remote, max_message_bytes="200000")
        answer = client.told("POST", f"{at}/replay", 200, json={"partition": 0, "offset": 10, "reason": "ticket 4711"})
        assert answer["message"].startswith(f"1 record(s) were appended to {remote}")
        assert "were appended" in client.told("POST", f"{at}/replay", 404)["message"]
        copied = [*numbered(0, 9), b"11", bytes(100_000)]
        assert values(target_cluster, remote) == copied

        client.told("PUT", f"{at}/partitions/0/pause", 202)
        run.wait_for_event("topic.paused")
        write(source_cluster, topic, numbered(12, 29))
        delete_before(source_cluster, topic, 25)
        client.told("PUT", f"{at}/partitions/0/resume", 202)

        def open_gaps() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = client.told("GET", f"/v1/flows/{flow}/gaps", 200)["items"]
            return [one for one in found if one["kind"] == "expired"]

        (gap,) = run.wait_until(open_gaps, "the partition has stopped at the gap")
        assert (gap["first_offset"], gap["last_offset"], gap["position"]) == (12, 24, 12)
        other = client.told("POST", f"{at}/partitions/0/accept", 409, json={"position": 11})["message"]
        assert "waits now is the one at position 12, not 11" in other
        assert values(target_cluster, remote) == copied, "nothing was accepted"
        told = client.told("POST", f"{at}/partitions/0/accept", 200, json={"position": 12})["message"]
        assert told == f"{topic}-0 was accepted: it goes on at source offset 25."
        run.wait_until(lambda: values(target_cluster, remote) == [*copied, *numbered(25, 29)], "it goes on behind it")
        assert "waits for an operator" in client.told("POST", f"{at}/partitions/0/accept", 404)["message"]
        assert run.terminate() == 0
