"""The history of a flow: who writes which entry, also where writers compete, and what ``mm2py history`` shows."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from mm2py.cli.history import flows_of, parse_arguments, show
from mm2py.config.configuration import read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError
from mm2py.flow_clusters import Connected
from mm2py.kafka.errors import BrokerUnreachable
from mm2py.records.author import Author
from mm2py.records.connector_config import APPLY_COMMAND, FLOW_KEY, DecidedBy
from mm2py.records.history_record import HISTORY_KEY, HistoryEntry
from mm2py.records.operator_request import RestartConnector, RestartPartitions, TargetState
from mm2py.shared_settings.config_log import ConfigLog, ConfigTable, Lost, SettingsWritten
from mm2py.shared_settings.flow_config import changed
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED
from tests.scenarios.config_world import ADDRESSES, BY_MM2, TOPIC, FlowWorker, log_of, put_as_mm2
from tests.scenarios.settings.test_apply_command import Link
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=600)

ANNA, BOB = Author("anna", "ops1", "raise topics for team x"), Author("bob", "vm", "maintenance")
SOURCE = "MirrorSourceConnector"


async def history_in(world: World) -> list[HistoryEntry]:
    table = ConfigTable(world.target, TOPIC)
    await table.read_patiently(random.Random(1))
    return list(table.records.entries())


async def apply(
    log: ConfigLog, author: Author = ANNA, by: DecidedBy = DecidedBy.APPLY, **settings: str
) -> SettingsWritten | Lost:
    await log.read_patiently(random.Random(1))
    stored = log.config
    before = {} if stored is None else dict(stored.properties)
    return await log.write(replace(changed(stored, {**before, **settings}, by), author=author), instead_of=stored)


async def three_changes(world: World) -> None:
    log = await log_of(world, APPLY_COMMAND)
    await apply(log, enabled="true", topics="one")
    await asyncio.sleep(60)
    await apply(log, topics="two")
    await asyncio.sleep(60)
    await log.write_target(SOURCE, TargetState.PAUSED, by=BOB.by_rest, author=BOB)
    await asyncio.sleep(60)
    await log.write_target(SOURCE, TargetState.STARTED, by=BOB.by_rest, author=BOB)
    await log.write_restart(RestartConnector(SOURCE, by=BOB.by_rest, author=BOB))
    await log.write_restart(RestartPartitions("orders", 3, BOB.by_rest, BOB))


async def test_changes_pauses_and_restarts_are_kept_although_their_records_are_overwritten() -> None:
    world = World(1)
    await three_changes(world)
    entries = await history_in(world)
    assert [entry.text for entry in entries] == [
        "version 1 stored by anna on ops1 (mm2py apply): raise topics for team x",
        "version 2 stored by anna on ops1 (mm2py apply): raise topics for team x",
        "MirrorSourceConnector paused by bob over REST on worker vm: maintenance",
        "MirrorSourceConnector resumed by bob over REST on worker vm: maintenance",
        "MirrorSourceConnector restarted by bob over REST on worker vm: maintenance",
        "orders-3 restarted by bob over REST on worker vm: maintenance",
    ]
    assert [change.text for change in entries[1].changes] == ["topics: 'one' -> 'two'"]
    assert entries[1].at_ms - entries[0].at_ms >= 60_000 and not entries[0].changes


async def test_a_worker_that_stores_its_file_is_in_the_history_and_one_that_notes_it_is_not() -> None:
    world = World(2)
    await FlowWorker(world, "w1", {"topics": "one"}).start()
    await FlowWorker(world, "w2", {"topics": " one"}).start(runners=("w1",))
    await FlowWorker(world, "w3", {"topics": "two"}).start(runners=("w1",))
    (first,) = await history_in(world)
    assert (first.version, first.writer, first.worker) == (1, "file", "w1")
    await FlowWorker(world, "w4", {"topics": "three"}).start()
    _, second = await history_in(world)
    assert [change.text for change in second.changes] == ["topics: 'one' -> 'three'"]


async def test_settings_that_a_worker_stores_again_say_why() -> None:
    world = World(3)
    await FlowWorker(world, "w1", {"topics": "one"}).start()
    await apply(await log_of(world, APPLY_COMMAND), topics="two")
    await asyncio.sleep(5)
    await put_as_mm2(world, BY_MM2)
    await asyncio.sleep(5)
    last = (await history_in(world))[-1]
    assert last.text.endswith("stored again, as MirrorMaker 2 has written over it")
    assert last.author.reason == "" and [change.text for change in last.changes] == ["topics: 'java' -> 'two'"]


@pytest.mark.parametrize("seed", range(10))
async def test_of_two_that_write_at_once_only_the_one_that_counts_is_in_the_history(seed: int) -> None:
    world = World(seed)
    logs = [await log_of(world, name) for name in ("first", "second")]
    await apply(logs[0], enabled="true", topics="zero")
    for log in logs:
        await log.read_patiently(random.Random(1))
    stored = logs[0].config
    wanted = [changed(stored, {"enabled": "true", "topics": name}, DecidedBy.APPLY) for name in ("one", "two")]
    outcomes = await asyncio.gather(
        *(log.write(replace(config, author=ANNA), instead_of=stored) for log, config in zip(logs, wanted, strict=True))
    )
    await asyncio.sleep(10)
    written = [one.config.properties["topics"] for one in outcomes if isinstance(one, SettingsWritten)]
    _, *entries = await history_in(world)
    assert [f"topics: 'zero' -> {name!r}" for name in written] == [one.changes[0].text for one in entries]


async def test_the_entry_stands_before_what_it_tells_so_a_reader_never_sees_that_alone() -> None:
    world = World(5)
    await three_changes(world)
    keys = [record.key or b"" for record in world.target.records(TOPIC, 0)]
    told = [at for at, key in enumerate(keys) if key == FLOW_KEY or key.startswith((b"target-", b"restart-"))]
    assert len(told) == 5
    for at in told:
        before = [key for key in keys[:at] if not key.startswith(b"connector-")]
        assert before[-1].startswith(HISTORY_KEY)


# --- the command ------------------------------------------------------------------------------------------------------


class Shell:
    """Runs the command with a settings file."""

    def __init__(self, world: World, folder: Path, meets: Callable[[Any], None] = lambda _: None) -> None:
        self.out = ""
        self.warnings: list[str] = []
        self._world = world
        self._meets = meets
        self._path = folder / "mm2.properties"
        self._path.write_text("".join(f"{key} = {value}\n" for key, value in ADDRESSES.items()))

    async def run(self, *arguments: str) -> int:
        self.out, self.warnings = "", []
        options = parse_arguments([str(self._path), *arguments], now_ms=self._world.clock.wall_ms())
        flows, refused = flows_of(read_settings_file(options.file, None), options.flow)
        assert not refused
        return await show(options, flows, self._write, self.warnings.append, connect=self._connect)

    def _write(self, text: str) -> None:
        self.out += text

    def _connect(self, settings: FlowSettings, rng: random.Random) -> Connected:
        return cast("Connected", Link(self._world.target, self._meets))


async def test_the_command_shows_the_newest_last_with_what_changed(tmp_path: Path) -> None:
    world = World(6)
    shell = Shell(world, tmp_path)
    assert await shell.run() == EXIT_DONE
    assert (shell.out, shell.warnings) == ("", ["A->B: nothing is kept."])
    await three_changes(world)
    assert await shell.run("A->B") == EXIT_DONE and shell.warnings == []
    lines = shell.out.splitlines()
    assert len(lines) == 7 and all(line.isprintable() for line in lines)
    assert lines[1].endswith("Z  A->B  version 2 stored by anna on ops1 (mm2py apply): raise topics for team x")
    assert lines[2] == "    topics: 'one' -> 'two'"
    assert lines[-1].endswith("Z  A->B  orders-3 restarted by bob over REST on worker vm: maintenance")


async def test_since_and_json_show_what_programs_want(tmp_path: Path) -> None:
    world = World(7)
    shell = Shell(world, tmp_path)
    await three_changes(world)
    assert await shell.run("--since", "90s", "--json") == EXIT_DONE
    body = json.loads(shell.out)
    assert (body["format"], body["exit_code"]) == (1, 0)
    paused, resumed, restarted, topic = body["entries"]
    assert (paused["kind"], paused["connector"], paused["version"]) == ("paused", SOURCE, None)
    assert (resumed["kind"], restarted["kind"]) == ("resumed", "restarted")
    assert (topic["topic"], topic["partition"], topic["connector"]) == ("orders", 3, None)
    assert {(one["user"], one["host"], one["reason"]) for one in body["entries"]} == {("bob", "vm", "maintenance")}
    assert await shell.run("--since", str(paused["at_ms"] + 1)) == EXIT_DONE
    assert len(shell.out.splitlines()) == 3
    await shell.run("--json")
    first, second, *_ = json.loads(shell.out)["entries"]
    assert (first["changes"], first["version"], second["version"]) == ([], 1, 2)
    assert second["changes"] == [{"setting": "topics", "text": "topics: 'one' -> 'two'"}]
    await asyncio.sleep(300)
    assert await shell.run("--since", "1m") == EXIT_DONE
    assert (shell.out, shell.warnings) == ("", ["A->B: nothing is kept of that time."])


async def test_a_target_that_does_not_answer_is_named_within_the_deadline(tmp_path: Path) -> None:
    def meets(_: Any) -> None:
        raise BrokerUnreachable("b:1", "connection refused")

    shell = Shell(World(8), tmp_path, meets)
    assert await shell.run() == EXIT_FAILED
    (warning,) = shell.warnings
    assert warning.startswith("A->B: B does not answer: reading mm2-configs.A.internal took more than 30 s.")
    assert await shell.run("--json") == EXIT_FAILED
    assert json.loads(shell.out) == {"format": 1, "exit_code": 1, "entries": []}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["A->C"], "has no flow A->C"),
        (["AB"], "AB"),
        (["--since", "yesterday"], "is no time. Write 24h"),
        (["--no-such"], r"Try mm2py history --help"),
    ],
)
async def test_wrong_arguments_are_refused(tmp_path: Path, arguments: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        await Shell(World(9), tmp_path).run(*arguments)
