"""Stretches of many partitions, read on the broker model: each in full, none held up by another."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from mm2py.copying.reading.log_reader import LogReader, LogStretch
from mm2py.copying.recovery import MARKER_PATIENCE_S, LastWriter, Tail, TailStretch
from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE
from mm2py.kafka.port import FetchedPartition
from mm2py.records.batch import read_header, split
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.partition_model import NO_LEADER
from tests.fakes.faults import Faults
from tests.fakes.virtual_time import VirtualClock


class UpTo(LogStretch):
    """Reads up to an offset and keeps what it saw."""

    def __init__(self, partition: int, end: int, topic: str = "t") -> None:
        super().__init__(topic, None, partition, VirtualClock())
        self.seen: list[int] = []
        self.out_of_range = False
        self._offset, self._end = 0, end

    @property
    def offset(self) -> int:
        return self._offset

    def take(self, fetched: FetchedPartition) -> bool:
        if fetched.error_code == OFFSET_OUT_OF_RANGE:
            self.out_of_range = True
            return True
        for batch in split(fetched.records):
            header = read_header(batch)
            if header.next_offset > self._offset:
                self.seen.append(header.base_offset)
                self._offset = header.next_offset
        return self._offset >= self._end


def make(partitions: int = 1, nodes: int = 1) -> tuple[ClusterModel, LogReader]:
    cluster = ClusterModel("B", VirtualClock(), random.Random(1), nodes=nodes)
    cluster.create_topic("t", partitions)
    return cluster, LogReader(cluster, read_committed=False, rng=random.Random(2), channel="test")


async def test_every_partition_is_read_through_moving_leaders_lost_answers_and_errors() -> None:
    cluster, reader = make(12, nodes=3)
    cluster.request_timeout_s = 2.0
    for number in range(12):
        for _ in range(20):
            cluster.append("t", number, [b"x" * 30_000])
    cluster.inject(Faults(fetch_error=0.2, reset=0.05, drop_reply=0.02, leader_move_every_s=0.3))
    wanted = [UpTo(number, 20) for number in range(12)]
    finished: list[LogStretch] = []
    await reader.read(wanted, finished.extend)
    assert {stretch.key for stretch in finished} == {("t", number) for number in range(12)}
    assert all(stretch.seen == list(range(20)) for stretch in wanted)


async def test_a_partition_without_a_leader_delays_no_other() -> None:
    cluster, reader = make(2)
    for number in range(2):
        cluster.append("t", number, [b"x"])
    cluster.partition("t", 1).elect(NO_LEADER, [1], now_s=0.0)
    await asyncio.sleep(1)
    wanted = [UpTo(0, 1), UpTo(1, 1)]
    finished: list[LogStretch] = []
    reading = asyncio.create_task(reader.read(wanted, finished.extend))
    await asyncio.sleep(5)
    assert finished == wanted[:1]
    cluster.partition("t", 1).elect(1, [1], now_s=5.0)
    await asyncio.wait_for(reading, 5)
    assert finished == wanted


async def test_a_batch_larger_than_a_read_is_asked_for_again_with_more_room() -> None:
    cluster, reader = make()
    cluster.configure_topic("t", {"max.message.bytes": str(10 << 20)})
    cluster.append("t", 0, [b"small"])
    cluster.append("t", 0, [b"x" * (5 << 20)])
    stretch = UpTo(0, 2)
    await asyncio.wait_for(reader.read([stretch], lambda _: None), 30)
    assert stretch.seen == [0, 1]


async def test_a_trimmed_log_ends_a_stretch_also_beside_a_topic_that_is_gone() -> None:
    cluster, reader = make()
    cluster.append("t", 0, [b"a", b"b"])
    cluster.delete_records("t", 0, 2)
    trimmed, gone = UpTo(0, 2), UpTo(0, 2, "gone")

    def done(finished: Sequence[LogStretch]) -> None:
        assert trimmed in finished

    reading = asyncio.create_task(reader.read([trimmed, gone], done))
    await asyncio.sleep(3)
    assert trimmed.out_of_range
    reading.cancel()


async def test_a_missing_marker_is_given_up_after_a_second_and_one_that_comes_in_time_is_not() -> None:
    """The coordinator may leave a marker out (docs/broker-facts.md#c3). The caller then has it written again."""
    cluster, reader = make(2)
    tails = [
        TailStretch("t", None, number, Tail(0, LastWriter(7, 0, 0), fence_epoch=1), cluster.clock)
        for number in range(2)
    ]
    asyncio.get_running_loop().call_later(MARKER_PATIENCE_S / 2, cluster.write_marker, "t", 1, 7, 1)
    begun_s = cluster.clock.monotonic()
    await reader.read(tails, lambda _: None)
    assert [tail.tail.is_whole for tail in tails] == [False, True]
    assert cluster.clock.monotonic() - begun_s < 3 * MARKER_PATIENCE_S
