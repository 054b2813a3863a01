"""``mm2py gaps``: what it lists, and that a stopped partition resumes when its gap is accepted."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from mm2py.cli.gaps import (
    EXIT_FAILED,
    Connected,
    WantedPartition,
    accept,
    gaps_json,
    gaps_text,
    list_or_accept,
    parse_arguments,
    read_gaps,
    wanted_of,
)
from mm2py.config.configuration import load_configuration
from mm2py.config.settings import FlowSettings
from mm2py.kafka.errors import BrokerUnreachable
from mm2py.kafka.port import BrokerId, Brokers
from mm2py.records.gap_record import Command, Done, Gap, GapKind
from mm2py.records.gap_record import decode as decode_status
from tests.scenarios.gate import Request
from tests.scenarios.world import World

HOUR_S = 3600.0
pytestmark = pytest.mark.virtual_time(limit_s=HOUR_S)
THREE_CLUSTERS = """\
clusters = A, B, C
A.bootstrap.servers = a:1
B.bootstrap.servers = b:1
C.bootstrap.servers = c:1
A->B.enabled = true
A->C.enabled = true
"""


def values(world: World) -> list[bytes | None]:
    return [record.value for record in world.target.records("A.orders", 0)]


async def cut_back(world: World) -> None:
    """Copy a topic, and truncate it while the caller's worker runs."""
    world.source.create_topic("orders", 1)
    world.source.append("orders", 0, [b"0", b"1", b"2"])
    await world.copied({"orders": "A.orders"})
    await asyncio.sleep(5)
    world.source.truncate("orders", 0, 1)
    world.source.append("orders", 0, [b"other"])
    async with asyncio.timeout(60):
        while not await read_gaps(world.settings, world.target):
            await asyncio.sleep(0.5)


async def test_a_gap_is_listed_and_resumes_when_it_is_accepted() -> None:
    world = World(1, nodes=3)
    flow = world.settings.flow
    async with world.worker():
        await cut_back(world)
        (gap,) = await read_gaps(world.settings, world.target)
        assert (gap.kind, gap.topic, gap.position, gap.is_open) == ("truncated", "orders", 3, True)
        (outcome,) = await accept(
            world.settings,
            world.target,
            [WantedPartition(flow, "orders", None)],
            clock=world.clock,
            rng=random.Random(1),
        )
        assert outcome.carried_out, outcome.text
        assert str(outcome.wanted) == "A->B:orders:0"
        await world.copied({"orders": "A.orders"})
        assert values(world) == [b"0", b"1", b"2", b"other"]
        (gap,) = await read_gaps(world.settings, world.target)
        assert gap.done is Done.ACCEPTED


async def test_without_an_open_gap_nothing_is_written() -> None:
    world = World(2)
    world.source.create_topic("orders", 1)
    async with world.worker():
        await asyncio.sleep(10)
        wanted = WantedPartition(world.settings.flow, "orders", 0)
        (outcome,) = await accept(world.settings, world.target, [wanted], clock=world.clock, rng=random.Random(1))
        assert (outcome.carried_out, outcome.text) == (False, "no gap of it is open.")
        kept = [record for number in range(5) for record in world.target.records("mm2-status.A.internal", number)]
        assert all((record.key or b"").startswith(b"mm2py-incarnation-") for record in kept)


async def test_a_flow_that_never_ran_has_no_gaps() -> None:
    world = World(3)
    assert await read_gaps(world.settings, world.target) == []


async def test_a_command_without_an_answer_is_reported_as_such_and_carried_out_later() -> None:
    world = World(4, nodes=3)
    async with world.worker():
        await cut_back(world)
    begun_s = world.clock.monotonic()
    wanted = WantedPartition(world.settings.flow, "orders", 0)
    (outcome,) = await accept(world.settings, world.target, [wanted], clock=world.clock, rng=random.Random(1))
    assert not outcome.carried_out
    assert "no worker answered within 30 s: it is still being carried out, or will be" in outcome.text
    assert 30 <= world.clock.monotonic() - begun_s < 35
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        assert values(world) == [b"0", b"1", b"2", b"other"]


def test_the_table_has_a_line_for_each_gap_and_cannot_control_the_terminal() -> None:
    flow = World(5).settings.flow
    gaps = [
        Gap(GapKind.EXPIRED, "orders", 3, 10, 19, Done.STOPPED, 10, "deleted \x1b[31mbefore", 1_700_000_000_000),
        Gap(GapKind.TARGET_DELETED, "orders", 12, None, 7, Done.STOPPED, 8, "gone", 10**20),
    ]
    head, first, second = gaps_text([(flow, gap) for gap in gaps]).splitlines()
    assert head.split() == ["PARTITION", "KIND", "OFFSETS", "DONE", "POSITION", "SINCE", "WHAT"]
    assert first.split()[:6] == ["A->B:orders:3", "expired", "10..19", "stopped", "10", "2023-11-14T22:13:20Z"]
    assert first.endswith("deleted \\x1b[31mbefore")
    assert second.split()[2:6] == ["?..7", "stopped", "8", "?"]
    assert head.index("WHAT") == first.index("deleted") == second.index("gone")
    assert gaps_text([]) == "No gap is open.\n"


def test_json_output_has_the_same_values_for_programs() -> None:
    flow = World(5).settings.flow
    gap = Gap(GapKind.EXPIRED, "orders", 3, 10, 19, Done.CONTINUED, 10, "deleted", 1_000)
    (row,) = json.loads(gaps_json([(flow, gap)]))
    assert row["flow"] == "A->B"
    assert (row["topic"], row["partition"], row["first_offset"], row["last_offset"]) == ("orders", 3, 10, 19)
    assert (row["kind"], row["done"], row["open"], row["text"]) == ("expired", "continued", False, "deleted")
    assert json.loads(gaps_json([])) == []


class Link:
    """A connection of the command to a cluster; ``is_up`` decides for each request whether it arrives."""

    def __init__(self, cluster: Brokers, is_up: Callable[[Request], bool]) -> None:
        self._cluster = cluster
        self._is_up = is_up

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> Any:
        if not self._is_up(request):
            raise BrokerUnreachable("c:1", "connection refused")
        return await self._cluster.send(broker, request, channel=channel)

    async def close(self) -> None:
        pass


class Shell:
    """Runs the command with a file of flows A->B and A->C; C is unreachable."""

    def __init__(self, world: World, folder: Path) -> None:
        self.out = ""
        self.warnings: list[str] = []
        self._world = world
        self._file = folder / "mm2.properties"
        self._file.write_text(THREE_CLUSTERS)

    async def run(self, *arguments: str) -> int:
        options = parse_arguments([str(self._file), *arguments])
        flows = sorted(load_configuration(self._file, None).flows, key=lambda one: str(one.flow), reverse=True)
        assert [str(settings.flow) for settings in flows] == ["A->C", "A->B"]
        return await list_or_accept(
            options,
            flows,
            wanted_of(options.partitions),
            self._write,
            self.warnings.append,
            connect=self._connect,
            clock=self._world.clock,
        )

    def _connect(self, settings: FlowSettings, rng: random.Random) -> Connected:
        is_up = str(settings.flow) == "A->B"
        return cast("Connected", Link(self._world.target, lambda _: is_up))

    def _write(self, text: str) -> None:
        self.out += text


@pytest.mark.parametrize("form", ["text", "json"])
async def test_an_unreachable_cluster_does_not_hide_the_gaps_of_the_others(form: str, tmp_path: Path) -> None:
    world = World(6, nodes=3)
    shell = Shell(world, tmp_path)
    async with world.worker():
        await cut_back(world)
        assert await shell.run("--format", form) == EXIT_FAILED
    assert "orders" in shell.out and "truncated" in shell.out
    (warning,) = shell.warnings
    assert warning.startswith("A->C cannot be listed: C does not answer: reading mm2-status.A.internal took more")


async def test_an_accepted_gap_is_reported_although_another_cluster_is_unreachable(tmp_path: Path) -> None:
    world = World(7, nodes=3)
    shell = Shell(world, tmp_path)
    async with world.worker():
        await cut_back(world)
        assert await shell.run("accept", "A->C:payments:0", "A->B:orders") == EXIT_FAILED
        await world.copied({"orders": "A.orders"})
    refused, accepted = shell.out.splitlines()
    assert refused.startswith("A->C:payments:0: not accepted, C does not answer: reading mm2-status.A.internal")
    assert accepted.startswith("A->B:orders:0: accepted, it goes on at source offset")


async def test_a_command_whose_answer_cannot_be_read_is_among_the_outcomes() -> None:
    """The right to read the status topic is revoked while the command is in flight."""
    world = World(8, nodes=3)
    async with world.worker():
        await cut_back(world)

    def deny_when_written() -> None:
        for number in range(len(world.target.topics["mm2-status.A.internal"].partitions)):
            for record in world.target.records("mm2-status.A.internal", number):
                found = decode_status(record.key or b"", record.value) if record.value else None
                if isinstance(found, Command):
                    world.target.denied_topics.add("mm2-status.A.internal")

    def is_up(_: Request) -> bool:
        deny_when_written()
        return True

    brokers = cast("Brokers", Link(world.target, is_up))
    wanted = WantedPartition(world.settings.flow, "orders", 0)
    (outcome,) = await accept(world.settings, brokers, [wanted], clock=world.clock, rng=random.Random(1))
    assert (str(outcome.wanted), outcome.carried_out) == ("A->B:orders:0", False)
    assert outcome.text.startswith("whether it was carried out cannot be read (Reading mm2-status.A.internal")
    assert outcome.text.endswith("or will be once A->B runs.")
