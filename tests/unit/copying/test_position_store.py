"""Positions read as a table: which of several records of one partition is believed."""

from __future__ import annotations

import json
import random

import pytest

from mm2py.copying.positions import PositionTable, read_positions
from mm2py.kafka.cluster import fetch_metadata
from mm2py.records.source_offset import (
    NewerPositionFormat,
    SourcePartition,
    StoredPosition,
    encode_key,
    encode_value,
)
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.record_batch import Record
from tests.fakes.virtual_time import VirtualClock

TOPIC = "mm2-offsets.A.internal"


async def test_of_several_positions_of_a_partition_the_last_one_counts() -> None:
    cluster = ClusterModel("B", VirtualClock(), random.Random(1))
    cluster.create_topic(TOPIC, 1)
    key = encode_key(SourcePartition("A", "orders", 0))
    stored = [StoredPosition(next_source) for next_source in (100, 300, 200)]
    for position in stored:
        cluster.append(TOPIC, 0, [Record(encode_value(position), key=key)])
    topic = (await fetch_metadata(cluster, [TOPIC])).topics[TOPIC]
    assert await read_positions(cluster, topic, "A") == ({("orders", 0): stored[-1]}, [])


async def test_a_table_that_reads_on_believes_the_last_record_of_each_partition() -> None:
    """A malformed one and a tombstone count as long as nothing later says more."""
    cluster = ClusterModel("B", VirtualClock(), random.Random(1))
    cluster.create_topic(TOPIC, 1)
    orders, clicks = (encode_key(SourcePartition("A", topic, 0)) for topic in ("orders", "clicks"))
    table = PositionTable("A")

    async def read(*records: tuple[bytes, bytes | None]) -> None:
        for key, value in records:
            cluster.append(TOPIC, 0, [Record(value, key=key)])
        await table.read(cluster, (await fetch_metadata(cluster, [TOPIC])).topics[TOPIC])

    await read((orders, encode_value(StoredPosition(1))), (clicks, b"{"), (clicks, encode_value(StoredPosition(2))))
    assert table.positions == {("orders", 0): StoredPosition(1), ("clicks", 0): StoredPosition(2)}
    assert not table.malformed_at
    await read((orders, encode_value(StoredPosition(3))), (orders, None), (clicks, b"{"))
    assert table.positions == {("clicks", 0): StoredPosition(2)}
    assert table.malformed_at == {("clicks", 0)}
    await read((clicks, encode_value(StoredPosition(4))))
    assert table.positions == {("clicks", 0): StoredPosition(4)}
    assert not table.malformed_at


async def test_a_position_of_a_later_format_is_not_passed_over_until_another_takes_its_place() -> None:
    """A worker of a later version has stored it. Without it this one would copy the partition from its start."""
    cluster = ClusterModel("B", VirtualClock(), random.Random(1))
    cluster.create_topic(TOPIC, 1)
    key, table = encode_key(SourcePartition("A", "orders", 0)), PositionTable("A")
    topic = (await fetch_metadata(cluster, [TOPIC])).topics[TOPIC]
    later = json.dumps({"offset": 6, "mm2py": 3, "readable_from": 3}).encode()
    cluster.append(TOPIC, 0, [Record(encode_value(StoredPosition(1)), key=key), Record(later, key=key)])
    for _ in range(2):
        with pytest.raises(NewerPositionFormat, match="a position of format 3"):
            await table.read(cluster, topic)
    cluster.append(TOPIC, 0, [Record(encode_value(StoredPosition(7)), key=key)])
    await table.read(cluster, topic)
    assert table.positions == {("orders", 0): StoredPosition(7)}
