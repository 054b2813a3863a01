"""``mm2py rebuild-ledger`` between two cluster models: exact where both logs are whole, and a reason where not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from mm2py.cli.command import CommandFailed
from mm2py.cli.rebuild_ledger import RebuildJob, exit_code_of, line_of, parse_arguments
from mm2py.errors import ConfigError
from mm2py.kafka.port import BrokerId, Brokers, ProduceRequest
from mm2py.offsets.answers import BEFORE_LEDGER, AnswerKind
from mm2py.offsets.rebuilt_ledger import RebuiltLedger
from mm2py.rebuilding.short_ledgers import PartitionSelection, RebuildOutcome, RebuildReport
from mm2py.records.source_offset import SourcePartition, StoredPosition, encode_key, encode_value
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.record_batch import Record
from tests.fakes.ledger_topic import LEDGER
from tests.scenarios.copying.test_copying_under_faults import STORM
from tests.scenarios.gaps.test_gaps import ORDERS, numbers, write
from tests.scenarios.offsets.test_groups_command import reports
from tests.scenarios.offsets.test_ledger import SETTLED_S, assert_complete, ledger_of
from tests.scenarios.world import World

COMMITTED = {"A.consumer.isolation.level": "read_committed"}


async def rebuild(
    world: World,
    *topics: str,
    partition: int | None = None,
    bytes_per_second: int | None = None,
    is_dry_run: bool = False,
    target: Brokers | None = None,
) -> list[RebuildReport]:
    selection = PartitionSelection(topics, partition)
    job = RebuildJob(world.settings, world.source, target or world.target, selection, bytes_per_second, is_dry_run)
    told: list[RebuildReport] = []
    found = await job.do(told.append, lambda *_: None, world.clock)
    assert [one for one in found if one.outcome is not RebuildOutcome.WHOLE] == told
    return found


async def why_not(world: World) -> str:
    """Return why the only partition cannot be rebuilt, and see that nothing was written."""
    before = _chunks(world.target)
    (found,) = await rebuild(world)
    assert found.outcome is RebuildOutcome.REFUSED and exit_code_of([found]) == 3
    assert _chunks(world.target) == before
    return found.text


def _chunks(cluster: ClusterModel) -> int:
    if LEDGER not in cluster.topics:
        return 0
    return sum(len(cluster.records(LEDGER, number)) for number in range(len(cluster.topics[LEDGER].partitions)))


async def copied(world: World, *, is_filled: bool = True) -> None:
    """Let a worker copy transactions, half of them aborted, and stop it; then lose the ledger."""
    if is_filled:
        world.source.create_topic("orders", 1)
        fill(world, 1)
    async with world.worker() as herder:
        await world.copied(ORDERS)
        await asyncio.sleep(SETTLED_S)
        await world.stop(herder)
    await lose(world)


def fill(world: World, first: int) -> None:
    for number in range(first, first + 20):
        transaction = world.source.transaction()
        transaction.append("orders", 0, [Record(value=b"%d.%d" % (number, at)) for at in range(3)])
        transaction.commit() if number % 2 else transaction.abort()


async def lose(world: World) -> None:
    world.target.delete_topic(LEDGER)
    await asyncio.sleep(5)  # until all brokers know


@pytest.mark.parametrize("extra", [COMMITTED, {}], ids=["committed", "uncommitted"])
async def test_a_lost_ledger_is_rebuilt_up_to_the_stored_position_and_the_next_worker_continues_it(
    extra: Mapping[str, str],
) -> None:
    world = World(1, extra=extra)
    await copied(world)
    (found,) = await rebuild(world)
    assert (found.outcome, exit_code_of([found])) == (RebuildOutcome.REBUILT, 0)
    assert found.records == (30 if extra else 60)
    committed = bool(extra)
    assert_complete(world, committed=committed)
    (again,) = await rebuild(world)
    assert again.outcome is RebuildOutcome.WHOLE
    fill(world, 21)
    async with world.worker():
        await world.copied(ORDERS)
        await asyncio.sleep(SETTLED_S)
        assert_complete(world, committed=committed)
    assert [one.is_rebuilt for one in ledger_of(world).ledgers] == [True, False]


@pytest.mark.parametrize("seed", range(3))
async def test_what_was_copied_before_a_ledger_was_kept_is_rebuilt_while_a_worker_copies_and_leaders_move(
    seed: int,
) -> None:
    world = World(seed, extra=COMMITTED, nodes=3)
    await copied(world)
    fill(world, 21)
    async with world.worker():
        await world.copied(ORDERS)
        await asyncio.sleep(SETTLED_S)
        assert ledger_of(world).forward(5) == BEFORE_LEDGER
        for cluster in (world.source, world.target):
            cluster.inject(STORM)
        outcomes: list[RebuildOutcome] = []
        while not outcomes or outcomes[-1] is RebuildOutcome.FAILED:
            with suppress(CommandFailed):
                (found,) = await rebuild(world)
                outcomes.append(found.outcome)
        # An attempt may fail after it has written everything: only its answer was lost.
        assert outcomes[-1] in (RebuildOutcome.REBUILT, RebuildOutcome.WHOLE), found.text
        assert ledger_of(world).forward(5) != BEFORE_LEDGER
        for cluster in (world.source, world.target):
            cluster.heal()
        await asyncio.sleep(SETTLED_S)
        fill(world, 41)
        await world.copied(ORDERS)
        await asyncio.sleep(SETTLED_S)
        assert_complete(world, committed=True)
        (again,) = await rebuild(world)
        assert again.outcome is RebuildOutcome.WHOLE


def mm2_copied(world: World, values: Sequence[str], copies: Sequence[str], position: int) -> None:
    """Write both logs and the position as MirrorMaker 2 leaves them."""
    world.source.create_topic("orders", 1)
    world.target.create_topic("A.orders", 1)
    now_ms = world.clock.wall_ms()
    for cluster, topic, texts in ((world.source, "orders", values), (world.target, "A.orders", copies)):
        if texts:
            cluster.append(topic, 0, [Record(value=one.encode(), timestamp_ms=now_ms) for one in texts])
    world.target.create_topic("mm2-offsets.A.internal", 1, {"cleanup.policy": "compact"})
    key = encode_key(SourcePartition("A", "orders", 0))
    stored = encode_value(StoredPosition(position))
    world.target.append("mm2-offsets.A.internal", 0, [Record(key=key, value=stored)])


async def test_what_mirrormaker_2_has_copied_becomes_exact_before_mm2py_has_ever_run() -> None:
    world = World(3)
    mm2_copied(world, numbers(0, 49), numbers(0, 44), 40)
    world.target.write_marker("A.orders", 0, 900, 1)
    (found,) = await rebuild(world)
    assert (found.outcome, found.records) == (RebuildOutcome.REBUILT, 40)
    ledger = ledger_of(world)
    assert [ledger.forward(offset).offset for offset in (0, 17, 39, 40)] == [0, 17, 39, 40]
    assert ledger.forward(41) == BEFORE_LEDGER, "behind its end the offset syncs tell"
    ids = world.target.topics[LEDGER]
    assert len(ids.partitions) == 3


@dataclass
class Damage:
    """What was done to a copy, and what is said of it."""

    values: Sequence[str] = ()
    copies: Sequence[str] = ()
    why: str = ""


@pytest.mark.parametrize(
    "damage",
    [
        Damage(
            numbers(0, 9), [*numbers(0, 4), "x", *numbers(5, 9)], "offset 5 of orders-0 on A and the one at offset 5 of"
        ),
        Damage(numbers(0, 9), numbers(0, 4) + numbers(3, 9), "offset 5 of orders-0 on A and the one at offset 5 of"),
        Damage(numbers(0, 9), numbers(0, 6) + numbers(8, 9), "offset 7 of orders-0 on A and the one at offset 7 of"),
        Damage(numbers(0, 9), numbers(0, 6), "A.orders-0 on B cannot be read at offset 7: it ends at 7"),
        Damage(numbers(0, 4), numbers(0, 9), "orders-0 on A cannot be read at offset 5: it ends at 5"),
    ],
    ids=["foreign", "twice", "lost", "too short", "source too short"],
)
async def test_a_copy_that_differs_from_its_source_is_refused_and_both_offsets_are_named(damage: Damage) -> None:
    world = World(4)
    mm2_copied(world, damage.values, damage.copies, 10)
    assert damage.why in await why_not(world)


async def test_a_group_that_lags_goes_on_exactly_once_its_ledger_is_rebuilt() -> None:
    world = World(12, extra={"emit.checkpoints.enabled": "true", "sync.group.offsets.enabled": "true"})
    mm2_copied(world, numbers(0, 49), numbers(0, 44), 40)
    world.target.write_marker("A.orders", 0, 900, 1)
    world.source.groups.commit("pay", {("orders", 0): (17, "")})
    async with world.worker():
        await world.copied(ORDERS)
        await asyncio.sleep(15)
        (before,) = (await reports(world)).values()
        assert not before.ready
        (found,) = await rebuild(world)
        assert found.outcome is RebuildOutcome.REBUILT, found.text
        await asyncio.sleep(70)
        (after,) = (await reports(world)).values()
        assert (after.ready, after.reads_again_at_most) == (True, 0)
        assert world.target.groups.commits_of("pay") == {("A.orders", 0): (17, "")}


async def test_topics_that_are_compacted_or_trimmed_on_either_side_are_refused() -> None:
    world = World(5)
    mm2_copied(world, numbers(0, 9), numbers(0, 9), 10)
    for cluster, topic in ((world.source, "orders"), (world.target, "A.orders")):
        cluster.configure_topic(topic, {"cleanup.policy": "compact,delete"})
        assert await why_not(world) == f"{topic} on {cluster.name} is compacted"
        cluster.configure_topic(topic, {"cleanup.policy": "delete"})
    world.target.delete_records("A.orders", 0, 3)
    assert await why_not(world) == "A.orders-0 on B begins at offset 3: records before it were deleted"
    world.source.delete_records("orders", 0, 4)
    assert await why_not(world) == "orders-0 on A begins at offset 4: records before it were deleted"
    world.source.delete_records("orders", 0, 10)
    (found,) = await rebuild(world)
    assert found.outcome is RebuildOutcome.WHOLE, "no group can ask for what is gone"


async def test_a_topic_that_was_compacted_once_is_refused_also_if_it_is_not_any_more() -> None:
    world = World(6)
    mm2_copied(world, [], numbers(0, 8), 10)
    now_ms = world.clock.wall_ms()
    for first, at in ((0, None), (5, 6)):
        records = [Record(value=one.encode(), timestamp_ms=now_ms) for one in numbers(first, first + 4)]
        world.source.append("orders", 0, records, at_offset=at)
    assert "offset 5 of orders-0 on A holds no record" in await why_not(world)


async def test_a_foreign_writer_behind_the_ledgers_beginning_does_no_harm_and_many_to_one_is_refused() -> None:
    world = World(7)
    await copied_twice(world)
    world.target.append("A.orders", 0, [b"foreign"])
    (found,) = await rebuild(world)
    assert found.outcome is RebuildOutcome.REBUILT
    assert_complete_but_foreign(world)
    await lose(world)
    world.rewrite_file({"many.to.one": "true"})
    assert world.settings.many_to_one
    assert "many.to.one" in await why_not(world)


async def copied_twice(world: World) -> None:
    await copied(world)
    write(world.source, *numbers(1000, 1005))
    async with world.worker() as herder:
        await world.copied(ORDERS)
        await asyncio.sleep(SETTLED_S)
        await world.stop(herder)


def assert_complete_but_foreign(world: World) -> None:
    ledger = ledger_of(world)
    kinds = {ledger.forward(one.offset).kind for one in world.source.records("orders", 0)}
    assert kinds == {AnswerKind.COPIED}


async def test_an_open_transaction_on_the_target_is_named() -> None:
    world = World(13)
    mm2_copied(world, numbers(0, 9), numbers(0, 6), 10)
    transaction = world.target.transaction()
    transaction.append("A.orders", 0, [b"hangs"])
    assert await why_not(world) == "A.orders-0 on B cannot be read at offset 7: a transaction is open there"


async def test_a_dry_run_reads_no_log_and_writes_nothing() -> None:
    world = World(8)
    mm2_copied(world, numbers(0, 9), numbers(0, 9), 10)
    (found,) = await rebuild(world, is_dry_run=True)
    assert line_of(found) == ("orders-0: missing, would be compared up to source offset 10, and A.orders up to the end")
    assert exit_code_of([found]) == 0
    assert LEDGER not in world.target.topics


async def test_the_rate_limits_what_is_read_of_both_logs_together() -> None:
    world = World(9)
    values = [f"{number:01000d}" for number in range(100)]
    mm2_copied(world, [], [], 5000)
    now_ms = world.clock.wall_ms()
    for _ in range(50):
        for cluster, topic in ((world.source, "orders"), (world.target, "A.orders")):
            cluster.append(topic, 0, [Record(value=one.encode(), timestamp_ms=now_ms) for one in values])
    began_s = world.clock.monotonic()
    (found,) = await rebuild(world, bytes_per_second=1_000_000)
    assert found.outcome is RebuildOutcome.REBUILT
    assert 7.0 < world.clock.monotonic() - began_s < 15.0, "ten megabytes"


async def test_topics_and_partitions_may_be_named_and_heartbeats_only_count_then() -> None:
    world = World(10)
    mm2_copied(world, numbers(0, 9), numbers(0, 9), 10)
    world.source.create_topic("payments", 2)
    world.source.create_topic("heartbeats", 1)
    found = await rebuild(world, is_dry_run=True)
    assert [(one.topic, one.partition, one.outcome) for one in found] == [
        ("payments", 0, RebuildOutcome.WHOLE),
        ("payments", 1, RebuildOutcome.WHOLE),
        ("orders", 0, RebuildOutcome.MISSING),
    ]
    (found_one,) = await rebuild(world, "payments", partition=1)
    assert (found_one.topic, found_one.partition) == ("payments", 1)
    for topics, partition in ((["other"], None), (["orders"], 3)):
        with pytest.raises(ConfigError):
            await rebuild(world, *topics, partition=partition)


class Silent(Brokers):
    """A cluster that answers a few writes and no other."""

    def __init__(self, cluster: ClusterModel, writes: int) -> None:
        self._cluster, self._left = cluster, writes

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        if isinstance(request, ProduceRequest):
            self._left -= 1
            if self._left < 0:
                await asyncio.Event().wait()
        return await self._cluster.send(broker, request, channel=channel)


async def test_stopped_between_two_chunks_it_has_written_nothing_wrong_and_a_second_run_completes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mm2py.rebuilding.ledger_rebuild.RECORDS_AT_ONCE", 1)
    monkeypatch.setattr("mm2py.rebuilding.ledger_rebuild.RebuiltLedger", partial(RebuiltLedger, chunk_entries=2))
    world = World(11, extra=COMMITTED)
    await copied(world)
    world.source.create_topic("other", 1)
    (_, found) = await rebuild(world, target=Silent(world.target, 2))
    assert (found.outcome, exit_code_of([found])) == (RebuildOutcome.FAILED, 1)
    assert "B does not answer: writing to mm2-ledger.A.internal took more than 30 s" in found.text
    ledger = ledger_of(world)
    records = [one.offset for one in world.source.records("orders", 0, committed=True)]
    kinds = [ledger.forward(offset).kind for offset in records]
    assert kinds[0] is AnswerKind.COPIED and kinds[-1] is AnswerKind.BEFORE_LEDGER
    (found,) = await rebuild(world, "orders")
    assert found.outcome is RebuildOutcome.REBUILT
    assert_complete(world, committed=True)


def test_the_command_line() -> None:
    options = parse_arguments(["f", "A->B"])
    assert (options.topic, options.partition, options.max_mb_per_second, options.dry_run) == ([], None, 20, False)
    options = parse_arguments(["f", "A->B", "--topic", "x", "y", "--topic", "z", "--max-mb-per-second", "3"])
    assert (options.topic, options.max_mb_per_second) == (["x", "y", "z"], 3)
    for wrong in (["--max-mb-per-second", "0"], ["--partition", "x"]):
        with pytest.raises(ConfigError):
            parse_arguments(["f", "A->B", *wrong])
