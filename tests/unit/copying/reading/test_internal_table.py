"""An internal topic as a table: every record comes, in order, also where a read came damaged."""

from __future__ import annotations

import asyncio
import io
import random
from itertools import pairwise

import pytest

from mm2py.copying.planning.steps import DAMAGED_READS_MAX
from mm2py.copying.reading import offset_tables
from mm2py.copying.reading.internal_table import RECORDS_AT_ONCE, DamagedTopic, read_table
from mm2py.copying.reading.offset_tables import OffsetSyncTable
from mm2py.flow import TopicName
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.port import Brokers
from mm2py.logs import make_logger
from mm2py.records import offset_sync
from mm2py.records.batch import NewRecord, build_batch
from mm2py.records.compression import RECORDS_MAX
from mm2py.records.offset_sync import OffsetSync
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.record_batch import Record
from tests.fakes.hostile_batches import batch_of_tiny_records
from tests.fakes.virtual_time import VirtualClock, VirtualLoop
from tests.scenarios.damage import Spoiler, flip, flip_holder_of

pytestmark = pytest.mark.virtual_time(limit_s=600)

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
async def test_wherever_one_bit_flips_all_that_stands_in_a_table_is_read_once_and_in_order(number: int) -> None:
    cluster = make()
    for bit in BITS:
        spoiler, read_to = Spoiler("table", "t", flip(number, bit)), dict[int, int]()
        found = await read(spoiler(cluster), read_to)
        assert spoiler.struck == 1
        for partition in range(2):
            assert [value for value in found if value.startswith(b"%d-" % partition)] == values(partition), bit
        assert set(read_to.values()) == {len(values(0))}


async def test_a_table_that_comes_damaged_each_time_is_named() -> None:
    spoiler = Spoiler("table", "t", flip_holder_of(6, 8 * 17), times=100)
    with pytest.raises(DamagedTopic, match=r"t-[01] cannot be read at offset 6"):
        await read(spoiler(make()), {})
    assert spoiler.struck == 2 * (DAMAGED_READS_MAX + 1), "each of two partitions"


async def test_a_batch_of_many_records_holds_up_no_other_task_and_cancelling_loses_and_repeats_nothing() -> None:
    """A table was read without a break: a million records of one batch held up the heartbeats of all flows."""
    cluster = ClusterModel("B", VirtualClock(), random.Random(1))
    cluster.create_topic("t", 1)
    cluster.append("t", 0, [b"%d" % at for at in range(10_000)], codec="zstd")
    cluster.append("t", 0, [b"%d" % at for at in range(10_000, 12_000)])
    topic = (await fetch_metadata(cluster, ["t"])).topics["t"]
    found: list[bytes | None] = []
    read_to: dict[int, int] = {}
    steps: list[int] = []
    started = asyncio.Event()

    def take(_: bytes | None, value: bytes | None) -> None:
        started.set()
        found.append(value)

    reading = asyncio.create_task(read_table(cluster, topic, take, read_to))
    await started.wait()
    while not reading.done():
        steps.append(len(found))
        await asyncio.sleep(0)
        if len(found) > 4_000:
            reading.cancel()
    assert max(after - before for before, after in pairwise(steps)) <= RECORDS_AT_ONCE
    await asyncio.gather(reading, return_exceptions=True)
    assert 4_000 < len(found) < 6_000
    await read_table(cluster, topic, take, read_to)
    assert found == [b"%d" % at for at in range(12_000)]
    assert read_to == {0: 12_000}


async def test_a_heavy_batch_of_a_table_is_decoded_beside_the_loop_and_one_over_its_budget_is_named() -> None:
    cluster = ClusterModel("B", VirtualClock(), random.Random(1))
    cluster.create_topic("t", 1)
    cluster.append("t", 0, batch_of_tiny_records(50_000), as_is=True)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    assert len(await read(cluster, {})) == 50_000
    assert loop.beside == 1
    cluster.append("t", 0, batch_of_tiny_records(RECORDS_MAX + 1), as_is=True)
    with pytest.raises(DamagedTopic, match="t-0 cannot be read at offset 50000: A batch of 1048577 records"):
        await read(cluster, {0: 50_000})


async def test_a_record_of_very_many_headers_is_named_and_not_made() -> None:
    """A batch of a few kilobytes held 33 million empty headers: minutes of the event loop, and two gigabytes."""
    cluster = ClusterModel("B", VirtualClock(), random.Random(1))
    cluster.create_topic("t", 1)
    many = build_batch([NewRecord(b"k", b"v", 1_000, [("", None)] * 20_001)])
    cluster.append("t", 0, bytes(many), as_is=True)
    with pytest.raises(DamagedTopic, match="t-0 cannot be read at offset 0: A batch has more than the 20000"):
        await read(cluster, {})


async def test_syncs_of_partitions_that_somebody_invents_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Offset syncs are on the source, where others may write."""
    monkeypatch.setattr(offset_tables, "SYNCED_PARTITIONS_MOST", 5)
    out = io.StringIO()
    cluster = ClusterModel("A", VirtualClock(), random.Random(1))
    cluster.create_topic("syncs", 1)
    for number in [*range(20), 3]:
        record = offset_sync.encode(OffsetSync(TopicName("orders"), number, 100, 7), 0)
        cluster.append("syncs", 0, [Record(record.value, record.key)])
    table = OffsetSyncTable(cluster, "syncs", make_logger("info", "text", out))
    await table.follow()
    assert [number for number in range(20) if table.store.syncs(("orders", number))] == [0, 1, 2, 3, 4]
    assert table.malformed == 15
    (line,) = out.getvalue().splitlines()
    assert "syncs has syncs of more than 5 partitions. Find out who writes to it besides the flow." in line
