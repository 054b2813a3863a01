"""An internal topic as a table: every record comes, in order, also where a read came damaged."""

from __future__ import annotations

import random

import pytest

from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.port import Brokers
from mm2py.replication.planning.steps import DAMAGED_READS_MAX
from mm2py.replication.reading.internal_table import DamagedTopic, read_table
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.virtual_time import VirtualClock, run_virtual
from tests.scenarios.damage import Spoiler, flip, flip_holder_of

BITS = range(8 * 16, 8 * 33)
"""From the magic byte on: the checksum shows them, or it is one of them."""


def make() -> ClusterModel:
    cluster = ClusterModel("B", VirtualClock(), random.Random(1))
    cluster.create_topic("t", 2)
    for number in range(2):
        for batch in range(5):
            cluster.append("t", number, [b"%d-%d-%d" % (number, batch, at) for at in range(1 + 3 * (batch % 2))])
    return cluster


def values(number: int) -> list[bytes]:
    return [b"%d-%d-%d" % (number, batch, at) for batch in range(5) for at in range(1 + 3 * (batch % 2))]


async def read(brokers: Brokers, read_to: dict[int, int]) -> list[bytes]:
    topic = (await fetch_metadata(brokers, ["t"])).topics["t"]
    found: list[bytes] = []
    await read_table(brokers, topic, lambda _, value: found.append(value or b""), read_to)
    return found


@pytest.mark.parametrize("number", range(5))
def test_wherever_one_bit_flips_all_that_stands_in_a_table_is_read_once_and_in_order(number: int) -> None:
    async def scenario() -> None:
        cluster = make()
        for bit in BITS:
            spoiler, read_to = Spoiler("table", "t", flip(number, bit)), dict[int, int]()
            found = await read(spoiler(cluster), read_to)
            assert spoiler.struck == 1
            for partition in range(2):
                assert [value for value in found if value.startswith(b"%d-" % partition)] == values(partition), bit
            assert set(read_to.values()) == {len(values(0))}

    run_virtual(scenario(), limit_s=600)


def test_a_table_that_comes_damaged_each_time_is_named() -> None:
    async def scenario() -> None:
        spoiler = Spoiler("table", "t", flip_holder_of(6, 8 * 17), times=100)
        with pytest.raises(DamagedTopic, match=r"t-[01] cannot be read at offset 6"):
            await read(spoiler(make()), {})
        assert spoiler.struck == 2 * (DAMAGED_READS_MAX + 1), "each of two partitions"

    run_virtual(scenario(), limit_s=600)
