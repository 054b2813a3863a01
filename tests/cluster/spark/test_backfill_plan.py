"""``mm2py backfill --dry-run`` on real brokers: what it would copy, and what it refuses. It needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.local.kafka import KafkaCluster
from mm2py.backfill.flow_survey import AlreadyCopied
from mm2py.cli import backfill
from mm2py.errors import ConfigError
from tests.cluster.copies import make_topic, new_topic, now_ms
from tests.cluster.kafka_client import write
from tests.cluster.spark.frames import FlowFile, Sent, send

HOUR_MS = 3_600_000
RECORDS = 10
RATE = 1_000


@pytest.fixture
def flow(source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path) -> FlowFile:
    return FlowFile(tmp_path, source_cluster, target_cluster, **{"bytes.per.second.max": RATE})


def planned(capsys: pytest.CaptureFixture[str], flow: FlowFile, *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert backfill.run([str(flow.path), flow.flow, "--dry-run", "--json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def ranges(plan: dict[str, Any]) -> list[tuple[int, int]]:
    return [(one["from"], one["seam"]) for one in plan["partitions"]]


def hours_old(count: int, *, partition: int) -> list[Sent]:
    """Return records of which the first is the oldest, each an hour older than the next."""
    begin = now_ms() - count * HOUR_MS
    return [Sent(b"x" * 500, timestamp_ms=begin + number * HOUR_MS, partition=partition) for number in range(count)]


def test_a_plan_names_ranges_sizes_time_memory_topics_and_what_retention_may_take(
    flow: FlowFile, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate that the file sets counts, as no other is given."""
    topic = new_topic(flow.source, "history", 2, {"retention.ms": str(100 * HOUR_MS)})
    send(flow.source, topic, [one for number in range(2) for one in hours_old(RECORDS, partition=number)])
    plan = planned(capsys, flow, "--topics", topic, "--master", "local[2]")
    assert ranges(plan) == [(0, RECORDS)] * 2
    assert plan["topics_to_create"] == [f"{flow.alias}.{topic}"]
    assert plan["bytes"] > 2 * RECORDS * 500
    assert plan["seconds"] == plan["bytes"] / RATE
    assert planned(capsys, flow, "--topics", topic, "--max-mb-per-second", "1")["seconds"] == plan["bytes"] / 1e6
    assert plan["memory_bytes_a_task"] > 0
    assert (plan["tasks"], plan["tasks_at_once"]) == ([[[topic, 0]], [[topic, 1]]], 2)
    assert plan["warnings"] == []
    short = new_topic(flow.source, "history", 1, {"retention.ms": str(4 * HOUR_MS + HOUR_MS // 2)})
    send(flow.source, short, hours_old(RECORDS, partition=0))
    (warning,) = planned(capsys, flow, "--topics", short)["warnings"]
    assert f"Retention may delete up to 6 offsets of {short}" in warning


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--from", "{topic}:0=4"], [(4, RECORDS), (0, RECORDS)]),
        (["--until", "{topic}:1=3,{topic}:0=99"], [(0, RECORDS), (0, 3)]),
        (["--from", "{hours_ago_4}", "--until", "{hours_ago_2}"], [(7, 9), (7, 9)]),
        (["--from", "{hours_ago_0}"], [(RECORDS, RECORDS)] * 2),
    ],
)
def test_a_plan_begins_and_ends_where_it_is_told(
    flow: FlowFile, capsys: pytest.CaptureFixture[str], arguments: Sequence[str], expected: list[tuple[int, int]]
) -> None:
    """A record that is half an hour younger than the time is the first one behind it."""
    topic = new_topic(flow.source, "history", 2)
    at_ms = now_ms() - HOUR_MS // 2
    send(flow.source, topic, [one for number in range(2) for one in hours_old(RECORDS, partition=number)])
    times = {f"hours_ago_{number}": str(at_ms - (number - 1) * HOUR_MS) for number in range(5)}
    given = [one.format(topic=topic, **times) for one in arguments]
    assert ranges(planned(capsys, flow, "--topics", topic, *given)) == expected


def test_what_cannot_be_backfilled_is_refused_with_the_reason(
    flow: FlowFile, capsys: pytest.CaptureFixture[str]
) -> None:
    """B88: offsets that the live flow has, or another client, are not copied once more."""
    topic, begun = new_topic(flow.source, "history"), new_topic(flow.source, "begun")
    make_topic(flow.target, f"{flow.alias}.{begun}")
    write(flow.target, f"{flow.alias}.{begun}", ["a copy"])
    refused = [
        (["--topics", begun], AlreadyCopied, f"{flow.alias}.{begun}-0 on {flow.other} is not empty"),
        (["--topics", topic, "nowhere"], ConfigError, "There is no topic 'nowhere'"),
        (["--topics", "__consumer_offsets"], ConfigError, "Add it to"),
        (["--topics", topic, "--from", f"{topic}:7=1"], ConfigError, f"Offsets name {topic}-7"),
        (["--topics", topic, "--resume", "0badcafe"], ConfigError, "take no --topics"),
        (["--resume", "0badcafe"], ConfigError, "has no backfill '0badcafe'"),
        (["--abandon", "0badcafe"], ConfigError, "has no backfill '0badcafe'"),
    ]
    for arguments, error, told in refused:
        with pytest.raises(error, match=told):
            planned(capsys, flow, *arguments)
