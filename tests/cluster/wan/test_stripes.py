"""A backlog behind a long link is read in stripes over many connections, whatever happens meanwhile: each record is
there once, in order, byte for byte."""

from __future__ import annotations

import random
import time
import pytest

from bench.processes import resident_mb
from bench.wan.link import BOTH_WAYS, Link, Way
from tests.cluster.running import Value
from tests.cluster.wan.far import Far
from tests.faults.scene import rounds

RECORDS = 8_000
"""About 20 MB."""
FAST = Link(round_trip_ms=100, megabits_per_s=100)
SHORT: dict[str, Value] = {"A.consumer.request.timeout.ms": 5_000, "A.admin.request.timeout.ms": 5_000}
"""So that a test sees several time-outs."""


def test_a_kill_in_the_middle_of_stripes_loses_and_repeats_nothing(far: Far) -> None:
    """F01: a second worker copies the rest."""
    far.rig.change(FAST)
    backlog = far.backlog(RECORDS)
    properties = backlog.properties()
    with backlog.read_in_stripes(properties) as worker:
        worker.wait_for(RECORDS // 5)
        worker.run.kill()
    left = RECORDS - backlog.copied()
    with backlog.continued(properties) as worker:
        worker.conclude()
    assert left > 0, "it was killed too late"


@pytest.mark.slow
def test_kills_at_any_time_of_striped_reading_lose_and_repeat_nothing(far: Far) -> None:
    """F01, F04: each worker is killed a short while after it began to read in stripes; the last one ends the copy."""
    backlog = far.backlog(4 * RECORDS)
    properties = backlog.properties()
    chance = random.Random(21)
    for _ in range(rounds(6)):
        with backlog.read_in_stripes(properties) as worker:
            time.sleep(chance.uniform(0, 1.5))  # the moment of the kill
            worker.run.kill()
    with backlog.read_in_stripes(properties) as worker:
        worker.conclude()


# Links that are cut


@pytest.mark.slow
@pytest.mark.parametrize("ways", [BOTH_WAYS, {Way.FROM_SOURCE}], ids=["both ways", "only what comes"])
def test_a_link_that_is_cut_under_stripes_costs_no_record(far: Far, ways: frozenset[Way]) -> None:
    """F26, and F28 for what comes from the source: for 20 s nothing passes, while requests may take 5 s. Requests of
    the second kind arrive, and are answered in vain."""
    backlog = far.backlog(2 * RECORDS)
    with backlog.read_in_stripes(backlog.properties(**SHORT)) as worker:
        before = worker.run.log[-1]
        far.rig.cut(frozenset(ways))
        time.sleep(20)  # the time of the cut is the fault
        copied = backlog.copied()
        far.rig.restore()
        assert copied < backlog.records, "nothing was left to be read"
        worker.run.wait_for_event("broker.lost", after=before, cluster="A")
        worker.conclude()


# Links that are bad


@pytest.mark.slow
def test_a_narrow_link_is_read_without_time_outs_and_in_flat_memory(far: Far) -> None:
    """F36: 1 Mbit/s. What is asked for at once has to arrive before requests time out, or nothing ever does."""
    far.rig.change(Link(round_trip_ms=100, megabits_per_s=1, queue_bytes=200_000))
    backlog = far.backlog(2_500)
    with backlog.read_in_stripes() as worker:
        passed = far.rig.counts()[Way.FROM_SOURCE].bytes_passed
        worker.wait_for(400)
        resident = resident_mb(worker.run.pid)
        worker.wait_for(backlog.records)
        grown = resident_mb(worker.run.pid) - resident
        passed = far.rig.counts()[Way.FROM_SOURCE].bytes_passed - passed
        print(f"{passed / 1e6:.1f} MB passed, {grown:.1f} MB grown")
        assert grown < 20
        assert not worker.run.events("broker.lost"), worker.run.tail()
        worker.conclude()
