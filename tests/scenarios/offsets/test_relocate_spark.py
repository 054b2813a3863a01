"""``mm2py relocate spark`` as an operator meets it, between two cluster models, after a worker has copied."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mm2py.cli.relocate_spark import RelocateCommand, parse_arguments
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias
from mm2py.flow_sides import FlowSides
from mm2py.offsets.runs import Run
from mm2py.relocate.checkpoint_folder import read_checkpoint
from mm2py.status.cluster_inquiry import InquirySide, patience_of_commands
from tests.fakes.ledger_topic import chunk, write_chunks
from tests.scenarios.offsets.test_group_sync import synced_world
from tests.scenarios.offsets.test_offset_syncs import numbered
from tests.scenarios.offsets.test_source_silent import Frozen
from tests.scenarios.settings.test_status_command import Link
from tests.scenarios.sync_world import IDENTITY
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=3600)

LONG_AGO_S = 1_000_000_000


class Query:
    """A checkpoint that a query has left, and the command."""

    def __init__(self, world: World, folder: Path, *, source: Link | None = None) -> None:
        self.world = world
        self.folder = folder / "orders"
        self.text = ""
        self._source = source or Link(world.source, lambda *_: True)

    def write(self, *lines: str, batches: int = 2, committed: int = 2) -> None:
        """Let every batch end where the last one does, and be long over."""
        for part, count in (("offsets", batches), ("commits", committed)):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                content = "\n".join(("v1", "{}", *(lines if part == "offsets" else ())))
                (self.folder / part / str(number)).write_text(content)
        (self.folder / "metadata").write_text('{"id":"35df8455"}')
        for path in self.folder.rglob("*"):
            os.utime(path, (LONG_AGO_S, LONG_AGO_S))

    async def relocate(self, *arguments: str, flow: str = "A->B") -> int:
        self.text = ""
        options = parse_arguments(["mm2.properties", str(self.folder), "--flow", flow, *arguments])
        command = RelocateCommand(
            self.world.file({}), options, clock=self.world.clock, write=self._write, connect=self._connect
        )
        return await command.run(self.world.settings)

    async def found(self, *arguments: str) -> dict[str, Any]:
        code = await self.relocate("--json", *arguments)
        found: dict[str, Any] = json.loads(self.text)
        assert found["exit_code"] == code
        return found

    def _write(self, text: str) -> None:
        self.text += text

    @asynccontextmanager
    async def _connect(self, command: str, settings: FlowSettings) -> AsyncIterator[FlowSides]:
        patience = patience_of_commands(self.world.clock)
        target = Link(self.world.target, lambda *_: True)
        sides = FlowSides(
            InquirySide(ClusterAlias("A"), self._source, patience),  # type: ignore[arg-type]
            InquirySide(ClusterAlias("B"), target, patience),  # type: ignore[arg-type]
        )
        try:
            yield sides
        finally:
            for side in sides:
                await side.close()


async def copied_world(**extra: str) -> World:
    """100 records in orders-0 are copied, and none in orders-1; no worker runs any more."""
    world = synced_world(**extra)
    async with world.worker():
        await world.copied({"orders": "orders" if IDENTITY.items() <= extra.items() else "A.orders"})
        await asyncio.sleep(5)
    return world


def id_of(world: World, topic: str, *, on_target: bool = False) -> str:
    cluster = world.target if on_target else world.source
    return str(cluster.topics[topic].id)


def positions(folder: Path) -> list[str]:
    checkpoint = read_checkpoint(folder)
    return [batch.text().split("\n")[2] for _, batch in sorted(checkpoint.content.items())]


async def test_a_query_of_either_format_goes_on_in_the_copy(tmp_path: Path) -> None:
    world = await copied_world()
    query = Query(world, tmp_path)
    query.write(json.dumps({"topic_id": id_of(world, "orders"), "0": 60, "1": 0}), '{"orders":{"0":100,"1":0}}')
    assert await query.relocate("--plan") == 0
    assert not (tmp_path / "orders-B").exists()
    assert "Nothing was written." in query.text and "A.orders where it read orders." in query.text
    assert await query.relocate() == 0
    lines = query.text.splitlines()
    assert lines[0].split() == [
        "BATCH",
        "TOPIC",
        "PARTITION",
        "OFFSET",
        "NEW",
        "TOPIC",
        "NEW",
        "OFFSET",
        "EXACT",
        "NOTE",
    ]
    assert lines[1].split() == ["1", "orders", "0", "60", "A.orders", "60", "yes", "copied"]
    assert lines[2].split()[:7] == ["1", "orders", "1", "0", "A.orders", "0", "yes"]
    assert lines[-2].startswith(f"Written: {tmp_path}/orders-B.")
    new = read_checkpoint(tmp_path / "orders-B")
    assert new.content[1].text().split("\n")[2:] == [
        json.dumps({"topic_id": id_of(world, "A.orders", on_target=True), "0": 60, "1": 0}),
        '{"A.orders":{"0":100,"1":0}}',
    ]
    with pytest.raises(ConfigError, match="orders-B exists"):
        await query.relocate()


async def test_a_planned_batch_keeps_its_range_and_both_ends_must_be_copied(tmp_path: Path) -> None:
    world = await copied_world()
    query = Query(world, tmp_path)
    query.write('{"orders":{"0":60}}', batches=3)
    found = await query.found("--to", str(tmp_path / "there"))
    assert [(one["batch"], one["is_planned"], one["other_offset"]) for one in found["offsets"]] == [
        (1, False, 60),
        (2, True, 60),
    ]
    assert (found["outcome"], found["why"], found["unread"]) == ("relocated", "", "")
    world.source.append("orders", 0, numbered(10))
    query.write('{"orders":{"0":105}}', batches=3)
    found = await query.found()
    assert (found["exit_code"], found["outcome"]) == (3, "refused")
    assert found["why"] == ("orders-0 105: what it has read is not copied to B yet, or not in the ledger, and 1 more")
    assert found["remedy"] == "Let A->B run on, and ask again. Or start it on B with a new checkpoint."
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(5)
        assert await query.relocate() == 0
    assert positions(tmp_path / "orders-B") == ['{"A.orders":{"0":106}}'] * 2, "a fence's marker is at 100"


async def test_if_the_source_is_lost_the_target_alone_tells_also_which_topic_an_id_means(tmp_path: Path) -> None:
    world = await copied_world()
    query = Query(world, tmp_path, source=Frozen(world.source))
    query.write(json.dumps({"topic_id": id_of(world, "orders"), "0": 60}), '{"orders":{"0":100,"1":0}}')
    assert await query.relocate() == 0
    assert "A does not answer: whether topics were recreated there is not known (A has not answered" in query.text
    assert positions(tmp_path / "orders-B")[-1] == json.dumps(
        {"topic_id": id_of(world, "A.orders", on_target=True), "0": 60}
    )
    query.write(json.dumps({"topic_id": "9b4adb83-529a-4f05-92ab-0a21052be4d8", "0": 60}))
    assert await query.relocate("--to", str(tmp_path / "other")) == 3
    assert "no topic that A has, or A->B copies, has the id 9b4adb83" in query.text


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"payments":{"0":1}}', "payments-0 1: A->B does not copy payments."),
        ('{"orders":{"7":1}}', "orders-7 1: orders-7 does not exist on A."),
        ('{"orders":{"0":500}}', "orders-0 500: it is beyond the end of orders-0 on A, which is 100."),
        ('{"logOffset":4}', "offsets/0, source 0 has the position"),
    ],
)
async def test_what_has_no_exact_place_is_refused_by_name_and_nothing_is_written(
    tmp_path: Path, line: str, why: str
) -> None:
    world = await copied_world(topics="orders")
    world.source.create_topic("payments", 1)
    query = Query(world, tmp_path)
    query.write(line)
    assert await query.relocate() == 3
    refused, nothing = query.text.splitlines()[-2:]
    assert refused.startswith(f"refused: {why}") and nothing == "Nothing was written."
    assert [path.name for path in tmp_path.iterdir()] == ["orders"]


async def test_a_topic_that_was_recreated_on_either_side_is_refused(tmp_path: Path) -> None:
    world = await copied_world()
    query = Query(world, tmp_path)
    old_id = id_of(world, "orders")
    world.source.delete_topic("orders")
    world.source.create_topic("orders", 2)
    world.source.append("orders", 0, numbered(100))
    query.write(json.dumps({"topic_id": old_id, "0": 60}))
    assert await query.relocate() == 3
    assert f"has the id {old_id}. Is the query one of A, and was the topic not recreated since?" in query.text
    query.write('{"orders":{"0":60}}')
    assert await query.relocate() == 3
    assert "orders was recreated on A, and the ledger is of the topic before" in query.text


async def test_a_checkpoint_that_was_written_a_moment_ago_needs_a_yes(tmp_path: Path) -> None:
    world = await copied_world()
    query = Query(world, tmp_path)
    query.write('{"orders":{"0":60}}')
    now_s = world.clock.wall_ms() / 1000
    os.utime(query.folder / "metadata", (now_s - 7, now_s - 7))
    assert await query.relocate() == 3
    assert "changed 7 s ago: the query may be running. Stop it, and wait 30 s, or say --yes" in query.text
    assert await query.relocate("--plan") == 0
    assert await query.relocate("--yes") == 0


async def test_a_checkpoint_of_the_target_is_not_relocated_there_again(tmp_path: Path) -> None:
    world = await copied_world()
    query = Query(world, tmp_path)
    query.write('{"orders":{"0":60}}')
    assert await query.relocate() == 0
    again = Query(world, tmp_path)
    again.folder = tmp_path / "orders-B"
    assert await again.relocate("--yes") == 3
    assert "orders-B was relocated to B, and A->B takes one of A. Name the flow that leads away" in again.text


async def test_under_the_identity_policy_the_ledgers_of_both_directions_place_a_query(tmp_path: Path) -> None:
    """A was the target before: records from 100 on came from B, and only the ledger on A knows them."""
    world = await copied_world(**IDENTITY)
    world.source.append("orders", 0, numbered(23))
    world.target.append("orders", 0, numbered(20))
    back = chunk(Run(100, 103, 20), begin=(100, 103), is_whole=False)
    write_chunks(world.source, [back], topic="mm2-ledger.B.internal")
    places: Mapping[int, int] = {70: 70, 115: 112, 123: 120}
    for on_a, on_b in places.items():
        query = Query(world, tmp_path)
        query.write(f'{{"orders":{{"0":{on_a}}}}}')
        assert await query.relocate("--to", str(tmp_path / f"at-{on_a}")) == 0
        assert positions(tmp_path / f"at-{on_a}")[-1] == f'{{"orders":{{"0":{on_b}}}}}'
    lost = Query(world, tmp_path, source=Frozen(world.source))
    lost.write('{"orders":{"0":115}}')
    assert await lost.relocate("--to", str(tmp_path / "lost")) == 3
