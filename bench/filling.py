"""Fills a source topic with batches of exactly the wanted shape, and reads some back to check them.

Ordinary clients decide by themselves where a batch ends. So batches are built here and sent unchanged, without a
producer id. One connection has several requests in flight: the broker handles them in order.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from itertools import cycle
from typing import Final

from bench.batches import dated, templates
from bench.sides import Side
from bench.workloads import Workload
from mm2py.kafka.port import (
    FetchRequest,
    PartitionFetch,
    PartitionProduce,
    ProduceRequest,
    TopicFetch,
    TopicProduce,
)
from mm2py.records.batch import read_header, split

REQUESTS_IN_FLIGHT: Final = 8
REQUEST_TIMEOUT_MS: Final = 60_000
BATCHES_READ_BACK: Final = 20
READ_BYTES: Final = 1 << 20


class WrongShape(Exception):
    """The source topic differs from the workload of the bench."""


async def fill(side: Side, workload: Workload) -> None:
    """Create the topic of a workload and write all its records, dated now.

    Raises:
        WrongShape: the broker refused a batch, or what it stored differs from the workload's shape.
    """
    await side.create(workload.topic, workload.partitions)
    rows = workload.records // (workload.shape.records_per_batch * workload.partitions)
    await append(side, workload, rows)
    await check_shape(side, workload)


async def append(side: Side, workload: Workload, rows: int) -> None:
    """Write ``rows`` batches to each partition of a topic, spread evenly."""
    patterns = cycle(templates(workload.shape))
    free = asyncio.Semaphore(REQUESTS_IN_FLIGHT)

    async def send(request: ProduceRequest) -> None:
        try:
            reply = await side.brokers.send(side.broker, request, channel="fill")
        finally:
            free.release()
        for answer in reply.partitions:
            if answer.error_code:
                raise WrongShape(f"{answer.topic}-{answer.partition}: error {answer.error_code} for a filled batch")

    async with asyncio.TaskGroup() as tasks:
        for _ in range(rows):
            await free.acquire()
            at_ms = int(time.time() * 1_000)
            row = [PartitionProduce(number, dated(next(patterns), at_ms)) for number in range(workload.partitions)]
            request = ProduceRequest([TopicProduce(workload.topic, None, row)], timeout_ms=REQUEST_TIMEOUT_MS)
            tasks.create_task(send(request), name=f"fill {workload.topic}")


async def warm_up(side: Side, workload: Workload) -> None:
    """Warm up a target's broker: write as many records as ``workload.records`` to it, and delete them.

    Otherwise the broker's JVM would still interpret its code when the first mirror starts.
    """
    warm = replace(workload, topic=f"warm-{workload.topic}")
    await side.create(warm.topic, warm.partitions)
    await append(side, warm, warm.records // (warm.shape.records_per_batch * warm.partitions))
    side.delete_all_but([])


async def read_through(side: Side, workload: Workload) -> None:
    """Read a source topic once, which warms up its broker for the mirrors."""
    left = dict.fromkeys(range(workload.partitions), 0)
    end = workload.records // workload.partitions
    while left:
        parts = [PartitionFetch(number, offset, READ_BYTES) for number, offset in left.items()]
        request = _fetch(workload.topic, parts, max_bytes=len(parts) * READ_BYTES)
        reply = await side.brokers.send(side.broker, request, channel="read")
        for part in reply.partitions:
            for batch in split(part.records):
                left[part.partition] = read_header(batch).next_offset
            if left[part.partition] >= end:
                del left[part.partition]


async def check_shape(side: Side, workload: Workload) -> None:
    """Check the first batches of some partitions, and the ends of all.

    Raises:
        WrongShape: they differ from the workload.
    """
    shape, per_partition = workload.shape, workload.records // workload.partitions
    ends = await side.ends(workload.topic, range(workload.partitions))
    if set(ends.values()) != {per_partition}:
        raise WrongShape(f"{workload.topic}: partitions end at {set(ends.values())} instead of {per_partition}")
    wanted = {0, workload.partitions // 2, workload.partitions - 1}
    read_bytes = BATCHES_READ_BACK * 2 * (shape.value_bytes * shape.records_per_batch + 512)
    parts = [PartitionFetch(number, 0, read_bytes) for number in sorted(wanted)]
    request = _fetch(workload.topic, parts, max_bytes=len(parts) * read_bytes)
    reply = await side.brokers.send(side.broker, request, channel="check")
    for part in reply.partitions:
        headers = [read_header(batch) for batch in split(part.records)]
        found = {(header.record_count, header.codec) for header in headers}
        if found != {(shape.records_per_batch, shape.codec)}:
            raise WrongShape(f"{part.topic}-{part.partition} has batches of (records, codec) {found}, not {shape}")


def _fetch(topic: str, parts: list[PartitionFetch], *, max_bytes: int) -> FetchRequest:
    return FetchRequest(
        [TopicFetch(topic, None, parts)], max_wait_ms=500, min_bytes=1, max_bytes=max_bytes, read_committed=False
    )
