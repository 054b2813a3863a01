"""Partitions that stopped and begin again in one life: not under the id that they were written under before."""

from __future__ import annotations

from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.copier import Copier
from mm2py.copying.events import CopySettings
from mm2py.copying.planning.steps import TargetRules
from mm2py.copying.positions import Position
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.port import ProducerIdentity
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py_connectors.source.recovery.reconciliation import RestartState
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.flow_context import make_context
from tests.fakes.shell import DeafShell
from tests.unit.kafka.producer.test_fencing import begin, make


def copied(partition: int, identity: ProducerIdentity, *, reconciling: bool = False) -> CopiedPartition:
    copier = Copier(
        f"s-{partition}",
        Position(0),
        identity,
        CopySettings(1 << 20),
        lookup="it is looked up" if reconciling else None,
    )
    return CopiedPartition("s", "t", partition, copier, TargetRules(1 << 20), DeafShell())


def remember(incarnation: Incarnation, target: ClusterModel) -> RestartState:
    return RestartState(make_context(target=target, incarnation=incarnation))


async def test_a_topic_begins_again_under_an_id_that_none_of_its_partitions_was_written_under() -> None:
    incarnation, _ = await begin(make())
    stopped = remember(incarnation, make())
    first = incarnation.identity
    second = await incarnation.next_identity(first)
    stopped.add([copied(0, first), copied(1, second)])
    third = await stopped.identity_for(["s"])
    assert third == await incarnation.next_identity(second)
    assert await stopped.identity_for(["other"]) == first
    stopped.started([copied(0, third), copied(1, third)])
    assert await stopped.identity_for(["s"]) == first


async def test_what_may_still_be_on_its_way_is_shut_out_of_those_that_are_not_reconciled() -> None:
    cluster = make()
    incarnation, _ = await begin(cluster)
    stopped = remember(incarnation, cluster)
    stopped.add([copied(0, incarnation.identity)])
    remote = (await fetch_metadata(cluster, ["t"])).topics["t"]
    assert await stopped.fence_own({("s", 0): remote, ("s", 1): remote}) == set()
    markers = [[batch.producer_epoch for batch in cluster.batches("t", number)] for number in range(2)]
    assert markers == [[1], []]


async def test_a_partition_without_a_marker_does_not_begin() -> None:
    """Neither the coordinator's silence nor its answer tells that a marker was written (C3): here it has no leader."""
    cluster = make()
    incarnation, _ = await begin(cluster)
    stopped = remember(incarnation, cluster)
    stopped.add([copied(0, incarnation.identity)])
    remote = (await fetch_metadata(cluster, ["t"])).topics["t"]
    cluster.topics["t"].partitions[0].leader = -1
    assert await stopped.fence_own({("s", 0): remote}) == {("s", 0)}


async def test_one_that_stops_again_before_it_is_reconciled_remembers_both_ids() -> None:
    incarnation, _ = await begin(make())
    stopped = remember(incarnation, make())
    first = incarnation.identity
    stopped.add([copied(0, first)])
    second = await stopped.identity_for(["s"])
    again = copied(0, second, reconciling=True)
    stopped.started([again])
    stopped.add([again])
    assert await stopped.identity_for(["s"]) == await incarnation.next_identity(second)
    stopped.started([copied(0, second)])
    assert await stopped.identity_for(["s"]) == first
