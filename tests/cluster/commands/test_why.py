"""``mm2py why`` as a process on real brokers: topics, partitions and groups, with and without a worker."""

from __future__ import annotations

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import new_topic
from tests.cluster.group_offsets import commit
from tests.cluster.kafka_client import new_name, record_count, write
from tests.cluster.running import Mm2py, one_way_properties, wait_until


def test_it_says_which_line_decides_and_what_changed_when_the_worker_is_gone(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic, left_out = new_topic(source_cluster, "why"), new_topic(source_cluster, "left-out")
    alias, group = new_name("W").replace("-", ""), new_name("billing")
    flow = f"{alias}->B"
    properties = one_way_properties(
        source_cluster,
        target_cluster,
        names=(alias, "B"),
        **{
            f"{flow}.topics": f"{topic},{left_out}",
            f"{flow}.topics.exclude": left_out,
            "config.storage.replication.factor": 1,
            "emit.checkpoints.enabled": True,
            "emit.checkpoints.interval.seconds": 1,
            "groups": "billing.*",
        },
    )
    write(source_cluster, topic, [b"1", b"2"])
    commit(source_cluster, group, topic, 1)
    with Mm2py(properties) as run:
        run.wait_until(lambda: record_count(target_cluster, f"{alias}.{topic}") == 2, "it is copied")
        wait_until(lambda: run.why(flow, "--topic", topic)[0] == 0, "it is told that it is replicated")
        code, text = run.why(flow, "--topic", topic)
        assert code == 0 and f"It is replicated to {alias}.{topic}. Pattern `{topic}` (entry 1 of" in text, text
        code, text = run.why(flow, "--partition", f"{topic}/0")
        assert code == 0 and "Copied up to offset 2 of 2." in text, text
        code, text = run.why(flow, "--partition", f"{topic}/7")
        assert code == 3 and "has 1 partition of" in text, text
        code, text = run.why(flow, "--topic", left_out)
        assert code == 3 and f"Pattern `{left_out}` (entry 1 of" in text and "stored as version 1 by file" in text, text
        assert f"mm2py apply {run.file}" in text, text
        code, text = run.why(flow, "--topic", "no-such-topic")
        assert code == 3 and "has no topic of this name." in text, text
        run.wait_until(lambda: run.why(flow, "--group", group)[0] == 0, "the group can continue there")
        assert "It can continue on B at the exact record." in run.why(flow, "--group", group)[1]
        code, text = run.why(flow, "--group", "other")
        assert code == 3 and "No pattern of groups" in text, text
        assert run.terminate() == 0
        wait_until(lambda: "No worker of group" in run.why(flow, "--topic", topic)[1], "it is told that no worker runs")
        code, text = run.why(flow, "--topic", topic)
        assert code == 3 and "Start one: mm2py" in text and str(run.file) in text, text
