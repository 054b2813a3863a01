"""Two files with other aliases for the same two clusters, as processes on real brokers."""

from __future__ import annotations

import re
import uuid
from typing import Any

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import new_topic
from tests.cluster.kafka_client import topic_names, values, write
from tests.cluster.rest.serving import LISTENERS, Asked, asked
from tests.cluster.running import Mm2py, Value, one_way_properties
from tests.cluster.why_table import wait_for_cause


def settled(run: Mm2py) -> tuple[int, Any] | None:
    """Return the exit code and the body of ``mm2py status``, when nothing begins or waits any more."""
    code, told = run.status()
    topics = told["flows"][0]["topics"]
    passing = [one for topic in topics for one in topic["not_copied"] if one["reason"] != "ring"]
    return None if code or passing else (code, told)


def names_ring(run: Mm2py, other: str) -> bool:
    return any(event["why"].startswith(f"Flow {other} of group ") for event in run.events("ring.found"))


def ring_topics(rest: Asked) -> float:
    """Return how many topics the metrics of a worker count as left out by a ring."""
    page = rest.get("/metrics").text
    return sum(float(count) for count in re.findall(r'mm2py_flow_not_copied_topics\{.*reason="ring".*\} (\S+)', page))


def test_two_processes_with_other_aliases_copy_each_original_once_and_both_name_the_ring(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    mark = uuid.uuid4().hex[:6]
    a, b, y, x = (f"{alias}{mark}" for alias in "abyx")
    orders, payments = new_topic(source_cluster, f"orders{mark}"), new_topic(target_cluster, f"payments{mark}")
    write(source_cluster, orders, [b"o1", b"o2"])
    write(target_cluster, payments, [b"p1", b"p2"])
    own: dict[str, Value] = {"topics": f".*{mark}.*", "refresh.topics.interval.seconds": 1}
    own["config.storage.replication.factor"] = 1
    there_file = one_way_properties(source_cluster, target_cluster, names=(a, b)) | own
    back_file = one_way_properties(target_cluster, source_cluster, names=(y, x)) | own
    with Mm2py(there_file) as there, Mm2py(back_file | {"listeners": LISTENERS}) as back:
        there.wait_until(lambda: values(target_cluster, f"{a}.{orders}") == [b"o1", b"o2"], "orders arrive")
        back.wait_until(lambda: values(source_cluster, f"{y}.{payments}") == [b"p1", b"p2"], "payments arrive")
        for run, other in ((there, f"{y}->{x}"), (back, f"{a}->{b}")):  # flows of other tests lead back as well
            run.wait_until(lambda run=run, other=other: names_ring(run, other), f"{other} is named")
        # The round that finds the last topic sees all copies that were made before, and would copy them back.
        late = new_topic(source_cluster, f"late{mark}")
        there.wait_until(lambda: f"{a}.{late}" in topic_names(target_cluster), "a new topic arrives")
        last = new_topic(target_cluster, f"last{mark}")
        back.wait_until(lambda: f"{y}.{last}" in topic_names(source_cluster), "the last topic arrives")
        copies = [name for name in (*topic_names(source_cluster), *topic_names(target_cluster)) if mark in name]
        originals = {orders, payments, late, last}
        assert {name for name in copies if not name.endswith(".internal")} == originals | {
            *(f"{a}.{orders}", f"{a}.{late}", f"{y}.{payments}", f"{y}.{last}")
        }
        code, told = back.wait_until(lambda: settled(back), "the status is settled")
        (flow,) = told["flows"]
        reasons = {topic["topic"]: [one["reason"] for one in topic["not_copied"]] for topic in flow["topics"]}
        ring = {copy: ["ring"] for copy in (f"{a}.{orders}", f"{a}.{late}")}
        assert code == 0 and reasons == {payments: [], last: []} | ring, told
        assert {one["reason"] for one in flow["not_copied"]} == {"ring"}
        rest = asked(back, f"{y}->{x}")
        items = rest.told("GET", f"/v1/flows/{y}->{x}/topics?limit=1000", 200)["items"]
        told = {one["topic"]: (one["is_copied"], one["reason"], one["lag_records"]) for one in items}
        assert {copy: told[copy] for copy in ring} == dict.fromkeys(ring, (False, "ring", None))
        why = f"/v1/flows/{y}->{x}/why?topic={a}.{orders}"
        assert wait_for_cause("ring", lambda: rest.told("GET", why, 200))["replicated"] == "no"
        status = rest.told("GET", f"{rest.connector()}/status", 200)
        assert not any(one.get("trace") for one in (status["connector"], *status["tasks"])), "it is no problem"
        back.wait_until(lambda: ring_topics(rest) == len(ring), "it is counted")
        assert there.terminate() == 0 and back.terminate() == 0
    assert values(target_cluster, f"{a}.{orders}") == [b"o1", b"o2"]
    assert values(source_cluster, f"{y}.{payments}") == [b"p1", b"p2"]
