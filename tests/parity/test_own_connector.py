"""A MirrorSourceConnector of Kafka Connect with a name of its own hands its flow to mm2py, and nothing comes twice.

Its positions stand under that name, in a topic that only its Connect cluster knows. So mm2py finds none, refuses the
topic, and says how to bring them: stop, PATCH, resume, rebuild the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from deploy.local.broker_settings import render_properties
from deploy.local.jars import jar_directory
from deploy.local.jvm import JavaServer
from deploy.local.kafka import KafkaCluster
from deploy.local.ports import HOST, lease_ports
from tests.cluster.copies import make_topic
from tests.cluster.kafka_client import new_name, values, write
from tests.cluster.refusal import Refusal
from tests.cluster.rest.serving import LISTENERS, asked
from tests.cluster.running import ANSWER_S, PATIENCE, Mm2py, one_way_properties, wait_until

NAME = "my-mirror"
CONNECT_S = 120.0 * PATIENCE
PARTITIONS = (0, 1)
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"

pytestmark = pytest.mark.timeout(600 * PATIENCE)


@contextmanager
def connect_cluster(target: KafkaCluster, directory: Path) -> Iterator[httpx2.Client]:
    """Run a Connect worker beside the target, with topics of its own, and yield who asks it."""
    stem, (port,) = new_name("connect"), lease_ports(1)
    settings = {
        "bootstrap.servers": target.bootstrap,
        "group.id": stem,
        "listeners": f"http://{HOST}:{port.port}",
        "key.converter": BYTES,
        "value.converter": BYTES,
        "header.converter": BYTES,
        "offset.flush.interval.ms": "1000",  # what it stores when it stops may come too late on a busy machine
    }
    for kept in ("config", "offset", "status"):
        settings |= {f"{kept}.storage.topic": f"{stem}-{kept}s", f"{kept}.storage.replication.factor": "1"}
    (directory / "connect.properties").write_text(render_properties(settings))
    server = JavaServer(
        "org.apache.kafka.connect.cli.ConnectDistributed",
        [str(directory / "connect.properties")],
        jars=jar_directory(),
        log_path=directory / "connect.log",
    )
    server.start()
    try:
        with httpx2.Client(base_url=f"http://{HOST}:{port.port}", timeout=ANSWER_S) as client:
            yield client
    finally:
        server.stop()
        port.release()


def answers(client: httpx2.Client, method: str, path: str, code: int, body: object = None) -> bool:
    """Whether a request is answered with this code; a worker that has not started yet answers something else."""
    try:
        return client.request(method, path, json=body).status_code == code
    except httpx2.TransportError:
        return False


def test_the_positions_of_a_connector_with_a_name_of_its_own_are_brought_as_the_refusal_says(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    a, b = new_name("S").replace("-", ""), new_name("T").replace("-", "")
    topic, flow = new_name("orders"), f"{a}->{b}"
    remote = f"{a}.{topic}"
    make_topic(source_cluster, topic, len(PARTITIONS))
    wanted = {number: [b"%d of %d" % (one, number) for one in range(40 + number)] for number in PARTITIONS}
    for number in PARTITIONS:
        write(source_cluster, topic, wanted[number], partition=number)
    connector = {
        "name": NAME,
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": a,
        "target.cluster.alias": b,
        "source.cluster.bootstrap.servers": source_cluster.bootstrap,
        "target.cluster.bootstrap.servers": target_cluster.bootstrap,
        "topics": topic,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "sync.topic.acls.enabled": "false",
        "heartbeats.replication.enabled": "false",  # another test may have left that topic on the shared source
    }
    with connect_cluster(target_cluster, tmp_path) as client:
        wait_until(
            lambda: answers(client, "PUT", f"/connectors/{NAME}/config", 201, connector),
            "Connect takes the connector",
            deadline_s=CONNECT_S,
        )
        for number in PARTITIONS:
            wait_until(
                lambda number=number: values(target_cluster, remote, [number]) == wanted[number],
                "Connect has copied the topic",
                deadline_s=CONNECT_S,
            )
        ends = sorted(len(wanted[number]) - 1 for number in PARTITIONS)
        wait_until(
            lambda: (
                sorted(one["offset"]["offset"] for one in client.get(f"/connectors/{NAME}/offsets").json()["offsets"])
                == ends
            ),
            "Connect has stored where it is",
            deadline_s=CONNECT_S,
        )
        wait_until(lambda: answers(client, "PUT", f"/connectors/{NAME}/stop", 204), "it stops", deadline_s=CONNECT_S)
        positions = client.get(f"/connectors/{NAME}/offsets").json()

    file = tmp_path / "mm2.properties"
    properties = one_way_properties(source_cluster, target_cluster, names=(a, b))
    properties |= {f"{flow}.topics": topic, "listeners": LISTENERS, "config.storage.replication.factor": 1}
    file.write_text(render_properties(properties))
    with Mm2py(file) as run:
        why = run.wait_for_event("topic.refused", flow=flow, topic=topic)["why"]
        assert "GET /connectors/NAME/offsets" in why
        assert "Delete" not in why
        refusal = Refusal(why, asked(run, flow))
        refusal.send(positions)
        for number in PARTITIONS:
            write(source_cluster, topic, ["later"], partition=number)
            run.wait_until(
                lambda number=number: values(target_cluster, remote, [number])[-1:] == [b"later"], "mm2py goes on"
            )
            assert values(target_cluster, remote, [number]) == [*wanted[number], b"later"]
        assert "2 partition(s): 2 rebuilt" in refusal.rebuild()
        assert run.terminate() == 0
