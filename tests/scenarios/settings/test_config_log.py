"""The shared settings of a flow: which worker stores them, how a change reaches all workers, and concurrent writers."""

from __future__ import annotations

import asyncio
import json
import random
import traceback
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from mm2py.config.flow_properties import StoredConfigUnusable
from mm2py.kafka.port import BrokerId, Brokers, ProduceRequest
from mm2py.records.author import Author
from mm2py.records.backfill_record import BackfillTooNew
from mm2py.records.connector_config import (
    APPLY_COMMAND,
    FLOW_KEY,
    SOURCE_KEY,
    ConfigTooNew,
    DecidedBy,
    FlowConfig,
    encode_flow,
)
from mm2py.shared_settings.config_log import (
    SETTLE_S,
    ConfigsUnusable,
    ConfigTable,
    Lost,
    SettingsWritten,
    ensure_configs_topic,
)
from mm2py.shared_settings.flow_config import changed, swapped
from mm2py.shared_settings.follow import merged, merged_heartbeats
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.config_world import BY_MM2, FLOW, TOPIC, FlowWorker, file_of, log_of, put, put_as_mm2, stored_in
from tests.scenarios.gate import Gate, Request
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=600)

NOTICED_S = 2.0
ONE, TWO = {"topics": "one", "enabled": "true"}, {"topics": "two", "enabled": "true"}


def run(scenario: Coroutine[Any, Any, None]) -> None:
    run_virtual(scenario, limit_s=600)


def of(properties: dict[str, str], stored: FlowConfig | None = None) -> FlowConfig:
    return changed(stored, properties, DecidedBy.APPLY)


def stored_under(world: World, key: bytes) -> list[bytes | None]:
    return [record.value for record in world.target.records(TOPIC, 0) if record.key == key]


def said(world: World, event: str) -> str:
    """Return the only line of the log with this event, as it stands on a terminal."""
    (found,) = [line for line in world.log_text.getvalue().splitlines() if event in line]
    return found


# --- workers ----------------------------------------------------------------------------------------------------------


async def test_the_first_worker_stores_its_file_and_the_next_one_runs_by_it() -> None:
    world = World(1)
    first, second = FlowWorker(world, "w1", {"topics": "one"}), FlowWorker(world, "w2", {"topics": "two"})
    await first.start()
    settings = await second.start(runners=("w1",))
    assert settings is not None and settings.topic_filter.should_replicate("one")
    assert second.watch is not None
    assert [str(change) for change in second.watch.drift] == ["topics: 'one' -> 'two'"]
    assert "config.added" in world.log_text.getvalue()
    drift = said(world, "config.drift")
    assert "topics: 'one' -> 'two'" in drift
    assert (
        "this worker runs the flow by what is stored (version 1, by file), NOT by its file:"
        " other workers run it so, and a rolling restart applies no file"
    ) in drift
    path = Path("mm2.properties").absolute()
    assert f"To make all workers run by this file: mm2py apply {path}" in drift
    stored = await stored_in(world)
    assert stored is not None
    assert (stored.version, stored.by, stored.worker) == (1, "file", "w1")
    assert world.target.topics[TOPIC].overrides["cleanup.policy"] == "compact"
    assert len(world.target.topics[TOPIC].partitions) == 1


async def test_a_worker_that_keeps_what_an_operator_changed_says_who_and_how_to_apply_its_file() -> None:
    """A rolling restart, all workers at once: the file has not changed, and what is stored has."""
    world = World(1)
    first = FlowWorker(world, "w1", {"topics": "one"})
    await first.start()
    log = await log_of(world, APPLY_COMMAND)
    await log.read_patiently(world.rng)
    wanted = replace(of(TWO, log.config), author=Author("anna", "ops1", "raise topics for team x"))
    assert isinstance(await log.write(wanted, instead_of=log.config), SettingsWritten)
    await first.stop()
    await FlowWorker(world, "w2", {"topics": "one"}).start()
    kept = said(world, "config.kept")
    assert "topics: 'two' -> 'one'" in kept
    assert (
        "this worker runs the flow by what is stored (version 2, by anna on ops1 (mm2py apply): raise topics for"
        " team x), NOT by its file: an operator changed it last, and this file has not changed since"
    ) in kept
    assert "To make all workers run by this file: mm2py apply /" in kept


def test_two_workers_that_start_at_once_with_different_files_store_one_and_both_run_by_it() -> None:
    async def scenario(seed: int) -> None:
        world = World(seed)
        first, second = FlowWorker(world, "w1", {"topics": "one"}), FlowWorker(world, "w2", {"topics": "two"})
        await asyncio.gather(first.start(), second.start())
        await asyncio.sleep(10)
        stored = await stored_in(world)
        assert stored is not None
        for worker in (first, second):
            assert worker.settings is not None
            assert worker.settings.topic_filter.should_replicate(stored.properties["topics"]), f"seed {seed}"
            assert worker.watch is not None and worker.watch.version == stored.version

    for seed in range(20):
        run(scenario(seed))


async def test_a_credential_that_was_written_under_our_key_is_in_no_record_of_ours() -> None:
    world = World(4)
    await ensure_configs_topic(world.target, TOPIC, replication_factor=1, rng=random.Random(1))
    strays = {"sasl.jaas.config": "S3CRET", "target.cluster.sasl.jaas.config": "S3CRET"}
    before = FlowConfig({"enabled": "true", "topics": "zero"} | strays, DecidedBy.APPLY, 1, write_id="a", at_ms=1)
    config = FlowConfig({"enabled": "true", "topics": "one"} | strays, DecidedBy.APPLY, 2, write_id="b", at_ms=1)
    await put(world, (FLOW_KEY, encode_flow(replace(config, previous=before))))
    worker = FlowWorker(world, "w1", {"topics": "two"})
    await worker.start(runners=("w0",))  # records its file
    await put(world, (FLOW_KEY, None))
    await asyncio.sleep(5)  # stores the lost settings again
    log = await log_of(world, "operator")
    await log.read_patiently(world.rng)
    stored = log.config
    back = swapped(stored)
    assert back is not None and back.properties["topics"] == "zero"
    assert isinstance(await log.write(back, instead_of=stored), SettingsWritten)
    first, *ours = [record.value or b"" for record in world.target.records(TOPIC, 0)]
    assert b"S3CRET" in first
    assert sum(b'"topics":"one"' in value for value in ours) > 1 and any(b'"topics":"zero"' in value for value in ours)
    assert b"S3CRET" not in b"".join(ours)
    await worker.stop()


async def test_settings_of_mirrormaker_2_are_replaced_and_can_be_restored() -> None:
    world = World(3)
    await ensure_configs_topic(world.target, TOPIC, replication_factor=1, rng=random.Random(1))
    await put_as_mm2(world, BY_MM2)
    worker = FlowWorker(world, "w1", {"topics": "one"})
    await worker.start()
    stored = await stored_in(world)
    assert stored is not None and stored.previous is not None
    assert (stored.properties["topics"], stored.version) == ("one", 1)
    assert (stored.previous.properties, stored.previous.by) == ({"enabled": "true", "topics": "java"}, "mm2")
    assert "config.replaced" in world.log_text.getvalue()
    assert b"a:1" not in b"".join(value or b"" for value in stored_under(world, FLOW_KEY))
    back = swapped(stored)
    assert back is not None
    await (await log_of(world, "operator")).write(back, instead_of=stored)
    await asyncio.sleep(NOTICED_S)
    assert worker.settings is not None and worker.settings.topic_filter.should_replicate("java")


async def test_the_records_of_an_mm2_that_only_emits_heartbeats_are_kept() -> None:
    """If they were overwritten, MirrorMaker 2 would start to copy beside us, or fail."""
    world = World(4)
    await ensure_configs_topic(world.target, TOPIC, replication_factor=1, rng=random.Random(1))
    await put_as_mm2(world, BY_MM2 | {"enabled": "false"})
    worker = FlowWorker(world, "w1", {"topics": "one"})
    settings = await worker.start()
    assert settings is not None and settings.topic_filter.should_replicate("one")
    assert len(stored_under(world, SOURCE_KEY)) == 1
    await put_as_mm2(world, BY_MM2 | {"enabled": "false"})
    await asyncio.sleep(5)
    assert len(stored_under(world, FLOW_KEY)) == 1, "a record of MirrorMaker 2 is not a change"
    assert worker.heard == []


@pytest.mark.parametrize("harm", ["overwritten", "deleted", "older"])
async def test_settings_that_were_overwritten_or_deleted_at_run_time_are_stored_again(harm: str) -> None:
    world = World(5)
    worker = FlowWorker(world, "w1", {"topics": "one"})
    await worker.start()
    if harm == "overwritten":
        await put_as_mm2(world, BY_MM2)
    elif harm == "deleted":
        await put(world, (FLOW_KEY, None))
    else:
        await put(world, (FLOW_KEY, encode_flow(FlowConfig(TWO, DecidedBy.FILE, 0))))
    await asyncio.sleep(5)
    stored = await stored_in(world)
    assert stored is not None
    assert (stored.properties["topics"], stored.by, stored.worker) == ("one", "file", "w1")
    assert stored.version == 2
    assert worker.heard == [], "it ran by these settings all the time"
    assert world.log_text.getvalue().count("config.restored") == 1


async def test_a_deleted_settings_topic_is_recreated_with_the_running_settings() -> None:
    world = World(6)
    worker = FlowWorker(world, "w1", {"topics": "one"})
    await worker.start()
    world.target.delete_topic(TOPIC)
    await asyncio.sleep(20)
    stored = await stored_in(world)
    assert stored is not None and stored.properties["topics"] == "one"


@pytest.mark.parametrize("topics", ["(", "(?:a{3000}){3000}"])
async def test_invalid_stored_settings_stop_no_running_worker_and_prevent_new_starts(topics: str) -> None:
    world = World(9)
    worker = FlowWorker(world, "w1", {"topics": "one"})
    before = await worker.start()
    stored = await stored_in(world)
    await (await log_of(world, "operator")).write(of({"topics": topics}, stored), instead_of=stored)
    await asyncio.sleep(5)
    assert worker.settings is before and worker.heard == []
    (told,) = (line for line in world.log_text.getvalue().splitlines() if "config.unusable" in line)
    assert f"topics: pattern '{topics}' (entry 1 of 1)" in told and "mm2py apply FILE" in told
    with pytest.raises(StoredConfigUnusable, match="mm2py apply FILE"):
        await FlowWorker(world, "w2", {"topics": "one"}).start(runners=("w1",))


def test_heartbeats_follow_the_stored_settings_also_while_the_flow_is_disabled() -> None:
    file = file_of({"topics": "one"})
    for enabled in ("true", "false"):
        stored = of({"enabled": enabled, "emit.heartbeats.interval.seconds": "7"})
        settings = merged_heartbeats(file, FLOW, stored)
        assert settings is not None and settings.interval_s == 7
        assert settings.target.bootstrap_servers == file.configuration().heartbeats[0].target.bootstrap_servers
        assert (merged(file, FLOW, stored) is None) is (enabled == "false")


async def test_a_mandatory_record_of_a_newer_mm2py_stops_the_worker() -> None:
    world = World(11)
    await ensure_configs_topic(world.target, TOPIC, replication_factor=1, rng=random.Random(1))
    fields = json.loads(encode_flow(of(ONE))) | {"format": 9, "readable_from": 9, "mm2py": "9.0"}
    await put(world, (FLOW_KEY, json.dumps(fields).encode()))
    with pytest.raises(ConfigTooNew, match=r"Run mm2py 9\.0 or later"):
        await FlowWorker(world, "w1", {}).start()


async def test_a_backfill_of_a_newer_mm2py_stops_the_worker_until_its_record_is_gone() -> None:
    """Without its topics the worker would copy what the backfill copies."""
    world, key = World(11), b"mm2py-backfill-0123abcd"
    await ensure_configs_topic(world.target, TOPIC, replication_factor=1, rng=random.Random(1))
    table = ConfigTable(world.target, TOPIC)
    await put(world, (key, json.dumps({"format": 9, "readable_from": 9}).encode()))
    with pytest.raises(BackfillTooNew, match="backfill 0123abcd"):
        await table.read()
    await put(world, (key, None))
    await table.read()


async def test_an_error_that_comes_with_each_read_does_not_grow() -> None:
    """It kept what its callers had at each read: of a ring, all metadata of the source."""
    world = World(11)
    await ensure_configs_topic(world.target, TOPIC, replication_factor=1, rng=random.Random(1))
    fields = json.loads(encode_flow(of(ONE))) | {"format": 9, "readable_from": 9, "mm2py": "9.0"}
    await put(world, (FLOW_KEY, json.dumps(fields).encode()))
    table = ConfigTable(world.target, TOPIC)
    lengths = []
    for _ in range(3):
        with pytest.raises(ConfigTooNew) as held:
            await table.read()
        lengths.append(len(traceback.extract_tb(held.value.__traceback__)))
    assert lengths[0] == lengths[1] == lengths[2]


# --- concurrent writers -----------------------------------------------------------------------------------------------


async def test_a_writer_that_has_not_read_the_newest_version_writes_nothing() -> None:
    world = World(20)
    first, second = await log_of(world, "w1"), await log_of(world, "w2")
    written = await first.write(of(ONE), instead_of=None)
    assert isinstance(written, SettingsWritten)
    lost = await second.write(of(TWO), instead_of=None)
    assert lost == Lost(written.config)
    assert len(stored_under(world, FLOW_KEY)) == 1
    assert isinstance(await second.write(of(TWO, written.config), instead_of=written.config), SettingsWritten)


async def test_a_writer_whose_record_arrives_second_has_lost_and_restores_the_winners_record() -> None:
    """Both have read the same version. The second record is delayed until the first writer was told that it won."""
    world = World(21)
    gate = Gate(lambda request: isinstance(request, ProduceRequest))
    first, second = await log_of(world, "w1"), await log_of(world, "w2", gate)
    base = await first.write(of({"topics": "base"}), instead_of=None)
    assert isinstance(base, SettingsWritten)
    gate.shut()
    late = asyncio.ensure_future(second.write(of(TWO, base.config), instead_of=base.config))
    await asyncio.sleep(1)
    assert gate.held == 1
    won = await first.write(of(ONE, base.config), instead_of=base.config)
    assert isinstance(won, SettingsWritten)
    gate.open()
    lost = await late
    assert isinstance(lost, Lost) and lost.config is not None
    stored = await stored_in(world)
    assert stored is not None and stored == lost.config
    assert (stored.properties, stored.worker, stored.version) == (ONE, "w1", 3)
    assert stored.previous == won.config.previous
    await first.read()
    assert first.config == stored


@pytest.mark.parametrize("writers", [2, 3, 5])
def test_exactly_one_of_several_concurrent_writers_is_told_that_it_won_and_it_did(writers: int) -> None:
    async def scenario(seed: int) -> None:
        world = World(seed, nodes=3, latency_s=(0.0, 0.05))
        logs = [await log_of(world, f"w{number}") for number in range(writers)]
        base = await logs[0].write(of({"topics": "base"}), instead_of=None)
        assert isinstance(base, SettingsWritten)

        async def write(number: int) -> SettingsWritten | Lost:
            await asyncio.sleep(world.rng.random() * 0.05)
            return await logs[number].write(of({"topics": f"t{number}"}, base.config), instead_of=base.config)

        outcomes = await asyncio.gather(*(write(number) for number in range(writers)))
        await asyncio.sleep(SETTLE_S)
        won = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, SettingsWritten)]
        stored = await stored_in(world)
        assert stored is not None and len(won) == 1, f"seed {seed}: {won}"
        assert stored.properties == {"topics": f"t{won[0]}"}, f"seed {seed}"

    for seed in range(100, 130):
        run(scenario(seed))


class Overwriting:
    """Stands before a cluster: another writer overwrites at once what is stored through it, and dies."""

    def __init__(self, world: World, cluster: Brokers, dead: FlowConfig) -> None:
        self._world = world
        self._cluster = cluster
        self._dead = dead

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> Any:
        reply = await self._cluster.send(broker, request, channel=channel)
        if isinstance(request, ProduceRequest):
            await put(self._world, (FLOW_KEY, encode_flow(self._dead)))
        return reply


async def test_a_writer_that_was_overwritten_before_it_read_its_record_back_waits_and_is_told() -> None:
    world = World(23)
    base = await (await log_of(world, "w0")).write(of({"topics": "base"}), instead_of=None)
    assert isinstance(base, SettingsWritten)
    dead = replace(of(TWO, base.config), write_id="dead", based_on=base.config.write_id)
    log = await log_of(world, "w1", lambda cluster: cast("Brokers", Overwriting(world, cluster, dead)))
    begun_s = world.clock.monotonic()
    assert await log.write(of(ONE, base.config), instead_of=base.config) == Lost(dead)
    assert SETTLE_S <= world.clock.monotonic() - begun_s < SETTLE_S + 1


# --- the topic --------------------------------------------------------------------------------------------------------


async def test_a_settings_topic_with_several_partitions_is_refused() -> None:
    world = World(30)
    world.target.create_topic(TOPIC, 2, {"cleanup.policy": "compact"})
    with pytest.raises(ConfigsUnusable, match="2 partitions"):
        await FlowWorker(world, "w1", {}).start()


async def test_a_settings_topic_whose_records_expire_is_refused() -> None:
    world = World(31)
    world.target.create_topic(TOPIC, 1, {"cleanup.policy": "delete"})
    with pytest.raises(ConfigsUnusable, match=r"cleanup\.policy is delete"):
        await FlowWorker(world, "w1", {}).start()


async def test_a_recreated_settings_topic_is_read_from_its_start() -> None:
    world = World(32)
    table = ConfigTable(world.target, TOPIC)
    await (await log_of(world, "w1")).write(of(ONE), instead_of=None)
    await table.read()
    assert table.config is not None and table.config.properties == ONE
    world.target.delete_topic(TOPIC)
    await (await log_of(world, "w2")).write(of(TWO), instead_of=None)
    await table.read_patiently(random.Random(1))
    assert table.config is not None and table.config.properties == TWO


async def test_unreadable_records_of_connect_do_no_harm() -> None:
    world = World(33)
    await ensure_configs_topic(world.target, TOPIC, replication_factor=1, rng=random.Random(1))
    await put(world, (b"session-key", b"{"), (b"connector-x", b"\xff"), (b"task-x-0", None), (b"hm", b"1"))
    worker = FlowWorker(world, "w1", {"topics": "one"})
    assert await worker.start() is not None
    assert str(FLOW) == "A->B"
    table = ConfigTable(world.target, TOPIC)
    await table.read()
    assert table.records.malformed == [f"{TOPIC}-0 at offset 1, connector-x: it is no JSON"]
