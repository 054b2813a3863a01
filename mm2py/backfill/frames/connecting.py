"""How driver and tasks reach a cluster: each of them reads the settings file itself.

So Spark sends, logs and shows no address and no credential.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from mm2py.backfill.frames.options import ClusterSide, TopicPlace
from mm2py.backfill.frames.pairing import RangePairing
from mm2py.backfill.frames.ranges import LogRange
from mm2py.config.configuration import flow_of, read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.copying.reading.ledger_table import LedgerTable
from mm2py.flow_clusters import both_of, source_of, target_of
from mm2py.kafka.cluster import Cluster, TopicMetadata, fetch_metadata
from mm2py.kafka.port import Brokers
from mm2py.logs import make_logger
from mm2py.topics.names import ledger_topic

T = TypeVar("T")


def settings_of(place: TopicPlace) -> FlowSettings:
    """Return the flow's settings in the file.

    Raises:
        ConfigError: the file cannot be read here, is wrong, or does not run the flow.
    """
    return flow_of(read_settings_file(Path(place.file), None), str(place.flow))


@asynccontextmanager
async def connected(settings: FlowSettings, side: ClusterSide) -> AsyncIterator[Cluster]:
    """Connect to one cluster of a flow, and close all connections at the end."""
    cluster = open_cluster(settings, side)
    try:
        yield cluster
    finally:
        await cluster.close()


def open_cluster(settings: FlowSettings, side: ClusterSide) -> Cluster:
    """Return connections to one cluster of a flow. Use them in the running event loop, and close them."""
    rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
    return (source_of if side is ClusterSide.SOURCE else target_of)("spark", settings, rng)


def ask(place: TopicPlace, work: Callable[[Brokers], Awaitable[T]]) -> T:
    """Run ``work`` with new connections to the cluster of a place, and return its result.

    Raises: as ``settings_of`` and ``work``.
    """
    settings = settings_of(place)

    async def run() -> T:
        async with connected(settings, place.side) as cluster:
            return await work(cluster)

    return asyncio.run(run())


async def pairing_of(place: TopicPlace, settings: FlowSettings, wanted: LogRange) -> RangePairing:
    """Return the pairs of offsets that the ledger of the flow has for a range.

    Raises:
        ConfigError: the flow does not copy the topic.
        BrokerRefused, KafkaError: a cluster does not answer, or refuses.
    """
    upstream = settings.source_topic(place.topic, is_reverse=place.side is ClusterSide.TARGET)
    remote = settings.remote_topic(upstream)
    rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
    async with both_of("spark", settings, rng) as (source, target):
        table = LedgerTable(target, ledger_topic(settings.flow.source), make_logger("warning", "text"))
        await table.follow()
        ledger = table.of((upstream, wanted.partition))
        of_source, of_target = await _topic(source, upstream), await _topic(target, remote)
    if of_source is None or of_target is None or not ledger.is_of(of_source.topic_id, of_target.topic_id):
        ledger = type(ledger)()  # the ledger is of deleted topics that had these names
    return RangePairing(ledger, place.side, wanted.start, wanted.end)


async def _topic(brokers: Brokers, name: str) -> TopicMetadata | None:
    found = (await fetch_metadata(brokers, [name])).topics.get(name)
    return None if found is None or found.error_code else found
