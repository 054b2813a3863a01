"""A long link between two places, for a test that asks for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from bench.wan.link import Link
from bench.wan.rig import Rig
from deploy.local.errors import StarterError
from deploy.local.kafka import KafkaCluster, start_clusters
from tests.cluster.wan.far import LINK, Far


def rig_or_skip(link: Link) -> Rig:
    """Return a rig; without root, ``ip`` or Go the test is skipped."""
    try:
        return Rig(link)
    except StarterError as error:
        pytest.skip(f"no long link on this machine: {error}")


@pytest.fixture
def make_rig() -> Iterator[Callable[[Link], Rig]]:
    """Return what makes a rig that lasts as long as the test. Skipped without root, ``ip`` or Go."""
    with ExitStack() as rigs:
        yield lambda link: rigs.enter_context(rig_or_skip(link))


@pytest.fixture(scope="module")
def far_clusters() -> Iterator[Far]:
    with rig_or_skip(LINK) as rig:
        clusters = [KafkaCluster("far", network=rig.source), KafkaCluster("near", network=rig.target)]
        with start_clusters(clusters) as (source, target):
            yield Far(rig, source, target)


@pytest.fixture
def far(far_clusters: Far) -> Iterator[Far]:
    """The two clusters, seen from a place that is near to both; the link is ``LINK`` again for each test."""
    far_clusters.rig.change(LINK)
    with far_clusters.rig.near.entered():
        yield far_clusters
        far_clusters.rig.restore()
