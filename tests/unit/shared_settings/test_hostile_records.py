"""Records that somebody else has written to the configs topic: S26. Nothing of them ends a worker by an error.

Who may write there may pause flows, and change what they copy: docs/security.md says to whom to give that right.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mm2py.config.flow_properties import StoredConfigUnusable
from mm2py.flow import Kind
from mm2py.moments import time_text
from mm2py.records.connector_config import (
    FLOW_KEY,
    SOURCE_KEY,
    ConfigRecords,
    DecidedBy,
    FlowConfig,
    decode_flow,
    encode_connectors,
    encode_flow,
)
from mm2py.records.operator_request import LOG_LEVEL, RESTART_CONNECTOR, RESTART_PARTITIONS, target_key, told_by
from mm2py.shared_settings.flow_config import Follow, changed, counting, decide, follow
from mm2py.shared_settings.follow import merged, merged_heartbeats, shown
from tests.scenarios.config_world import FLOW, TOPIC, file_of

FILE = file_of({"topics": "orders"})
RUNS = FlowConfig({"topics": "orders", "enabled": "true"}, DecidedBy.FILE, 3, "w3", "w2", "0.1.0", "host:1", 1_000)
AUTHOR = {"user": "ann", "host": "ops1", "reason": "for team x"}
HISTORY = b"mm2py-history-000000000000001-0000000a"
NAMES = ["topics", "enabled", "tasks.max", "bytes.per.second.max", "sasl.jaas.config", "source.cluster.x", "no.such"]

texts = st.one_of(
    st.sampled_from(
        ["", "x", "(", "-1", "a" * 5_000, "\x1b[2J", "\n", "\ud800", "\u202e", "${env:HOME}", "0.1.0", "false"]
    ),
    st.text(st.characters(), max_size=20),
)
numbers = st.one_of(st.integers(), st.sampled_from([-1, 1 << 31, 1 << 63, 10**400, 10**4299, 1.5, float("nan"), True]))
anything: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), texts, numbers),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=10,
)
settings = st.dictionaries(st.one_of(st.sampled_from(NAMES), texts), st.one_of(texts, anything), max_size=4)


def mostly(right: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Records as they should be, of which some fields are replaced, missing or added."""
    return st.builds(
        lambda given, missing: {name: one for name, one in {**right, **given}.items() if name not in missing},
        st.dictionaries(st.one_of(st.sampled_from(sorted(right)), texts), anything, max_size=2),
        st.sets(st.sampled_from(sorted(right)), max_size=1),
    )


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode_flow(RUNS))
    for _ in range(depth):
        found = {**found, "previous": found}
    return found


FLOW_RECORDS = st.one_of(
    mostly(json.loads(encode_flow(RUNS)) | AUTHOR),
    st.builds(lambda given: json.loads(encode_flow(RUNS)) | {"properties": given}, settings),
    st.builds(nested, st.sampled_from([1, 2, 5, 60])),
)
VALUES: dict[bytes, st.SearchStrategy[Any]] = {
    FLOW_KEY: FLOW_RECORDS,
    SOURCE_KEY: st.builds(lambda given: {"properties": given}, settings),
    b"connector-MirrorHeartbeatConnector": st.builds(lambda given: {"properties": given}, settings),
    target_key(Kind.SOURCE): mostly({"state": "PAUSED", "state.v2": "STOPPED", "by": "ann", "at_ms": 1} | AUTHOR),
    RESTART_CONNECTOR + Kind.SOURCE.encode(): mostly({"include-tasks": True, "only-failed": False}),
    RESTART_PARTITIONS: mostly({"readable_from": 1, "topic": "orders", "partition": 0, "by": "ann"} | AUTHOR),
    LOG_LEVEL: mostly({"level": "DEBUG"}),
    b"commit-MirrorSourceConnector": mostly({"tasks": 2}),
    b"mm2py-audit-000000000000001-0000000a": anything,
    HISTORY: mostly({"at_ms": 1, "kind": "settings", "by": "ann", "version": 1, "changes": [["topics", "x"]]} | AUTHOR),
    b"mm2py-later": anything,
}
JUNK = [
    b"",
    b"{",
    b"\xff\xfe{\x00}\x00",
    b'{"a":"\xed\xa0\x80"}',
    b"[" * 100_000,
    b'{"properties":' * 50_000,
    b"1" * 5_000,
]


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def record_of(key: bytes) -> st.SearchStrategy[tuple[bytes | None, bytes | None]]:
    value = st.one_of(VALUES[key].map(_json), anything.map(_json), st.sampled_from(JUNK), st.binary(), st.none())
    return st.tuples(st.just(key), value)


records = st.one_of(
    *(record_of(key) for key in VALUES),
    st.tuples(st.one_of(st.none(), st.binary(max_size=40), st.just(b"connector-" + b"\x1b" * 10_000)), st.binary()),
)


@given(st.lists(records, max_size=8))
def test_nothing_that_stands_in_the_configs_topic_ends_a_worker(
    written: list[tuple[bytes | None, bytes | None]],
) -> None:
    """S26: all that a worker makes of records, before, between and behind its own."""
    table = ConfigRecords(TOPIC)
    table.take(FLOW_KEY, encode_flow(RUNS), 0)
    for offset, (key, value) in enumerate(written, 1):
        before = table.flow, table.targets.copy(), table.too_new
        counts = sum(table.skipped.values()), len(table.malformed), table.writes
        table.take(key, value, offset)
        if len(table.malformed) > counts[1]:
            assert (table.flow, table.targets) == before[:2], "what cannot be understood changes nothing"
            assert len(table.malformed[-1]) < 600 and table.malformed[-1].isprintable()
        what_a_worker_makes_of(table)


def what_a_worker_makes_of(table: ConfigRecords) -> None:
    """What is decided at the start, followed while a flow runs, stored again, and told."""
    stored = counting(table)
    for target in table.targets.values():
        time_text(target.at_ms or 0)
        assert target.text.isprintable()
    for wanted in (decide(stored, FILE.shared(FLOW), runners=()), decide(stored, FILE.shared(FLOW), runners=("w1",))):
        shown(wanted.difference)
        written_and_read(wanted.config)
    written_and_read(changed(stored, {"topics": "payments"}, DecidedBy.REST))
    for entry in table.entries():
        assert entry.text.isprintable() and time_text(entry.at_ms)
    for asked in table.restarts:
        assert told_by(asked.by, asked.author).isprintable()
    news = follow(RUNS, stored)
    if isinstance(news, Follow):
        for merge in (merged, merged_heartbeats):
            try:
                merge(FILE, FLOW, news.config)
            except StoredConfigUnusable as error:
                assert len(str(error)) < 20_000  # which a running flow is told, and goes on


def written_and_read(config: FlowConfig) -> None:
    """What a worker stores of it can be written, and read by all others."""
    assert decode_flow(encode_flow(config), TOPIC).properties == config.properties
    assert config.who_and_why.isprintable() and decode_flow(encode_flow(config), TOPIC).author == config.author
    encode_connectors(config.properties, "A", "B")
    time_text(config.at_ms)
