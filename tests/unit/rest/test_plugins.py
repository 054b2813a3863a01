"""``/connector-plugins``: which settings there are, and what is wrong with some. Nothing is connected to."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from mm2py.config import keys
from mm2py.config.flow_properties import stored_keys
from mm2py_rest.errors import tell_errors
from mm2py_rest.routes import plugins
from tests.fakes.open_rest import open_to_all

CLASS = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
VALIDATE = "/connector-plugins/MirrorSourceConnector/config/validate"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    app = FastAPI()
    tell_errors(app)
    app.include_router(plugins.router)
    with TestClient(open_to_all(app), raise_server_exceptions=False) as found:
        yield found


def validated(client: TestClient, **config: Any) -> tuple[int, dict[str, list[str]]]:
    """Return the number of errors, and the errors by setting."""
    answer = client.put(VALIDATE, json={"connector.class": CLASS, **config})
    assert answer.status_code == 200
    found = answer.json()
    assert found["name"] == CLASS
    assert found["groups"] == ["Common", "mm2py"]
    errors = {one["value"]["name"]: one["value"]["errors"] for one in found["configs"]}
    return found["error_count"], {name: told for name, told in errors.items() if told}


def test_there_are_the_three_connectors_of_mirrormaker_2(client: TestClient) -> None:
    found = client.get("/connector-plugins?connectorsOnly=false").json()
    assert [one["class"].rpartition(".")[2] for one in found] == [
        "MirrorSourceConnector",
        "MirrorCheckpointConnector",
        "MirrorHeartbeatConnector",
    ]
    assert found[0] == {"class": CLASS, "type": "source", "version": "0.1.0"}


@pytest.mark.parametrize("name", [CLASS, "MirrorSourceConnector", "MirrorSource"])
def test_a_plugin_has_the_names_that_connect_knows(client: TestClient, name: str) -> None:
    found = {one["name"]: one for one in client.get(f"/connector-plugins/{name}/config").json()}
    assert found["sync.topic.acls.enabled"] == {
        "name": "sync.topic.acls.enabled",
        "type": "BOOLEAN",
        "required": False,
        "default_value": "true",
        "importance": "MEDIUM",
        "documentation": keys.SYNC_ACLS_ENABLED.text,
        "group": "mm2py",
        "width": "MEDIUM",
        "display_name": "sync.topic.acls.enabled",
        "dependents": [],
        "order_in_group": found["sync.topic.acls.enabled"]["order_in_group"],
    }
    assert found.keys() >= stored_keys().keys()
    read_bytes = "source.consumer.max.partition.fetch.bytes"
    types = {name: found[name]["type"] for name in ("topics", "tasks.max", "offset.lag.max", "copy.mode", read_bytes)}
    assert types.pop(read_bytes) == "LONG"
    assert types == {"topics": "LIST", "tasks.max": "LONG", "offset.lag.max": "LONG", "copy.mode": "STRING"}
    assert found["groups.exclude"]["default_value"] == "console-consumer-.*,connect-.*,__.*"


def test_every_default_is_a_value_that_its_setting_can_have(client: TestClient) -> None:
    settings = client.get(f"/connector-plugins/{CLASS}/config").json()
    defaults = {one["name"]: one["default_value"] for one in settings if one["default_value"] is not None}
    assert validated(client, **defaults) == (0, {})


def test_each_wrong_setting_has_its_own_error(client: TestClient) -> None:
    config = {
        "tasks.max": "0",
        "enabled": "yes",
        "topics": "a,,b",
        "no.such": "1",
        "source.consumer.auto.offset.reset": "by_duration:P1D",
        "topics.exclude": "x, sasl.jaas.config=secret",
    }
    count, errors = validated(client, **config)
    assert (count, errors.keys()) == (6, config.keys())
    assert errors["enabled"] == ["Invalid value for configuration enabled: it is neither true nor false."]
    assert errors["no.such"] == ["there is no such setting of a flow"]
    assert "write earliest, latest or none" in errors["source.consumer.auto.offset.reset"][0]
    answer = client.put(VALIDATE, json={"connector.class": CLASS, "tasks.max": "canary"})
    assert "canary" not in answer.text, "B44: what is no number may be a password in the wrong field"


def test_addresses_and_credentials_are_refused_unread_unshown_and_unconnected(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B40, S11: a validation that connects lets anybody who may ask scan the network of the worker."""

    def connect(*_: object) -> None:
        raise AssertionError("something is connected to")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    config = {
        "source.cluster.bootstrap.servers": "169.254.169.254:80",
        "target.cluster.bootstrap.servers": "localhost:22",
        "source.cluster.sasl.jaas.config": 'module required password="hunter2";',
        "ssl.truststore.location": "file:/etc/shadow",
        "config.providers.file.param.secrets": "file:/etc/shadow",
    }
    answer = client.put(VALIDATE, json={"connector.class": CLASS, **config})
    assert answer.json()["error_count"] == len(config)
    assert not any(value in answer.text for value in ("169.254", "localhost", "hunter2", "shadow"))


@pytest.mark.parametrize(
    ("plugin", "config", "code", "why"),
    [
        ("MirrorSourceConnector", {}, 400, "contains no connector type"),
        ("MirrorSourceConnector", {"connector.class": "MirrorHeartbeatConnector"}, 400, "does not match request type"),
        ("FileStreamSource", {"connector.class": "FileStreamSource"}, 404, "Unknown plugin FileStreamSource."),
        ("MirrorSourceConnector", ["connector.class"], 400, "cannot be understood"),
        ("MirrorSourceConnector", {"connector.class": {"a": 1}}, 400, "cannot be understood"),
    ],
)
def test_what_cannot_be_validated(client: TestClient, plugin: str, config: Any, code: int, why: str) -> None:
    answer = client.put(f"/connector-plugins/{plugin}/config/validate", json=config)
    assert (answer.status_code, answer.json()["error_code"]) == (code, code)
    assert why in answer.json()["message"]


def test_there_is_only_the_version_that_runs(client: TestClient) -> None:
    assert client.get(f"/connector-plugins/{CLASS}/config?version=0.1.0").status_code == 200
    assert client.get(f"/connector-plugins/{CLASS}/config?version=9").status_code == 400
    assert client.get("/connector-plugins/other/config").status_code == 404
