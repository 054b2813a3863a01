"""A worker beside its target copies over a long link that is cut meanwhile: nothing is lost, nothing comes twice."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest

from bench.wan.link import Link, Way
from bench.wan.rig import Rig
from deploy.local.kafka import KafkaCluster, start_clusters
from tests.checker.traffic import Traffic
from tests.cluster.copies import assert_copied, new_topic, send
from tests.cluster.kafka_client import record_count
from tests.cluster.running import Mm2py, one_way_properties, wait_until

PARTITIONS = 4
RECORDS = 20_000


@pytest.mark.slow
def test_a_link_that_is_cut_meanwhile_costs_no_record(make_rig: Callable[[Link], Rig]) -> None:
    rig = make_rig(Link(round_trip_ms=50, megabits_per_s=10, loss=0.001))
    clusters = [KafkaCluster("far", network=rig.source), KafkaCluster("near", network=rig.target)]
    with start_clusters(clusters) as (source, target), rig.near.entered():
        topic = new_topic(source, "orders", PARTITIONS)
        records = Traffic(seed=1, partitions=PARTITIONS).records()
        send(source, topic, islice(records, RECORDS))
        properties = one_way_properties(source, target)
        with rig.target.entered(), Mm2py(properties) as run, rig.near.entered():  # the worker is at its target
            run.wait_until(lambda: record_count(target, f"A.{topic}", range(PARTITIONS)) > 0, "it copies")
            rig.cut()
            dropped = rig.counts()[Way.FROM_TARGET].cut
            wait_until(lambda: rig.counts()[Way.FROM_TARGET].cut >= dropped + 3, "it asks over the cut link")
            send(source, topic, islice(records, RECORDS))
            rig.restore()
            assert_copied(source, target, topic, f"A.{topic}", run=run)
            assert run.terminate() == 0
