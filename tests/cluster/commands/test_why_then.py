"""``mm2py why --at`` on real brokers: how it was, from the flight recorder, also when the worker has died."""

from __future__ import annotations

import json
import time

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import new_topic
from tests.cluster.kafka_client import create_topic, delete_topic, new_name, record_count, topic_config, write
from tests.cluster.rest.serving import asked
from tests.cluster.running import Mm2py, one_way_properties, wait_until


def now() -> str:
    return str(int(time.time() * 1000))


def test_it_says_how_it_was_before_and_after_each_change_and_after_a_kill(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    before_all = now()
    topic, filled = new_topic(source_cluster, "then"), new_topic(source_cluster, "filled")
    alias, group = new_name("W").replace("-", ""), new_name("group")
    flow = f"{alias}->B"
    create_topic(target_cluster, f"{alias}.{filled}", 1)
    write(target_cluster, f"{alias}.{filled}", [b"of another writer"])
    write(source_cluster, topic, [b"1"])
    write(source_cluster, filled, [b"1"])
    properties = one_way_properties(
        source_cluster,
        target_cluster,
        names=(alias, "B"),
        **{f"{flow}.topics": f"{topic},{filled}", "mm2py.group": group, "listeners": "http://127.0.0.1:0"},
        **{"config.storage.replication.factor": 1},
    )
    with Mm2py(properties) as run:

        def then(name: str, at: str) -> tuple[int, str]:
            return run.why(flow, "--topic", name, "--at", at)

        run.wait_until(lambda: record_count(target_cluster, f"{alias}.{topic}") == 1, "it is copied")
        refused = f"{filled}: refused since"
        wait_until(lambda: refused in then(filled, now())[1], "the recorder has more than the line of the log")
        while_refused = now()
        code, text = then(filled, while_refused)
        assert "is not empty there" in text and "  also:" not in text, text
        assert code == 3 and refused in text, text
        wait_until(lambda: then(topic, now())[0] == 0, "the other one is told to be replicated")
        code, text = then(f"{topic}-x", while_refused)
        assert code == 3 and "No pattern of topics (stored as version 1 by file" in text, text
        code, text = then(topic, before_all)
        assert code == 1 and "It is not known whether it was replicated:" in text, text

        delete_topic(target_cluster, f"{alias}.{filled}")
        run.wait_until(lambda: record_count(target_cluster, f"{alias}.{filled}") == 1, "it is copied, too")
        wait_until(lambda: then(filled, now())[0] == 0, "the end of the refusal is recorded")
        while_copied = now()
        client, path = asked(run, flow), f"/v1/flows/{flow}/why"
        answer = client.told("GET", f"{path}?topic={filled}&at={while_refused}", 200)
        assert (answer["replicated"], answer["reason"]) == ("no", "refused"), answer
        assert answer["at_ms"] == int(while_refused) and answer["around"], answer
        client.told("GET", f"{path}?topic={filled}&at=tomorrow", 400)
        client.told("GET", f"{path}?group=g&at=1h", 400)

        run.kill()
        wait_until(lambda: "No worker of group" in run.why(flow, "--topic", topic)[1], "it is told that no worker runs")
        wait_until(lambda: "No worker of group" in then(topic, now())[1], "so it is said of a moment after the kill")
        code, text = then(filled, while_refused)
        assert code == 3 and "is not empty there" in text and "the reason has ended" in text, text
        assert then(filled, while_copied)[0] == 0
        code, text = run.why(flow, "--partition", f"{filled}/0", "--at", while_refused, "--json")
        told = json.loads(text)
        assert (code, told["exit_code"], told["reason"], told["lost"]) == (3, 3, "refused", 0), text
    assert topic_config(target_cluster, f"mm2-flight.{alias}.internal", "retention.ms") == "86400000"
