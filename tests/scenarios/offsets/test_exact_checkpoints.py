"""Checkpoints by the ledger: the checkpoint connector alone between two cluster models; the tests write the ledger."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from types import MappingProxyType

import pytest

from mm2py.flow import TopicName
from mm2py.offsets.runs import Hole, HoleCause, Run
from mm2py.records import offset_sync
from mm2py.records.checkpoint import Checkpoint
from mm2py.records.ledger_record import NewerLedgerFormat, decode, encode
from mm2py.records.offset_sync import OffsetSync
from mm2py_connectors.checkpoint.connector import CheckpointConnector
from tests.fakes.broker.record_batch import Record
from tests.fakes.ledger_topic import LEDGER, chunk, write_chunks
from tests.scenarios.offsets.test_checkpoints import ON, checkpoints, last_of, lines
from tests.scenarios.offsets.test_group_sync import on_target
from tests.scenarios.world import World

BY_LEDGER_ALONE = {**ON, "emit.offset-syncs.enabled": "false", "emit.checkpoints.interval.seconds": "10"}
SYNCS = "mm2-offset-syncs.B.internal"


def make(records: int = 1000, copied: int = 900, extra: Mapping[str, str] = MappingProxyType({})) -> World:
    """A flow that has run; every tenth record of the source was not copied."""
    world = World(1, extra={**BY_LEDGER_ALONE, **extra})
    world.source.create_topic("orders", 1)
    world.target.create_topic("A.orders", 1)
    for cluster, topic, count in ((world.source, "orders", records), (world.target, "A.orders", copied)):
        if count:
            cluster.append(topic, 0, [b"%d" % number for number in range(count)])
    return world


def holed(to: int, begin: int = 0) -> list[Run]:
    """Of ten source offsets the first nine are copied."""
    return [Run(at * 10, at * 9, 9) for at in range(begin, to)]


def sync(world: World, *pairs: tuple[int, int]) -> None:
    if SYNCS not in world.source.topics:
        world.source.create_topic(SYNCS, 1)
    for pair in pairs:
        record = offset_sync.encode(OffsetSync(TopicName("orders"), 0, *pair), world.clock.wall_ms())
        world.source.append(SYNCS, 0, [Record(key=record.key, value=record.value)])


@asynccontextmanager
async def emitting(world: World) -> AsyncIterator[asyncio.Task[None]]:
    connector = CheckpointConnector(
        world.settings, world.source, world.target, clock=world.clock, rng=world.rng, log=world.log
    )
    running = asyncio.create_task(connector.run())
    try:
        yield running
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_a_group_that_keeps_up_gets_its_checkpoints_although_the_ledger_is_a_second_behind() -> None:
    world = make(0, 0)
    write_chunks(world.target, [chunk()])
    async with emitting(world):
        for at in range(1, 600):
            world.source.append("orders", 0, [b"%d" % at])
            world.target.append("A.orders", 0, [b"%d" % at])
            world.source.groups.commit("g", {("orders", 0): (at, "")})
            if at > 9:
                write_chunks(world.target, [chunk(Run(0, 0, at - 9))])
            await asyncio.sleep(0.1)
        assert len(checkpoints(world)) >= 5
        assert all(one.upstream_offset == one.downstream_offset for one in checkpoints(world))


async def test_where_the_ledger_does_not_reach_back_offset_syncs_translate_and_an_exact_answer_takes_over() -> None:
    """MirrorMaker 2 has copied up to 500. The group rests, and a chunk that was lost comes back."""
    world = make(extra={"emit.offset-syncs.enabled": "true"})
    sync(world, (100, 90), (300, 270), (900, 810))
    write_chunks(world.target, [chunk(*holed(100, 50), begin=(500, 450), copied_to=1000)])
    world.source.groups.commit("lags", {("orders", 0): (205, "")})
    world.source.groups.commit("knows", {("orders", 0): (505, "")})
    world.source.groups.commit("oldest", {("orders", 0): (50, "")})
    async with emitting(world):
        await asyncio.sleep(12)
        assert last_of(world, "lags") == {("A.orders", 0): (205, 91)}
        assert last_of(world, "knows") == {("A.orders", 0): (505, 455)}
        assert last_of(world, "oldest") == {}
        write_chunks(world.target, [chunk(*holed(100), number=2, copied_to=1000)])
        await asyncio.sleep(15)
        assert last_of(world, "lags") == {("A.orders", 0): (205, 185)}
        assert last_of(world, "oldest") == {("A.orders", 0): (50, 45)}


async def test_after_a_second_copy_a_group_goes_on_among_the_newest_copies() -> None:
    world = make(100, 150)
    write_chunks(world.target, [chunk(Run(0, 0, 100))])
    for group, offset in (("ahead", 80), ("behind", 30)):
        world.source.groups.commit(group, {("orders", 0): (offset, "")})
    async with emitting(world):
        await asyncio.sleep(12)
        write_chunks(world.target, [chunk(Run(50, 100, 10), number=2, begin=(50, 100))])
        await asyncio.sleep(15)
        assert last_of(world, "ahead")["A.orders", 0] == (80, 80), "it waits until 80 is copied again"
        write_chunks(world.target, [chunk(Run(50, 100, 50), number=2, begin=(50, 100))])
        await asyncio.sleep(15)
        assert last_of(world, "ahead")["A.orders", 0] == (80, 130)
        assert last_of(world, "behind")["A.orders", 0] == (30, 30)
        write_chunks(world.target, [chunk(Run(0, 0, 100), number=3)])  # its remote topic was recreated
        await asyncio.sleep(15)
        assert last_of(world, "ahead")["A.orders", 0] == (80, 80)
        world.source.groups.commit("ahead", {("orders", 0): (79, "")})
        await asyncio.sleep(15)
        assert last_of(world, "ahead")["A.orders", 0] == (79, 79)


async def test_what_was_only_counted_after_a_crash_is_read_again_from_where_it_begins() -> None:
    world = make(100, 100)
    write_chunks(world.target, [chunk(Run(0, 0, 40), Hole(40, 40, 20, 18, HoleCause.COUNTED), Run(60, 58, 40))])
    async with emitting(world):
        for offset in (45, 55, 60):
            world.source.groups.commit("g", {("orders", 0): (offset, "")})
            await asyncio.sleep(15)
    found = [(one.upstream_offset, one.downstream_offset) for one in checkpoints(world)]
    assert found == [(45, 40), (60, 58)]


async def test_group_offsets_on_the_target_are_exact() -> None:
    world = make(extra={"sync.group.offsets.enabled": "true", "sync.group.offsets.interval.seconds": "5"})
    write_chunks(world.target, [chunk(*holed(100), copied_to=1000)])
    world.source.groups.commit("g", {("orders", 0): (777, "so far")})
    async with emitting(world):
        await asyncio.sleep(12)
    assert on_target(world, "g") == {("A.orders", 0): (700, "so far")}


async def test_a_group_that_reads_faster_than_the_flow_copies_keeps_the_offset_that_it_has_on_the_target() -> None:
    world = make(extra={"sync.group.offsets.enabled": "true", "sync.group.offsets.interval.seconds": "5"})
    write_chunks(world.target, [chunk(*holed(50))])
    world.source.groups.commit("g", {("orders", 0): (100, "")})
    async with emitting(world):
        await asyncio.sleep(12)
        world.source.groups.commit("g", {("orders", 0): (990, "")})
        world.target.groups.delete("g")
        await asyncio.sleep(12)
    assert on_target(world, "g") == {("A.orders", 0): (90, "")}


async def test_a_ledger_of_a_newer_version_stops_checkpoints_with_an_error_that_names_it() -> None:
    world = make()
    write_chunks(world.target, [chunk(*holed(50))])
    newer = encode(chunk(*holed(50)), 0)
    world.target.append(LEDGER, 0, [Record(key=newer.key, value=b"\x02\x02" + (newer.value or b"")[2:])])
    world.source.groups.commit("g", {("orders", 0): (100, "")})
    with pytest.raises(NewerLedgerFormat, match="format 2"):
        async with emitting(world) as running:
            await asyncio.wait({running}, timeout=20)
            await running


async def test_chunks_whose_records_both_clusters_have_deleted_are_deleted_from_the_ledger_topic() -> None:
    world = make()
    chunks = [chunk(*holed(at + 10, at), begin=(at * 10, at * 9), copied_to=at * 10 + 100) for at in range(0, 100, 10)]
    write_chunks(world.target, chunks)
    world.source.groups.commit("g", {("orders", 0): (5, "")})
    async with emitting(world):
        world.source.delete_records("orders", 0, 450)
        await asyncio.sleep(400)
        assert not lines(world, "ledger.trimmed"), "the target still has the copies"
        world.target.delete_records("A.orders", 0, 300)
        await asyncio.sleep(301)
    deleted = [
        record for partition in range(3) for record in world.target.records(LEDGER, partition) if record.value is None
    ]
    assert [record.key for record in deleted] == [encode(one, 0).key for one in chunks[:3]]
    assert all(decode(record.key, record.value) is None for record in deleted)
    assert len(lines(world, "ledger.trimmed")) == 1


async def test_a_look_at_which_nothing_is_due_costs_a_list_of_groups_and_a_round_a_request_for_200_groups() -> None:
    world = make(extra={"emit.checkpoints.interval.seconds": "60"})
    write_chunks(world.target, [chunk(*holed(50))])
    for number in range(500):
        world.source.groups.commit(f"g{number}", {("orders", 0): (100, "")})
    counts = world.source.counts, world.target.counts
    async with emitting(world):
        await asyncio.sleep(30)
        before = [one.copy() for one in counts]
        await asyncio.sleep(20)
        source, target = (one - earlier for one, earlier in zip(counts, before, strict=True))
        assert source == {"request Metadata": 10, "request ListGroups": 10}
        assert not target
        before = [one.copy() for one in counts]
        await asyncio.sleep(12)
        source, target = (one - earlier for one, earlier in zip(counts, before, strict=True))
        assert source["request OffsetFetch"] == 3
        assert target["request Fetch"] <= 4, "checkpoints twice, the ledger once, and once by its upkeep"


async def test_checkpoints_of_groups_and_topics_that_are_gone_are_neither_emitted_nor_synced_nor_deleted() -> None:
    """Also not by a worker that starts later, and finds them in the checkpoints topic."""
    extra = {"sync.group.offsets.enabled": "true", "sync.group.offsets.interval.seconds": "5"}
    world = make(extra=extra)
    world.source.create_topic("old", 1)
    world.source.append("old", 0, [b"0"] * 10)
    world.target.create_topic("A.old", 1)
    world.target.append("A.old", 0, [b"0"] * 10)
    write_chunks(world.target, [chunk(*holed(50)), chunk(Run(0, 0, 5), topic="old")])
    for group in ("gone", "stays"):
        world.source.groups.commit(group, {("orders", 0): (100, ""), ("old", 0): (5, "")})
    async with emitting(world):
        await asyncio.sleep(12)
    before = checkpoints(world)
    assert {(one.group, one.topic) for one in before} == {
        (group, topic) for group in ("gone", "stays") for topic in ("A.orders", "A.old")
    }
    world.source.groups.delete("gone")
    world.source.delete_topic("old")
    world.source.groups.known["stays"].commits.pop(("old", 0), None)
    for group in ("gone", "stays"):
        world.target.groups.delete(group)
    # The target is set up again, and has copied more: each old checkpoint would have an exact offset now.
    write_chunks(world.target, [chunk(*holed(100), copied_to=1000), chunk(Run(0, 0, 10), topic="old")])
    async with emitting(world):
        await asyncio.sleep(30)
        world.source.groups.commit("stays", {("orders", 0): (200, "")})
        await asyncio.sleep(30)
    assert checkpoints(world)[len(before) :] == [Checkpoint("stays", TopicName("A.orders"), 0, 200, 180, "")]
    assert on_target(world, "gone") == {}
    assert on_target(world, "stays") == {("A.orders", 0): (180, "")}


async def test_a_group_that_keeps_up_gets_checkpoints_also_while_the_copy_lags_for_long() -> None:
    """Each round finds a commit that is not copied yet; what was committed in an earlier round is."""
    world = make(0, 0)
    write_chunks(world.target, [chunk()])
    async with emitting(world):
        for at in range(1, 1200):
            world.source.append("orders", 0, [b"%d" % at])
            world.target.append("A.orders", 0, [b"%d" % at])
            world.source.groups.commit("keeps up", {("orders", 0): (at, "")})
            if at > 30:
                write_chunks(world.target, [chunk(Run(0, 0, at - 30))])
            await asyncio.sleep(0.1)
            if at in {400, 1000}:
                upstream, downstream = last_of(world, "keeps up")["A.orders", 0]
                assert upstream == downstream
                assert at - 350 < upstream <= at - 30, "one round, and what the copy lags, behind"


@pytest.mark.parametrize("side", ["source", "target"])
async def test_a_topic_that_was_recreated_gets_no_checkpoint_before_it_is_copied(side: str) -> None:
    world = make(1000, 1000)
    of_another = {f"{side}_topic_id": uuid.uuid4()}
    write_chunks(world.target, [replace(chunk(Run(0, 0, 1000)), **of_another)])
    world.source.groups.commit("moves", {("orders", 0): (800, "")})
    async with emitting(world):
        await asyncio.sleep(30)
        assert last_of(world, "moves") == {}
    (line,) = lines(world, "checkpoints.stopped")
    assert "was recreated on" in line
