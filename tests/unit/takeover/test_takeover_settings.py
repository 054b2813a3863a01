"""``mm2py takeover``: what becomes of each setting of a mirror, and the settings file that does the same.

The files in ``data`` have the layout, keys and values of files in public repositories, with other addresses.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from mm2py.cli.takeover import run
from mm2py.config.configuration import read_settings_file
from mm2py.config.inventory import take_inventory
from mm2py.config.properties import read_properties
from mm2py.config.settings import Configuration, FlowSettings
from mm2py.errors import ConfigError
from mm2py.status.exit_codes import EXIT_DONE, EXIT_WAITS
from mm2py.takeover.account import SettingOutcome, account_for_file
from mm2py.takeover.connector_configs import mirror_of, read_connectors
from mm2py.takeover.printout import lines_of_account, lines_of_refusals
from mm2py.takeover.settings_file import WrittenFile, file_of
from mm2py.takeover.strimzi import read_strimzi
from mm2py.takeover.what_runs import WhatRuns

DATA = Path(__file__).parent / "data"
DEDICATED = sorted((DATA / "dedicated").iterdir())
STRIMZI = [path for path in sorted((DATA / "strimzi").iterdir()) if path.stem != "v1beta2_old_identity"]
CONNECT = {
    "scram": ["scram_source", "scram_checkpoint", "scram_heartbeat"],
    "event_hub": ["event_hub"],
    "hdi": ["hdi_source"],
    "expanded": ["expanded"],
    "big_clients": ["big_clients"],
}
SOURCE: dict[str, Any] = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
    "source.cluster.bootstrap.servers": "a:9092",
    "target.cluster.bootstrap.servers": "b:9092",
    "topics": "orders",
}
CHECKPOINT = SOURCE | {"connector.class": "MirrorCheckpointConnector"}


def connect(*names: str) -> WhatRuns:
    found, strangers = [], []
    for name in names:
        some, others = read_connectors(json.loads((DATA / "connect" / f"{name}.json").read_text()), name)
        found += some
        strangers += others
    return mirror_of(found, "Kafka Connect", strangers)


def of_configs(**configs: dict[str, Any]) -> WhatRuns:
    body = [{"name": name, "config": config} for name, config in configs.items()]
    return mirror_of(read_connectors(body, "body")[0], "Kafka Connect")


def strimzi(path: Path, secrets: str = "/etc/mm2py/secrets", **changes: Any) -> WhatRuns:
    documents = list(yaml.safe_load_all(path.read_text()))
    for place, value in changes.items():
        part: Any = documents[0]["spec"]
        *ways, last = place.split("__")
        for way in ways:
            part = part[int(way)] if way.isdecimal() else part[way]
        part[last] = value
    return read_strimzi(documents, path.name, secrets)


def loaded(made: WrittenFile, folder: Path) -> Configuration:
    """Return what a worker reads. Each entry of the file is one that counts."""
    path = folder / "made.properties"
    path.write_text(made.text)
    entries = read_properties(path).entries
    clusters = [alias.strip() for alias in entries["clusters"].value.split(",")]
    items, problems = take_inventory(entries, clusters)
    assert problems == []
    assert [item.entry.key for item in items if item.key is None or item.advice is not None] == []
    found = read_settings_file(path, None).configuration()
    assert found.refused == {}
    return found


def outcome_of(made: WrittenFile, name: str, place: str | None = None) -> tuple[SettingOutcome, str]:
    (found,) = {
        (one.outcome, one.why) for one in made.account.accounted if one.name == name and place in {None, one.place}
    }
    return found


def flow_of(made: WrittenFile, folder: Path) -> FlowSettings:
    (flow,) = loaded(made, folder).flows
    return flow


@pytest.mark.parametrize("path", DEDICATED, ids=lambda path: path.stem)
def test_every_setting_of_a_dedicated_mirrormaker_2_is_accounted_for_once(path: Path) -> None:
    properties, file = read_properties(path), read_settings_file(path, None)
    configuration = file.configuration()
    aliases = configuration.flows[0].aliases
    account = account_for_file(properties.entries, aliases, path.name, file.properties.entries)
    assert [one.name for one in account.accounted] == list(properties.entries)
    assert (account.refused, configuration.refused) == ([], {})


@pytest.mark.parametrize("names", CONNECT.values(), ids=CONNECT)
def test_every_setting_of_connectors_is_accounted_for_and_the_file_runs(names: list[str], tmp_path: Path) -> None:
    runs = connect(*names)
    made = file_of(runs)
    told = {(one.place, one.name) for one in made.account.accounted}
    for name in names:
        for connector in read_connectors(json.loads((DATA / "connect" / f"{name}.json").read_text()), name)[0]:
            assert {(connector.name, key) for key, _ in connector.settings} <= told
    assert made.account.refused == []
    assert [str(flow.flow) for flow in loaded(made, tmp_path).flows] == [str(flow.flow) for flow in runs.flows]


@pytest.mark.parametrize("path", STRIMZI, ids=lambda path: path.stem)
def test_every_setting_of_a_resource_is_accounted_for_and_the_file_runs(path: Path, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    runs = strimzi(path, str(secrets))
    for fill in runs.fills:
        Path(fill.path).write_text("a-word")
    made = file_of(runs)
    told = {one.name for one in made.account.accounted}
    spec = yaml.safe_load(path.read_text())["spec"]
    assert _names_of_settings(spec) <= told
    assert made.account.refused == []
    assert [str(flow.flow) for flow in loaded(made, tmp_path).flows] == [str(flow.flow) for flow in runs.flows]


def _names_of_settings(part: Any, *, is_config: bool = False) -> set[str]:
    """Return the names in all ``config`` maps of a resource, and the fields that set something."""
    if isinstance(part, list):
        return {name for one in part for name in _names_of_settings(one)}
    if not isinstance(part, dict):
        return set()
    found = {name for name in part if is_config or name.endswith("Pattern") or name in {"tasksMax", "bootstrapServers"}}
    return found | {
        name for key, value in part.items() for name in _names_of_settings(value, is_config=key == "config")
    }


def test_connectors_become_the_flow_that_copies_the_same(tmp_path: Path) -> None:
    flow = flow_of(file_of(connect("expanded")), tmp_path)
    assert [flow.replicates(name) for name in ("orders-1", "payments", "other")] == [True, True, False]
    assert flow.remote_topic("orders-1") == "source.orders-1"
    assert flow.sync_topic_acls_interval_s is None
    assert flow.checkpoints is not None
    assert flow.checkpoints.group_sync is not None


def test_without_a_connector_of_checkpoints_or_heartbeats_the_flow_makes_none(tmp_path: Path) -> None:
    found = loaded(file_of(of_configs(one=SOURCE)), tmp_path)
    assert found.flows[0].checkpoints is None
    assert [one.interval_s for one in found.heartbeats] == [None]


def test_a_setting_that_another_connector_reads_means_nothing(tmp_path: Path) -> None:
    """The story: emit.checkpoints.enabled stands in the source connector, and no checkpoint connector was ever made."""
    made = file_of(connect("hdi_source"))
    outcome, why = outcome_of(made, "emit.checkpoints.enabled", "hdi_source")
    assert (outcome, "a MirrorCheckpointConnector does" in why) == (SettingOutcome.NOTHING, True)
    flow = flow_of(made, tmp_path)
    assert flow.checkpoints is None
    assert not flow.replicates("x-internal")  # topics.blacklist counts as topics.exclude


def test_what_is_no_client_setting_of_a_cluster_has_no_effect_as_in_mirrormaker_2() -> None:
    made = file_of(connect("big_clients"))
    assert outcome_of(made, "source.cluster.max.poll.records")[0] is SettingOutcome.NOTHING
    assert outcome_of(made, "source.cluster.bootstrap.servers")[0] is SettingOutcome.RENAMED
    assert made.account.entries["msksource.bootstrap.servers"] == "source.example:9092"


def test_records_go_where_the_producer_of_the_connector_writes(tmp_path: Path) -> None:
    made = file_of(of_configs(one=SOURCE | {"producer.override.bootstrap.servers": "elsewhere:9092"}))
    assert flow_of(made, tmp_path).target.bootstrap_servers == (("elsewhere", 9092),)


def test_patterns_of_a_mirror_override_its_config(tmp_path: Path) -> None:
    path = DATA / "strimzi" / "v1_example.yaml"
    made = file_of(strimzi(path, mirrors__0__sourceConnector__config__topics="other"))
    assert outcome_of(made, "topics") == (SettingOutcome.NOTHING, "topicsPattern counts in its place")
    assert flow_of(made, tmp_path).replicates("orders")


def test_the_defaults_of_the_old_resource_are_strimzis() -> None:
    (flow,) = strimzi(DATA / "strimzi" / "v1beta2_example.yaml").flows
    assert (flow.group, flow.offsets_topic) == ("mirrormaker2-cluster", "mirrormaker2-cluster-offsets")
    (new,) = strimzi(DATA / "strimzi" / "v1_target.yaml").flows
    assert (new.group, new.offsets_topic) == ("primary-to-dr", "primary-to-dr-offsets")
    assert new.stop_command == (
        'kubectl patch kafkamirrormaker2 primary-to-dr -n kafka --type merge -p \'{"spec":{"replicas":0}}\''
    )


def test_a_worker_does_not_start_while_strimzis_workers_live(tmp_path: Path) -> None:
    flow = flow_of(file_of(strimzi(DATA / "strimzi" / "v1_example.yaml")), tmp_path)
    assert flow.mm2_group_id == "my-mirror-maker-2-group"
    assert flow.offsets_topic == "mm2-offsets.cluster-a.internal"


def test_values_of_secrets_become_files_that_the_operator_fills() -> None:
    runs = strimzi(
        DATA / "strimzi" / "v1_example.yaml",
        **{"mirrors__0__sourceConnector__config__source.consumer.client.rack": "${strimzisecrets:kafka/racks:one}"},
    )
    made = file_of(runs)
    key = "cluster-a->cluster-b.source.consumer.client.rack"
    assert made.account.entries[key] == "${secrets:/etc/mm2py/secrets:racks.one}"
    assert [(fill.path, fill.of) for fill in runs.fills] == [
        ("/etc/mm2py/secrets/racks.one", "key one of Secret racks")
    ]


@pytest.mark.parametrize(
    ("changes", "name", "why"),
    [
        ({"mirrors__0__sourceConnector__config__x": "${strimzifile:/tmp/a:b}"}, "x", "config provider strimzifile"),
        ({"mirrors__0__novelty": {"a": 1}}, "novelty", "does not know this field"),
        ({"target__authentication": {"type": "oauth", "clientId": "x"}}, "authentication", "type oauth"),
    ],
)
def test_what_mm2py_cannot_do_is_refused_by_its_name(changes: dict[str, Any], name: str, why: str) -> None:
    made = file_of(strimzi(DATA / "strimzi" / "v1_example.yaml", **changes))
    assert [(one.name, why in one.why) for one in made.account.refused] == [(name, True)]
    assert all(one.remedy for one in made.account.refused)


def test_a_policy_in_java_is_refused() -> None:
    made = file_of(strimzi(DATA / "strimzi" / "v1beta2_old_identity.yaml"))
    assert ["io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy" in one.why for one in made.account.refused] == [
        True
    ]


def test_transforms_are_refused_by_their_types_and_can_be_left_out(tmp_path: Path) -> None:
    changed = SOURCE | {
        "transforms": "route,mask",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": "a",
        "transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value",
        "transforms.old.type": "x",
    }
    made = file_of(of_configs(one=changed))
    (refused,) = made.account.refused
    assert (refused.name, "route (RegexRouter), mask (MaskField$Value)" in refused.why) == ("transforms", True)
    assert outcome_of(made, "transforms.old.type")[1] == "transforms does not name it"
    left = file_of(of_configs(one=changed), without=["transforms"])
    assert (left.account.refused, outcome_of(left, "transforms")[0]) == ([], SettingOutcome.LEFT_OUT)
    assert str(flow_of(left, tmp_path).flow) == "A->B"


def test_a_router_of_topics_becomes_a_rule_for_their_names(tmp_path: Path) -> None:
    changed = SOURCE | {
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "transforms": "route",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": "(.*)rs",
        "transforms.route.replacement": "sales.$1rs",
    }
    made = file_of(of_configs(one=changed))
    renamed = [one.name for one in made.account.accounted if one.to == "A->B.topics.rename"]
    assert renamed == [name for name in changed if name.startswith("transforms")]
    assert flow_of(made, tmp_path).remote_topic("orders") == "sales.orders"
    in_file = tmp_path / "dedicated.properties"
    text = "\n".join(f"A->B.{name} = {value}" for name, value in changed.items() if "cluster" not in name)
    in_file.write_text(
        f"clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n{text}"
    )
    file = read_settings_file(in_file, None)
    account = account_for_file(read_properties(in_file).entries, ("A", "B"), "f", file.properties.entries)
    assert account.refused == []
    assert sum(one.to == "A->B.topics.rename" for one in account.accounted) == 4


def test_transforms_that_mm2py_has_are_kept_with_their_predicates(tmp_path: Path) -> None:
    changed = SOURCE | {
        "transforms": "drop,site",
        "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.drop.predicate": "deleted",
        "transforms.site.type": "org.apache.kafka.connect.transforms.InsertHeader",
        "transforms.site.header": "site",
        "transforms.site.value.literal": "a",
        "transforms.old.type": "x",
        "predicates": "deleted",
        "predicates.deleted.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
    }
    made = file_of(of_configs(one=changed))
    assert made.account.refused == []
    assert outcome_of(made, "transforms.old.type")[1] == "transforms does not name it"
    assert flow_of(made, tmp_path).remote_topic("orders") == "A.orders"
    chain = flow_of(made, tmp_path).transforms
    assert chain is not None
    assert [step.alias for step in chain.steps] == ["drop", "site"]
    wrong = file_of(of_configs(one=changed | {"transforms.drop.predicate": "gone"}))
    (refused,) = wrong.account.refused[:1]
    assert "predicates does not list" in refused.why


def test_connectors_of_one_flow_that_differ_are_refused() -> None:
    made = file_of(of_configs(one=SOURCE, two=CHECKPOINT | {"offset-syncs.topic.location": "target", "topics": "x"}))
    assert sorted(one.name for one in made.account.refused) == ["offset-syncs.topic.location", "topics"]


def test_names_and_topics_are_those_of_the_source_connector() -> None:
    """The story: only the checkpoint connector has the identity policy. By it, the copies would get other names."""
    identity = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    made = file_of(of_configs(one=SOURCE, two=CHECKPOINT | {"replication.policy.class": identity}))
    assert [(one.place, one.name) for one in made.account.refused] == [("two", "replication.policy.class")]
    default = file_of(of_configs(one=SOURCE, two=CHECKPOINT | {"offset-syncs.topic.location": "source"}))
    assert default.account.refused == []


@pytest.mark.parametrize(
    ("configs", "why"),
    [
        ({"one": SOURCE, "two": SOURCE | {"topics": "x"}}, "a flow has one"),
        ({"one": CHECKPOINT}, "source connector is not among"),
        ({"one": SOURCE | {"target.cluster.alias": "A"}}, "a flow leads from one cluster to another"),
        ({"one": SOURCE | {"value.converter": "org.apache.kafka.connect.json.JsonConverter"}}, "copied as bytes"),
        ({"one": SOURCE | {"replication.factor": "many"}}, "not a whole number"),
    ],
)
def test_what_is_no_flow_is_refused(configs: dict[str, dict[str, Any]], why: str) -> None:
    assert any(why in one.why for one in file_of(of_configs(**configs)).account.refused)


def test_a_connector_without_a_header_converter_is_named() -> None:
    assert any("header.converter" in note for note in of_configs(one=SOURCE).notes)
    converter = "org.apache.kafka.connect.converters.ByteArrayConverter"
    assert of_configs(one=SOURCE | {"header.converter": converter}).notes == ()


@pytest.mark.parametrize("body", [[], {"a": 1}, {"name": "x", "config": {"connector.class": ["list"]}}, 7, {}])
def test_what_is_no_connector_is_no_mirror(body: Any) -> None:
    with pytest.raises(ConfigError):
        mirror_of(read_connectors(body, "body")[0], "it")


@pytest.mark.parametrize(
    "resource",
    [
        {},
        {"kind": "KafkaMirrorMaker2", "apiVersion": "kafka.strimzi.io/v1alpha1"},
        {"kind": "KafkaMirrorMaker2", "apiVersion": "kafka.strimzi.io/v1", "metadata": {"name": "a"}, "spec": {}},
        {
            "kind": "KafkaMirrorMaker2",
            "apiVersion": "kafka.strimzi.io/v1beta2",
            "metadata": {"name": "a"},
            "spec": {"connectCluster": "x", "mirrors": []},
        },
    ],
)
def test_what_is_no_resource_is_refused(resource: Any) -> None:
    with pytest.raises(ConfigError):
        read_strimzi([resource], "it")


@pytest.mark.parametrize("runs", [connect(*CONNECT["scram"]), connect("event_hub")], ids=["scram", "event_hub"])
def test_no_secret_is_printed(runs: WhatRuns) -> None:
    made = file_of(runs)
    shown = "\n".join(
        [*lines_of_account(made.account), *lines_of_refusals(made.account.refused), repr(made), repr(runs)]
    )
    assert "word-1" in made.text
    assert "word-1" not in shown
    assert "word-2" not in shown


def test_the_command_writes_a_file_for_its_owner_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new.properties"
    arguments = [str(path), "--from-connect-json", *(str(DATA / "connect" / f"{n}.json") for n in CONNECT["scram"])]
    assert run(arguments) == EXIT_DONE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "settings: " in capsys.readouterr().out
    with pytest.raises(ConfigError, match="is there already"):
        run(arguments)


def test_the_command_writes_nothing_while_a_setting_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new.properties"
    arguments = [str(path), "--from-connect-json", str(DATA / "connect" / "renamed.json")]
    assert run(arguments) == EXIT_WAITS
    assert not path.exists()
    assert "Refused: notification_mirror: transforms: route (RegexRouter)" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="no such setting"):
        run([*arguments, "--without", "nonsense"])


def test_the_command_reads_resources_and_files_of_older_mirrors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "strimzi.properties"
    assert run([str(path), "--from-strimzi", str(DATA / "strimzi" / "v1_example.yaml")]) == EXIT_DONE
    as_json = tmp_path / "resource.json"
    as_json.write_text(json.dumps(yaml.safe_load((DATA / "strimzi" / "v1_example.yaml").read_text())))
    other = tmp_path / "json.properties"
    assert run([str(other), "--from-strimzi", str(as_json)]) == EXIT_DONE
    assert other.read_text() == path.read_text()
    consumer, producer, old = (tmp_path / name for name in ("c.properties", "p.properties", "old.properties"))
    consumer.write_text(
        "bootstrap.servers=old:9092\ngroup.id=old-mirror\nfetch.max.bytes=1000000\nsocket.buffersize=5\n"
        "auto.offset.reset=smallest\nenable.auto.commit=false\n"
    )
    producer.write_text("metadata.broker.list=new:9092\nacks=1\ncompression.codec=zstd\nlinger.ms=5\n")
    assert run([str(old), "--from-mm1", str(consumer), str(producer), "--topics", "orders.*"]) == EXIT_DONE
    assert "starting.offsets.group = old-mirror" in old.read_text()
    told = {
        line.split()[0]: " ".join(line.split()[1:]) for line in capsys.readouterr().out.splitlines() if line.strip()
    }
    assert told["auto.offset.reset"] == "renamed old-9092.consumer.auto.offset.reset"
    assert told["metadata.broker.list"] == "renamed target.bootstrap.servers"
    assert told["compression.codec"] == "renamed target.producer.compression.type"
    assert told["socket.buffersize"].startswith("means nothing here")
    assert told["acks"].startswith("means nothing here")
    assert "socket.buffersize" not in old.read_text()
    assert run([str(DATA / "dedicated" / "charm.properties")]) == EXIT_DONE


@pytest.mark.parametrize(
    ("name", "text"), [("--from-connect-json", "{"), ("--from-strimzi", "a: [b"), ("--from-strimzi", "\x00")]
)
def test_a_file_that_is_neither_json_nor_yaml_is_named(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_text(text)
    with pytest.raises(ConfigError, match="broken"):
        run([str(tmp_path / "new.properties"), name, str(path)])
