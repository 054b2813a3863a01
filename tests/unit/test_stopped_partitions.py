"""Partitions that stopped and begin again in one life: not under the id that they were written under before."""

from __future__ import annotations

import asyncio

from connectors.source.stopped import StoppedPartitions
from mm2py.kafka.port import ProducerIdentity
from mm2py.replication.copier import Copier
from mm2py.replication.lane import CopiedPartition
from mm2py.replication.position import Position
from mm2py.replication.steps import TargetRules
from tests.fakes.virtual_time import run_virtual
from tests.unit.test_fencing import begin, make


def copied(partition: int, identity: ProducerIdentity, *, reconciling: bool = False) -> CopiedPartition:
    copier = Copier(f"s-{partition}", Position(0), identity, ready_max_bytes=1 << 20, reconciling=reconciling)
    return CopiedPartition("s", "t", partition, copier, TargetRules(1 << 20))


def test_a_topic_begins_again_under_an_id_that_none_of_its_partitions_was_written_under() -> None:
    async def scenario() -> None:
        incarnation, _ = await begin(make())
        stopped = StoppedPartitions(incarnation)
        first = incarnation.identity
        second = await incarnation.further(first)
        stopped.add([copied(0, first), copied(1, second)])
        third = await stopped.identity_for(["s"])
        assert third == await incarnation.further(second)
        assert await stopped.identity_for(["other"]) == first
        stopped.begun([copied(0, third), copied(1, third)])
        assert await stopped.identity_for(["s"]) == first

    run_virtual(scenario())


def test_what_may_still_be_on_its_way_is_shut_out_of_those_that_are_not_reconciled() -> None:
    async def scenario() -> None:
        cluster = make()
        incarnation, _ = await begin(cluster)
        stopped = StoppedPartitions(incarnation)
        stopped.add([copied(0, incarnation.identity)])
        await stopped.shut_out({("s", 0): ("t", 0), ("s", 1): ("t", 1)})
        await asyncio.sleep(1)
        markers = [[batch.producer_epoch for batch in cluster.batches("t", number)] for number in range(2)]
        assert markers == [[1], []]

    run_virtual(scenario())


def test_one_that_stops_again_before_it_is_reconciled_remembers_both_ids() -> None:
    async def scenario() -> None:
        incarnation, _ = await begin(make())
        stopped = StoppedPartitions(incarnation)
        first = incarnation.identity
        stopped.add([copied(0, first)])
        second = await stopped.identity_for(["s"])
        again = copied(0, second, reconciling=True)
        stopped.begun([again])
        stopped.add([again])
        assert await stopped.identity_for(["s"]) == await incarnation.further(second)
        stopped.begun([copied(0, second)])
        assert await stopped.identity_for(["s"]) == first

    run_virtual(scenario())
