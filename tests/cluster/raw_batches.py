"""Record batches as they lie on a broker's disk, and batches that no producer would send.

What lies there is read from the segment files of a cluster of one node, so that nothing stands between the test and
the bytes. Sending goes through mm2py's own wire layer: the broker judges what it takes, and a reply it refuses fails
the test.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from deploy.local.kafka import KafkaCluster
from mm2py.kafka.cluster import Cluster, fetch_metadata
from mm2py.kafka.port import PartitionProduce, ProduceReply, ProduceRequest, TopicProduce
from tests.fakes.record_batch import Batch, parse_batches


def stored_batches(cluster: KafkaCluster, topic: str, partition: int = 0) -> list[Batch]:
    """Return the batches of a partition's log, in order."""
    assert cluster.directory is not None
    segments = sorted((cluster.directory / "data-1" / f"{topic}-{partition}").glob("*.log"))
    return [batch for segment in segments for batch in parse_batches(segment.read_bytes(), allow_cut=True)]


def append_batches(cluster: KafkaCluster, topic: str, batches: Sequence[bytes], partition: int = 0) -> None:
    """Append batches of format v2 as they are, one after the other."""

    async def append() -> None:
        port = cluster.brokers[0].port
        brokers = Cluster("raw", [("127.0.0.1", port)], rng=random.Random(0), client_id="tests-raw")
        try:
            metadata = (await fetch_metadata(brokers, [topic])).topics[topic]
            leader = metadata.partitions[partition].leader
            assert leader is not None
            for batch in batches:
                request = ProduceRequest(
                    [TopicProduce(topic, metadata.topic_id, [PartitionProduce(partition, batch)])], timeout_ms=10_000
                )
                reply = await brokers.send(leader, request)
                assert isinstance(reply, ProduceReply)
                [answer] = reply.partitions
                assert answer.error_code == 0, (
                    f"{topic}-{partition} refused: {answer.error_code} {answer.error_message}"
                )
        finally:
            await brokers.close()

    asyncio.run(append())
