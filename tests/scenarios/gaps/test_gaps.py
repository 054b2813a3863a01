"""No gap is silent: each is in log, metrics and status topic, and ends as policies and operators say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mm2py.records.gap_record import Command, CommandAnswer, Done, Gap, GapKind, GapLogRecord, decode, encode_value
from mm2py.records.source_offset import partition_of
from mm2py.records.standstill import Standstill
from tests.fakes.broker.broker_model import ClusterModel, Record
from tests.scenarios.world import World

STATUS = "mm2-status.A.internal"
STOP, CONTINUE, RESTART = ({"on.source.gap": policy} for policy in ("stop", "continue", "restart"))
RECOPY = {"on.target.loss": "recopy"}
ORDERS = {"orders": "A.orders"}
HOUR_S = 3600.0
pytestmark = pytest.mark.virtual_time(limit_s=HOUR_S)


async def until(condition: Callable[[], bool], *, deadline_s: float = 120.0) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.1)


def texts(world: World, partition: int = 0, topic: str = "A.orders") -> list[str]:
    if topic not in world.target.topics:
        return []
    return [(record.value or b"").decode() for record in world.target.records(topic, partition)]


def write(cluster: ClusterModel, *values: str, partition: int = 0, topic: str = "orders") -> None:
    for value in values:
        cluster.append(topic, partition, [value.encode()])


def kept(world: World) -> list[GapLogRecord]:
    """Return the gaps, commands and answers of the status topic, as any reader finds them."""
    table: dict[bytes, GapLogRecord] = {}
    for number in range(len(world.target.topics[STATUS].partitions) if STATUS in world.target.topics else 0):
        for record in world.target.records(STATUS, number):
            if record.value is None:
                table.pop(record.key or b"", None)
            elif (found := decode(record.key or b"", record.value)) is not None and not isinstance(found, Standstill):
                table[record.key or b""] = found
    return list(table.values())


def gaps(world: World) -> list[tuple[str, int, int | None, int | None, str]]:
    found = [one for one in kept(world) if isinstance(one, Gap)]
    return sorted((str(one.kind), one.partition, one.first_offset, one.last_offset, str(one.done)) for one in found)


def counted(world: World, kind: GapKind) -> int:
    return world.metrics.gaps(world.settings.flow, "orders", kind)


def command(world: World, one: Command) -> None:
    world.target.append(STATUS, partition_of(one.key, 5), [Record(encode_value(one), key=one.key)])


async def answer_to(world: World, one: Command) -> CommandAnswer:
    def answers() -> list[CommandAnswer]:
        return [
            found for found in kept(world) if isinstance(found, CommandAnswer) and found.command_id == one.command_id
        ]

    await until(lambda: bool(answers()))
    return answers()[0]


async def accept(world: World, position: int, *, partition: int = 0, command_id: str = "c1") -> CommandAnswer:
    one = Command(command_id, "orders", partition, position, 1)
    command(world, one)
    return await answer_to(world, one)


async def seen(world: World, *wanted: tuple[str, int, int | None, int | None, str]) -> None:
    """Wait until the status topic has exactly these gaps."""
    try:
        await until(lambda: gaps(world) == sorted(wanted))
    except TimeoutError:
        assert gaps(world) == sorted(wanted)


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


async def expired_while_down(world: World) -> None:
    """Copy 0 to 9, delete 10 to 24 before they are copied, and append 25 to 39."""
    world.source.create_topic("orders", 1)
    write(world.source, *numbers(0, 9))
    async with world.worker() as herder:
        await world.copied(ORDERS)
        await world.stop(herder)
    write(world.source, *numbers(10, 39))
    world.source.delete_records("orders", 0, 25)


# ---- expired


async def test_restart_after_expired_records_copies_what_is_left() -> None:
    world = World(3, extra=RESTART)
    await expired_while_down(world)
    async with world.worker():
        await world.copied(ORDERS)
        await seen(world, ("expired", 0, 10, 24, "restarted"))
        assert texts(world) == [*numbers(0, 9), *numbers(25, 39)]


# ---- truncated


async def cut_back(world: World) -> None:
    """Copy 0 to 9; then the log loses 5 to 9, and gets two other records in their place."""
    await world.copied(ORDERS)
    await asyncio.sleep(5)
    world.source.truncate("orders", 0, 5)
    write(world.source, "other", "another")


@pytest.mark.parametrize(
    ("extra", "done", "after"),
    [
        ({}, "stopped", []),
        (CONTINUE, "continued", ["other", "another"]),
        (RESTART, "restarted", [*numbers(0, 4), "other", "another"]),
    ],
    ids=["default", "continue", "restart"],
)
async def test_a_truncated_source_log_is_handled_as_policy_says(
    extra: dict[str, str], done: str, after: list[str]
) -> None:
    world = World(4, nodes=3, extra=extra)
    world.source.create_topic("orders", 1)
    write(world.source, *numbers(0, 9))
    async with world.worker():
        await cut_back(world)
        await seen(world, ("truncated", 0, 5, 9, done))
        await until(lambda: texts(world) == [*numbers(0, 9), *after])
        write(world.source, "later")
        await asyncio.sleep(60)
        assert texts(world) == [*numbers(0, 9), *after, *(["later"] if after else [])]
        assert counted(world, GapKind.TRUNCATED) == 1


async def test_a_recopy_by_the_command_line_closes_the_gap_too() -> None:
    world = World(18, nodes=3)
    world.source.create_topic("orders", 1)
    write(world.source, *numbers(0, 9))
    async with world.worker():
        await cut_back(world)
        await seen(world, ("truncated", 0, 5, 9, "stopped"))
    async with world.worker(allow_recopy=frozenset({"orders"})):
        await until(lambda: texts(world) == [*numbers(0, 9), *numbers(0, 4), "other", "another"])
        await seen(world, ("truncated", 0, 5, 9, "accepted"))


# ---- recreated upstream


@pytest.mark.parametrize("down", [False, True], ids=["running", "down"])
@pytest.mark.parametrize("records", [3, 30], ids=["shorter", "longer"])
@pytest.mark.parametrize("extra", [CONTINUE, RESTART], ids=["continue", "restart"])
async def test_a_recreated_topic_is_copied_from_its_start_where_policy_says_so(
    extra: dict[str, str], records: int, down: bool
) -> None:
    world = World(6, extra=extra)
    world.source.create_topic("orders", 2)
    write(world.source, *numbers(0, 9))
    async with world.worker() as herder:
        await world.copied(ORDERS)
        await asyncio.sleep(5)
        if down:
            await world.stop(herder)
        world.source.recreate_topic("orders")
        new = [f"new {number}" for number in range(records)]
        write(world.source, *new)
        if not down:
            await until(lambda: texts(world) == [*numbers(0, 9), *new])
    async with world.worker():
        await until(lambda: texts(world) == [*numbers(0, 9), *new])
        done = extra["on.source.gap"].replace("ue", "ued").replace("start", "started")
        await seen(world, ("recreated", 0, 10, None, done), ("recreated", 1, 0, None, done))
        assert counted(world, GapKind.RECREATED) == 2
        assert "topic.refused" not in world.log_text.getvalue()


@pytest.mark.parametrize("partitions", [2, 1], ids=["as wide", "narrower"])
async def test_a_recreated_topic_stops_until_an_operator_has_accepted_each_of_its_partitions(partitions: int) -> None:
    world = World(7)
    world.source.create_topic("orders", 2)
    for partition in range(2):
        write(world.source, *numbers(0, 9), partition=partition)
    async with world.worker() as herder:
        await world.copied(ORDERS)
        await asyncio.sleep(5)
        world.source.recreate_topic("orders", partitions)
        write(world.source, "new", partition=0)
        await seen(world, ("recreated", 0, 10, None, "stopped"), ("recreated", 1, 10, None, "stopped"))
        first = await accept(world, 10, partition=0, command_id="c0")
        assert first.carried_out
        await asyncio.sleep(60)
        if partitions == 1:
            assert first.text == "it is copied from its first record on.", "the other partition no longer exists"
            assert texts(world) == [*numbers(0, 9), "new"]
        else:
            assert "partition(s) 1" in first.text
            assert texts(world) == numbers(0, 9), "no partition is copied before all are accepted"
        gone = await accept(world, 10, partition=1, command_id="c1")
        assert gone.carried_out, gone.text
        await until(lambda: texts(world) == [*numbers(0, 9), "new"])
        assert herder.status()[0].refused == {}
        await seen(world, ("recreated", 0, 10, None, "accepted"), ("recreated", 1, 10, None, "accepted"))
        if partitions == 1:
            world.source.add_partitions("orders", 2)
            write(world.source, "grown", partition=1)
            await until(lambda: texts(world, 1) == [*numbers(0, 9), "grown"])


async def test_a_position_of_another_source_cluster_stops_its_topic() -> None:
    """An operator lets the alias A stand for another cluster, which has a topic of the same name."""
    world = World(17)
    world.source.create_topic("orders", 1)
    write(world.source, *numbers(0, 9))
    async with world.worker():
        await world.copied(ORDERS)
        await asyncio.sleep(5)
    world.source.cluster_id = "another"
    world.target.delete_topic("mm2-cluster.mm2py.internal")  # otherwise the group would refuse the flow first
    write(world.source, "a record of another cluster")
    async with world.worker():
        await seen(world, ("recreated", 0, 10, None, "stopped"))
        await asyncio.sleep(60)
        assert texts(world) == numbers(0, 9)
        assert "its position is of cluster A-" in world.log_text.getvalue()


async def test_an_accepted_gap_of_a_topic_is_remembered_across_a_crash() -> None:
    world = World(8)
    world.source.create_topic("orders", 2)
    for partition in range(2):
        write(world.source, *numbers(0, 4), partition=partition)
    async with world.worker():
        await world.copied(ORDERS)
        await asyncio.sleep(5)
        world.source.recreate_topic("orders")
        write(world.source, "new 0", partition=0)
        write(world.source, "new 1", partition=1)
        await until(lambda: len(gaps(world)) == 2)
        assert (await accept(world, 5, partition=0, command_id="c0")).carried_out
    async with world.worker():
        assert (await accept(world, 5, partition=1, command_id="c1")).carried_out
        await until(lambda: texts(world, 0)[5:] == ["new 0"] and texts(world, 1)[5:] == ["new 1"])


# ---- deleted


@pytest.mark.parametrize("down", [False, True], ids=["running", "down"])
async def test_a_deleted_topic_is_a_gap_that_needs_no_answer(down: bool) -> None:
    world = World(9)
    for topic in ("orders", "bills"):
        world.source.create_topic(topic, 1)
        write(world.source, "1", topic=topic)
    async with world.worker() as herder:
        await world.copied({**ORDERS, "bills": "A.bills"})
        await asyncio.sleep(5)
        if down:
            await world.stop(herder)
        world.source.delete_topic("orders")
        if not down:
            await seen(world, ("deleted", 0, 1, None, "kept"))
    for _ in range(2):
        async with world.worker():
            await seen(world, ("deleted", 0, 1, None, "kept"))
            await asyncio.sleep(30)
    assert texts(world) == ["1"]


# ---- the copy is lost


@pytest.mark.parametrize("down", [False, True], ids=["running", "down"])
@pytest.mark.parametrize("recreated", [False, True], ids=["deleted", "recreated"])
async def test_a_lost_copy_is_copied_again_where_policy_says_so(recreated: bool, down: bool) -> None:
    world = World(10, extra=RECOPY)
    world.source.create_topic("orders", 1)
    write(world.source, *numbers(0, 9))
    async with world.worker() as herder:
        await world.copied(ORDERS)
        await asyncio.sleep(5)
        if down:
            await world.stop(herder)
        world.target.recreate_topic("A.orders") if recreated else world.target.delete_topic("A.orders")
        write(world.source, *numbers(10, 12))
        if not down:
            await until(lambda: texts(world) == numbers(0, 12))
    async with world.worker():
        await until(lambda: texts(world) == numbers(0, 12))
        await seen(world, ("target-deleted", 0, None, 9, "restarted"))
        assert counted(world, GapKind.TARGET_DELETED) == 1


async def test_a_lost_copy_stops_its_topic_until_an_operator_accepts_it() -> None:
    world = World(11)
    world.source.create_topic("orders", 1)
    write(world.source, *numbers(0, 9))
    async with world.worker():
        await world.copied(ORDERS)
        await asyncio.sleep(5)
        world.target.recreate_topic("A.orders")
        write(world.source, "10")
        await seen(world, ("target-deleted", 0, None, 9, "stopped"))
        await asyncio.sleep(60)
        assert texts(world) == []
        assert (await accept(world, 10)).carried_out
        await until(lambda: texts(world) == numbers(0, 10))


# ---- what is no gap


async def test_compaction_and_transaction_markers_cause_no_gap() -> None:
    world = World(12, extra={"A.consumer.isolation.level": "read_committed", **STOP})
    world.source.create_topic("orders", 1, {"cleanup.policy": "compact"})
    for number in range(20):
        world.source.append("orders", 0, [Record(b"%d" % number, key=b"k%d" % (number % 3))])
    aborted = world.source.transaction()
    aborted.append("orders", 0, [Record(b"aborted", key=b"a")])
    aborted.abort()
    committed = world.source.transaction()
    committed.append("orders", 0, [Record(b"committed", key=b"c")])
    committed.commit()
    world.source.compact("orders")
    async with world.worker():
        await until(lambda: texts(world)[-1:] == ["committed"])
        await asyncio.sleep(30)
        assert gaps(world) == []
        assert "source." not in world.log_text.getvalue()


# ---- commands


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (Command("x", "orders", 0, 9, 1), "it stands at source offset 10, not at 9"),
        (Command("x", "orders", 7, 10, 1), "no position of orders-7"),
        (Command("x", "bills", 0, 10, 1), "no position of bills-0"),
        (Command("x", "orders", 0, 10, 1, "dance"), "does not know the command 'dance'"),
        (Command("x", "orders", 1, 1, 1), "nothing stops it"),
    ],
    ids=["moved on", "no such partition", "no such topic", "unknown", "not stopped"],
)
async def test_a_command_that_does_not_fit_is_refused_with_the_reason(one: Command, why: str) -> None:
    async def cut_back_first(world: World) -> None:
        await cut_back(world)
        await seen(world, ("truncated", 0, 5, 9, "stopped"))

    world = World(13, nodes=3)
    world.source.create_topic("orders", 2)
    write(world.source, *numbers(0, 9))
    write(world.source, "a", partition=1)
    async with world.worker():
        await cut_back_first(world)
        command(world, one)
        answer = await answer_to(world, one)
        assert not answer.carried_out
        assert why in answer.text
        await asyncio.sleep(30)
        assert texts(world) == numbers(0, 9)


async def test_a_command_given_while_no_worker_ran_is_carried_out_once_at_the_next_start() -> None:
    world = World(14, nodes=3)
    world.source.create_topic("orders", 1)
    write(world.source, *numbers(0, 9))
    async with world.worker():
        await cut_back(world)
        await seen(world, ("truncated", 0, 5, 9, "stopped"))
    one = Command("c1", "orders", 0, 10, 1)
    command(world, one)
    async with world.worker():
        assert (await answer_to(world, one)).carried_out
        await world.copied(ORDERS)
        await asyncio.sleep(5)
    async with world.worker():
        command(world, one)
        assert (await answer_to(world, one)).carried_out, "it was carried out before"
        await asyncio.sleep(30)
        assert texts(world) == [*numbers(0, 9), "other", "another"]


# ---- the status topic


async def test_records_of_connect_stay_and_malformed_ones_are_named() -> None:
    world = World(15)
    world.source.create_topic("orders", 1)
    write(world.source, "1")
    world.target.create_topic(STATUS, 5, {"cleanup.policy": "compact"})
    theirs = Record(b'{"state":"RUNNING"}', key=b"status-connector-MirrorSourceConnector")
    world.target.append(STATUS, 0, [theirs, Record(b"{", key=b"mm2py-gap-expired-0-0-orders")])
    async with world.worker():
        await world.copied(ORDERS)
        await until(lambda: "status.malformed" in world.log_text.getvalue())
        assert world.target.records(STATUS, 0)[0].key == theirs.key


async def test_without_a_status_topic_records_are_copied_and_gaps_are_in_log_and_metrics() -> None:
    world = World(16)
    world.target.create_topic(STATUS, 5, {"cleanup.policy": "delete"})
    await expired_while_down(world)
    async with world.worker():
        await world.copied(ORDERS)
        await until(lambda: "status.waiting" in world.log_text.getvalue())
        assert "cleanup.policy is delete" in world.log_text.getvalue()
        assert counted(world, GapKind.EXPIRED) == 1
        assert "source.expired" in world.log_text.getvalue()
        assert kept(world) == []


async def test_a_gap_found_while_the_status_topic_was_unavailable_is_stored_later() -> None:
    world = World(17)
    world.target.create_topic(STATUS, 5, {"cleanup.policy": "delete"})
    await expired_while_down(world)
    async with world.worker():
        await world.copied(ORDERS)
        assert gaps(world) == []
        world.target.configure_topic(STATUS, {"cleanup.policy": "compact"})
        await seen(world, ("expired", 0, 10, 24, "continued"))


def test_the_action_of_a_gap_is_a_word_that_operators_read() -> None:
    assert {str(done) for done in Done} == {"continued", "restarted", "stopped", "accepted", "kept"}
