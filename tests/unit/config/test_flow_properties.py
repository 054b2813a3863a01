"""What of a flow's settings its workers share: all that says what is copied and how; no address, no credential."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.config import tables
from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.config.flow_properties import (
    StoredConfigUnusable,
    flow_properties,
    looks_like_address_or_secret,
    meaning,
    properties_of_connector,
    stored_keys,
)
from mm2py.config.kinds import addresses
from mm2py.config.layers import connector_config
from mm2py.config.properties import PropertyEntry
from mm2py.config.row import Status
from mm2py.config.security.keys import OWN as OWN_SECURITY
from mm2py.config.security.keys import secret
from mm2py.config.settings import FlowSettings
from mm2py.flow import parse_flow
from mm2py.secret import CLIENT_NAMES, may_hold_secret

FLOW = parse_flow("A->B")
ADDRESSES = """\
clusters = A, B
A.bootstrap.servers = a:1
B.bootstrap.servers = b:1
A->B.enabled = true
"""
LEVELS = ("", "A.", "B.", "A->B.")
CLIENTS = ("", "consumer.", "producer.", "admin.", "source.consumer.", "producer.override.", "source.admin.")
HIDDEN = "hunter2"
_WORDS = (
    "password passwd secret token jaas credential api.key private.key auth ssl.key keystore.location passphrase pwd"
)
CREDENTIAL_LIKE = _WORDS.split()

Read = Callable[[str], SettingsFile]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(text: str) -> SettingsFile:
        path = tmp_path / "mm2.properties"
        path.write_text(ADDRESSES + text)
        return read_settings_file(path, None)

    return read


def only(file: SettingsFile, stored: dict[str, str] | None = None) -> FlowSettings:
    (settings,) = file.configuration(None if stored is None else {FLOW: stored}).flows
    return settings


NAMES = ("orders.1", "x", "y", "a", "b", "c", "z", "min.insync.replicas", "retention.ms")


def told(settings: FlowSettings) -> dict[str, object]:
    """Return all that settings say; what decides on names by what it decides."""
    said = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return said | {
        "topic_filter": [settings.topic_filter.should_replicate(name) for name in NAMES],
        "config_filter": [settings.config_filter.should_replicate(name) for name in NAMES],
        "copy_modes": [settings.copy_modes.of(name) for name in NAMES],
    }


# --- nothing secret ---------------------------------------------------------------------------------------------------


def test_no_known_setting_that_may_be_stored_is_an_address_or_a_credential() -> None:
    for name, key in stored_keys().items():
        assert key.kind not in (secret, addresses), name
        assert key.name not in CLIENT_NAMES, name
        assert not may_hold_secret(name), name
        if name != "offset-syncs.topic.location":  # it says source or target
            assert not re.search(r"bootstrap|server|location|file|path|host|url|listener|client\.id|rack", name), name
        assert key.status in {Status.WORKS, Status.NOT_YET}, name
    assert not stored_keys().keys() & {key.name for key in OWN_SECURITY}, "a topic must not open what a file has shut"
    assert not [name for name in stored_keys() if name.startswith(("transforms", "predicates"))], "a module is local"
    assert not stored_keys().keys() & {"mm2py.group", "memory.max.bytes", "config.storage.topic", "group.id"}


def test_no_known_setting_of_a_connection_gets_through_from_any_place() -> None:
    all_tables = [
        tables.CONNECTOR,
        tables.FLOW_ONLY,
        tables.WORKER,
        tables.OWN_TOP,
        tables.OWN_CLUSTER,
        tables.OWN_FLOW,
        tables.FILE,
    ]
    known = {name for table in (*all_tables, *tables.CLIENTS.values()) for name in table}
    forbidden = {name for name in known if name in CLIENT_NAMES or looks_like_address_or_secret(name)}
    assert {"ssl.keystore.password", "sasl.jaas.config", "bootstrap.servers", "listeners"} <= forbidden
    for name in forbidden:
        texts = [f"{level}{client}{name}" for level in LEVELS for client in CLIENTS]
        file = {text: PropertyEntry(HIDDEN, text, 1) for text in texts}
        found = flow_properties(file, FLOW)
        assert HIDDEN not in found.values(), (name, found)


@given(
    level=st.sampled_from(LEVELS),
    client=st.sampled_from(CLIENTS),
    words=st.lists(st.text("abcdefghijklmnopqrstuvwxyz-_", min_size=1, max_size=12), max_size=4),
    word=st.sampled_from(["", *CREDENTIAL_LIKE]),
    at=st.integers(0, 4),
)
def test_a_key_that_nobody_knows_never_gets_through(
    level: str, client: str, words: list[str], word: str, at: int
) -> None:
    name = ".".join([*words[:at], *([word] if word else []), *words[at:]])
    key = f"{level}{client}{name}"
    if not name or (not word and (client + name in stored_keys() or name in stored_keys())):
        return
    assert HIDDEN not in flow_properties({key: PropertyEntry(HIDDEN, key, 1)}, FLOW).values()
    raw = {f"{client}{name}": HIDDEN}
    assert HIDDEN not in properties_of_connector(raw).values()


@given(st.sampled_from(CREDENTIAL_LIKE), st.sampled_from(sorted(stored_keys())))
def test_what_looks_like_a_credential_is_known_as_one_wherever_it_stands(word: str, name: str) -> None:
    assert looks_like_address_or_secret(f"{name}.{word}")
    assert looks_like_address_or_secret(f"{word}.{name}")


# --- all the rest -----------------------------------------------------------------------------------------------------


def test_settings_of_all_levels_come_under_the_names_of_the_connector(read: Read) -> None:
    file = read(
        """\
topics.exclude = a
A->B.topics = orders.*
A.consumer.fetch.max.bytes = 7
A->B.source.consumer.isolation.level = read_committed
B.producer.linger.ms = 5
A->B.producer.override.compression.type = zstd
B.exactly.once.source.support = enabled
A.admin.request.timeout.ms = 9
bytes.per.second.max = 100
A->B.bytes.per.second.max = 200
topics.watch.interval.ms = 300
tasks.max = 4
A.client.id = me
A.consumer.client.rack = here
B.ssl.truststore.password = hunter2
memory.max.bytes = 99999999
B.mm2py.group = g
unheard.of = x
"""
    )
    assert file.shared(FLOW) == {
        "enabled": "true",
        "topics": "orders.*",
        "topics.exclude": "a",
        "source.consumer.fetch.max.bytes": "7",
        "source.consumer.isolation.level": "read_committed",
        "producer.override.linger.ms": "5",
        "producer.override.compression.type": "zstd",
        "exactly.once.source.support": "enabled",
        "source.admin.request.timeout.ms": "9",
        "bytes.per.second.max": "200",
        "topics.watch.interval.ms": "300",
        "tasks.max": "4",
    }


FULL = """\
A->B.topics = orders.*
topics.exclude = x
replication.policy.separator = _
A.consumer.fetch.max.bytes = 7
B.producer.linger.ms = 5
B.offset.storage.topic = positions
status.storage.replication.factor = 1
A.admin.request.timeout.ms = 9
A->B.on.source.gap = stop
copy.mode = pass
emit.heartbeats.interval.seconds = 9
B->A.emit.heartbeats.enabled = false
"""


def test_what_one_file_shares_makes_the_same_settings_of_another_one(read: Read) -> None:
    wanted = only(read(FULL))
    shared = read(FULL).shared(FLOW)
    others = read("A->B.topics = z\nmany.to.one = true\nB.producer.linger.ms = 1\nB->A.emit.heartbeats.enabled = false")
    merged = only(others, shared)
    assert told(merged) == told(wanted)
    assert told(wanted) != told(only(others))


def test_addresses_and_credentials_stay_those_of_the_file(read: Read) -> None:
    stored = read("").shared(FLOW) | {
        "source.consumer.bootstrap.servers": "evil:1",
        "source.cluster.bootstrap.servers": "evil:1",
        "producer.override.security.protocol": "SSL",
        "sasl.require.tls": "true",
        "mm2py.group": "other",
    }
    file = read("B.mm2py.group = g\nA.consumer.client.rack = here")
    assert told(only(file, stored)) == told(only(file))
    assert only(file, stored).client_rack == "here"


def test_what_is_not_stored_has_its_default_whatever_the_file_says(read: Read) -> None:
    assert only(read(FULL), {"enabled": "true"}).linger_s == 0.0
    assert only(read(FULL), {"enabled": "true"}).offsets_topic == "mm2-offsets.A.internal"
    assert only(read(FULL), {"enabled": "true"}).on_source_gap is None
    assert only(read(FULL), {"enabled": "true"}).topic_filter.should_replicate("x")


def test_a_flow_that_is_switched_off_is_left_out(read: Read) -> None:
    assert read("").configuration({FLOW: {"enabled": "false"}}).flows == ()
    file = read("A->B.enabled = no\n")
    assert file.shared(FLOW)["enabled"] == "false"
    assert file.switched_off() == [FLOW]
    assert [settings.flow for settings in file.switching_on(FLOW).configuration().flows] == [FLOW]
    assert read("").switched_off() == []


@pytest.mark.parametrize("stored", [{"bytes.per.second.max": "x"}, {"topics": "("}, {"copy.mode": "fast"}])
def test_what_cannot_be_used_is_not_the_fault_of_the_file(read: Read, stored: dict[str, str]) -> None:
    with pytest.raises(StoredConfigUnusable) as refused:
        read("").configuration({FLOW: stored})
    assert "stored configuration of A->B" in refused.value.what
    assert "line" not in refused.value.what


def test_a_stored_value_with_a_credential_in_it_is_not_run_and_not_shown(read: Read) -> None:
    """An older mm2py, or MirrorMaker 2, took it out of a file with a backslash too many."""
    with pytest.raises(StoredConfigUnusable) as refused:
        read("").configuration({FLOW: {"topics": f"x, A.ssl.key.password = {HIDDEN}"}})
    assert "topics holds what looks like ssl.key.password, which must not be stored" in refused.value.what
    assert HIDDEN not in str(refused.value)


def test_what_a_younger_mm2py_has_stored_beside_is_passed_over(read: Read) -> None:
    assert told(only(read(""), {"enabled": "true", "new.setting": "1"})) == told(only(read("")))


def test_the_settings_of_mirrormaker_2s_connector_read_like_those_of_the_file(read: Read) -> None:
    """It resolves the layers of its file as we do; those of the worker never reach its connectors."""
    file = read(FULL + "B.ssl.keystore.password = hunter2\nA->B.producer.override.linger.ms = 5\n")
    raw = {key: entry.value for key, entry in connector_config(file.properties.entries, FLOW).items()}
    of_worker = {"offset.storage.topic", "status.storage.replication.factor"}
    own_at_top = {"copy.mode"}  # MM2 drops what it does not know
    assert raw["source.cluster.bootstrap.servers"] == "a:1"
    expected = {name: text for name, text in file.shared(FLOW).items() if name not in of_worker | own_at_top}
    assert properties_of_connector(raw) == expected
    assert HIDDEN not in properties_of_connector(raw).values()


def test_equal_meanings_are_equal_however_they_are_spelled() -> None:
    assert meaning("refresh.topics.enabled", "TRUE ") == meaning("refresh.topics.enabled", None)
    assert meaning("topics", "a,b") == meaning("topics", " a , b")
    assert meaning("topics", "a") != meaning("topics", "b")
    assert meaning("unheard.of", "a") == "a"
    assert meaning("bytes.per.second.max", "x") == "x"
