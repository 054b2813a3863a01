"""Secrets are shown nowhere: S05 to S07, S20, S32, B44. Two hundred are planted around one real worker.

They are in its file, in files and variables that references name, in the users' file, and in requests of all kinds.
Not where names of topics and groups belong, and patterns of them: these are shown.
Then all that can be read of the worker is searched: answers, events, metrics, log, and the records of all topics.
One more is planted as the name of a topic and as an ordinary setting. It has to be found everywhere, else nothing was
searched.
"""

from __future__ import annotations

import base64
import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from deploy.local.certificates import Authority, write_private
from deploy.local.kafka import KafkaCluster
from mm2py.secret import Secret
from mm2py_rest.access.hashes import hash_password, hash_token
from tests.cluster.kafka_client import create_topic, record_count, write
from tests.cluster.rest.canaries import Canaries, Topics
from tests.cluster.running import ANSWER_S, Mm2py, Value, one_way_properties, wait_until

FLOW = "Canary->B"
SOURCE = f"{FLOW}.MirrorSourceConnector"
PROVIDERS = "org.apache.kafka.common.config.provider"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PREFIXES = (
    *("", "Canary.", "B.", "Canary.consumer.", "Canary.admin.", "B.producer.", "B.admin."),
    *(f"{FLOW}.source.consumer.", f"{FLOW}.producer.override."),
)
CREDENTIALS = (
    *("ssl.keystore.password", "ssl.key.password", "ssl.truststore.password", "ssl.keystore.key"),
    *("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.assertion.private.key.passphrase"),
)
NAMES = {
    "flow": FLOW,
    "name": SOURCE,
    "connector": SOURCE,
    "plugin": "MirrorSourceConnector",
    "logger": "root",
    "task": "0",
}


class Scene:
    """The worker, what was planted, and all that was answered."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, directory: Path) -> None:
        self.clusters = {"source": source, "target": target}
        self.canaries = Canaries()
        self.planted = self.canaries.token("the name of a topic that is copied")
        self.answers: list[str] = []
        self.events: list[str] = []
        self.topics = {name: Topics(cluster) for name, cluster in self.clusters.items()}
        create_topic(source, self.planted)
        write(source, self.planted, [b"1", b"2"])
        self._directory = directory
        self.user, self.password = "alice", self.canaries.password("a user's password")
        self.token = self.canaries.token("a user's token")
        self.environment = {f"CANARY_{n}": self.canaries.password("environment, not named anywhere") for n in range(10)}
        self.run = Mm2py(self._properties(source, target), log_level="debug", environment=self.environment)

    # What is planted before the start

    def _properties(self, source: KafkaCluster, target: KafkaCluster) -> dict[str, Value]:
        password = self.canaries.password
        found: dict[str, Value] = {
            f"{prefix}{name}": self.canaries.token(f"file: {prefix}{name}")
            for prefix in PREFIXES
            for name in CREDENTIALS
        }
        found |= {f"{prefix}sasl.jaas.config": self._login(password(f"file: {prefix}jaas")) for prefix in PREFIXES}
        found |= {
            f"{at}my.plugin.{name}": password(f"file: {name}") for at in ("", FLOW + ".") for name in ("token", "pwd")
        }
        found[self.canaries.token("file: a key")] = "x"
        found["zookeeper.auth.digest"] = f"mirror:{self.canaries.token('file: ZooKeeper')}"
        found |= self._references() | self._listeners() | self._unreachable(source)
        found |= {f"{FLOW}.topics": self.planted, "security.protocol": "PLAINTEXT"}
        found["config.storage.replication.factor"] = 1
        return one_way_properties(source, target, names=("Canary", "B"), **found)

    @staticmethod
    def _login(password: str) -> str:
        quoted = password.replace("\\", "\\\\").replace('"', '\\"')
        return f'{PLAIN} required username="mirror" password="{quoted}";'

    def _references(self) -> dict[str, Value]:
        """Return credentials that stand in other files and in the environment, for clients that do not use them."""
        folder = self._directory / "secrets"
        folder.mkdir()
        found: dict[str, Value] = {"config.providers": "file, dir, env"}
        for name, kind in (("file", "File"), ("dir", "Directory"), ("env", "EnvVar")):
            found[f"config.providers.{name}.class"] = f"{PROVIDERS}.{kind}ConfigProvider"
        lines = []
        keys = [
            f"{at}{name}" for at in ("Canary.producer.", "B.consumer.", f"{FLOW}.target.admin.") for name in CREDENTIALS
        ]
        for number, key in enumerate(keys):
            secret = self.canaries.token(f"a reference for {key}")
            match number % 3:
                case 0:
                    lines.append(f"s{number} = {secret}\n")
                    found[key] = f"${{file:{folder}/all.properties:s{number}}}"
                case 1:
                    write_private(folder / f"s{number}", secret.encode())
                    found[key] = f"${{dir:{folder}:s{number}}}"
                case _:
                    self.environment[f"MM2PY_S{number}"] = secret
                    found[key] = f"${{env:MM2PY_S{number}}}"
        write_private(folder / "all.properties", "".join(lines).encode())
        return found

    def _listeners(self) -> dict[str, Value]:
        """Return a listener with TLS, whose key store has a password, and users."""
        store = self.canaries.token("file: the key store of REST")
        write_private(self._directory / "rest.p12", Authority().issue("rest").pkcs12(store))
        proofs = hash_password(Secret(self.password)), hash_token(Secret(self.token))
        lines = f"{self.user}:{proofs[0]}:admin\nci:{proofs[1]}:reader\n"
        write_private(self._directory / "users", lines.encode())
        return {
            "listeners": "http://127.0.0.1:0, https://127.0.0.1:0",
            "listeners.https.ssl.keystore.type": "PKCS12",
            "listeners.https.ssl.keystore.location": self._directory / "rest.p12",
            "listeners.https.ssl.keystore.password": store,
            "rest.users.file": self._directory / "users",
        }

    def _unreachable(self, source: KafkaCluster) -> dict[str, Value]:
        """Return flows whose logins fail, as messages about that are where a password slips out."""
        lines: dict[str, Value] = {"clusters": "Canary,B,Sasl,Tls"}
        for alias, protocol in (("Sasl", "SASL_PLAINTEXT"), ("Tls", "SASL_SSL")):
            lines |= {
                f"{alias}.bootstrap.servers": source.bootstrap,
                f"{alias}.security.protocol": protocol,
                f"{alias}.sasl.mechanism": "PLAIN",
                f"{alias}.sasl.jaas.config": self._login(self.canaries.password(f"file: the login at {alias}")),
                f"{alias}->B.enabled": True,
            }
        return lines

    # What is asked

    def begin(self) -> None:
        plain, secured = [event["at"] for event in wait_until(self._listening, "it listens")]
        self.client = httpx2.Client(base_url=plain, auth=(self.user, self.password), timeout=ANSWER_S)
        self.secured = httpx2.Client(base_url=secured, verify=False, timeout=ANSWER_S)
        self.run.wait_until(lambda: record_count(self.clusters["target"], f"Canary.{self.planted}") == 2, "it copies")
        wait_until(lambda: self.ask("GET", "/health") == 200, "the worker is healthy")
        threading.Thread(target=self._listen, daemon=True).start()
        wait_until(lambda: self.events, "the stream is open")

    def _listening(self) -> list[Any]:
        found = self.run.events("rest.listening")
        return found if len(found) == 2 else []

    def _listen(self) -> None:
        headers = {"Authorization": f"Bearer {self.token}"}
        with self.secured.stream("GET", "/v1/events", headers=headers) as answer:
            for line in answer.iter_lines():
                self.events.append(line)

    def ask(self, method: str, path: str, **more: Any) -> int:
        """Ask, keep all that is answered, and return the status."""
        answer = self.client.request(method, path, **more)
        self.answers.append(f"{method}: {answer.status_code} {answer.text} {answer.headers!r}")
        return answer.status_code

    def routes(self) -> list[tuple[str, str, list[str]]]:
        """Return method, path and query parameters of every route but the stream of events."""
        described = self.client.get("/openapi.json").json()["paths"]
        return [
            (method.upper(), path, [one["name"] for one in route.get("parameters", ()) if one["in"] == "query"])
            for path, methods in described.items()
            for method, route in methods.items()
            if path != "/v1/events"
        ]

    def all_texts(self) -> dict[str, list[str | bytes]]:
        """Return all that can be read of the worker."""
        found: dict[str, list[str | bytes]] = {"answers": [*self.answers], "events": [*self.events]}
        found["metrics"] = [self.client.get("/metrics").text]
        found["log"] = [self.run.text(), *self.run.output]
        for name, topics in self.topics.items():
            found |= {f"{name}: {topic}": [topic, *records] for topic, records in topics.records().items()}
        found["command lines"] = [path.read_bytes() for path in processes_of(self.run.pid)]
        return found


def processes_of(pid: int) -> list[Path]:
    """Return the command lines of a worker and of its REST process."""
    own = [Path(f"/proc/{pid}")]
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            own += [process] if parent == pid else []
    return [process / "cmdline" for process in own]


@pytest.fixture(scope="module")
def scene(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    found = Scene(source_cluster, target_cluster, tmp_path_factory.mktemp("canaries"))
    with found.run:
        found.begin()
        yield found


def stored(scene: Scene) -> list[bytes]:
    """Return what stands in the configs topic."""
    return scene.topics["target"].records()["mm2-configs.Canary.internal"]


def filled(path: str, names: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: names.get(match[1], "0"), path)


def ask_everything(scene: Scene) -> None:
    """Ask every route rightly, and wrongly with secrets wherever something can be sent."""
    names = {**NAMES, "topic": scene.planted}
    token, password = scene.canaries.token, scene.canaries.password
    for method, path, parameters in scene.routes():
        if method == "GET":
            scene.ask(method, filled(path, names))
            scene.ask(method, filled(path, names), params={one: password(f"query of {path}") for one in parameters})
        for name in re.findall(r"\{(\w+)\}", path):
            body = {"json": {}} if method in ("PUT", "PATCH") else {}
            scene.ask(method, filled(path, {**names, name: token(f"path of {method} {path}")}), **body)
    scene.ask("GET", f"/{token('a path that is not there')}/{token('the same')}")
    for name in ("Host", "Origin", "If-Match", "Last-Event-ID", "Content-Type", "Cookie", "X-Api-Key", "Accept"):
        scene.ask("PATCH", f"/connectors/{SOURCE}/config", json={}, headers={name: token(f"header {name}")})
    for kind in ("Basic", "Bearer", "Digest", ""):
        scene.ask("GET", "/connectors", headers={"Authorization": f"{kind} {token(f'{kind} header')}"})
    scene.ask("GET", "/connectors", auth=(token("a user's name"), password("a wrong password")))


def send_bodies(scene: Scene) -> None:
    """Send secrets as keys and values of bodies, where they are settings, and where nothing of the kind belongs."""
    token, password = scene.canaries.token, scene.canaries.password
    config, offsets = f"/connectors/{SOURCE}/config", f"/connectors/{SOURCE}/offsets"
    validate = "/connector-plugins/MirrorSourceConnector/config/validate"
    kind = {"connector.class": "MirrorSourceConnector"}
    wrong = (
        lambda: {"source.cluster.sasl.jaas.config": password("body: jaas"), "ssl.key.password": password("body: key")},
        lambda: {"tasks.max": password("body: a number"), "copy.mode": password("body: a word")},
        lambda: {token("body: a key"): "1", token("body: another key"): {"a": password("body: nested")}},
        lambda: {"topics": f"orders, sasl.jaas.config={password('body: within')}", "my.token": password("body: own")},
        lambda: {"source.consumer.bootstrap.servers": f"{token('body: an address')}:1"},
        lambda: {"name": token("body: name"), "connector.class": token("body: class")},
    )
    for make in wrong:
        for method, path in (("PUT", config), ("PATCH", config)):
            assert scene.ask(method, path, json=make()) == 400
        scene.ask("PUT", validate, json={**kind, **make()})
        scene.ask("POST", "/connectors", json={"name": SOURCE, "config": make()})
        scene.ask("POST", "/connectors", json={"name": f"{token('body: alias')}->B.MirrorSourceConnector", **make()})
        scene.ask("PATCH", offsets, json=make())
    partition = {"cluster": "Canary", "topic": scene.planted, "partition": 0}
    for broken in (
        {"partition": {**partition, "partition": password("offsets: partition")}, "offset": {"offset": 1}},
        {"partition": {**partition, "cluster": password("offsets: cluster")}, "offset": {"offset": 1}},
        {"partition": {**partition, token("offsets: a key"): 1}, "offset": {"offset": password("offsets: offset")}},
        {"partition": {**partition, "topic": token("offsets: topic")}, "offset": {"offset": 1}},
    ):
        scene.ask("PATCH", offsets, json={"offsets": [broken]})
    scene.ask("PUT", "/admin/loggers/root", json={"level": password("level"), token("level: a key"): password("x")})
    for content in (token("no JSON"), f'{{"{token("half of JSON")}', json.dumps([password("a list")])):
        scene.ask("PUT", config, content=content.encode(), headers={"Content-Type": "application/json"})


def test_none_of_two_hundred_secrets_is_shown_and_a_name_that_is_none_is_found_everywhere(scene: Scene) -> None:
    ask_everything(scene)
    send_bodies(scene)
    changed = {"topics": f"{scene.planted}, orders"}
    assert scene.ask("PATCH", f"/connectors/{SOURCE}/config", json=changed) == 200
    scene.run.wait_for_event("rest.audit", status=200, method="PATCH")
    wait_until(lambda: any("settings.changed" in line for line in scene.events), "the change is an event")
    scene.run.wait_for_event("cluster.unreachable", cluster="Sasl")
    wait_until(lambda: any(b'"status":200' in one for one in stored(scene)), "the change is kept on the target")
    assert len(scene.canaries.put) >= 200
    found = scene.canaries.leaks(scene.all_texts())
    planted_at = {where for where, secrets in found.items() if secrets.pop(scene.planted, None) is not None}
    shown = [text for text in scene.answers if scene.canaries.found_in(text) - {scene.planted}]
    assert {where: secrets for where, secrets in found.items() if secrets} == {}, shown
    remote = f"target: Canary.{scene.planted}"
    assert {"answers", "events", "metrics", "log", "target: mm2-configs.Canary.internal", remote} <= planted_at


@pytest.mark.parametrize("form", ["{}", "x%20{}", "Basic {}", '{{"a": "{}"}}'])
def test_a_secret_is_found_however_it_is_written(form: str) -> None:
    """The search itself: raw, in JSON, in an address, and in base64, also behind a user's name."""
    canaries = Canaries()
    for secret in (canaries.password("a"), canaries.token("b")):
        plain = [f"{'u' * length}:{secret}".encode() for length in range(3)]
        encoded = [encode(text).decode() for text in plain for encode in (base64.b64encode, base64.urlsafe_b64encode)]
        for text in (secret, json.dumps(secret), quote(secret), *encoded):
            assert canaries.found_in(form.format(text)) == {secret}
    assert canaries.found_in("nothing of the kind") == set()
