"""Gaps found while the status topic is unavailable, and after it has come back."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.records.gap_record import Done, Gap, GapKind, encode_value
from mm2py.records.source_offset import partition_of
from mm2py_connectors.source.stored_gaps import StoredGaps
from tests.fakes.broker.broker_model import Record
from tests.fakes.flow_context import make_context
from tests.scenarios.world import World

STATUS = "mm2-status.A.internal"
EARLIER = Gap(GapKind.TRUNCATED, "orders", 0, 5, 9, Done.STOPPED, 10, "cut back", 1_000)
LATER = Gap(GapKind.EXPIRED, "orders", 0, 20, 29, Done.STOPPED, 20, "deleted", 2_000)


@pytest.mark.virtual_time(limit_s=600)
async def test_a_gap_found_after_an_operators_position_waits_even_if_the_status_topic_opens_late() -> None:
    """Gaps that a previous incarnation left there are over; gaps that this one has found since are not."""
    world = World(1)
    world.target.create_topic(STATUS, 5, {"cleanup.policy": "compact"})
    world.target.append(STATUS, partition_of(EARLIER.key, 5), [Record(encode_value(EARLIER), key=EARLIER.key)])
    incarnation = Incarnation(
        world.target,
        lambda number: f"mm2py-test-{number}",
        clock=world.clock,
        rng=random.Random(1),
        report=lambda _: None,
        waiting=lambda _: None,
    )
    await incarnation.start()
    gaps = StoredGaps(make_context(target=world.target, incarnation=incarnation, clock=world.clock, log=world.log))
    key = ("orders", 0)
    gaps.settle(key)
    gaps.keep(LATER)
    await gaps.open()
    assert gaps.of(key) == [replace(EARLIER, done=Done.ACCEPTED), LATER]
    await gaps.flush()
    assert (await gaps.open()).gaps() == [replace(EARLIER, done=Done.ACCEPTED), LATER]
