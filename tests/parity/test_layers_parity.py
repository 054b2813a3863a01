"""The layers of a settings file are those of MirrorMaker 2's own classes: generated files, layered by both."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from mm2py.config import layers
from mm2py.config.properties import parse_properties
from mm2py.config.tables import ADMIN, CONNECTOR, CONSUMER, PRODUCER, WORKER
from mm2py.flow import ClusterAlias, Flow

FILES = 150
SEED = int(os.environ.get("MM2PY_SEED", "20240502"))

ALIASES = ["A", "B", "C", "us-west", "A.B", "consumer", "source", "offset", "x->y", "B- ._~:/?#[]@!$&'()*+;"]
SECURE = ["security.protocol", "ssl.truststore.location", "ssl.key.password", "sasl.mechanism", "sasl.jaas.config"]
NAMES = [
    *SECURE,
    "bootstrap.servers",
    "client.id",
    "acks",
    "request.timeout.ms",
    "max.poll.records",
    "auto.offset.reset",
    "isolation.level",
    "enable.auto.commit",
    "group.id",
    "offset.storage.topic",
    "offset.storage.replication.factor",
    "offset.storagex",
    "config.storage.topic",
    "status.storage.partitions",
    "offset.flush.interval.ms",
    "exactly.once.source.support",
    "key.converter",
    "header.converter.schemas.enable",
    "tasks.max",
    "task.shutdown.graceful.timeout.ms",
    "taskforce",
    "worker.sync.timeout.ms",
    "workers",
    "replication.policy.separator",
    "replication.policy.class",
    "replication.policymaker",
    "replication.factor",
    "topics",
    "topics.exclude",
    "groups",
    "emit.checkpoints.interval.seconds",
    "consumer.poll.timeout.ms",
    "admin.timeout.ms",
    "use.defaults.from",
    "transforms",
    "transforms.x.type",
    "topic.filter.class",
    "metric.reporters",
    "name",
    "source.cluster.alias",
    "source.cluster.bootstrap.servers",
    "source.cluster.client.id",
    "target.cluster.sasl.mechanism",
    "forwarding.admin.class",
    "consumerish",
    "administrator.name",
    "no.such.key",
    "heartbeats.topic.replication.factor",
]
CLIENT_PREFIXES = ["consumer.", "producer.", "admin.", "source.consumer.", "source.admin.", "target.admin."]
MORE_PREFIXES = [*CLIENT_PREFIXES, "source.producer.", "target.producer.", "target.consumer.", "producer.override."]
SWITCHES = ["enabled", "emit.heartbeats.enabled"]
SWITCH_VALUES = ["true", "TRUE", "false", "True", "true ", " true", "yes", ""]


def generated_file(chance: random.Random) -> tuple[dict[str, str], list[str]]:
    aliases = chance.sample(ALIASES, chance.randint(2, 4))
    pairs = [f"{a}->{b}." for a in aliases for b in aliases if a != b]
    file = {"clusters": ", ".join(aliases), "plugin.discovery": "service_load"}
    for count in range(chance.randint(5, 60)):
        prefix = chance.choice(["", *[f"{alias}." for alias in aliases], *pairs])
        middle = chance.choice(["", "", chance.choice(MORE_PREFIXES)])
        file[prefix + middle + chance.choice(NAMES)] = f"v{count}"
    for prefix in ["", *pairs]:
        for switch in SWITCHES:
            if chance.random() < 0.3:
                file[prefix + switch] = chance.choice(SWITCH_VALUES)
    if "security.protocol" in file:
        file["security.protocol"] = chance.choice(["PLAINTEXT", "SASL_SSL"])
    for key, value in (("sasl.jaas.config", "x"), ("sasl.mechanism", "PLAIN")):
        if key in file:
            file[key] = value
    return file, aliases


def as_properties(file: dict[str, str]) -> bytes:
    """Escape everything that may be escaped, so that keys and values come back as they are."""

    def escaped(text: str) -> str:
        return "".join(char if char.isalnum() or char in ".-" else f"\\u{ord(char):04x}" for char in text)

    return "".join(f"{escaped(key)}={escaped(value)}\n" for key, value in file.items()).encode()


def values(layer: layers.Layer) -> dict[str, str]:
    return {key: entry.value for key, entry in layer.items()}


@pytest.fixture(scope="session")
def to_python(jvm: Any) -> Callable[[Any], dict[str, str]]:
    mapper = jvm.jvm.com.fasterxml.jackson.databind.ObjectMapper()

    def convert(java_map: Any) -> dict[str, str]:
        found: dict[str, str] = json.loads(mapper.writeValueAsString(java_map))
        return found

    return convert


@pytest.fixture(scope="session")
def mirror_maker_config(jvm: Any) -> Callable[[dict[str, str]], Any]:
    java = jvm.jvm

    def make(file: dict[str, str]) -> Any:
        properties = java.java.util.Properties()
        properties.load(java.java.io.ByteArrayInputStream(as_properties(file)))
        strings = java.org.apache.kafka.common.utils.Utils.propsToStringMap(properties)
        return java.org.apache.kafka.connect.mirror.MirrorMakerConfig(strings)

    return make


def test_worker_connector_and_pairs_are_those_of_mirror_maker(
    jvm: Any, to_python: Callable[[Any], dict[str, str]], mirror_maker_config: Callable[[dict[str, str]], Any]
) -> None:
    print(f"MM2PY_SEED={SEED}")
    chance = random.Random(SEED)
    mirror = jvm.jvm.org.apache.kafka.connect.mirror
    connector_class = jvm.jvm.java.lang.Class.forName("org.apache.kafka.connect.mirror.MirrorSourceConnector")
    for _ in range(FILES):
        file, aliases = generated_file(chance)
        entries = parse_properties(as_properties(file)).entries
        theirs = mirror_maker_config(file)
        their_pairs = {(pair.source(), pair.target()) for pair in theirs.clusterPairs()}
        assert layers.cluster_pairs(entries, aliases) == their_pairs, file
        for source, target in [(a, b) for a in aliases for b in aliases if a != b][:4]:
            pair = mirror.SourceAndTarget(source, target)
            flow = Flow(ClusterAlias(source), ClusterAlias(target))
            worker = to_python(theirs.workerConfig(pair))
            assert values(layers.worker_config(entries, flow)) == worker, (file, flow)
            connector = to_python(theirs.connectorBaseConfig(pair, connector_class))
            assert values(layers.connector_config(entries, flow)) == connector, (file, flow)


def constant(jvm: Any, class_name: str, name: str) -> Any:
    field = jvm.jvm.java.lang.Class.forName(class_name).getDeclaredField(name)
    field.setAccessible(True)
    return field.get(None)


def method(jvm: Any, class_name: str, name: str, first_parameter: str = "") -> Any:
    found = next(
        candidate
        for candidate in jvm.jvm.java.lang.Class.forName(class_name).getDeclaredMethods()
        if candidate.getName() == name
        and (not first_parameter or candidate.getParameterTypes()[0].getSimpleName() == first_parameter)
    )
    found.setAccessible(True)
    return found


def arguments(jvm: Any, *values: Any) -> Any:
    array = jvm.new_array(jvm.jvm.java.lang.Object, len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array


def test_client_settings_are_those_of_the_connector(
    jvm: Any, to_python: Callable[[Any], dict[str, str]], mirror_maker_config: Callable[[dict[str, str]], Any]
) -> None:
    """Checked with settings that the connector's own definition lets pass."""
    chance = random.Random(SEED)
    mirror = jvm.jvm.org.apache.kafka.connect.mirror
    connector_class = jvm.jvm.java.lang.Class.forName("org.apache.kafka.connect.mirror.MirrorSourceConnector")
    config_class = "org.apache.kafka.connect.mirror.MirrorConnectorConfig"
    methods = {
        (side, client): method(jvm, config_class, f"{side}{client.title()}Config", "String")
        for side in ("source", "target")
        for client in ("consumer", "producer", "admin")
    }
    prefixes = ["", "A.", "B.", "A->B."]
    names = [*SECURE[1:], "bootstrap.servers", "client.id", "auto.offset.reset", "enable.auto.commit", "no.such.key"]
    for _ in range(60):
        file = {"clusters": "A,B", "plugin.discovery": "service_load"}
        for count in range(chance.randint(5, 40)):
            key = chance.choice(prefixes) + chance.choice(["", "", *MORE_PREFIXES]) + chance.choice(names)
            file[key] = f"v{count}"
        for key in ("sasl.jaas.config", "A->B.sasl.jaas.config"):
            file.pop(key, None)
        entries = parse_properties(as_properties(file)).entries
        ours = layers.connector_config(entries, Flow(ClusterAlias("A"), ClusterAlias("B")))
        base = mirror_maker_config(file).connectorBaseConfig(mirror.SourceAndTarget("A", "B"), connector_class)
        constructor = next(
            c
            for c in jvm.jvm.java.lang.Class.forName(
                "org.apache.kafka.connect.mirror.MirrorSourceConfig"
            ).getDeclaredConstructors()
            if c.getParameterCount() == 1
        )
        constructor.setAccessible(True)
        config = constructor.newInstance(arguments(jvm, base))
        for (side, client), their_method in methods.items():
            theirs = to_python(their_method.invoke(config, arguments(jvm, "role")))
            their_id = theirs.pop("client.id")
            mine = values(layers.client_config(ours, side, client))
            my_id = mine.pop("client.id", None)
            assert mine == theirs, (side, client, file)
            assert their_id.startswith("A->B|" if my_id is None else f"{my_id}|A->B|"), (side, client, file)


def test_data_producer_is_the_workers(
    jvm: Any, to_python: Callable[[Any], dict[str, str]], mirror_maker_config: Callable[[dict[str, str]], Any]
) -> None:
    chance = random.Random(SEED)
    java = jvm.jvm
    mirror = java.org.apache.kafka.connect.mirror
    runtime = java.org.apache.kafka.connect.runtime
    connector_class = java.java.lang.Class.forName("org.apache.kafka.connect.mirror.MirrorSourceConnector")
    base_producer_configs = method(jvm, "org.apache.kafka.connect.runtime.Worker", "baseProducerConfigs")
    policy_class = java.org.apache.kafka.connect.connector.policy.AllConnectorClientConfigOverridePolicy
    flow = Flow(ClusterAlias("A"), ClusterAlias("B"))
    plugins = None
    names = ["acks", "compression.type", "client.id", "linger.ms", "bootstrap.servers", "value.serializer"]
    for _ in range(40):
        file = {
            "clusters": "A,B",
            "plugin.discovery": "service_load",
            "A.bootstrap.servers": "a:1",
            "B.bootstrap.servers": "b:1",
        }
        for count in range(chance.randint(1, 12)):
            prefix = chance.choice(
                ["producer.", "B.producer.", "A.producer.", "A->B.producer.", "A->B.producer.override."]
            )
            file[prefix + chance.choice(names)] = f"v{count}"
        config = mirror_maker_config(file)
        pair = mirror.SourceAndTarget("A", "B")
        worker_map = config.workerConfig(pair)
        connector_map = config.connectorBaseConfig(pair, connector_class)
        plugins = plugins or runtime.isolation.Plugins(worker_map)
        theirs = to_python(
            base_producer_configs.invoke(
                None,
                arguments(
                    jvm,
                    "MirrorSourceConnector",
                    "no id",
                    runtime.distributed.DistributedConfig(worker_map),
                    runtime.ConnectorConfig(plugins, connector_map),
                    connector_class,
                    policy_class(),
                    "cluster",
                ),
            )
        )
        entries = parse_properties(as_properties(file)).entries
        ours = values(
            layers.data_producer_config(layers.worker_config(entries, flow), layers.connector_config(entries, flow))
        )
        theirs = {key: value for key, value in theirs.items() if not key.startswith("metrics.context.")}
        ours.setdefault("client.id", "no id")
        if theirs["bootstrap.servers"] == ["b:1"]:
            theirs["bootstrap.servers"] = "b:1"
        assert ours == theirs, file


def test_no_setting_of_mirror_maker_or_its_clients_is_unknown_here(jvm: Any) -> None:
    package = "org.apache.kafka.connect.mirror"
    client_names = set(constant(jvm, f"{package}.MirrorClientConfig", "CLIENT_CONFIG_DEF").names())
    assert client_names == set(layers.CLIENT_NAMES)
    connectors = ("MirrorSourceConfig", "MirrorCheckpointConfig", "MirrorHeartbeatConfig")
    definitions = [constant(jvm, f"{package}.{name}", "CONNECTOR_CONFIG_DEF") for name in connectors]
    connector_names = {name for definition in definitions for name in definition.names()}
    assert connector_names == set(layers.CONNECTOR_NAMES)
    assert connector_names - client_names <= set(CONNECTOR)
    crypto = constant(jvm, "org.apache.kafka.connect.runtime.distributed.Crypto", "SYSTEM")
    worker = method(jvm, "org.apache.kafka.connect.runtime.distributed.DistributedConfig", "config").invoke(
        None, arguments(jvm, crypto)
    )
    rest = {"ssl.client.auth", "listeners", "admin.listeners", "rest.", "access.control.", "response.http."}
    assert {
        name
        for name in worker.names()
        if name not in client_names and not any(name.startswith(prefix) for prefix in rest)
    } <= set(WORKER)
    for table, class_name in (
        (CONSUMER, "org.apache.kafka.clients.consumer.ConsumerConfig"),
        (PRODUCER, "org.apache.kafka.clients.producer.ProducerConfig"),
        (ADMIN, "org.apache.kafka.clients.admin.AdminClientConfig"),
    ):
        assert set(constant(jvm, class_name, "CONFIG").names()) - client_names <= set(table), class_name
