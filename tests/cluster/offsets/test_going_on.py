"""The way back under the identity policy: B took over from A, and A gets exactly what is missing there, once.

The topic on A is not empty, and no position says how far it is: the refusal names the way, and the test walks it.
"""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from deploy.local.broker_settings import render_properties
from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import make_topic
from tests.cluster.kafka_client import new_name, offsets, values, write
from tests.cluster.refusal import Refusal
from tests.cluster.rest.serving import LISTENERS, asked
from tests.cluster.running import ANSWER_S, Mm2py, Value, one_way_properties

IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
PARTITIONS = (0, 1)


def transactions(cluster: KafkaCluster, topic: str, partition: int) -> list[bytes]:
    """Write ten records in five transactions, and return those of committed ones."""
    client = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": new_name("writer"), "log_level": 0})
    client.init_transactions(ANSWER_S)
    committed = []
    for number in range(5):
        client.begin_transaction()
        some = [f"{partition}.{number}.{at}" for at in range(2 + partition)]
        for value in some:
            client.produce(topic, value, partition=partition)
        client.flush(ANSWER_S)  # an abort before the partition was added may be refused by the broker
        if number == 2:
            client.abort_transaction(ANSWER_S)
        else:
            client.commit_transaction(ANSWER_S)
            committed += some
    return [value.encode() for value in committed]


def test_a_failback_under_the_identity_policy_goes_on_behind_what_is_there_as_its_refusal_says(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    a, b = new_name("A").replace("-", ""), new_name("B").replace("-", "")
    topic = new_name("idt")
    make_topic(source_cluster, topic, len(PARTITIONS))
    wanted = {number: transactions(source_cluster, topic, number) for number in PARTITIONS}
    properties: dict[str, Value] = one_way_properties(
        source_cluster,
        target_cluster,
        names=(a, b),
        **{"topics": topic, "replication.policy.class": IDENTITY, f"{a}.consumer.isolation.level": "read_committed"},
    )
    properties |= {"listeners": LISTENERS, "config.storage.replication.factor": 1}

    def there(cluster: KafkaCluster, number: int) -> list[bytes]:
        return values(cluster, topic, [number])

    with Mm2py(properties) as run:
        for number in PARTITIONS:
            run.wait_until(lambda number=number: there(target_cluster, number) == wanted[number], "B has all of it")
        assert run.terminate() == 0
    for number in PARTITIONS:  # B is the primary now
        write(target_cluster, topic, [f"{number} of B", f"{number} more"], partition=number)

    file = tmp_path / "mm2.properties"
    file.write_text(render_properties(properties | {f"{a}->{b}.enabled": False, f"{b}->{a}.enabled": True}))
    with Mm2py(file) as run:
        why = run.wait_for_event("topic.refused", flow=f"{b}->{a}", topic=topic)["why"]
        assert f"copies it from {a} to {b} under the same name. Its records would come back" in why
        assert "recopy" not in why and "elete" not in why
        client = asked(run, f"{b}->{a}")
        refusal = Refusal(why, client)
        ends = {number: offsets(source_cluster, topic, number)[1] for number in PARTITIONS}
        before = {number: there(source_cluster, number) for number in PARTITIONS}
        refusal.go_on_behind({number: refusal.next_offset(number, end) - 1 for number, end in ends.items()})
        for number in PARTITIONS:
            write(target_cluster, topic, [f"{number} later"], partition=number)
            news = [f"{number} {word}".encode() for word in ("of B", "more", "later")]
            run.wait_until(lambda number=number: there(source_cluster, number)[-1] == b"%d later" % number, "A has all")
            assert there(source_cluster, number) == before[number] + news
        assert "2 partition(s): 2 rebuilt" in refusal.rebuild()
        assert run.terminate() == 0
