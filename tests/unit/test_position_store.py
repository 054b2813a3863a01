"""Positions read as a table: which of several records of one partition is believed."""

from __future__ import annotations

import random

import pytest

from mm2py.kafka.cluster import fetch_metadata
from mm2py.records.source_offset import SourcePartition, StoredPosition, encode_key, encode_value
from mm2py.replication.position_store import read_positions
from tests.fakes.broker_model import ClusterModel
from tests.fakes.record_batch import Record
from tests.fakes.virtual_time import VirtualClock, run_virtual

TOPIC = "mm2-offsets.A.internal"


@pytest.mark.parametrize(
    ("generations", "believed"),
    [([7, 8], 1), ([8, 7], 0), ([8, 7, 7], 0), ([8, 7, 8], 2), ([7, 7], 1), ([0, 0], 1), ([8, 0], 0)],
)
def test_a_position_of_a_lower_generation_does_not_replace_one_of_a_higher(
    generations: list[int], believed: int
) -> None:
    """H5: w1 stalls with a position on its way while it holds generation 7; w2 takes its task over with 8, copies on
    and stores where it stands; w1 wakes. The next life would copy once more what w2 has copied."""

    async def scenario() -> None:
        cluster = ClusterModel("B", VirtualClock(), random.Random(1))
        cluster.create_topic(TOPIC, 1)
        key = encode_key(SourcePartition("A", "orders", 0))
        stored = [StoredPosition(100 + at, generation=generation) for at, generation in enumerate(generations)]
        for position in stored:
            cluster.append(TOPIC, 0, [Record(encode_value(position), key=key)])
        topic = (await fetch_metadata(cluster, [TOPIC])).topics[TOPIC]
        assert await read_positions(cluster, topic, "A") == ({("orders", 0): stored[believed]}, [])

    run_virtual(scenario())
