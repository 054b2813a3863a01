"""Real MirrorMaker 2's configs topic: mm2py reads what it wrote, and it goes on with what mm2py wrote."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local.broker_settings import render_properties
from deploy.local.jars import jar_directory
from deploy.local.jvm import JavaServer
from deploy.local.kafka import KafkaCluster
from mm2py.cli.apply import connect_target
from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.flow import parse_flow
from mm2py.records.connector_config import CONNECTORS, ConfigRecords, DecidedBy, encode_connectors
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.shared_settings.flow_config import counting
from tests.cluster.commands.test_apply import run_apply
from tests.cluster.copies import new_topic
from tests.cluster.kafka_client import new_name, read, record_count, topic_names, values, write
from tests.cluster.running import PATIENCE, Value, one_way_properties, wait_until

MM2_DEADLINE_S = 120.0 * PATIENCE

pytestmark = pytest.mark.timeout(400 * PATIENCE)

# MirrorMaker 2 reads our settings before it writes its own over them, as soon as it leads: a moment in which its
# connectors look for addresses and find none. It also names the keys that it does not know.
EXPECTED = re.compile(
    r"Discarding config update record with invalid key: mm2py-(?:flow|history-)"
    r"|WorkerConnector\{id=Mirror\w+Connector\} Error while starting connector"
    r"|Failed to start connector 'Mirror\w+Connector'"
)


@contextmanager
def mirror_maker_2(properties: dict[str, Value], directory: Path) -> Iterator[Path]:
    settings = {
        key: value for key, value in properties.items() if key not in ("mm2py.group", "topics.watch.interval.ms")
    }
    (directory / "mm2.properties").write_text(render_properties(settings))
    log = directory / "mm2.log"
    server = JavaServer(
        "org.apache.kafka.connect.mirror.MirrorMaker",
        [str(directory / "mm2.properties")],
        jars=jar_directory(),
        log_path=log,
    )
    server.start()
    try:
        yield log
    finally:
        server.stop(timeout_s=60)


def read_table(file: SettingsFile) -> ConfigRecords:
    """Read the configs topic with our own code, over a real connection."""

    async def main() -> ConfigRecords:
        (settings,) = file.configuration().flows
        cluster = connect_target(settings, random.Random(1))
        try:
            table = ConfigTable(cluster, settings.configs_topic)
            await table.read_patiently(random.Random(1))
            return table.records
        finally:
            await cluster.close()

    return asyncio.run(main())


def states(cluster: KafkaCluster, alias: str) -> dict[str, str]:
    """Return the states of its connectors, by Connect's status topic."""
    found = {message.key(): message.value() for message in read(cluster, f"mm2-status.{alias}.internal", range(5))}
    prefix = b"status-connector-"
    return {
        key.removeprefix(prefix).decode(): json.loads(value)["state"]
        for key, value in found.items()
        if key is not None and key.startswith(prefix) and value is not None
    }


def test_mirrormaker_2s_settings_are_read_and_ours_do_not_hinder_it(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    alias, other = new_name("P").replace("-", ""), new_name("Q").replace("-", "")
    flow = parse_flow(f"{alias}->{other}")
    topic = new_topic(source_cluster, "configs")
    remote = f"{alias}.{topic}"
    properties = one_way_properties(source_cluster, target_cluster, names=(alias, other)) | {
        f"{flow}.topics": f"{topic}.*,ä.*",
        f"{flow}.sync.topic.acls.enabled": False,
        f"{alias}.consumer.fetch.max.bytes": 1_000_000,
        f"{flow}.producer.override.linger.ms": 7,
        "refresh.topics.interval.seconds": 5,
        "emit.checkpoints.enabled": True,
        "config.storage.replication.factor": 1,
        "offset-syncs.topic.replication.factor": 1,
        "checkpoints.topic.replication.factor": 1,
    }
    path = tmp_path / "ours.properties"
    path.write_text(render_properties(properties))
    file = read_settings_file(path, None)
    write(source_cluster, topic, [b"1"])
    with mirror_maker_2(properties, tmp_path):
        wait_until(
            lambda: remote in topic_names(target_cluster) and record_count(target_cluster, remote) == 1,
            "it copies",
            deadline_s=MM2_DEADLINE_S,
        )

    records = read_table(file)
    stored = counting(records)
    assert stored is not None and stored.by is DecidedBy.MM2
    of_worker = {"offset.storage.partitions", "offset.storage.replication.factor", "status.storage.replication.factor"}
    dropped = {"topics.watch.interval.ms"}
    wanted = {name: text for name, text in file.shared(flow).items() if name not in of_worker | dropped}
    assert stored.properties == wanted
    assert records.malformed == []
    assert records.skipped["unknown"] == 0 and {"task", "commit"} <= records.skipped.keys()
    ours = encode_connectors(wanted, alias, other)
    for name in CONNECTORS:
        said = json.loads(ours[b"connector-" + name.encode()])["properties"]
        assert said.items() <= dict(records.connectors[name]).items(), f"{name}: we write what it does, but addresses"

    code, out, err = run_apply(path, properties | {f"{flow}.topics": topic}, "--yes")
    assert (code, err) == (0, ""), out
    assert f"{flow} (written by MirrorMaker 2):\n" in out
    assert f"  topics: '{topic}.*,ä.*' -> '{topic}'\n" in out
    again = counting(read_table(file))
    assert again is not None and (again.by, again.version) == (DecidedBy.APPLY, 1)
    assert again.previous is not None and again.previous.properties == wanted

    write(source_cluster, topic, [b"2"])
    later = new_topic(source_cluster, f"{topic}-later")
    write(source_cluster, later, [b"3"])
    with mirror_maker_2(properties, tmp_path) as log:
        wait_until(lambda: record_count(target_cluster, remote) == 2, "it goes on", deadline_s=MM2_DEADLINE_S)
        wait_until(
            lambda: f"{alias}.{later}" in topic_names(target_cluster), "it finds topics", deadline_s=MM2_DEADLINE_S
        )
        wait_until(
            lambda: states(target_cluster, alias) == dict.fromkeys(CONNECTORS, "RUNNING"),
            "all of its connectors run",
            deadline_s=MM2_DEADLINE_S,
        )
        text = log.read_text()
    assert values(target_cluster, remote) == [b"1", b"2"]
    errors = [line for line in text.splitlines() if " ERROR " in line]
    assert [line for line in errors if not EXPECTED.search(line)] == []
    back = counting(read_table(file))
    assert back is not None and (back.by, dict(back.properties)) == (DecidedBy.MM2, wanted), (
        "it has written its own again"
    )
