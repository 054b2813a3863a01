"""Settings: what a file means for each flow, and what its operator hears (B02 to B22, S05)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.config import tables
from mm2py.config.configuration import load_configuration, read_settings_file
from mm2py.config.flows import FlowUnsupported
from mm2py.config.inventory import nearest, take_inventory
from mm2py.config.properties import parse_properties
from mm2py.config.row import Status
from mm2py.config.settings import (
    CheckpointSettings,
    Configuration,
    FlowBack,
    FlowSettings,
    GroupSyncSettings,
    OffsetSyncSettings,
)
from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias, Flow, parse_flow
from mm2py.topics.filters import GroupFilter
from mm2py.topics.replicas import AtMost

FILES = Path(__file__).parent / "files"
TWO = "clusters=A,B\nA.bootstrap.servers=a.example:9092\nB.bootstrap.servers=b.example:9092\n"
ONE_FLOW = f"{TWO}A->B.enabled=true\n"

Load = Callable[..., Configuration]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(text: str, clusters: list[str] | None = None) -> Configuration:
        path = tmp_path / "mm2.properties"
        path.write_bytes(text.encode("latin-1"))
        return load_configuration(path, clusters)

    return load


@pytest.fixture
def problem(load: Load) -> Callable[..., str]:
    """The message of a file that is wrong: one line, with the file's name."""

    def problem(text: str, clusters: list[str] | None = None) -> str:
        with pytest.raises(ConfigError) as caught:
            load(text, clusters)
        message = str(caught.value)
        assert "\n" not in message
        assert "mm2.properties" in message
        return message.partition("mm2.properties")[2].lstrip(":, ")

    return problem


def only(configuration: Configuration) -> FlowSettings:
    (settings,) = configuration.flows
    return settings


def by_name(configuration: Configuration) -> dict[str, FlowSettings]:
    return {str(settings.flow): settings for settings in configuration.flows}


def set_line(line: str) -> str:
    return f"{ONE_FLOW}{line}\n"


# --- whole files ------------------------------------------------------------------------------------------------------


def test_a_process_near_two_clusters_runs_the_flows_into_them() -> None:
    configuration = load_configuration(FILES / "six_clusters.properties", ["oslo-1", "oslo-2"])
    assert sorted(by_name(configuration)) == [
        "lima-1->oslo-1",
        "oslo-1->oslo-2",
        "oslo-2->oslo-1",
        "rome-1->oslo-1",
    ]


def test_fan_out_with_topics_of_each_flow() -> None:
    flows = by_name(load_configuration(FILES / "fan_out.properties", None))
    accepted = {
        name: [topic for topic in ("orders", "orders-eu", "prices", "stock-7", "stock-x") if accepts(settings, topic)]
        for name, settings in flows.items()
    }
    assert accepted == {
        "hub->bern": ["orders", "orders-eu"],
        "hub->kiel": ["prices", "stock-7"],
        "hub->graz": [],  # an empty list matches nothing
    }


def accepts(settings: FlowSettings, topic: str) -> bool:
    return settings.topic_filter.should_replicate(topic)


def test_overrides_on_every_level() -> None:
    flows = by_name(load_configuration(FILES / "overrides.properties", None))
    there, back = flows["west->east"], flows["east->west"]

    assert there.source.bootstrap_servers == (("west-a.example", 9092), ("west-b.example", 9093))
    assert there.target.bootstrap_servers == back.source.bootstrap_servers == (("2001:db8::7", 9092),)
    assert (there.source.client_id, there.target.client_id) == ("reader", "writer")
    assert (back.source.client_id, back.target.client_id) == (None, None)
    assert (there.source.request_timeout_s, there.target.request_timeout_s) == (7.0, 30.0)

    assert accepts(there, "payments") and not accepts(there, "orders")
    assert accepts(back, "invoices-7") and not accepts(back, "payments")
    assert (there.replication_factor, back.replication_factor) == (-1, 3)
    assert (there.refresh_topics_interval_s, back.refresh_topics_interval_s) == (30.0, None)
    assert (there.topics_watch_interval_s, back.topics_watch_interval_s) == (0.5, 0.5)
    assert (there.heartbeats_replication, back.heartbeats_replication) == (False, True)
    assert there.policy.separator == back.policy.separator == "_"
    assert (there.config_filter.replicates_source_defaults, back.config_filter.replicates_source_defaults) == (
        True,
        False,
    )

    assert (there.read_committed, back.read_committed) == (True, False)
    assert (there.fetch_max_bytes, back.fetch_max_bytes) == (1_000_000, 52_428_800)
    assert (there.fetch_min_bytes, there.fetch_max_wait_ms) == (10, 50)
    assert (back.fetch_min_bytes, back.fetch_max_wait_ms) == (1, 500)
    assert (there.compression, back.compression) == ("zstd", None)
    assert (there.source_request_timeout_s, there.target_request_timeout_s) == (30.0, 11.0)

    assert (there.offsets_topic, back.offsets_topic) == ("positions", "mm2-offsets.east.internal")
    assert (there.offsets_topic_partitions, back.offsets_topic_partitions) == (5, 25)
    assert (there.offsets_topic_replication_factor, back.offsets_topic_replication_factor) == (2, 2)
    assert (there.position_interval_s, back.position_interval_s) == (0.25, 1.0)
    assert (there.mm2_group_id, back.mm2_group_id) == ("mirrors-of-east", "east-mm2")
    assert (there.group, back.group) == ("mirrors-east", "mirrors")
    assert (there.bytes_per_second_max, back.bytes_per_second_max) == (5_000_000, None)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("topics.blacklist", "topics.exclude"),
        ("topic.blacklist", "topics.exclude"),
        ("A->B.topics.blacklist", "A->B.topics.exclude"),
        ("groups.blacklist", "groups.exclude"),
        ("A->B.config.properties.blacklist", "A->B.config.properties.exclude"),
    ],
)
def test_an_old_name_of_an_exclude_list_means_the_new_one_with_one_warning(tmp_path: Path, old: str, new: str) -> None:
    """MirrorMaker 2 ignores it since 4.0, and copies what it was to keep out."""
    files = []
    for name in (old, new):
        path = tmp_path / name.replace(">", "")
        path.write_text(f"{ONE_FLOW}{name} = secret-.*\n")
        files.append(read_settings_file(path, None))
    by_old, by_new = files
    assert (
        by_old.shared(parse_flow("A->B"))
        == by_new.shared(parse_flow("A->B"))
        == {"enabled": "true", new.removeprefix("A->B."): "secret-.*"}
    )
    assert by_old.configuration().warnings == (f"line 5: {old} is an old name, and counts as {new}; write {new}",)
    assert by_new.configuration().warnings == ()


def test_an_old_name_beside_the_new_one_has_to_say_the_same(load: Load, problem: Callable[..., str]) -> None:
    same = load(f"{ONE_FLOW}topics.blacklist = a, b\ntopics.exclude = b,a\n")
    assert not same.flows[0].topic_filter.should_replicate("a")
    assert len(same.warnings) == 1
    assert problem(f"{ONE_FLOW}topics.blacklist = a\ntopics.exclude = b\n") == (
        "line 5: topics.blacklist is an old name of topics.exclude, and topics.exclude has another value in line 6;"
        " remove one of them."
    )
    assert (
        "A->B.topics.blacklist is an old name of A->B.topics.exclude, and topics.exclude has another value"
        in problem(f"{ONE_FLOW}A->B.topics.blacklist = a\ntopics.exclude = b\n")
    )
    assert "topics.blacklist has another value in line 5" in problem(
        f"{ONE_FLOW}topics.blacklist = a\ntopic.blacklist = b\n"
    )
    flow_before_top = load(f"{ONE_FLOW}topics.blacklist = a\nA->B.topics.blacklist = b\n").flows[0].topic_filter
    assert flow_before_top.should_replicate("a") and not flow_before_top.should_replicate("b")


@pytest.mark.parametrize("others", ["", "B->A.enabled=true\nemit.heartbeats.enabled=false\n"])
@pytest.mark.parametrize("written", ["enabeld", "enable", "Enabled"])
def test_a_misspelled_switch_of_a_flow_is_named_even_though_the_flow_is_off(
    load: Load, written: str, others: str
) -> None:
    warnings = load(f"{TWO}A->B.{written}=true\n{others}").warnings
    assert f"line 4: A->B.{written} is not known; did you mean A->B.enabled?" in warnings


def test_a_misspelled_switch_is_named_where_it_leaves_no_flow(problem: Callable[..., str]) -> None:
    text = problem(f"{TWO}A->B.enabeld=true\nemit.heartbeats.enabled=false\n")
    assert "line 4: A->B.enabeld is not known; did you mean A->B.enabled?; No source->target replication flows" in text


def test_what_careless_files_hear() -> None:
    configuration = load_configuration(FILES / "careless.properties", None)
    settings = only(configuration)
    assert not settings.read_committed
    assert settings.position_interval_s == 1.0
    assert settings.offsets_topic == "positions"
    assert settings.fetch_min_bytes == 6
    assert list(configuration.warnings) == [
        "line 6: A->B.emit.heartbeats is not known; did you mean A->B.emit.heartbeats.enabled?",
        "line 7: A->B.sync.group.offsets is not known; did you mean A->B.sync.group.offsets.rewind?",
        "line 9: consumer.isolation.level has no effect there, as in MirrorMaker 2;"
        " write it as <source>.consumer.isolation.level",
        "line 10: offset.flush.interval.ms has no effect there, as in MirrorMaker 2;"
        " write it as <target>.offset.flush.interval.ms",
        "line 11: use.defaults.from has no effect there, as in MirrorMaker 2;"
        " write it as <source>-><target>.use.defaults.from",
        "line 12: A.topics has no effect there, as in MirrorMaker 2;"
        " write it as <source>-><target>.topics, or topics for all flows",
        "line 13: A.isolation.level has no effect there, as in MirrorMaker 2;"
        " write it as <source>.consumer.isolation.level",
        "line 14: A->B.offset.storage.topic has no effect there, as in MirrorMaker 2;"
        " write it as <target>.offset.storage.topic",
        "line 19: A->B.enable is not known; did you mean A->B.enabled?",
        "line 20: replication.facter is not known; did you mean replication.factor?",
        "line 21: C.bootstrap.servers is not known; C is not in clusters",
        "these settings have no effect, because mm2py goes its own way:"
        " B.producer.batch.size (batches are passed as they are, or repacked as copy.mode says);"
        " B.producer.acks (mm2py always waits for all replicas in sync)",
    ]


def test_flows_to_secured_clusters_are_refused_and_no_secret_is_told() -> None:
    configuration = load_configuration(FILES / "secured.properties", None)
    assert list(by_name(configuration)) == ["plain->late"]  # it says PLAINTEXT, so its ssl settings mean nothing
    assert sorted(map(str, configuration.refused)) == ["plain->odd", "plain->tls", "sasl->plain"]
    said = [str(error) for error in configuration.refused.values()] + list(configuration.warnings)
    assert "tls.ssl.keystore.key (line 11) needs its counterpart" in said[0]
    assert "canary" not in repr((said, configuration))


def test_what_would_change_the_copy_refuses_its_flow_alone() -> None:
    configuration = load_configuration(FILES / "not_yet.properties", None)
    assert configuration.flows == ()
    reasons = {flow.target: str(error) for flow, error in configuration.refused.items()}
    named = {target: re.findall(r"(\S+) \(line \d+\)", reason) for target, reason in reasons.items()}
    assert named == {
        "filters": ["S->filters.topic.filter.class"],
        "smt": ["S->smt.transforms"],
        "identity": ["S->identity.source.cluster.alias"],
        "converter": ["converter.key.converter"],
        "admin": ["S->admin.forwarding.admin.class"],
        "intercept": ["S->intercept.consumer.interceptor.classes"],
        "duration": ["S->duration.consumer.auto.offset.reset"],
        "serial": ["serial.producer.value.serializer"],
        "positions": ["S->positions.offsets.storage.topic"],
    }
    assert all(isinstance(error, FlowUnsupported) for error in configuration.refused.values())
    assert configuration.warnings == ()


def test_aliases_may_be_odd_where_no_topic_bears_them() -> None:
    configuration = load_configuration(FILES / "odd_aliases.properties", None)
    assert len(configuration.flows) == 3
    assert configuration.warnings == ()
    assert not accepts(configuration.flows[0], "drafts")  # topics.exclude, although a cluster is called topics


# --- defaults ---------------------------------------------------------------------------------------------------------


def test_one_setting_counts_for_the_internal_topics_of_each_cluster_that_have_none_of_their_own(load: Load) -> None:
    configuration = load(
        f"{ONE_FLOW}\nA.internal.topics.replication.factor=1\nB.internal.topics.replication.factor=2"
        "\ncheckpoints.topic.replication.factor=5"
    )
    settings = only(configuration)
    assert settings.offset_syncs is not None and settings.checkpoints is not None
    assert (settings.offset_syncs.replication_factor, settings.checkpoints.replication_factor) == (1, 5)
    assert [one.replication_factor for one in configuration.heartbeats if one.flow.target == "B"] == [2]
    assert configuration.groups[ClusterAlias("B")].replication_factor == 2
    assert not isinstance(settings.checkpoints.replication_factor, AtMost)
    assert isinstance(only(load(ONE_FLOW)).offsets_topic_replication_factor, AtMost)


def test_a_flow_without_settings_has_the_defaults_of_kafka(load: Load) -> None:
    configuration = load(ONE_FLOW)
    settings = only(configuration)
    assert configuration.memory_max_bytes == 96 * 1024 * 1024
    assert configuration.metrics_partitions_max == 10_000
    assert {
        field.name: getattr(settings, field.name)
        for field in fields(settings)
        if field.name not in ("flow", "source", "target", "policy", "topic_filter", "config_filter", "copy_modes")
    } == {
        "aliases": ("A", "B"),
        "transforms": None,
        "standby": False,
        "flow_back": None,
        "heartbeats_replication": True,
        "heartbeats_interval_s": 1.0,
        "replication_factor": 2,
        "refresh_topics_interval_s": 600.0,
        "topics_watch_interval_s": 2.0,
        "sync_topic_configs_interval_s": 600.0,
        "sync_topic_configs_dry_run": False,
        "sync_topic_acls_interval_s": 600.0,
        "sync_topic_acls_dry_run": False,
        "remote_partitions_max": 50_000,
        "remote_acls_max": 10_000,
        "read_committed": False,
        "auto_offset_reset": "earliest",
        "starting_offsets_group": "",
        "fetch_max_bytes": 52_428_800,
        "fetch_partition_max_bytes": 1_048_576,
        "fetch_alone_max_bytes": 4_194_304,
        "fetch_min_bytes": 1,
        "fetch_max_wait_ms": 500,
        "source_request_timeout_s": 30.0,
        "target_request_timeout_s": 30.0,
        "linger_s": 0.0,
        "compression": None,
        "offsets_topic": "mm2-offsets.A.internal",
        "offsets_topic_partitions": 25,
        "offsets_topic_replication_factor": 3,
        "position_interval_s": 1.0,
        "status_topic": "mm2-status.A.internal",
        "status_topic_partitions": 5,
        "status_topic_replication_factor": 3,
        "on_source_gap": None,
        "on_target_loss": "stop",
        "stall_timeout_s": 30.0,
        "tasks_max": None,
        "bytes_per_second_max": None,
        "connections_per_broker_max": 64,
        "many_to_one": False,
        "exactly_once": "disabled",
        "client_rack": "",
        "quarantines": False,
        "mm2_group_id": "A-mm2",
        "configs_topic": "mm2-configs.A.internal",
        "configs_topic_replication_factor": 3,
        "group": "mm2py",
        "offset_syncs": OffsetSyncSettings(
            "mm2-offset-syncs.B.internal", on_source=True, replication_factor=3, lag_max_records=100
        ),
        "checkpoints": CheckpointSettings(
            "A.checkpoints.internal",
            replication_factor=3,
            interval_s=60.0,
            group_filter=GroupFilter(),
            refreshes_groups=True,
            group_sync=None,
        ),
    }
    assert [topic for topic in ("a", "mm2-x.internal", "b.replica", "__c") if accepts(settings, topic)] == ["a"]
    assert not settings.config_filter.should_replicate("min.insync.replicas")


def test_where_offset_syncs_lie_and_whether_there_are_checkpoints(load: Load) -> None:
    on_target = only(load(f"{ONE_FLOW}offset-syncs.topic.location=target\nreplication.policy.separator=_\n"))
    assert on_target.offset_syncs is not None and on_target.checkpoints is not None
    assert (on_target.offset_syncs.topic, on_target.offset_syncs.on_source) == ("mm2-offset-syncs_A_internal", False)
    assert on_target.checkpoints.topic == "A_checkpoints_internal"
    by_ledger = only(load(f"{ONE_FLOW}A->B.emit.offset-syncs.enabled=false\n"))
    assert by_ledger.offset_syncs is None and by_ledger.checkpoints is not None, "the ledger is enough"
    for line in ("emit.checkpoints.enabled=false", "emit.checkpoints.interval.seconds=-1"):
        syncs_only = only(load(f"{ONE_FLOW}{line}\n"))
        assert syncs_only.checkpoints is None and syncs_only.offset_syncs is not None
    named = only(load(f"{ONE_FLOW}groups=pay.*\ngroups.exclude=payx\nrefresh.groups.enabled=false\n"))
    assert named.checkpoints is not None and not named.checkpoints.refreshes_groups
    synced = only(load(f"{ONE_FLOW}sync.group.offsets.enabled=true\nA->B.sync.group.offsets.rewind=true\n")).checkpoints
    assert synced is not None and synced.group_sync == GroupSyncSettings(60.0, follows_rewinds=True)
    assert [one for one in ("pay", "payx", "x") if named.checkpoints.group_filter.should_replicate(one)] == ["pay"]


@pytest.mark.parametrize(
    ("line", "name", "expected"),
    [
        ("A.consumer.auto.offset.reset=latest", "auto_offset_reset", "latest"),
        ("A.consumer.auto.offset.reset= none ", "auto_offset_reset", "none"),
        ("A.consumer.max.partition.fetch.bytes=7", "fetch_partition_max_bytes", 7),
        ("A.consumer.max.partition.fetch.bytes=7", "fetch_alone_max_bytes", 7),
        ("refresh.topics.enabled=False", "refresh_topics_interval_s", None),
        ("refresh.topics.interval.seconds=-1", "refresh_topics_interval_s", None),
        ("sync.topic.configs.enabled=false", "sync_topic_configs_interval_s", None),
        ("sync.topic.configs.interval.seconds=-5", "sync_topic_configs_interval_s", None),
        ("A->B.sync.topic.configs.interval.seconds=5", "sync_topic_configs_interval_s", 5.0),
        ("sync.topic.acls.enabled=false", "sync_topic_acls_interval_s", None),
        ("A->B.sync.topic.acls.interval.seconds=-1", "sync_topic_acls_interval_s", None),
        ("sync.topic.configs.dry.run=true", "sync_topic_configs_dry_run", True),
        ("A->B.sync.topic.acls.dry.run=true", "sync_topic_acls_dry_run", True),
        ("A->B.remote.partitions.max=7", "remote_partitions_max", 7),
        ("A->B.remote.acls.max=7", "remote_acls_max", 7),
        ("B.offset.flush.interval.ms=60000", "position_interval_s", 1.0),
        ("B.offset.flush.interval.ms=200", "position_interval_s", 0.2),
        ("B.producer.compression.type=producer", "compression", None),
        ("B.producer.compression.type=none", "compression", "none"),
        ("replication.factor=-1", "replication_factor", -1),
        ("config.storage.replication.factor=1", "configs_topic_replication_factor", 1),
        ("internal.topics.replication.factor=1", "configs_topic_replication_factor", 1),
        ("internal.topics.replication.factor=1", "status_topic_replication_factor", 1),
        ("B.internal.topics.replication.factor=1", "offsets_topic_replication_factor", 1),
        ("B.internal.topics.replication.factor=-1", "offsets_topic_replication_factor", -1),
        ("A.internal.topics.replication.factor=1", "offsets_topic_replication_factor", 3),
        ("internal.topics.replication.factor=1", "replication_factor", 2),
        (
            "internal.topics.replication.factor=1\nB.offset.storage.replication.factor=2",
            "offsets_topic_replication_factor",
            2,
        ),
        ("B.offset.storage.partitions=-1", "offsets_topic_partitions", -1),
        ("A->B.many.to.one=true", "many_to_one", True),
        ("on.poison.record=quarantine", "quarantines", True),
        ("on.poison.record=quarantine\nA->B.on.poison.record=stop", "quarantines", False),
        ("B.mm2py.group=g", "group", "g"),
        ("A.mm2py.group=g", "group", "mm2py"),
        ("topics.watch.interval.ms=100", "topics_watch_interval_s", 0.1),
        ("A->B.topics.watch.interval.ms=300", "topics_watch_interval_s", 0.3),
        ("bytes.per.second.max=10", "bytes_per_second_max", 10),
        ("B.status.storage.topic=gaps", "status_topic", "gaps"),
        ("status.storage.partitions=-1", "status_topic_partitions", -1),
        ("B.status.storage.replication.factor=1", "status_topic_replication_factor", 1),
        ("on.source.gap=restart", "on_source_gap", "restart"),
        ("A->B.on.source.gap=stop", "on_source_gap", "stop"),
        ("A->B.on.target.loss=recopy", "on_target_loss", "recopy"),
        ("A->B.stall.timeout.ms=500", "stall_timeout_s", 0.5),
    ],
)
def test_every_setting_that_works_reaches_its_flow(load: Load, line: str, name: str, expected: object) -> None:
    assert getattr(only(load(set_line(line))), name) == expected


def test_the_flow_beats_the_top_for_mm2pys_own(load: Load) -> None:
    text = set_line("bytes.per.second.max=1\nA->B.bytes.per.second.max=2\nmm2py.group=x\nB.mm2py.group=y")
    settings = only(load(text))
    assert (settings.bytes_per_second_max, settings.group) == (2, "y")


COPY_MODES = {
    "copy.mode=repack": ("repack", "repack", "repack"),
    "A->B.copy.mode=pass": ("pass", "pass", "pass"),
    "copy.mode=pass\nA->B.copy.mode=auto": ("auto", "auto", "auto"),
    "copy.mode.pass.topics=raw, vid.*": ("auto", "pass", "auto"),
    "copy.mode=pass\nA->B.copy.mode.repack.topics=orders": ("repack", "pass", "pass"),
    "copy.mode.pass.topics=raw\nA->B.copy.mode.pass.topics=clicks": ("auto", "auto", "pass"),
    "copy.mode.pass.topics=orders,raw\ncopy.mode.repack.topics=orders,clicks": ("pass", "pass", "repack"),
}


@pytest.mark.parametrize("lines", COPY_MODES)
def test_the_copy_mode_of_a_topic_is_that_of_its_list_or_the_flows(load: Load, lines: str) -> None:
    modes = only(load(set_line(lines))).copy_modes
    assert tuple(modes.of(topic).value for topic in ("orders", "raw", "clicks")) == COPY_MODES[lines]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("copy.mode=repacked", "line 5: copy.mode = 'repacked' is not one of auto, pass, repack"),
        ("A->B.copy.mode=Pass", "line 5: A->B.copy.mode = 'Pass' is not one of"),
        ("copy.mode.pass.topics=a,(", "line 5: copy.mode.pass.topics: "),
        ("A->B.copy.mode.repack.topics=[", "line 5: A->B.copy.mode.repack.topics: "),
    ],
)
def test_a_wrong_copy_mode_is_told_with_line_and_key(problem: Callable[..., str], line: str, said: str) -> None:
    assert said in problem(set_line(line))


def test_a_top_level_enabled_counts_where_mirror_maker_has_a_herder(load: Load) -> None:
    assert sorted(by_name(load(f"{TWO}enabled=true\n"))) == ["A->B", "B->A"]
    text = f"{TWO}enabled=true\nemit.heartbeats.enabled=false\nA->B.enabled=true\n"
    assert sorted(by_name(load(text))) == ["A->B"]


def test_addresses_at_the_top_serve_every_cluster_without_its_own(load: Load) -> None:
    settings = only(load("clusters=A,B\nbootstrap.servers=x:1\nB.bootstrap.servers=y:2\nA->B.enabled=true\n"))
    assert (settings.source.bootstrap_servers, settings.target.bootstrap_servers) == ((("x", 1),), (("y", 2),))


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "clusters is required"),
        ("# nothing\n! at all\n", "clusters is required"),
        ("source.cluster.alias=A\n", "looks like the settings of one connector"),
        ("clusters=\n", "line 1: clusters is empty"),
        ("clusters=A,,B\n", "line 1: clusters is a list with an empty entry"),
        ("clusters=A,B,A\n", "line 1: clusters is a list that names 'A' twice"),
        ("clusters=A,B\\u0007C\n", "alias with a control character"),
        (f"{TWO}emit.heartbeats.enabled=false\n", "No source->target replication flows"),
        (f"{TWO}A->B.enabled=false\nemit.heartbeats.enabled=false\n", "No source->target replication flows"),
        ("clusters=A\nA.bootstrap.servers=a:1\n", "No source->target replication flows"),
        (set_line("A->A.enabled=true"), "line 5: flow A->A leads from a cluster to itself"),
        (set_line("A->C.enabled=true"), "line 5: flow A->C.enabled ends at C, which is not in clusters"),
        (set_line("C->A.topics=x"), "line 5: flow C->A.topics begins at C, which is not in clusters"),
        (set_line("A\\ ->\\ B.topics=x"), "line 5: A -> B.topics names no flow; write A->B.setting"),
        (set_line("A->B->C.topics=x"), "line 5: A->B->C.topics names no flow; write A->B.setting"),
        (set_line("->B.topics=x"), "line 5: ->B.topics names no flow; write A->B.setting"),
        (set_line("A->.topics=x"), "line 5: A->.topics names no flow; write A->B.setting"),
        (set_line("A->B=true"), "line 5: A->B names no flow; write A->B.setting"),
        (set_line("A->B.=true"), "line 5: A->B. names no flow; write A->B.setting"),
        ("clusters=A,B\nA->B.enabled=true\nA.bootstrap.servers=a:1\n", "B.bootstrap.servers is missing, flow A->B"),
        ("clusters=A,B\nA->B.enabled=true\nB.bootstrap.servers=a:1\n", "A.bootstrap.servers is missing, flow A->B"),
        ("\xef\xbb\xbfclusters=A,B\n", "byte order mark"),
        (f"{ONE_FLOW}topics=\\ud800\n", "line 5: topics holds half of a character"),
    ],
)
def test_a_wrong_file_is_told_in_one_line(problem: Callable[..., str], text: str, said: str) -> None:
    assert said in problem(text)


@pytest.mark.parametrize(
    ("addresses", "said"),
    [
        ("", "empty; write host:port"),
        ("a", "there is no port"),
        ("a:", "write host:port"),
        ("a:b", "write host:port"),
        ("a:0", "the port is not from 1 to 65535"),
        ("a:99999", "the port is not from 1 to 65535"),
        ("a:999999999999", "the port is not from 1 to 65535"),
        (":9092", "there is no host"),
        ("::1:9092", "an IPv6 address needs brackets"),
        ("SSL://a:9092", "write the host without a protocol"),
        ("http://a:9092/x", "write host:port"),
        ("a:9092,,b:9092", "a list with an empty entry"),
        ("a:9092;b:9092", "write host:port"),
        ("a:9092 b:9092", "write host:port"),
    ],
)
def test_wrong_addresses_are_told_with_their_line(problem: Callable[..., str], addresses: str, said: str) -> None:
    text = f"clusters=A,B\nA.bootstrap.servers={addresses}\nB.bootstrap.servers=b:1\nA->B.enabled=true\n"
    message = problem(text)
    assert said in message
    assert "line 2: A.bootstrap.servers" in message


@pytest.mark.parametrize("addresses", ["[::1]:9092", "PLAINTEXT://[::1]:9092", " [::1]:9092 , [::1]:9092"])
def test_addresses_of_ipv6_are_read(load: Load, addresses: str) -> None:
    text = f"clusters=A,B\nA.bootstrap.servers={addresses}\nB.bootstrap.servers=b:1\nA->B.enabled=true\n"
    assert only(load(text)).source.bootstrap_servers == (("::1", 9092),)


@pytest.mark.parametrize(
    "line",
    [
        "tasks.max=-1",
        "tasks.max=0",
        "tasks.max=1e3",
        "replication.factor=two",
        "replication.factor=0",
        "replication.factor=9223372036854775808",
        "A->B.replication.factor=1.5",
        "refresh.topics.interval.seconds=0",
        "sync.topic.configs.interval.seconds=0",
        "A->B.sync.topic.acls.interval.seconds=0",
        "remote.partitions.max=0",
        "remote.acls.max=0",
        "sync.topic.acls.dry.run=yes",
        "refresh.topics.enabled=yes",
        "A.consumer.isolation.level=READ_COMMITTED",
        "A.consumer.fetch.max.bytes=-1",
        "A.consumer.request.timeout.ms=0",
        "A.consumer.request.timeout.ms=500",
        "A.consumer.fetch.max.wait.ms=30000",
        "B.producer.compression.type=brotli",
        "B.offset.storage.topic=a/b",
        "B.offset.storage.partitions=0",
        "B.offset.flush.interval.ms=0",
        "memory.max.bytes=1000",
        "topics.watch.interval.ms=1",
        "bytes.per.second.max=0",
        "many.to.one=maybe",
        "on.poison.record=skip",
        "A->B.on.poison.record=Quarantine",
        "on.source.gap=ignore",
        "A->B.on.source.gap=recopy",
        "on.target.loss=restart",
        "A->B.on.target.loss=continue",
        "stall.timeout.ms=0",
        "stall.timeout.ms=30s",
        "A->B.stall.timeout.ms=-1",
        "mm2py.group=a b",
        "A->B.bytes.per.second.max=-5",
        "topics=a,,b",
        "A->B.topics=[",
        "topics.exclude=a,(b",
        "config.properties.exclude=*",
        "replication.policy.class=com.example.Ours",
        "replication.policy.separator=/",
        "replication.policy.separator=",
        "security.protocol=TLS",
        "B.exactly.once.source.support=true",
        "exactly.once.source.support=x\nB.exactly.once.source.support=maybe",
        "A->B.consumer.auto.offset.reset=first",
    ],
)
def test_a_wrong_value_is_told_with_line_and_key(problem: Callable[..., str], line: str) -> None:
    message = problem(set_line(line))
    key = line.rsplit("\n", maxsplit=1)[-1].partition("=")[0]
    assert re.search(rf"line \d: {re.escape(key)}( =|:|$)", message), message
    assert "Traceback" not in message


def test_a_remark_behind_a_value_is_explained(problem: Callable[..., str]) -> None:
    assert problem(f"{TWO}A->B.enabled = true     # disabled by default\n") == (
        "line 4: A->B.enabled = 'true     # disabled by default' is neither true nor false"
        " (in these files a comment has a line of its own; behind a value it belongs to the value)."
    )
    assert "a comment has a line of its own" in problem(set_line("B.security.protocol = SSL // for the target"))


def test_all_problems_are_told_at_once(problem: Callable[..., str]) -> None:
    message = problem(set_line("tasks.max=0\nA->A.enabled=true\nreplication.factor=x\nA->B.topics=["))
    assert message.startswith("4 problems: ")
    assert all(f"line {line}" in message for line in (5, 6, 7, 8))


def test_many_problems_do_not_flood(problem: Callable[..., str]) -> None:
    message = problem(ONE_FLOW + "".join(f"A->X{number}.topics=x\n" for number in range(500)))
    assert message.startswith("500 problems: ")
    assert message.endswith("and 480 more.")


def test_a_problem_of_all_flows_is_told_once(problem: Callable[..., str]) -> None:
    assert problem(f"{TWO}A->B.enabled=true\nB->A.enabled=true\ntopics=[\n").startswith("line 6: topics: ")


def test_an_alias_that_no_topic_can_bear_is_told(problem: Callable[..., str]) -> None:
    text = "clusters=a/b,B\nbootstrap.servers=x:1\na/b->B.enabled=true\n"
    assert "a/b" in problem(text)


def test_values_that_may_be_secret_are_not_told(problem: Callable[..., str]) -> None:
    assert "canary" not in problem(
        set_line("A.ssl.keystore.password=canary\nA->A.ssl.key.password=canary\ntasks.max=x")
    )


@pytest.mark.parametrize(
    "key",
    [
        "clusters",
        "topics",
        "topics.exclude",
        "A->B.topics",
        "B->A.topics",
        "groups",
        "A.bootstrap.servers",
        "tasks.max",
        "replication.policy.separator",
        "A->B.copy.mode.pass.topics",
        "offset.storage.topic",
        "A.consumer.fetch.max.bytes",
        "A.consumer.client.id",
        "A.consumer.client.rack",
        "B.producer.client.id",
        "B.admin.client.id",
    ],
)
@pytest.mark.parametrize("comment", ["", "#"])
def test_a_line_that_a_backslash_made_part_of_a_value_is_told_and_nothing_of_it_is_shown(
    problem: Callable[..., str], key: str, comment: str
) -> None:
    """The last of several lines was taken out, its backslash was not; ``#`` makes no comment behind one."""
    lines = f'{key} = A, \\\n  {comment}A.sasl.jaas.config = x.Login required username="u" password="canary";\n'
    message = problem(ONE_FLOW + lines)
    assert f"line 5: the value of {key} holds what looks like a setting of its own (sasl.jaas.config); if" in message
    assert "remove the backslash at the end of the line before" in message
    assert "canary" not in message and "username" not in message


def test_what_only_a_plug_in_reads_may_speak_of_connections(load: Load) -> None:
    lines = "my.reporter.producer = bootstrap.servers=h:1,security.protocol=SSL\nrest.advertised.listener = A.token=x"
    assert only(load(set_line(lines))).flow == parse_flow("A->B")


def test_a_remark_behind_a_value_that_names_a_setting_is_told_as_one_also_without_any_backslash(
    problem: Callable[..., str],
) -> None:
    message = problem(ONE_FLOW + "A->B.replication.factor = 3 # see bootstrap.servers above\n")
    assert "a setting of its own (bootstrap.servers); if that stands in a line of its own, remove the" in message
    assert "If it is a remark behind the value, give the remark a line of its own" in message


@pytest.mark.parametrize("line", ["A->C.enabled=true", "B->A.tasks.max=0"])
def test_flows_that_are_off_may_hold_wrong_values_but_not_strangers(load: Load, line: str) -> None:
    if line.startswith("B->A"):
        assert len(load(set_line(line)).flows) == 1
    else:
        with pytest.raises(ConfigError):
            load(set_line(line))


# --- --clusters -------------------------------------------------------------------------------------------------------


def test_an_empty_selection_selects_all(load: Load) -> None:
    assert len(load(ONE_FLOW, []).flows) == 1


def test_only_clusters_of_selected_flows_need_addresses(load: Load) -> None:
    text = "clusters=A,B,C\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nA->B.enabled=true\nA->C.enabled=true\n"
    assert list(by_name(load(text, ["B"]))) == ["A->B"]


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "security.protocol=plaintext",
        "B.exactly.once.source.support=DISABLED",
        "A->B.transforms=",
        "config.providers=",
        "key.converter=org.apache.kafka.connect.converters.ByteArrayConverter",
        "topic.filter.class=org.apache.kafka.connect.mirror.DefaultTopicFilter",
        "A->B.exactly.once.support=requested",
        "A->B.source.cluster.alias=A",
        "C.security.protocol=SSL",
    ],
)
def test_a_value_that_asks_for_what_is_done_anyway_refuses_nothing(load: Load, line: str) -> None:
    assert load(set_line(line)).refused == {}


@pytest.mark.parametrize(
    "line",
    [
        "security.protocol=SASL_SSL",
        "ssl.truststore.location=/x",
        "sasl.mechanism=PLAIN",
        "A.consumer.security.protocol=SASL_SSL",
        "B.producer.ssl.keystore.location=/x",
        "A->B.source.consumer.security.protocol=SASL_PLAINTEXT",
        "A->B.producer.override.security.protocol=SASL_SSL",
        "A->B.exactly.once.support=required",
        "A.consumer.isolation.level=read_uncommitted\nB.exactly.once.source.support=enabled",
        "transforms=mask",
        "A->B.predicates=p",
        "header.converter=org.apache.kafka.connect.storage.SimpleHeaderConverter",
        "config.property.filter.class=com.example.Filter",
    ],
)
def test_what_must_not_be_ignored_refuses_the_flow(load: Load, line: str) -> None:
    configuration = load(set_line(line))
    assert configuration.flows == ()
    (reason,) = map(str, configuration.refused.values())
    assert line.split("\n", maxsplit=1)[0].partition("=")[0] in reason
    assert "(line 5)" in reason
    assert "\n" not in reason


@pytest.mark.parametrize(
    ("line", "exactly_once", "committed"),
    [
        ("B.exactly.once.source.support=preparing", "preparing", False),
        ("B.exactly.once.source.support=Enabled", "enabled", True),
        ("B.exactly.once.source.support=enabled\nA->B.exactly.once.support=required", "enabled", True),
        ("A.consumer.isolation.level=read_committed", "disabled", True),
    ],
)
def test_exactly_once_reads_committed_records_only(load: Load, line: str, exactly_once: str, committed: bool) -> None:
    (flow,) = load(set_line(line)).flows
    assert (flow.exactly_once, flow.read_committed) == (exactly_once, committed)


def test_several_flows_in_one_topic_are_never_exactly_once(problem: Callable[..., str]) -> None:
    text = set_line("A->B.many.to.one=true\nB.exactly.once.source.support=enabled")
    assert "many.to.one=true cannot be kept exactly once" in problem(text)


def test_levels_that_mirror_maker_ignores_refuse_nothing_and_are_named(load: Load) -> None:
    configuration = load(set_line("A->B.security.protocol=SSL\nexactly.once.source.support=enabled"))
    assert len(configuration.flows) == 1
    assert list(configuration.warnings) == [
        "line 5: A->B.security.protocol has no effect there, as in MirrorMaker 2;"
        " write it as <cluster>.security.protocol",
        "line 6: exactly.once.source.support has no effect there, as in MirrorMaker 2;"
        " write it as <target>.exactly.once.source.support",
    ]


def test_the_identity_policy_both_ways_is_refused(load: Load) -> None:
    policy = "replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
    both = f"{TWO}A->B.enabled=true\nB->A.enabled=true\n{policy}"
    configuration = load(both)
    assert sorted(configuration.refused) == [parse_flow("A->B"), parse_flow("B->A")]
    assert "would come back by B -> A and be copied without end" in str(configuration.refused[parse_flow("A->B")])
    assert len(load(f"{both}A->B.topics=a-.*\nB->A.topics=b-.*\n").flows) == 2
    # The other flow runs in another process, near its own target.
    assert list(load(both, ["B"]).refused) == [parse_flow("A->B")]


def test_the_identity_policy_both_ways_is_accepted_if_one_of_the_two_is_standby(load: Load) -> None:
    policy = "replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
    both = f"{TWO}A->B.enabled=true\nB->A.enabled=true\n{policy}"
    configuration = load(f"{both}B->A.standby=true\nA.config.storage.topic=elsewhere\n")
    assert not configuration.refused and not configuration.warnings
    there, back = configuration.flows
    assert (there.standby, back.standby) == (False, True)
    assert there.flow_back == FlowBack(parse_flow("B->A"), "elsewhere", standby=True)
    assert back.flow_back == FlowBack(parse_flow("A->B"), "mm2-configs.A.internal", standby=False)
    # The other flow runs in another process, near its own target.
    (alone,) = load(f"{both}B->A.standby=true\n", ["B"]).flows
    assert alone.flow_back is not None
    (told,) = load(f"{both}A->B.standby=true\nB->A.standby=true\n").warnings
    assert told.startswith("A->B and B->A are both standby: neither copies")
    refused = load(f"{both}B->A.standby=false\n").refused
    assert "or set standby = true for one of two that lead back and forth" in str(refused[parse_flow("A->B")])
    # Flows with prefixes, and those without a topic in common, take no turns.
    for other in (f"{TWO}A->B.enabled=true\nB->A.enabled=true\n", f"{both}A->B.topics=a-.*\nB->A.topics=b-.*\n"):
        assert [one.flow_back for one in load(f"{other}B->A.standby=true\n").flows] == [None, None]


def test_standby_ends_only_rings_of_two_flows_that_keep_names(load: Load) -> None:
    clusters = "clusters=A,B,C\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nC.bootstrap.servers=c:1\n"
    policy = "replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
    ring = f"{clusters}A->B.enabled=true\nB->C.enabled=true\nC->A.enabled=true\nC->A.standby=true\n{policy}"
    assert len(load(ring).refused) == 3
    mixed = f"{TWO}A->B.enabled=true\nB->A.enabled=true\nA->B.{policy}B->A.standby=true\n"
    assert len(load(mixed).refused) == 2


def test_standby_counts_at_a_flow_only(load: Load) -> None:
    configuration = load(f"{ONE_FLOW}\nstandby=true\n")
    assert not only(configuration).standby
    assert any("standby has no effect there" in told for told in configuration.warnings), configuration.warnings


def test_a_wrong_value_beside_a_refusal_is_still_told(problem: Callable[..., str]) -> None:
    assert "tasks.max" in problem(set_line("security.protocol=SASL_SSL\ntasks.max=0"))


# --- warnings ---------------------------------------------------------------------------------------------------------


def test_settings_that_do_nothing_yet_are_named_in_one_warning(load: Load) -> None:
    text = set_line(
        "admin.timeout.ms=9\nmetric.names.formats=new\nA.consumer.default.api.timeout.ms=9\nB.worker.sync.timeout.ms=9\n"
    )
    assert list(load(text).warnings) == [
        "these settings do nothing yet: admin.timeout.ms, metric.names.formats, A.consumer.default.api.timeout.ms,"
        " B.worker.sync.timeout.ms"
    ]


@pytest.mark.parametrize(
    "line",
    [
        "emit.heartbeats.enabled=false",
        "sync.topic.acls.enabled=false",
        "dedicated.mode.enable.internal.rest=false",
        "B.producer.acks=all",
        "B.producer.enable.idempotence=true",
        "A.consumer.check.crcs=true",
        "errors.tolerance=none",
        "B->A.groups=g",
    ],
)
def test_there_is_nothing_to_say_where_nothing_differs(load: Load, line: str) -> None:
    assert load(set_line(line)).warnings == ()


def test_unknown_keys_are_named_without_their_values_and_not_without_end(load: Load) -> None:
    text = ONE_FLOW + "".join(f"odd.thing.{number}=canary\n" for number in range(1000))
    warnings = load(text).warnings
    assert len(warnings) == 21
    assert warnings[0] == "line 5: odd.thing.0 is not known"
    assert warnings[-1] == "980 more keys are not known"
    assert "canary" not in repr(warnings)


def test_warnings_of_the_file_itself_are_passed_on(load: Load) -> None:
    assert load(set_line("topics=a\ntopics=b")).warnings == (
        "line 6: topics is set again (first in line 5); the last one counts",
    )


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("topcs", "topics"),
        ("A->B.topics.exlude", "A->B.topics.exclude"),
        ("A->B.enable", "A->B.enabled"),
        ("A.bootstrap.server", "A.bootstrap.servers"),
        ("A.consumer.isolation.levl", "A.consumer.isolation.level"),
        ("memory.max.byte", "memory.max.bytes"),
        ("A->B.topics.blaklist", "A->B.topics.exclude, formerly topics.blacklist"),
        ("topic.blacklst", "topics.exclude, formerly topic.blacklist"),
        ("groups.blaklist", "groups.exclude, formerly groups.blacklist"),
        ("config.property.blacklist", "config.properties.exclude, formerly config.properties.blacklist"),
    ],
)
def test_a_slip_of_the_pen_finds_what_was_meant(key: str, meant: str) -> None:
    (item,), problems = take_inventory(parse_properties(f"{key}=x".encode()).entries, ["A", "B"])
    assert problems == []
    assert nearest(item, ["A", "B"]) == f"did you mean {meant}?"


# --- the table of keys ------------------------------------------------------------------------------------------------


def test_every_key_says_why_it_is_not_what_mirror_maker_does() -> None:
    all_tables = [
        tables.CONNECTOR,
        tables.FLOW_ONLY,
        tables.WORKER,
        tables.CONSUMER,
        tables.PRODUCER,
        tables.ADMIN,
        tables.FILE,
    ]
    for table in all_tables:
        for name, key in table.items():
            assert key.name == name
            if key.status in (Status.SUPERSEDED, Status.REFUSED):
                assert key.note, name


# --- anything at all --------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        *["A", "B", "C", "->", ".", "clusters", "enabled", "topics", "bootstrap.servers", "consumer.", "producer."],
        *["=", ":", " ", "\\", "\n", "true", "x:1", ",", "#", "ssl.key.password", "offset.storage.topic", "[", "é"],
    ]
)


@given(st.lists(WORDS, max_size=30).map("".join))
def test_any_file_loads_or_is_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.properties"
    path.write_bytes((ONE_FLOW + text).encode("latin-1"))
    try:
        configuration = load_configuration(path, None)
    except ConfigError as error:
        assert "\n" not in str(error)
        return
    assert configuration.flows or configuration.refused
    assert all("\n" not in warning for warning in configuration.warnings)
    assert all(isinstance(settings.flow, Flow) for settings in configuration.flows)


def test_a_ring_with_different_separators_is_refused_because_names_would_grow_for_ever(load: Load) -> None:
    both_ways = f"{ONE_FLOW}B->A.enabled=true\nB->A.replication.policy.separator=_\n"
    refused = load(both_ways).refused
    assert set(refused) == {parse_flow("A->B"), parse_flow("B->A")}
    assert "separator" in str(refused[parse_flow("A->B")])
    assert not load(f"{both_ways}A->B.replication.policy.separator=_\n").refused
