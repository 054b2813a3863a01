"""What ``mm2py config`` lists: every setting that counts, with the line that decides, and keys that count nowhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from mm2py.cli.config import run
from mm2py.config import tables
from mm2py.config.configuration import read_settings_file
from mm2py.config.effective_settings import (
    EffectiveSetting,
    EffectiveSettings,
    FlowSwitch,
    SettingsOfClient,
    changed_only,
    effective_settings,
)
from mm2py.config.row import Reader, Status
from mm2py.config.settings import Configuration
from mm2py.errors import ConfigError
from mm2py.flow import parse_flow

TWO = "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
ONE_FLOW = f"{TWO}A->B.enabled = true\nemit.heartbeats.enabled = false\n"
"""Five lines; the next one is the sixth."""
A_TO_B = parse_flow("A->B")


@dataclass(frozen=True)
class Found:
    """What was listed, and the typed settings of the same file."""

    listed: EffectiveSettings
    configuration: Configuration

    def client(self, name: str) -> SettingsOfClient:
        clients = [one for flow in self.listed.flows for one in flow.clients]
        (found,) = (one for one in (*clients, *self.listed.groups, *self.listed.worker) if one.client == name)
        return found

    def of(self, client: str, name: str) -> EffectiveSetting:
        (found,) = (one for one in self.client(client).settings if one.name == name)
        return found

    def unused(self) -> dict[str, str]:
        return {one.key: one.why for one in self.listed.unused}


List = Callable[..., Found]


@pytest.fixture
def list_settings(tmp_path: Path) -> List:
    def list_settings(text: str, flow: str | None = None) -> Found:
        path = tmp_path / "mm2.properties"
        path.write_text(text)
        file = read_settings_file(path, None)
        configuration = file.configuration()
        only = None if flow is None else parse_flow(flow)
        return Found(effective_settings(file, configuration, only), configuration)

    return list_settings


def test_what_is_set_names_its_line_and_what_is_not_has_its_default(list_settings: List) -> None:
    found = list_settings(f"{ONE_FLOW}A.consumer.fetch.max.bytes = 1000\nreplication.factor=2\n")
    fetch = found.of("source consumer", "fetch.max.bytes")
    assert (fetch.value, fetch.origin) == ("1000", "mm2.properties line 6: A.consumer.fetch.max.bytes")
    assert (fetch.is_set, fetch.differs, fetch.line) == (True, True, 6)
    wait = found.of("source consumer", "fetch.max.wait.ms")
    assert (wait.value, wait.origin, wait.is_set, wait.differs) == ("500", "default", False, False)
    assert found.of("source connector", "replication.factor").differs, "2 that is set is never lowered"
    assert found.client("source consumer").cluster == "A"
    assert found.listed.unused == ()


def test_every_setting_that_works_is_listed_somewhere(list_settings: List, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", ModuleType("gssapi"))  # an extra
    security = (
        "security.protocol=SASL_SSL\nA.sasl.mechanism=OAUTHBEARER\n"
        "A.sasl.oauthbearer.token.endpoint.url=https://t/x\n"
        "A.sasl.oauthbearer.client.credentials.client.id=me\n"
        "A.sasl.oauthbearer.client.credentials.client.secret=geheim\n"
        "B.sasl.mechanism=GSSAPI\nB.sasl.kerberos.service.name=kafka\n"
        "B.sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required"
        ' useKeyTab=true keyTab="/k" principal="me";\n'
    )
    zookeeper = (
        "B.leader.election=zookeeper\nB.zookeeper.connect=z:1\nB.zookeeper.ssl.client.enable=true\nlisteners=\n"
        "config.providers=env\n"
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
    )
    found = list_settings(ONE_FLOW + security + zookeeper).listed
    clients = [*(one for flow in found.flows for one in flow.clients), *found.groups, *found.worker]
    listed = {setting.name for client in clients for setting in client.settings}
    works = {
        key.name
        for section in tables.SECTIONS
        for key in section.rows
        if key.status is Status.WORKS and not key.is_family
    }
    assert works - listed == set()
    for client in clients:
        names = [setting.name for setting in client.settings]
        assert len(names) == len(set(names)), f"{client.client} lists a setting twice"


def test_the_value_that_is_listed_is_the_one_by_which_the_flow_runs(list_settings: List) -> None:
    text = (
        "A->B.consumer.fetch.max.bytes=1\nA.consumer.fetch.max.bytes=2\nB.producer.linger.ms=5\n"
        "A->B.producer.override.linger.ms=7\nstall.timeout.ms=1\nA->B.stall.timeout.ms=2\nB.mm2py.group=g\n"
        "mm2py.group=h\nB.offset.storage.partitions=3\noffset.storage.topic=x\ntasks.max=4\n"
    )
    found = list_settings(ONE_FLOW + text)
    (settings,) = found.configuration.flows
    reader_of = {
        Reader.CONNECTOR: "source connector",
        Reader.OWN_FLOW: "source connector",
        Reader.WORKER: "worker",
        Reader.CONSUMER: "source consumer",
        Reader.PRODUCER: "target producer",
        Reader.OWN_CLUSTER: "group of workers",
    }
    for key in tables.FIELDS:
        one = found.of(reader_of[key.readers[-1]], key.name)
        value = key.default if one.value is None else key.kind(one.value)
        assert key.typed(value) == getattr(settings, key.field), key.name
    assert found.of("target producer", "linger.ms").key == "A->B.producer.override.linger.ms"
    assert found.unused() == {
        "A->B.consumer.fetch.max.bytes": "another key overrides it, or another setting turns it off",
        "B.producer.linger.ms": "another key overrides it, or another setting turns it off",
        "stall.timeout.ms": "another key overrides it, or another setting turns it off",
        "mm2py.group": "another key overrides it, or another setting turns it off",
    }


def test_one_setting_for_all_internal_topics_counts_where_a_topic_has_none_of_its_own(list_settings: List) -> None:
    found = list_settings(
        f"{ONE_FLOW}internal.topics.replication.factor=1\ncheckpoints.topic.replication.factor=2\n"
        "B.internal.topics.replication.factor=4\n"
    )
    settings = found.configuration.flows[0]
    factors = {
        ("worker", "offset.storage.replication.factor"): settings.offsets_topic_replication_factor,
        ("worker", "status.storage.replication.factor"): settings.status_topic_replication_factor,
        ("worker", "config.storage.replication.factor"): settings.configs_topic_replication_factor,
    }
    assert settings.checkpoints is not None and settings.offset_syncs is not None
    syncs = "checkpoint connector and offset syncs"
    factors[syncs, "checkpoints.topic.replication.factor"] = settings.checkpoints.replication_factor
    factors[syncs, "offset-syncs.topic.replication.factor"] = settings.offset_syncs.replication_factor
    for (client, name), factor in factors.items():
        assert found.of(client, name).value == str(factor), name
    assert found.of(syncs, "checkpoints.topic.replication.factor").value == "2", "its own setting comes first"
    assert found.of(syncs, "offset-syncs.topic.replication.factor").line == 6, "its topic is on A"
    assert found.of("worker", "offset.storage.replication.factor").line == 8


def test_exactly_once_brings_its_isolation_level(list_settings: List) -> None:
    found = list_settings(f"{ONE_FLOW}B.exactly.once.source.support=enabled\n")
    isolation = found.of("source consumer", "isolation.level")
    assert (isolation.value, isolation.key) == ("read_committed", "B.exactly.once.source.support")
    assert found.configuration.flows[0].read_committed


def test_secrets_are_hidden_and_references_stay_references(
    list_settings: List, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MM2PY_TEST_ADDRESS", "b.example:9092")
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="geheim";'
    providers = "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider"
    found = list_settings(
        ONE_FLOW.replace("= b:1", "= ${env:MM2PY_TEST_ADDRESS}")
        + f"config.providers=env\n{providers}\nB.security.protocol=SASL_SSL\nB.sasl.mechanism=PLAIN\n"
        + f"B.sasl.jaas.config={jaas}\n"
    )
    assert found.of("target producer", "sasl.jaas.config").value == "[hidden]"
    address = found.of("target producer", "bootstrap.servers")
    assert address.value == "${env:MM2PY_TEST_ADDRESS}"
    assert address.origin == "mm2.properties line 3: B.bootstrap.servers, from config provider env"
    assert "geheim" not in repr(found.listed) and "b.example" not in repr(found.listed)


def test_settings_of_connections_that_the_protocol_does_not_use_are_not_listed(list_settings: List) -> None:
    plain = {one.name for one in list_settings(ONE_FLOW).client("source consumer").settings}
    assert not any(name.startswith(("ssl.", "sasl.mech")) for name in plain) and "security.protocol" in plain
    tls = {one.name for one in list_settings(f"{ONE_FLOW}A.security.protocol=SSL\n").client("source consumer").settings}
    assert "ssl.truststore.location" in tls and "sasl.mechanism" not in tls


def test_what_mm2py_does_not_use_is_named_with_the_reason(list_settings: List) -> None:
    found = list_settings(
        f"{ONE_FLOW.replace('A, B', 'A, B, C')}topcis = x\nA->B.topcis.exclude = x\n"
        "tasks.max.enforce=true\nB->A.topics = y\n"
        "metric.reporters=z\nA.session.timeout.ms=4000\nC.bootstrap.servers=c:1\nfetch.max.bytes=3\n"
        "key.converter=org.apache.kafka.connect.converters.ByteArrayConverter\nB->A.enabled=false\n"
    )
    assert found.unused() == {
        "topcis": "not known; did you mean topics?",
        "A->B.topcis.exclude": "not known; did you mean A->B.topics.exclude?",
        "tasks.max.enforce": "not needed: mm2py makes no more tasks than it is allowed",
        "B->A.topics": "B->A is not enabled",
        "metric.reporters": "does nothing yet",
        "A.session.timeout.ms": "it is for a target cluster, and no flow that is enabled leads into A",
        "C.bootstrap.servers": "no flow that is enabled uses cluster C",
        "fetch.max.bytes": "no effect there, as in MirrorMaker 2; write it as <source>.consumer.fetch.max.bytes",
        "key.converter": "not needed: mm2py does this anyway",
    }
    assert [one.line for one in found.listed.unused] == list(range(6, 15))


def test_a_key_that_may_be_a_piece_of_a_secret_is_not_shown(list_settings: List) -> None:
    (unused,) = list_settings(f"{ONE_FLOW}geheim\n").listed.unused
    assert "geheim" not in unused.key and unused.why == "not known"


def test_pairs_that_only_emit_heartbeats_and_flows_that_are_off_are_told_apart(list_settings: List) -> None:
    found = list_settings(f"{TWO}A->B.enabled = true\nB->A.linger.ms = 1\n")
    assert [(one.flow, one.switch) for one in found.listed.flows] == [
        ("A->B", FlowSwitch.ENABLED),
        ("B->A", FlowSwitch.HEARTBEATS),
    ]
    assert [one.client for one in found.listed.flows[1].clients] == [
        "heartbeat connector",
        "target producer",
        "target admin",
    ]
    (off,) = list_settings(ONE_FLOW, "B->A").listed.flows
    assert (off.flow, off.switch) == ("B->A", FlowSwitch.OFF)
    assert any(client.client == "source connector" for client in off.clients)


def test_a_refused_flow_says_why(list_settings: List) -> None:
    (flow,) = list_settings(f"{ONE_FLOW}A->B.transforms = x\n").listed.flows
    assert flow.switch is FlowSwitch.REFUSED and "transforms" in flow.why_refused


def test_only_what_differs_is_left_and_a_default_that_is_written_out_does_not_differ(list_settings: List) -> None:
    found = changed_only(list_settings(f"{ONE_FLOW}topics = .*\nA->B.offset.lag.max = 7\n").listed)
    names = [(client.client, one.name) for flow in found.flows for client in flow.clients for one in client.settings]
    assert names == [
        ("source connector", "enabled"),
        ("checkpoint connector and offset syncs", "offset.lag.max"),
        ("heartbeat connector", "emit.heartbeats.enabled"),
        ("source consumer", "bootstrap.servers"),
        ("target producer", "bootstrap.servers"),
    ]


def test_the_command_prints_one_object_or_a_list_by_client(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text(f"{ONE_FLOW}topics = orders.*\nfoo.baz = 1\n")
    assert run([str(path), "--json"]) == 0
    body = json.loads(capfd.readouterr().out)
    assert (body["exit_code"], body["file"]) == (0, str(path))
    assert body["unused"] == [{"key": "foo.baz", "line": 7, "why": "not known"}]
    assert run([str(path), "--flow", "A->B", "--changed"]) == 0
    text, told = capfd.readouterr()
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "topics mm2.properties line 6: topics orders.*" in lines
    assert "source consumer of A" in lines and "7 foo.baz not known" in lines
    assert f"mm2py apply {path} --dry-run" in told


def test_a_flow_of_a_cluster_that_the_file_has_not_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text(ONE_FLOW)
    with pytest.raises(ConfigError, match=r"has no cluster 'C'\. It has A, B"):
        run([str(path), "--flow", "A->C"])
