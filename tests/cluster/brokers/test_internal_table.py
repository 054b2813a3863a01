"""Topics read as tables, on a real broker: over one connection, as often as flows begin anew."""

from __future__ import annotations

import random

from deploy.local.kafka import KafkaCluster
from mm2py.copying.reading.internal_table import read_table
from mm2py.kafka.cluster import Cluster, fetch_metadata
from tests.cluster.copies import new_topic
from tests.cluster.kafka_client import new_name, record_count, write
from tests.cluster.running import DEADLINE_S, within


async def test_a_table_is_read_again_over_the_same_connection(source_cluster: KafkaCluster) -> None:
    """A flow began anew while its offsets topic was empty: the broker left all of it out of its second answer, as
    nothing had changed in the fetch session, and reading went on without end."""
    empty, filled = new_topic(source_cluster, new_name("empty"), 3), new_topic(source_cluster, new_name("filled"), 3)
    write(source_cluster, filled, ["1", "2"], partition=1)
    assert record_count(source_cluster, filled, (0, 1, 2)) == 2
    host, _, port = source_cluster.bootstrap.rpartition(":")

    async def lives() -> list[int]:
        brokers = Cluster("X", [(host, int(port))], rng=random.Random(1), client_id="table")
        try:
            topics = (await fetch_metadata(brokers, [empty, filled])).topics
            async with within(2 * DEADLINE_S):
                return [
                    await read_table(brokers, topics[name], lambda key, value: None)
                    for name in (empty, empty, filled, filled, empty, empty)
                ]
        finally:
            await brokers.close()

    assert await lives() == [0, 0, 2, 2, 0, 0]
