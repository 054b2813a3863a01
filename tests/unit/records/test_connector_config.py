"""The records of a configs topic: Connect's bytes, ours beside them, and whatever else stands there."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from mm2py.records.author import UNKNOWN, Author
from mm2py.records.connector_config import (
    APPLY_COMMAND,
    FLOW_KEY,
    MALFORMED_KEPT_MOST,
    SOURCE_KEY,
    ConfigRecords,
    ConfigTooNew,
    DecidedBy,
    FlowConfig,
    MalformedConfig,
    decode_connector,
    decode_flow,
    encode_connectors,
    encode_flow,
    encode_no_tasks,
)

TOPIC = "mm2-configs.A.internal"
BEFORE = FlowConfig({"topics": "a"}, DecidedBy.FILE, 2, "w1", "w0", "0.1.0", "worker-1", 1_000, ("d1",))
CONFIG = FlowConfig(
    {"topics": 'orders-ä."x"', "enabled": "true"},
    DecidedBy.APPLY,
    3,
    "w2",
    "w1",
    "0.1.0",
    "worker-2",
    2_000,
    ("d1", "d2"),
    previous=BEFORE,
)
BY_MM2 = {"topics": "b", "enabled": "true", "source.cluster.bootstrap.servers": "a:1"}


def connect(properties: dict[str, str]) -> bytes:
    return json.dumps({"properties": properties}).encode()


def ours(config: FlowConfig, records: ConfigRecords) -> None:
    """Take a write of our own in, as it stands in the log."""
    for key, value in [*encode_connectors(config.properties, "A", "B").items(), (FLOW_KEY, encode_flow(config))]:
        records.take(key, value, 0)


def test_connectors_are_written_under_connects_keys_in_its_own_bytes() -> None:
    written = encode_connectors({"topics": 'orders-ä."x"', "enabled": "true"}, "A", "B")
    assert written[b"connector-MirrorSourceConnector"].decode() == (
        '{"properties":{"topics":"orders-ä.\\"x\\"","enabled":"true","name":"MirrorSourceConnector",'
        '"connector.class":"org.apache.kafka.connect.mirror.MirrorSourceConnector",'
        '"source.cluster.alias":"A","target.cluster.alias":"B"}}'
    )
    assert list(written) == [
        b"connector-MirrorSourceConnector",
        b"connector-MirrorCheckpointConnector",
        b"connector-MirrorHeartbeatConnector",
    ]
    assert decode_connector(written[SOURCE_KEY])["topics"] == 'orders-ä."x"'


@pytest.mark.parametrize("name", ["emit.checkpoints.enabled", "emit.offset-syncs.enabled"])
def test_a_checkpoint_connector_that_would_have_nothing_to_do_is_not_configured_as_in_mm2(name: str) -> None:
    without = encode_connectors({name: " False"}, "A", "B")
    assert list(without) == [b"connector-MirrorSourceConnector", b"connector-MirrorHeartbeatConnector"]
    assert len(encode_connectors({name: "true"}, "A", "B")) == 3


def test_a_setting_without_value_is_none() -> None:
    assert decode_connector(b'{"properties":{"a":null,"b":"1"},"later":2}') == {"b": "1"}


@pytest.mark.parametrize(
    "value",
    [b"", b"\xff", b"[]", b"7", b"null", b"{}", b'{"properties":null}', b'{"properties":{"a":1}}', b"[" * 100_000],
)
def test_what_is_no_setting_of_a_connector_is_refused(value: bytes) -> None:
    with pytest.raises(MalformedConfig):
        decode_connector(value)


def test_fields_that_a_younger_mm2py_adds_are_passed_over() -> None:
    fields = json.loads(encode_flow(CONFIG)) | {"format": 2, "colour": "blue"}
    assert decode_flow(json.dumps(fields).encode(), TOPIC) == CONFIG


def test_what_must_not_be_passed_over_names_the_version_it_needs() -> None:
    fields = json.loads(encode_flow(CONFIG)) | {"format": 2, "readable_from": 2, "mm2py": "3.1\x1b[2J"}
    value = json.dumps(fields).encode()
    with pytest.raises(ConfigTooNew, match=r"Run mm2py 3\.1\[2J or later"):
        decode_flow(value, TOPIC)
    records = ConfigRecords(TOPIC)
    records.take(FLOW_KEY, value, 0)
    assert records.too_new is not None and records.flow is None
    ours(CONFIG, records)
    assert records.too_new is None and records.flow == CONFIG


@pytest.mark.parametrize(
    "fields",
    [
        {"readable_from": None},
        {"readable_from": True},
        {"version": "3"},
        {"version": -1},
        {"at_ms": True},
        {"by": "somebody"},
        {"seen": [1]},
        {"seen": 1},
        {"write_id": 7},
        {"properties": []},
        {"properties": {"a": 1}},
        {"previous": 7},
        {"previous": {}},
    ],
)
def test_a_record_of_ours_that_is_not_as_we_write_it_is_named_with_its_place(fields: dict[str, object]) -> None:
    records = ConfigRecords(TOPIC)
    ours(BEFORE, records)
    records.take(FLOW_KEY, json.dumps(json.loads(encode_flow(CONFIG)) | fields).encode(), 41)
    assert records.flow == BEFORE
    (text,) = records.malformed
    assert text.startswith(f"{TOPIC}-0 at offset 41, mm2py-flow: ")


def test_a_record_under_connects_key_behind_ours_was_written_by_another() -> None:
    records = ConfigRecords(TOPIC)
    ours(CONFIG, records)
    assert records.foreign is None
    records.take(SOURCE_KEY, connect(BY_MM2), 4)
    assert records.foreign == BY_MM2
    assert records.flow == CONFIG, "it is kept as what stood there before"
    ours(replace(CONFIG, version=4), records)
    assert records.foreign is None


def test_deleted_records_leave_nothing() -> None:
    records = ConfigRecords(TOPIC)
    ours(CONFIG, records)
    records.take(SOURCE_KEY, connect(BY_MM2), 4)
    records.take(SOURCE_KEY, None, 5)
    assert records.foreign is None and "MirrorSourceConnector" not in records.connectors
    records.take(FLOW_KEY, None, 6)
    assert records.flow is None


@pytest.mark.parametrize(("enabled", "is_beside"), [("false", True), (" False", True), ("true", False), ("", False)])
def test_an_mm2_that_only_emits_heartbeats_may_run_beside_us(enabled: str, is_beside: bool) -> None:
    records = ConfigRecords(TOPIC)
    records.take(SOURCE_KEY, connect(BY_MM2 | {"enabled": enabled}), 0)
    assert records.is_beside_mm2 is is_beside


def test_a_flow_that_we_have_switched_off_is_not_mm2s() -> None:
    records = ConfigRecords(TOPIC)
    ours(replace(CONFIG, properties={"enabled": "false"}), records)
    assert not records.is_beside_mm2


def test_everything_else_is_skipped_and_counted() -> None:
    records = ConfigRecords(TOPIC)
    for key in [
        b"task-MirrorSourceConnector-0",
        b"task-MirrorSourceConnector-1",
        b"commit-MirrorSourceConnector",
        b"tasks-fencing-MirrorSourceConnector",
        b"session-key",
        b"logger-cluster-x",
        b"mm2py-later",
        b"\xff",
        None,
    ]:
        records.take(key, b'{"tasks":1}' if key == b"commit-MirrorSourceConnector" else b"not looked at", 0)
    assert records.skipped == {
        "task": 2,
        "commit": 1,
        "tasks-fencing": 1,
        "session-key": 1,
        "logger-cluster": 1,
        "mm2py": 1,
        "unknown": 2,
    }
    assert records.malformed == [] and records.flow is None


def test_bad_records_are_named_the_first_few_and_steer_no_terminal() -> None:
    records = ConfigRecords(TOPIC)
    for offset in range(MALFORMED_KEPT_MOST + 5):
        records.take(b"connector-\x1b[2J", b"{", offset)
    assert len(records.malformed) == MALFORMED_KEPT_MOST
    assert records.malformed[7] == f"{TOPIC}-0 at offset 7, connector-?[2J: it is no JSON"


def test_writes_are_told_from_those_that_were_read_before() -> None:
    records = ConfigRecords(TOPIC)
    ours(BEFORE, records)
    known = records.writes
    assert records.writes_behind(known) == []
    ours(CONFIG, records)
    assert records.writes_behind(known) == [CONFIG]


def test_tasks_that_mirrormaker_2_left_behind_are_none_while_mm2py_runs() -> None:
    """Else they would start, and fail, before a MirrorMaker 2 that comes back puts its settings in place of ours."""
    records = ConfigRecords("mm2-configs.A.internal")
    records.take(b"commit-MirrorSourceConnector", b'{"tasks":2}', 0)
    records.take(b"commit-MirrorCheckpointConnector", b'{"tasks":0}', 1)
    records.take(b"commit-MirrorHeartbeatConnector", b'{"tasks":1}', 2)
    records.take(b"commit-orders-sink", b'{"tasks":4}', 2)  # of a Kafka Connect whose topic config.storage.topic names
    written = encode_no_tasks(records.tasks)
    assert written == {
        b"commit-MirrorHeartbeatConnector": b'{"tasks":0}',
        b"commit-MirrorSourceConnector": b'{"tasks":0}',
    }
    for offset, (key, value) in enumerate(written.items(), 3):
        records.take(key, value, offset)
    assert encode_no_tasks(records.tasks) == {}
    records.take(b"commit-MirrorSourceConnector", b"[]", 5)
    assert len(records.malformed) == 1


def test_settings_name_who_decided_them_and_records_of_earlier_versions_are_read_without() -> None:
    anna = Author("anna", "ops1", "raise topics for team x")
    config = replace(CONFIG, author=anna, worker=APPLY_COMMAND, previous=replace(BEFORE, author=Author("mm2py", "vm")))
    assert decode_flow(encode_flow(config), TOPIC) == config
    assert config.who_and_why == "anna on ops1 (mm2py apply): raise topics for team x"
    assert config.previous is not None and config.previous.who == "mm2py on vm (the file of worker worker-1)"
    assert replace(config, by=DecidedBy.REST).who_and_why == "anna over REST on worker ops1: raise topics for team x"
    assert replace(config, worker="vm:7").who == "anna on ops1 (--apply of worker vm:7)"
    earlier = {name: value for name, value in json.loads(encode_flow(config)).items() if name not in asdict(anna)}
    found = decode_flow(json.dumps(earlier).encode(), TOPIC)
    assert (found.author, found.who_and_why) == (UNKNOWN, "apply")
    assert found == replace(config, author=UNKNOWN)
