"""Over REST a stopped partition resumes when its gap is accepted, and quarantined records are appended, few at once."""

from __future__ import annotations

import asyncio
import random
from typing import cast

import pytest

from mm2py.cli.gaps import read_gaps
from mm2py.copying.replay import ReplaySelection
from mm2py.flow_clusters import Connected
from mm2py.records.gap_record import Done
from mm2py_rest.settings import loss_changes
from mm2py_rest.settings.loss_changes import LossChanges, LossOutcome, LossRefused, NothingLost
from tests.scenarios.copying.test_quarantine import copied, good, make_world, until
from tests.scenarios.copying.test_replay import lift, with_quarantine
from tests.scenarios.gaps.test_gaps_command import cut_back, values
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=3600)

ALL = ReplaySelection("orders")


def changes_of(world: World) -> LossChanges:
    return LossChanges(lambda: cast("Connected", world.target), clock=world.clock, rng=random.Random(1))


async def replay(world: World, selection: ReplaySelection = ALL, *, stop_partitions: bool = False) -> LossOutcome:
    return await changes_of(world).replay(world.settings, selection, stop_partitions=stop_partitions)


async def test_a_partition_goes_on_when_its_gap_is_accepted_and_no_earlier() -> None:
    world = World(1, nodes=3)
    async with world.worker():
        await cut_back(world)
        changes = changes_of(world)
        with pytest.raises(LossRefused, match="the gap of orders-0 that waits now is the one at position 3, not 2"):
            await changes.accept(world.settings, "orders", 0, 2)
        with pytest.raises(NothingLost, match="No gap of orders-1 waits for an operator"):
            await changes.accept(world.settings, "orders", 1, None)
        await asyncio.sleep(60)
        assert values(world) == [b"0", b"1", b"2"], "nobody has accepted it"
        outcome = await changes.accept(world.settings, "orders", 0, 3)
        assert outcome.is_done and outcome.text.startswith("orders-0 was accepted: it goes on at source offset")
        await world.copied({"orders": "A.orders"})
        assert values(world) == [b"0", b"1", b"2", b"other"]
        (gap,) = await read_gaps(world.settings, world.target)
        assert gap.done is Done.ACCEPTED


async def test_an_accepted_gap_that_no_worker_answers_is_not_called_accepted() -> None:
    world = World(4, nodes=3)
    async with world.worker():
        await cut_back(world)
    outcome = await changes_of(world).accept(world.settings, "orders", 0, None)
    assert (outcome.is_done, "no worker answered within 10 s" in outcome.text) == (False, True)
    async with world.worker():
        await world.copied({"orders": "A.orders"})


async def test_quarantined_records_are_appended_once() -> None:
    world = make_world(1)
    await with_quarantine(world)
    lift(world)
    assert (await replay(world, ReplaySelection("orders", 0, 3))).is_done
    outcome = await replay(world)
    assert outcome.text == "1 record(s) were appended to A.orders, and marked in mm2-quarantine.A.internal."
    assert copied(world) == [b"0", b"2", b"4", b"3", b"1"]
    with pytest.raises(NothingLost, match=r"All 2 record\(s\) were appended to A\.orders before"):
        await replay(world)
    with pytest.raises(NothingLost, match="holds nothing of that kind of payments"):
        await replay(world, ReplaySelection("payments"))
    assert len(copied(world)) == 5


async def test_two_requests_at_once_append_each_record_once() -> None:
    world = make_world(1)
    await with_quarantine(world)
    lift(world)
    changes = changes_of(world)
    both = [changes.replay(world.settings, ALL, stop_partitions=False) for _ in range(2)]
    outcomes = await asyncio.gather(*both, return_exceptions=True)
    assert [type(one) for one in outcomes] == [LossOutcome, NothingLost]
    assert len(copied(world)) == 5


async def test_records_that_the_target_still_refuses_are_named() -> None:
    world = make_world(1)
    await with_quarantine(world)
    outcome = await replay(world, ReplaySelection("orders", 0, 1))
    assert not outcome.is_done
    assert outcome.text.endswith("A.orders still refuses orders-0 at offset 1: INVALID_TIMESTAMP (32).")


async def test_more_records_than_a_request_may_append_are_left_to_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_changes, "REPLAY_MOST", 1)
    world = make_world(1)
    await with_quarantine(world)
    lift(world)
    with pytest.raises(LossRefused, match=r"2 records wait.*mm2py replay FILE 'A->B:orders' --append"):
        await replay(world)
    assert len(copied(world)) == 3


async def test_an_exactly_once_flow_stops_its_partitions_for_no_request_that_does_not_say_so() -> None:
    world = make_world(2, **{"B.exactly.once.source.support": "enabled"})
    await with_quarantine(world)
    lift(world)
    with pytest.raises(LossRefused, match=r"Nothing was appended\. 2 record.* it stops partition\(s\) 0 of orders"):
        await replay(world)
    assert len(copied(world)) == 3
    assert (await replay(world, stop_partitions=True)).is_done
    assert len(copied(world)) == 5
    async with world.worker():
        world.source.append("orders", 0, [good(5)])
        await until(lambda: "foreign.writer" in world.log_text.getvalue(), world)


async def test_a_target_that_is_slow_leaves_the_rest_to_another_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_changes, "APPEND_MOST_S", 0.0)
    world = make_world(1)
    await with_quarantine(world)
    lift(world)
    with pytest.raises(LossRefused, match=r"after 0 s not all of 2 record\(s\) were appended"):
        await replay(world)
    monkeypatch.undo()
    assert (await replay(world)).is_done
    assert {*copied(world)} == {b"0", b"1", b"2", b"3", b"4"}
