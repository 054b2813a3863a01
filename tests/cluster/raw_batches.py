"""Record batches as they lie on a broker's disk, and batches that no producer would send.

What lies there is read from the segment files of a cluster of one node, so that nothing stands between the test and
the bytes. Sending goes through mm2py's own wire layer: the broker judges what it takes, and a reply it refuses fails
the test.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from deploy.local.kafka import KafkaCluster
from deploy.local.ports import HOST
from mm2py.kafka.cluster import Cluster, fetch_metadata
from mm2py.kafka.port import PartitionProduce, ProduceReply, ProduceRequest, TopicProduce
from tests.fakes.broker.record_batch import Batch, parse_batches

_NOT_YET: Final = (3, 5, 6)
"""What a broker answers that has not heard yet of a topic which was just made."""


def stored_batches(cluster: KafkaCluster, topic: str, partition: int = 0) -> list[Batch]:
    """Return the batches of a partition's log, in order."""
    assert cluster.directory is not None
    directory = cluster.directory / "data-1" / f"{topic}-{partition}"
    for _ in range(99):
        try:
            return _batches_in(sorted(directory.glob("*.log")))
        except FileNotFoundError:  # the cleaner has put another segment in its place since
            continue
    return _batches_in(sorted(directory.glob("*.log")))


def _batches_in(segments: Iterable[Path]) -> list[Batch]:
    return [batch for segment in segments for batch in parse_batches(segment.read_bytes(), allow_cut=True)]


def append_batches(cluster: KafkaCluster, topic: str, batches: Sequence[bytes], partition: int = 0) -> None:
    """Append batches of format v2 as they are, one after the other."""
    append_rows(cluster, topic, ({partition: batch} for batch in batches))


def append_rows(cluster: KafkaCluster, topic: str, rows: Iterable[Mapping[int, bytes]]) -> None:
    """Append rows of batches, one batch for each partition of a row, each row behind the one before it."""

    async def append() -> None:
        brokers = Cluster("raw", [(HOST, cluster.brokers[0].port)], rng=random.Random(0), client_id="tests-raw")
        try:
            metadata = (await fetch_metadata(brokers, [topic])).topics[topic]
            leader = metadata.partitions[0].leader
            assert leader is not None
            for row in rows:
                left = dict(row)
                while left:
                    parts = [PartitionProduce(partition, batch) for partition, batch in left.items()]
                    request = ProduceRequest([TopicProduce(topic, metadata.topic_id, parts)], timeout_ms=20_000)
                    reply = await brokers.send(leader, request)
                    assert isinstance(reply, ProduceReply)
                    for answer in reply.partitions:
                        assert answer.error_code in {0, *_NOT_YET}, f"{topic} refused a batch: {answer}"
                        if answer.error_code == 0:
                            del left[answer.partition]
        finally:
            await brokers.close()

    asyncio.run(append())
