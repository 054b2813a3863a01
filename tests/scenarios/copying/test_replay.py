"""Quarantined records come out again, once: into a file of their owner, or after the records copied since."""

from __future__ import annotations

import asyncio
import base64
import json
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mm2py.cli.gaps import WantedPartition, accept
from mm2py.cli.replay import CannotExport, append_to, export_to
from mm2py.copying.replay import NowhereToReplay, ReplaySelection
from mm2py.errors import ConfigError
from mm2py.records.quarantined import Replayed, decode
from tests.fakes.broker.record_batch import Record
from tests.scenarios.copying.test_quarantine import (
    FUTURE_MS,
    HEADERS,
    QUARANTINE,
    copied,
    good,
    kept,
    make_world,
    poison,
    until,
)
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=600)

ALL = ReplaySelection("orders")


async def with_quarantine(world: World, *, at: tuple[int, ...] = (1, 3)) -> None:
    """Copy records 0 to 4; those at ``at`` go into quarantine."""
    world.source.append("orders", 0, [poison(number) if number in at else good(number) for number in range(5)])
    async with world.worker() as herder:
        await until(lambda: len(copied(world)) == 5 - len(at) and len(kept(world)) == len(at), world)
        await asyncio.sleep(2)
        await world.stop(herder)


async def replay(world: World, *, yes: bool = True, selection: ReplaySelection = ALL, **options: bool) -> int:
    return await append_to(
        world.settings, world.target, selection, yes=yes, clock=world.clock, rng=world.rng, **options
    )


def lift(world: World) -> None:
    """Let the remote topic take any timestamp."""
    world.target.configure_topic("A.orders", {"message.timestamp.after.max.ms": str(1 << 62)})


async def scenario_of(body: Callable[[World], Awaitable[None]], seed: int = 1) -> None:
    await body(make_world(seed))


async def test_no_record_is_appended_before_the_operator_accepts_that_the_order_is_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def body(world: World) -> None:
        await with_quarantine(world)
        lift(world)
        with pytest.raises(ConfigError, match=r"Nothing was appended\. Pass --yes"):
            await replay(world, yes=False)
        assert copied(world) == [b"0", b"2", b"4"]
        assert await replay(world) == 0
        assert copied(world) == [b"0", b"2", b"4", b"1", b"3"]
        last = world.target.records("A.orders", 0)[-1]
        assert (last.key, last.timestamp_ms, last.headers) == (None, FUTURE_MS, HEADERS)

    await scenario_of(body)
    said = capsys.readouterr().out
    assert said.count("2 record(s) go to the end of A.orders on B, behind what was copied since: their order") == 2
    assert "2 record(s) were appended to A.orders, and marked in mm2-quarantine.A.internal." in said


async def test_a_second_run_names_the_records_appended_before_and_appends_the_rest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def body(world: World) -> None:
        await with_quarantine(world)
        lift(world)
        assert await replay(world, selection=ReplaySelection("orders", 0, 3)) == 0
        assert copied(world)[3:] == [b"3"]
        assert await replay(world) == 0
        assert copied(world)[3:] == [b"3", b"1"]
        assert await replay(world) == 0
        assert copied(world)[3:] == [b"3", b"1"]
        marks = [decode(record) for record in world.target.records(QUARANTINE, 0)]  # type: ignore[arg-type]
        assert [mark.origin.offset for mark in marks if isinstance(mark, Replayed)] == [3, 1]

    await scenario_of(body)
    said = capsys.readouterr().out
    assert "1 record(s) were appended to A.orders before; they are left out." in said
    assert "2 record(s) were appended to A.orders before; they are left out." in said


async def test_records_that_the_target_still_refuses_are_named_and_the_others_are_appended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def body(world: World) -> None:
        await with_quarantine(world)
        assert await replay(world) == 1
        assert copied(world) == [b"0", b"2", b"4"]
        lift(world)
        assert await replay(world) == 0
        assert len(copied(world)) == 5

    await scenario_of(body)
    assert "A.orders still refuses orders-0 at offset 1: INVALID_TIMESTAMP (32)." in capsys.readouterr().out


async def test_a_running_flow_continues_while_records_are_appended() -> None:
    async def body(world: World) -> None:
        await with_quarantine(world)
        lift(world)
        async with world.worker() as herder:
            world.source.append("orders", 0, [good(5)])
            await until(lambda: b"5" in copied(world), world)
            assert await replay(world) == 0
            world.source.append("orders", 0, [good(6)])
            await until(lambda: b"6" in copied(world), world)
            await world.stop(herder)
        assert copied(world) == [b"0", b"2", b"4", b"5", b"1", b"3", b"6"]
        async with world.worker():
            world.source.append("orders", 0, [good(7)])
            await until(lambda: b"7" in copied(world), world)
        assert copied(world)[7:] == [b"7"]

    await scenario_of(body)


async def killed_replay(world: World, *, selection: ReplaySelection = ALL) -> None:
    """Start to append, and kill the run as soon as one record is there."""
    before = len(copied(world))
    running = asyncio.create_task(replay(world, selection=selection))
    await until(lambda: len(copied(world)) > before, world, every_s=0.0001)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_run_that_was_killed_before_it_marked_a_record_costs_one_repeat_at_most() -> None:
    async def body(world: World) -> None:
        await with_quarantine(world)
        lift(world)
        await killed_replay(world)
        assert copied(world)[3:] == [b"1"]
        assert await replay(world) == 0
        assert copied(world)[3:] in ([b"1", b"3"], [b"1", b"1", b"3"])
        assert await replay(world) == 0
        assert len(copied(world)) <= 6

    await scenario_of(body)


async def test_records_that_the_target_refused_can_be_appended_by_a_later_run() -> None:
    async def body(world: World) -> None:
        await with_quarantine(world)
        assert await replay(world) == 1
        assert await replay(world) == 1
        lift(world)
        assert await replay(world) == 0
        assert len(copied(world)) == 5

    await scenario_of(body)


async def test_an_exactly_once_flow_stops_at_appended_records_and_the_operator_is_told_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = make_world(2, **{"B.exactly.once.source.support": "enabled"})
    await with_quarantine(world)
    lift(world)
    async with world.worker():
        world.source.append("orders", 0, [good(5)])
        await until(lambda: b"5" in copied(world), world)
        with pytest.raises(ConfigError, match=r"Nothing was appended\. Pass --yes --stop-partitions to append"):
            await replay(world)
        assert copied(world)[3:] == [b"5"]
        assert await replay(world, stop_partitions=True) == 0
        world.source.append("orders", 0, [good(6)])
        await until(lambda: "foreign.writer" in world.log_text.getvalue(), world)
        await asyncio.sleep(5)
        world.source.append("orders", 0, [good(7)])
        await asyncio.sleep(60)
        assert b"7" not in copied(world), "it waits for an operator"
        wanted = WantedPartition(world.settings.flow, "orders", None)
        (outcome,) = await accept(world.settings, world.target, [wanted], clock=world.clock, rng=world.rng)
        assert outcome.carried_out, outcome.text
        await until(lambda: b"7" in copied(world), world)
    assert copied(world)[3:] == [b"5", b"1", b"3", b"6", b"7"]
    said = capsys.readouterr().out
    assert "as after any foreign writer it stops partition(s) 0 of orders" in said


async def test_a_record_that_a_crash_quarantined_twice_is_appended_once(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        world.source.append("orders", 0, [good(0), poison(1), good(2)])
        for _ in range(2):
            async with world.worker():
                before = len(kept(world))
                await until(lambda: len(kept(world)) > before, world, every_s=0.0002)  # noqa: B023
        assert len(kept(world)) == 2
        lift(world)
        assert await replay(world) == 0
        assert copied(world) == [b"0", b"1"]
        await export_to(world.settings, world.target, ALL, tmp_path)
        assert len((tmp_path / "orders.jsonl").read_text().splitlines()) == 1

    await scenario_of(body)


async def test_an_export_has_all_of_a_record_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await with_quarantine(world)
        assert await export_to(world.settings, world.target, ReplaySelection("orders", offset=3), tmp_path) == 0

    await scenario_of(body)
    file = tmp_path / "orders.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (line,) = map(json.loads, file.read_text().splitlines())
    assert (line["topic"], line["partition"], line["offset"]) == ("orders", 0, 3)
    assert (line["key"], base64.b64decode(line["value"]), line["timestamp_ms"]) == (None, b"3", FUTURE_MS)
    assert [(name, value if value is None else base64.b64decode(value)) for name, value in line["headers"]] == list(
        HEADERS
    )
    assert (line["flow"], line["error_code"]) == ("A->B", 32)


async def test_an_export_overwrites_no_file_and_creates_no_empty_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def body(world: World) -> None:
        assert await export_to(world.settings, world.target, ALL, tmp_path) == 0
        assert list(tmp_path.iterdir()) == []
        await with_quarantine(world)
        (tmp_path / "orders.jsonl").write_text("mine")
        with pytest.raises(CannotExport, match="is there already"):
            await export_to(world.settings, world.target, ALL, tmp_path)
        with pytest.raises(CannotExport, match="No such file or directory"):
            await export_to(world.settings, world.target, ALL, tmp_path / "none")

    await scenario_of(body)
    assert (tmp_path / "orders.jsonl").read_text() == "mine"
    assert "mm2-quarantine.A.internal on B holds nothing of that kind of orders." in capsys.readouterr().out


async def test_foreign_records_in_the_quarantine_are_left_out_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    async def body(world: World) -> None:
        await with_quarantine(world)
        world.target.append(QUARANTINE, 0, [Record(value=b"?", key=b'["orders",0,2]', timestamp_ms=1_000)])
        lift(world)
        assert await replay(world) == 0
        assert len(copied(world)) == 5

    await scenario_of(body)
    assert "has 1 record(s) that mm2py did not write; they are left out." in capsys.readouterr().out


async def test_a_missing_remote_topic_is_named() -> None:
    async def body(world: World) -> None:
        await with_quarantine(world)
        world.target.delete_topic("A.orders")
        await asyncio.sleep(5)
        with pytest.raises(NowhereToReplay, match=r"A\.orders has no partition 0"):
            await replay(world)

    await scenario_of(body)
