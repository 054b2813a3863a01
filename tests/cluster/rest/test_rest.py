"""A real worker's REST: what an operator changes over it, by hand or with a client that was written for Connect."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from kafka_connect import KafkaConnect
from requests.exceptions import HTTPError

from deploy.local.kafka import KafkaCluster
from mm2py.login import host_name
from mm2py_rest.events.feed import STREAMS_MOST
from tests.cluster.kafka_client import create_topic, new_name, values, write
from tests.cluster.rest.serving import LISTENERS, Asked, asked, lines_of_page, run_line, token
from tests.cluster.running import COMMAND_S, DEADLINE_S, OWN_PATH, PATIENCE, Mm2py, one_way_properties, wait_until

RECORDS = 100


class Mirror:
    """A flow that copies two topics, and the worker that runs it."""

    def __init__(self, run: Mm2py, client: Asked, topics: tuple[str, str]) -> None:
        self.run = run
        self.client = client
        self.topics = topics


@pytest.fixture(scope="module")
def mirror(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[Mirror]:
    a, b = new_name("A"), new_name("B")
    topics = new_name("orders"), new_name("payments")
    for topic in topics:
        create_topic(source_cluster, topic)
    properties = one_way_properties(
        source_cluster,
        target_cluster,
        names=(a, b),
        **{"listeners": LISTENERS, f"{a}->{b}.topics": ",".join(topics), "config.storage.replication.factor": 1},
    )
    with Mm2py(properties) as run:
        run.wait_for_event("topics.copying", deadline_s=2 * DEADLINE_S)
        yield Mirror(run, asked(run, f"{a}->{b}"), topics)


@pytest.fixture(autouse=True)
def is_resumed(mirror: Mirror) -> None:
    """Whatever became of the test before."""
    mirror.client.put(f"{mirror.client.connector()}/resume")


def test_what_a_worker_tells_of_itself_and_its_connectors(mirror: Mirror, target_cluster: KafkaCluster) -> None:
    client = mirror.client
    root = client.told("GET", "/", 200)
    assert root == {"version": "0.1.0", "commit": "unknown", "kafka_cluster_id": target_cluster.cluster_id}
    assert client.told("GET", "/health", 200)["status"] == "healthy"
    name = f"{client.flow}.MirrorSourceConnector"
    assert name in client.told("GET", "/connectors", 200)
    client.wait_for_state("RUNNING")
    status = client.told("GET", f"{client.connector()}/status", 200)
    assert [task["state"] for task in status["tasks"]] == ["RUNNING"]
    assert client.told("GET", "/connectors/x%2F..%2Fy/status", 404)["error_code"] == 404


def test_a_setting_is_changed_in_place_within_seconds(mirror: Mirror) -> None:
    client, run = mirror.client, mirror.run
    read = client.get(f"{client.connector()}/config")
    before = len(run.events("flow.ready"))
    changed = client.patch(
        f"{client.connector()}/config", json={"offset.lag.max": 7}, headers={"If-Match": read.headers["etag"]}
    )
    assert (changed.status_code, changed.json()["restarts_for"]) == (200, [])
    version = changed.json()["version"]
    assert changed.headers["etag"] == f'"{version}"'
    run.wait_for_event("config.changed", version=version, by="rest", deadline_s=20 * PATIENCE)  # two, mostly
    late = client.patch(
        f"{client.connector()}/config", json={"offset.lag.max": 8}, headers={"If-Match": read.headers["etag"]}
    )
    assert late.status_code == 409
    config = client.told("GET", f"{client.connector()}/config", 200)
    again = client.told("PUT", f"{client.connector()}/config", 200, json=config)
    assert (again["version"], again["config"]["offset.lag.max"]) == (version, "7")
    assert len(run.events("flow.ready")) == before


def test_stopped_altered_and_resumed_copies_again_behind_the_offset(
    mirror: Mirror, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    client, topic = mirror.client, mirror.topics[0]
    remote = f"{client.flow.partition('->')[0]}.{topic}"
    write(source_cluster, topic, map(str, range(RECORDS)))
    mirror.run.wait_until(lambda: len(values(target_cluster, remote)) == RECORDS, "all is copied")
    client.told("PUT", f"{client.connector()}/stop", 204)
    client.wait_for_state("STOPPED")
    source = client.flow.partition("->")[0]
    partition = {"cluster": source, "topic": topic, "partition": 0}

    def offset() -> int:
        found = client.told("GET", f"{client.connector()}/offsets", 200)["offsets"]
        return next((one["offset"]["offset"] for one in found if one["partition"] == partition), -1)

    wait_until(lambda: offset() == RECORDS - 1, "the position of the last record is shown")
    body = {"offsets": [{"partition": partition, "offset": {"offset": RECORDS - 11}}]}
    told = client.told("PATCH", f"{client.connector()}/offsets", 200, json=body)
    assert told["message"] == "The offsets for this connector have been altered successfully"
    assert offset() == RECORDS - 11
    client.told("PUT", f"{client.connector()}/resume", 202)
    mirror.run.wait_until(lambda: len(values(target_cluster, remote)) == RECORDS + 10, "ten are copied again")
    client.wait_for_state("RUNNING")


def test_a_worker_logs_more_while_somebody_looks(mirror: Mirror) -> None:
    client = mirror.client
    assert client.told("GET", "/admin/loggers/root", 200)["level"] == "INFO"
    assert client.told("PUT", "/admin/loggers/root", 200, json={"level": "ERROR"}) == ["root"]
    assert client.told("GET", "/admin/loggers/root", 200)["level"] == "ERROR"
    client.told("PUT", "/admin/loggers/root?scope=cluster", 204, json={"level": "INFO"})
    wait_until(lambda: client.told("GET", "/admin/loggers/root", 200)["level"] == "INFO", "it logs as before")


def test_the_lines_of_the_first_page_work(mirror: Mirror) -> None:
    lines = lines_of_page()
    assert len(lines) >= 5
    for line in lines:
        assert ("-X" in line) == line.startswith("token | "), "only changes take the token"
        printed = run_line(line, mirror.client)
        assert printed == "" if "-X PUT" in line else json.loads(printed)
    topics = ",".join(mirror.topics)
    mirror.client.told("PATCH", f"{mirror.client.connector()}/config", 200, json={"topics": topics})
    mirror.client.wait_for_state("RUNNING")


def test_kafka_connect_py_works_with_it(mirror: Mirror) -> None:
    client = KafkaConnect(mirror.client.address, auth=f"mm2py:{token()}")
    name = f"{mirror.client.flow}.MirrorSourceConnector"
    plugin = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
    assert client.get_cluster_info()["version"] == "0.1.0"
    wait_until(lambda: name in client.list_connectors(state="running"), "it runs")
    assert list(client.list_connectors(expand="status", pattern=".*Source.*")) == [name]
    assert client.get_connector(name)["config"] == client.get_connector_config(name)
    assert client.get_connector_status(name)["tasks"] == [client.get_connector_task_status(name, 0)]
    assert client.list_connector_tasks(name)[0]["id"] == {"connector": name, "task": 0}
    assert name in client.list_connector_topics(name)
    with pytest.raises(HTTPError, match="403"):
        client.reset_connector_topics(name)
    assert plugin in [one["class"] for one in client.list_connector_plugins()]
    config = client.get_connector_config(name)
    assert client.validate_connector_config(plugin, config)["error_count"] == 0
    updated = client.update_connector(name, {**config, "offset.lag.max": "50"})
    assert updated["config"]["offset.lag.max"] == "50"
    client.pause_connector(name)
    wait_until(lambda: client.get_connector_status(name)["connector"]["state"] == "PAUSED", "it is paused")
    client.resume_all_connectors(pattern=".*Source.*")
    wait_until(lambda: client.get_connector_status(name)["connector"]["state"] == "RUNNING", "it runs")
    client.stop_connector(name)
    client.resume_connector(name)
    assert client.restart_connector(name) is None
    assert client.restart_connector(name, include_tasks=True)["connector"]["state"] == "RESTARTING"
    wait_until(lambda: client.get_connector_status(name)["tasks"], "it has a task")
    client.restart_connector_task(name, 0)
    client.delete_connector(name)
    assert name not in client.list_connectors()
    created = client.create_connector({"name": name, "config": config})
    assert created["name"] == name
    assert name in client.list_connectors()
    with pytest.raises(HTTPError, match="409"):
        client.create_connector({"name": name, "config": config})


def test_kafka_connect_py_without_the_token_reads_and_is_told_how_it_may_change_something(mirror: Mirror) -> None:
    client, name = KafkaConnect(mirror.client.address), f"{mirror.client.flow}.MirrorSourceConnector"
    config = client.get_connector_config(name)
    assert name in client.list_connectors()
    changes: list[Callable[[], object]] = [
        lambda: client.pause_connector(name),
        lambda: client.stop_connector(name),
        lambda: client.restart_connector(name),
        lambda: client.update_connector(name, {**config, "topics": "none"}),
        lambda: client.delete_connector(name),
        lambda: client.create_connector({"name": name, "config": config}),
    ]
    for change in changes:
        with pytest.raises(HTTPError, match="401") as refused:
            change()
    assert client.get_connector_config(name) == config
    assert client.get_connector_status(name)["connector"]["state"] == "RUNNING"
    way_out = re.search(r"Send the user (\w+) with the token of (\S+) as password", refused.value.response.text)
    assert way_out is not None
    proven = KafkaConnect(mirror.client.address, auth=f"{way_out[1]}:{Path(way_out[2]).read_text().strip()}")
    proven.pause_connector(name)
    mirror.client.wait_for_state("PAUSED")


def test_the_token_is_its_users_alone_is_told_by_its_place_and_names_the_author(mirror: Mirror) -> None:
    told = mirror.run.wait_for_event("rest.token")
    assert Path(told["file"]).stat().st_mode & 0o777 == 0o600
    assert Path(told["file"]).read_text().strip() == token()
    bare = httpx2.put(f"{mirror.client.address}{mirror.client.connector()}/pause/")
    assert bare.status_code == 401
    assert told["file"] in bare.json()["message"]
    mirror.client.told("PUT", f"{mirror.client.connector()}/pause/?reason=maintenance", 202)
    path = f"{mirror.client.connector()}/pause"
    mirror.run.wait_for_event("rest.audit", user="mm2py", proof="token", status=202, path=path)
    ended = subprocess.run(
        [sys.executable, "-m", "mm2py", "history", str(mirror.run.file), "--json"],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=True,
        env={"PYTHONPATH": OWN_PATH, "PATH": "/usr/bin:/bin"},
    )
    assert '"mm2py"' in ended.stdout and f'"{host_name()}"' in ended.stdout
    shown = [mirror.client.get(path).text for path in ("/v1/config", "/v1/status", "/metrics", "/openapi.json")]
    _, status = mirror.run.status()
    for text in [*shown, json.dumps(status), ended.stdout, mirror.run.text()]:
        assert token() not in text


def test_head_options_and_a_slash_at_the_end_are_answered_by_a_real_server(mirror: Mirror) -> None:
    client = mirror.client
    assert client.get("/connectors/").json() == client.get("/connectors").json()
    for path in ("/connectors", "/v1/events", "/metrics", "/openapi.json"):
        head = client.head(path)
        assert (head.status_code, head.content) == (200, b""), path
    for _ in range(STREAMS_MOST):
        assert client.head("/v1/events").status_code == 200, "none of the streams before has gone on"
    options = client.options(f"{client.connector()}/")
    assert (options.status_code, options.headers["allow"]) == (200, "DELETE,GET,HEAD,OPTIONS")
    assert client.get("/connectors").status_code == 200, "the connection goes on"
