"""``mm2py rebuild-ledger`` on real brokers, as a process: a flow has copied transactions, and its ledger is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from deploy.local.broker_settings import render_properties
from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import new_topic
from tests.cluster.kafka_client import delete_topic, new_name, topic_names, write
from tests.cluster.kafka_client import read as records_of
from tests.cluster.running import ANSWER_S, COMMAND_S, OWN_PATH, Mm2py, one_way_properties, wait_until


def command(*arguments: str) -> tuple[int, dict[str, Any]]:
    ended = subprocess.run(
        [sys.executable, "-m", "mm2py", *arguments, "--json"],
        capture_output=True,
        timeout=COMMAND_S,
        check=False,
        text=True,
        env={**os.environ, "PYTHONPATH": OWN_PATH},
    )
    assert ended.stdout, ended.stderr
    found = json.loads(ended.stdout)
    assert found["exit_code"] == ended.returncode
    return ended.returncode, found


def transactions(cluster: KafkaCluster, topic: str, values: Sequence[Sequence[str]]) -> None:
    """Write each sequence in a transaction; every third one is aborted."""
    client = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": new_name("writer"), "log_level": 0})
    client.init_transactions(ANSWER_S)
    for number, some in enumerate(values):
        client.begin_transaction()
        for value in some:
            client.produce(topic, value, f"{number}", partition=0, headers=[("h", b"1")])
        client.flush(ANSWER_S)  # an abort before the partition was added may be refused by the broker
        client.abort_transaction(ANSWER_S) if number % 3 == 2 else client.commit_transaction(ANSWER_S)


def test_a_lost_ledger_is_rebuilt_from_both_logs_and_a_foreign_record_is_named(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    alias, other = new_name("A").replace("-", ""), new_name("B").replace("-", "")
    topic, ledger = new_topic(source_cluster, "orders"), f"mm2-ledger.{alias}.internal"
    remote, flow = f"{alias}.{topic}", f"{alias}->{other}"
    properties = one_way_properties(source_cluster, target_cluster, names=(alias, other))
    properties |= {f"{flow}.topics": topic, f"{alias}.consumer.isolation.level": "read_committed"}
    transactions(source_cluster, topic, [[f"{number}.{at}" for at in range(5)] for number in range(12)])
    write(source_cluster, topic, [f"plain {number}" for number in range(50)])
    file = tmp_path / "mm2.properties"
    file.write_text(render_properties(properties))
    with Mm2py(file) as run:
        run.wait_until(lambda: len(records_of(target_cluster, remote)) == 90, "all committed records arrived")
        assert run.terminate() == 0
    wanted = [one.value() for one in records_of(source_cluster, topic)]
    places = {one.value(): one.offset() for one in records_of(source_cluster, topic)}
    copies = {one.value(): one.offset() for one in records_of(target_cluster, remote)}
    assert len(wanted) == 90

    delete_topic(target_cluster, ledger)
    wait_until(lambda: ledger not in topic_names(target_cluster), "the ledger is lost")
    code, found = command("rebuild-ledger", str(file), flow)
    assert code == 0, found
    (report,) = found["partitions"]
    assert (report["outcome"], report["records"], report["remote_topic"]) == ("rebuilt", 90, remote)
    asked = [one for value in wanted for one in ("--offset", str(places[value]))]
    code, found = command("translate", str(file), flow, "--topic", topic, "--partition", "0", *asked)
    assert code == 0
    assert [one["other_offset"] for one in found["offsets"]] == [copies[value] for value in wanted]
    assert {(one["kind"], one["is_exact"], one["basis"]) for one in found["offsets"]} == {("copied", True, "ledger")}
    code, found = command("rebuild-ledger", str(file), flow)
    assert (code, [one["outcome"] for one in found["partitions"]]) == (0, ["whole"])

    write(source_cluster, topic, ["later"])
    write(target_cluster, remote, ["foreign"])
    with Mm2py(file) as run:
        run.wait_until(lambda: len(records_of(target_cluster, remote)) == 92, "the later record arrived")
        assert run.terminate() == 0
    delete_topic(target_cluster, ledger)
    wait_until(lambda: ledger not in topic_names(target_cluster), "the ledger is lost again")
    code, found = command("rebuild-ledger", str(file), flow, "--topic", topic, "--partition", "0")
    assert (code, found["partitions"][0]["outcome"]) == (3, "refused")
    assert f"offset {places[b'plain 49'] + 1} of {topic}-0 on {alias}" in found["partitions"][0]["text"]
