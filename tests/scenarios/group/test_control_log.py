"""The control log on the broker model: every reader sees the same records, or learns that they are gone."""

from __future__ import annotations

import asyncio
import io
import json
import random
from collections.abc import Coroutine, Sequence
from typing import Any, cast

import pytest

from mm2py.flow import parse_flow
from mm2py.group.control_log import (
    FIRST_WINDOW_RECORDS,
    QUIET_S,
    ControlLog,
    ControlLogLost,
    ControlLogUnusable,
    Opening,
)
from mm2py.group.control_topic import DAMAGED_READS_MOST, MISSING_S
from mm2py.kafka.port import BrokerId, Brokers, FetchedPartition, FetchReply, FetchRequest
from mm2py.logs import make_logger
from mm2py.records.batch import NewRecord, build_batch
from mm2py.records.control_codec import NewerFormat, encode
from mm2py.records.control_record import Beat, Claim, ControlRecord, Entry, MemberId, Skipped, Snapshot
from mm2py.topics.names import control_log, is_own_topic
from tests.fakes.broker.broker_model import ClusterModel, Record
from tests.fakes.faults import Faults
from tests.fakes.virtual_time import EPOCH_MS, VirtualClock, run_virtual

TOPIC = control_log("g", producer_expiry_ms=86_400_000)
NAME = str(TOPIC.name)
DAY_MS = 86_400_000
FLOW = parse_flow("A->B")
W1 = MemberId("w1")


class Scene:
    """A target cluster, and the workers that read its control log."""

    def __init__(self, seed: int = 1, *, nodes: int = 3) -> None:
        self.rng = random.Random(seed)
        self.clock = VirtualClock()
        self.cluster = ClusterModel("B", self.clock, random.Random(self.rng.random()), nodes=nodes)
        self.cluster.request_timeout_s = 3.0
        self.log_text = io.StringIO()

    def log(self, *, through: Brokers | None = None) -> ControlLog:
        return ControlLog(
            through or self.cluster,
            TOPIC,
            poll_s=1.0,
            append_timeout_s=2.0,
            clock=self.clock,
            rng=random.Random(self.rng.random()),
            log=make_logger("info", "text", self.log_text),
        )

    async def opened(self) -> tuple[ControlLog, Opening]:
        log = self.log()
        return log, await log.open()

    def lines(self, event: str) -> list[str]:
        return [line for line in self.log_text.getvalue().splitlines() if f" {event} " in line]

    def fill(self, records: Sequence[ControlRecord], *, a_batch: int = 50) -> None:
        """Append records to the log, as other workers would."""
        for at in range(0, len(records), a_batch):
            self.cluster.append(NAME, 0, [Record(encode(record)) for record in records[at : at + a_batch]])

    def fetched(self) -> int:
        return self.cluster.counts["request Fetch"]


def beat(number: int, member: MemberId = W1) -> Beat:
    return Beat(member, {FLOW: number})


def beats(*numbers: int) -> list[ControlRecord]:
    return [beat(number) for number in numbers]


def snapshot(covers: int, name: str = "s1", state: str = "{}", part: int = 0, parts: int = 1) -> Snapshot:
    return Snapshot(W1, 1, covers, name, state, part, parts)


async def append_each(log: ControlLog, records: Sequence[ControlRecord]) -> None:
    """Append each record in a batch of its own, since logs are truncated between batches only."""
    for record in records:
        await log.append([record])


async def read_to(log: ControlLog, offset: int) -> list[Entry]:
    entries: list[Entry] = []
    async with asyncio.timeout(120):
        while log.next_offset < offset:
            entries += await log.read()
    return entries


async def read_until_lost(log: ControlLog) -> ControlLogLost:
    with pytest.raises(ControlLogLost) as lost:
        async with asyncio.timeout(60):
            while True:
                await log.read()
    return lost.value


def run(scenario: Coroutine[Any, Any, None]) -> None:
    run_virtual(scenario, limit_s=3600)


# Appending and reading


async def test_a_reader_hears_of_a_record_at_once_and_of_silence_after_its_poll() -> None:
    scene = Scene()
    log, _ = await scene.opened()
    begun_s = scene.clock.monotonic()
    assert await log.read() == []
    assert 0.9 < scene.clock.monotonic() - begun_s < 1.2
    reading = asyncio.create_task(log.read())
    await asyncio.sleep(0.3)
    begun_s = scene.clock.monotonic()
    assert await log.append(beats(1)) == 0
    assert [entry.record for entry in await reading] == beats(1)
    assert scene.clock.monotonic() - begun_s < 0.05


async def test_a_reader_that_only_wants_to_know_what_is_there_waits_for_nothing() -> None:
    scene = Scene()
    log, _ = await scene.opened()
    other, _ = await scene.opened()
    assert await other.append(beats(1, 2)) == 1
    begun_s = scene.clock.monotonic()
    assert await log.end() == 2
    assert [entry.record for entry in await log.read(waits=False)] == beats(1, 2)
    assert await log.read(waits=False) == [] and await log.end() == 2
    assert scene.clock.monotonic() - begun_s < 0.1
    scene.cluster.deny(NAME)
    assert await log.end() is None and log.denied is not None
    scene.cluster.allow(NAME)
    scene.cluster.delete_topic(NAME)
    with pytest.raises(ControlLogLost):
        async with asyncio.timeout(60):
            while True:
                await log.end()


async def test_append_returns_the_last_offset_and_splits_large_lists_into_batches_that_any_broker_takes() -> None:
    scene = Scene()
    log, _ = await scene.opened()
    parts: list[ControlRecord] = [snapshot(0, state="x" * (500 << 10), part=part, parts=4) for part in range(4)]
    assert await log.append([*parts, *beats(*range(1200))]) == 1203
    assert [entry.record for entry in await read_to(log, 1204)] == [*parts, *beats(*range(1200))]
    assert max(len(batch.raw) for batch in scene.cluster.batches(NAME, 0)) < 1 << 20


async def test_no_heartbeat_waits_behind_a_snapshot() -> None:
    scene = Scene()
    log, _ = await scene.opened()
    channels = scene.cluster.trace
    channels.clear()
    await log.append([snapshot(0, state="x" * (500 << 10))])
    await log.append(beats(1))
    produced = [channel for _, _, channel, api, _ in channels if api == "Produce"]
    assert len(set(produced)) == 2


@pytest.mark.walk(range(2))
async def test_in_a_storm_no_append_is_lost_or_read_out_of_order_and_all_readers_see_the_same_duplicates(
    seed: int,
) -> None:
    scene = Scene(seed)
    logs = [(await scene.opened())[0] for _ in range(3)]
    scene.cluster.inject(
        Faults(
            produce_error=0.2,
            fetch_error=0.1,
            reset=0.05,
            drop_reply=0.02,
            duplicate_produce=0.1,
            flip_bit=0.1,
            leader_move_every_s=2.0,
        )
    )
    acknowledged: dict[int, ControlRecord] = {}

    async def write(log: ControlLog, member: MemberId) -> None:
        for number in range(15):
            acknowledged[await log.append([beat(number, member)])] = beat(number, member)
            await asyncio.sleep(scene.rng.uniform(0, 0.5))

    heard: list[list[Entry]] = [[] for _ in logs]

    async def follow(log: ControlLog, into: list[Entry]) -> None:
        while True:
            into += await log.read()

    following = [asyncio.create_task(follow(log, into)) for log, into in zip(logs, heard, strict=True)]
    await asyncio.gather(*(write(log, MemberId(f"w{number}")) for number, log in enumerate(logs)))
    scene.cluster.heal()
    await asyncio.sleep(15)
    for task in following:
        task.cancel()
    results = await asyncio.gather(*following, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results), results
    assert heard[0] == heard[1] == heard[2]
    assert [entry.offset for entry in heard[0]] == list(range(len(heard[0])))
    by_offset = {entry.offset: entry.record for entry in heard[0]}
    assert acknowledged.items() <= by_offset.items()
    assert not scene.cluster.complaints


async def test_a_log_without_a_leader_for_20_s_costs_20_s_and_nothing_else() -> None:
    scene = Scene(nodes=1)
    log, _ = await scene.opened()
    await log.append(beats(0))
    assert len(await read_to(log, 1)) == 1
    scene.cluster.stop_broker(1, clean=False)
    begun_s = scene.clock.monotonic()
    appending = asyncio.create_task(log.append(beats(1)))
    asyncio.get_running_loop().call_later(20, scene.cluster.start_broker, 1)
    async with asyncio.timeout(40):
        entries = await read_to(log, 2)
    assert [entry.record for entry in entries] == beats(1)
    assert await appending == 1
    assert 20 < scene.clock.monotonic() - begun_s < 26
    assert len(scene.lines("control_log.appending.waiting")) == len(scene.lines("control_log.appending.back")) == 1


async def read_to_silence(log: ControlLog, seconds: float) -> list[Entry]:
    entries: list[Entry] = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                entries += await log.read()
    return entries


@pytest.mark.parametrize("leader_goes", [False, True])
async def test_a_revoked_right_is_named_once_and_waited_for(leader_goes: bool) -> None:
    scene = Scene()
    log, _ = await scene.opened()
    scene.cluster.deny(NAME)
    if leader_goes:  # a client without the right is not even told the topic's id
        scene.cluster.stop_broker(scene.cluster.partition(NAME, 0).leader)
    appending = asyncio.create_task(log.append(beats(1)))
    assert await read_to_silence(log, 20) == []
    for event in ("control_log.reading.waiting", "control_log.appending.waiting"):
        (line,) = scene.lines(event)
        assert "READ and WRITE" in line
        assert 'effect="this worker ' in line
    scene.cluster.allow(NAME)
    assert len(await read_to(log, 1)) == 1
    assert await appending == 0


async def test_a_reader_notices_that_another_broker_has_replaced_a_log_leader_that_was_cut_off() -> None:
    """The leader loses the controller and its followers, but not its clients. It answers every read with no records
    while another broker leads the log.
    """
    scene = Scene()
    log, _ = await scene.opened()
    await read_to(log, 0)
    old = scene.cluster.partition(NAME, 0).leader
    stuck = _LeaderForEver(scene.cluster, BrokerId(old))
    reader = scene.log(through=cast("Brokers", stuck))
    await reader.open()
    stuck.is_cut_off = True
    scene.cluster.move_leader(NAME, 0)
    await log.append(beats(1))
    begun_s = scene.clock.monotonic()
    assert [entry.record for entry in await read_to(reader, 1)] == beats(1)
    assert scene.clock.monotonic() - begun_s < QUIET_S + 2.5


class _LeaderForEver:
    """One broker answers reads as the leader, because it has not learnt of its replacement."""

    def __init__(self, cluster: ClusterModel, leader: BrokerId) -> None:
        self._cluster = cluster
        self._leader = leader
        self.is_cut_off = False

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        if isinstance(request, FetchRequest) and self.is_cut_off and broker == self._leader:
            await asyncio.sleep(request.max_wait_ms / 1000)
            return FetchReply([FetchedPartition(NAME, 0, 0)], 0)
        return await self._cluster.send(broker, request, channel=channel)


async def test_a_cancelled_append_may_be_stored_and_does_not_harm_later_ones() -> None:
    scene = Scene()
    log, _ = await scene.opened()
    for _ in range(10):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(scene.rng.uniform(0, 0.004)):
                await log.append(beats(1))
    last = await log.append(beats(2))
    records = [entry.record for entry in await read_to(log, last + 1)]
    assert records[-1] == beat(2)
    assert set(map(str, records[:-1])) <= {str(beat(1))}


# Opening


async def test_the_topic_is_created_for_three_brokers_with_the_designed_settings() -> None:
    scene = Scene()
    _, opening = await scene.opened()
    assert opening == Opening(None, 0, [], 0)
    topic = scene.cluster.topics[NAME]
    assert len(topic.partitions) == 1 and len(topic.partitions[0].replicas) == 3
    assert topic.overrides == {
        "cleanup.policy": "delete",
        "retention.ms": str(7 * DAY_MS),
        "retention.bytes": "-1",
        "segment.ms": "3600000",
        "max.message.bytes": "1048576",
        "message.timestamp.type": "LogAppendTime",
        "unclean.leader.election.enable": "false",
        "min.insync.replicas": "2",
    }
    assert all(is_own_topic(name, separators=["-"], aliases=()) for name in (NAME, f"A-{NAME}"))
    assert not scene.lines("control_log.few_replicas")


@pytest.mark.parametrize(("nodes", "replicas", "min_isr"), [(1, 1, "1"), (2, 2, "1"), (3, 3, "2")])
async def test_on_fewer_brokers_the_topic_has_fewer_replicas_and_that_is_logged(
    nodes: int, replicas: int, min_isr: str
) -> None:
    scene = Scene(nodes=nodes)
    await scene.log().open()
    topic = scene.cluster.topics[NAME]
    assert len(topic.partitions[0].replicas) == replicas
    assert topic.overrides["min.insync.replicas"] == min_isr
    assert len(scene.lines("control_log.few_replicas")) == (replicas < 3)


@pytest.mark.parametrize(
    ("configs", "named"),
    [
        ({"cleanup.policy": "compact"}, "cleanup.policy=delete"),
        ({"cleanup.policy": "compact,delete"}, "cleanup.policy=delete"),
        ({"message.timestamp.type": "CreateTime"}, "message.timestamp.type=LogAppendTime"),
    ],
)
async def test_a_topic_whose_readers_could_disagree_is_refused_with_the_command_that_repairs_it(
    configs: dict[str, str], named: str
) -> None:
    scene = Scene()
    scene.cluster.create_topic(NAME, 1, {**TOPIC.configs, **configs})
    with pytest.raises(ControlLogUnusable) as refused:
        await scene.log().open()
    assert next(iter(configs)) in refused.value.what
    assert f"--add-config {named}" in refused.value.remedy


async def test_a_topic_of_several_partitions_is_refused() -> None:
    scene = Scene()
    scene.cluster.create_topic(NAME, 2, TOPIC.configs)
    with pytest.raises(ControlLogUnusable, match="2 partitions"):
        await scene.log().open()


async def test_settings_that_weaken_it_are_named_and_tolerated() -> None:
    scene = Scene()
    weak = {"retention.ms": "1000", "unclean.leader.election.enable": "true"}
    scene.cluster.create_topic(NAME, 1, {**TOPIC.configs, **weak})
    await scene.log().open()
    (line,) = scene.lines("control_log.weak_settings")
    assert "retention.ms=604800000" in line and "unclean.leader.election.enable=false" in line


async def test_missing_rights_are_named_and_hidden_settings_are_judged_by_the_records() -> None:
    scene = Scene()
    scene.cluster.deny(NAME)
    with pytest.raises(ControlLogUnusable, match="CREATE, DESCRIBE, DESCRIBE_CONFIGS, READ and WRITE"):
        await scene.log().open()
    scene.cluster.allow(NAME)
    scene.cluster.create_topic(NAME, 1, {**TOPIC.configs, "message.timestamp.type": "CreateTime"})
    scene.cluster.hidden_configs.add(NAME)
    log, _ = await scene.opened()
    assert len(scene.lines("control_log.settings_unknown")) == 1
    with pytest.raises(ControlLogUnusable, match="LogAppendTime"):
        await log.append(beats(1))


async def test_an_unavailable_target_is_waited_for() -> None:
    scene = Scene(nodes=1)
    scene.cluster.stop_broker(1, clean=False)
    opening = asyncio.create_task(scene.log().open())
    await asyncio.sleep(20)
    assert not opening.done()
    assert len(scene.lines("control_log.opening.waiting")) == 1
    scene.cluster.start_broker(1)
    async with asyncio.timeout(10):
        assert (await opening).entries == []


# Snapshots


@pytest.mark.parametrize("ago", [0, 1, FIRST_WINDOW_RECORDS - 1, FIRST_WINDOW_RECORDS, 2500, 8000])
async def test_a_snapshot_is_found_at_any_distance_from_the_end(ago: int) -> None:
    scene = Scene()
    scene.cluster.create_topic(NAME, 1, TOPIC.configs)
    scene.fill(beats(*range(10_000)))
    scene.fill([snapshot(9_000, state="state")])
    scene.fill(beats(*range(ago)))
    before = scene.fetched()
    log, opening = await scene.opened()
    assert scene.fetched() - before <= 6
    assert (opening.state, opening.covers) == ("state", 9_000)
    assert [entry.offset for entry in opening.entries] == list(range(9_000, 10_001 + ago))
    last = await log.append(beats(1))
    assert [entry.offset for entry in await read_to(log, last + 1)] == [last]


async def test_a_snapshot_is_valid_when_all_its_parts_are_there_even_interleaved_and_repeated() -> None:
    scene = Scene()
    scene.cluster.create_topic(NAME, 1, TOPIC.configs)
    parts = [snapshot(3, "whole", text, part, 3) for part, text in enumerate(("one ", "two ", "three"))]
    scene.fill([*beats(*range(5)), parts[0], beat(5), parts[1], parts[0], beat(6), parts[2], parts[1]])
    scene.fill([snapshot(10, "cut short", "half", 0, 2), beat(7)])
    _, opening = await scene.opened()
    assert (opening.state, opening.covers) == ("one two three", 3)
    assert [entry.offset for entry in opening.entries] == list(range(3, 14))


async def test_without_a_snapshot_all_is_read_and_records_that_retention_removed_are_reported() -> None:
    scene = Scene()
    scene.cluster.create_topic(NAME, 1, TOPIC.configs)
    scene.fill(beats(*range(5000)))
    _, opening = await scene.opened()
    assert (opening.state, opening.covers, opening.log_start_offset) == (None, 0, 0)
    assert [entry.record for entry in opening.entries] == beats(*range(5000))
    scene.cluster.delete_records(NAME, 0, 4321)
    _, opening = await scene.opened()
    assert (opening.state, opening.covers, opening.log_start_offset) == (None, 4321, 4321)
    assert [entry.offset for entry in opening.entries] == list(range(4321, 5000))


async def test_a_snapshot_whose_following_records_are_gone_is_invalid() -> None:
    scene = Scene()
    scene.cluster.create_topic(NAME, 1, TOPIC.configs)
    scene.fill([*beats(*range(10)), snapshot(4, state="old"), *beats(1)])
    scene.cluster.delete_records(NAME, 0, 5)
    _, opening = await scene.opened()
    assert (opening.state, opening.covers) == (None, 5)
    scene.fill([snapshot(5, "younger", "state")])
    _, opening = await scene.opened()
    assert (opening.state, opening.covers) == ("state", 5)


@pytest.mark.parametrize("others", [20, 3 * FIRST_WINDOW_RECORDS])
async def test_a_snapshot_of_records_that_were_truncated_since_is_invalid(others: int) -> None:
    """A leader has read to 9. The log is truncated to 6 and grows again. Before the leader notices, it appends a
    snapshot of the lost records. Only the leader epoch shows that offset 8 now holds another record.
    """
    scene = Scene()
    leader, _ = await scene.opened()
    await append_each(leader, beats(*range(9)))
    await read_to(leader, 9)
    await leader.append([snapshot(4, "good", "true")])
    await read_to(leader, 10)
    scene.cluster.truncate(NAME, 0, 6)
    scene.fill([snapshot(3, "of the others", "true too"), *beats(*range(others))])
    await leader.append([snapshot(9, "bad", "false")])
    _, opening = await scene.opened()
    assert (opening.state, opening.covers) == ("true too", 3)
    assert len(scene.lines("control_log.snapshot_void")) == 1


async def test_a_snapshot_of_a_log_that_was_recreated_since_is_invalid() -> None:
    scene = Scene(nodes=1)
    leader, _ = await scene.opened()
    await leader.append(beats(*range(3)))
    await read_to(leader, 3)
    scene.cluster.produce_by_topic_id = False
    scene.cluster.recreate_topic(NAME)
    scene.fill(beats(*range(100, 120)))
    await leader.append([snapshot(3, "bad", "false")])
    _, opening = await scene.opened()
    assert (opening.state, opening.covers) == (None, 0)


@pytest.mark.parametrize("covers", range(11))
async def test_a_snapshot_of_records_of_several_leader_epochs_is_valid(covers: int) -> None:
    scene = Scene()
    log, _ = await scene.opened()
    for number in range(10):
        await log.append(beats(number))
        if number % 2:
            scene.cluster.move_leader(NAME, 0)
    await read_to(log, 10)
    await log.append([snapshot(covers, state="state")])
    _, opening = await scene.opened()
    assert (opening.state, opening.covers) == ("state", covers)


async def test_a_snapshot_by_a_member_that_started_from_a_snapshot_is_valid() -> None:
    """The member has not read the last record that its snapshot covers, so it does not know its leader epoch."""
    scene = Scene()
    first, _ = await scene.opened()
    await first.append(beats(*range(5)))
    await first.append([snapshot(5, "first", "a")])
    second, opening = await scene.opened()
    assert opening.covers == 5
    await second.append([snapshot(5, "second", "b")])
    _, opening = await scene.opened()
    assert (opening.state, opening.covers) == ("b", 5)


# A log that was replaced


@pytest.mark.parametrize("grows_again", [0, 3, 30])
async def test_a_truncated_log_is_lost_for_its_readers_even_after_it_has_grown_again(grows_again: int) -> None:
    """Otherwise two members could give two candidates the same leader epoch (docs/broker-facts.md#h7)."""
    scene = Scene()
    log, _ = await scene.opened()
    other, _ = await scene.opened()
    await append_each(log, [Claim(W1, 1, "w1's"), *beats(*range(9))])
    await read_to(log, 10)
    await read_to(other, 10)
    scene.cluster.truncate(NAME, 0, 6)
    scene.fill(beats(*range(100, 100 + grows_again)))
    lost = await read_until_lost(log)
    assert "cut back" in lost.what
    for call in (log.read(), log.append(beats(1))):
        with pytest.raises(ControlLogLost):
            await call
    await read_until_lost(other)
    opening = await log.open()
    assert [entry.offset for entry in opening.entries] == list(range(6 + grows_again))
    last = await log.append(beats(5))
    assert [entry.record for entry in await read_to(log, last + 1)] == beats(5)


async def test_a_new_member_reads_past_a_foreign_marker_of_a_later_leader() -> None:
    scene = Scene()
    log, _ = await scene.opened()
    await log.append(beats(0))
    transaction = scene.cluster.transaction()
    transaction.append(NAME, 0, [b"junk"])
    scene.cluster.move_leader(NAME, 0)
    transaction.abort()
    joiner, opening = await scene.opened()
    assert [entry.record for entry in opening.entries] == beats(0)
    last = await log.append(beats(1))
    assert [entry.record for entry in await read_to(joiner, last + 1)] == beats(1)


async def test_a_record_appended_while_a_member_opens_the_log_is_read_once() -> None:
    scene = Scene()
    log, _ = await scene.opened()
    scene.fill(beats(*range(1500)))
    stop = asyncio.Event()

    async def write() -> None:
        number = 1500
        while not stop.is_set():
            await log.append(beats(number))
            number += 1

    writing = asyncio.create_task(write())
    for _ in range(10):
        joiner, opening = await scene.opened()
        entries = [*opening.entries, *await read_to(joiner, joiner.next_offset + 5)]
        assert [entry.offset for entry in entries] == list(range(joiner.next_offset))
    stop.set()
    await writing


async def test_a_log_that_was_truncated_between_opening_and_reading_is_lost() -> None:
    scene = Scene()
    scene.cluster.create_topic(NAME, 1, TOPIC.configs)
    scene.fill(beats(*range(10)), a_batch=1)
    log, _ = await scene.opened()
    scene.cluster.truncate(NAME, 0, 6)
    scene.fill(beats(*range(10)))
    await read_until_lost(log)


async def test_records_that_were_truncated_before_any_read_are_not_missed() -> None:
    scene = Scene()
    log, _ = await scene.opened()
    await log.append(beats(0, 1))
    assert len(await read_to(log, 2)) == 2
    await log.append(beats(2, 3))
    scene.cluster.truncate(NAME, 0, 2)
    last = await log.append(beats(4))
    assert [(entry.offset, entry.record) for entry in await read_to(log, last + 1)] == [(2, beat(4))]


async def test_an_append_at_an_offset_that_was_read_before_reveals_the_truncation() -> None:
    scene = Scene()
    log, _ = await scene.opened()
    await append_each(log, beats(*range(10)))
    await read_to(log, 10)
    scene.cluster.truncate(NAME, 0, 6)
    with pytest.raises(ControlLogLost, match="ended at 6"):
        await log.append(beats(1))
    before = scene.fetched()
    with pytest.raises(ControlLogLost, match="ended at 6"):
        await log.read()
    assert scene.fetched() == before


@pytest.mark.parametrize("records", [0, 3, 30])
@pytest.mark.parametrize("by_topic_id", [True, False])
async def test_a_recreated_topic_is_lost_for_its_readers(records: int, by_topic_id: bool) -> None:
    scene = Scene()
    log, _ = await scene.opened()
    await log.append(beats(*range(10)))
    await read_to(log, 10)
    scene.cluster.produce_by_topic_id = by_topic_id
    scene.cluster.recreate_topic(NAME)
    scene.fill(beats(*range(records)))
    assert "recreated" in (await read_until_lost(log)).what
    assert len((await log.open()).entries) == records


async def test_a_deleted_topic_is_lost_after_a_while_and_recreated_by_the_next_worker_that_opens_it() -> None:
    scene = Scene()
    log, _ = await scene.opened()
    await log.append(beats(1))
    scene.cluster.delete_topic(NAME)
    begun_s = scene.clock.monotonic()
    assert "deleted" in (await read_until_lost(log)).what
    assert MISSING_S <= scene.clock.monotonic() - begun_s < MISSING_S + 3
    assert (await log.open()).entries == []
    assert NAME in scene.cluster.topics


async def test_a_sleeping_member_whose_read_position_has_expired_must_join_again() -> None:
    scene = Scene()
    log, _ = await scene.opened()
    await log.append(beats(*range(10)))
    await read_to(log, 10)
    scene.fill(beats(*range(50)))
    scene.cluster.delete_records(NAME, 0, 40)
    assert "nothing stands at 10" in (await read_until_lost(log)).what


# Foreign records, and records of a newer version


def junk() -> list[Record]:
    return [
        Record(b"hello"),
        Record(b""),
        Record(None, key=b"k"),
        Record(b'{"format": 1}'),
        Record(b'{"format": 1, "kind": "Beat", "skippable": true, "version": "1", "member": 7}'),
        Record(b"\xff\xfe"),
        Record(b"[" * 5000),
    ]


async def test_foreign_records_are_skipped_by_all_readers_and_logged_once() -> None:
    scene = Scene()
    log, _ = await scene.opened()
    await log.append(beats(0))
    scene.cluster.append(NAME, 0, junk())
    transaction = scene.cluster.transaction()
    transaction.append(NAME, 0, [b"more junk"])
    transaction.abort()
    last = await log.append(beats(1))
    entries = await read_to(log, last + 1)
    assert [entry.record for entry in entries] == beats(0, 1)
    assert log.skipped == len(junk()) + 1
    assert len(scene.lines("control_log.foreign_record")) == 1
    _, opening = await scene.opened()
    assert opening.entries == entries


def future(*, skippable: bool) -> Record:
    fields = {"format": 2, "kind": "Vote", "skippable": skippable, "version": "9.1", "member": "w9"}
    return Record(json.dumps(fields).encode())


async def test_an_optional_record_of_a_newer_version_is_passed_on_and_a_mandatory_one_stops_the_reader() -> None:
    scene = Scene()
    log, _ = await scene.opened()
    scene.cluster.append(NAME, 0, [future(skippable=True), Record(encode(beat(1))), future(skippable=False)])
    entries = await log.read()
    assert [entry.record for entry in entries] == [Skipped(MemberId("w9"), "Vote", "9.1"), beat(1)]
    for _ in range(2):
        with pytest.raises(NewerFormat, match=r"9\.1"):
            await log.read()
    assert log.next_offset == 2
    with pytest.raises(NewerFormat):
        await scene.log().open()
    scene.fill([snapshot(3, state="state"), beat(2)])
    _, opening = await scene.opened()
    assert (opening.state, len(opening.entries)) == ("state", 2)


def test_records_without_append_time_end_the_reading_and_are_timeless_to_those_who_join_after_the_repair() -> None:
    async def scenario() -> None:
        scene = Scene()
        log, _ = await scene.opened()
        await log.append(beats(0))
        scene.cluster.configure_topic(NAME, {"message.timestamp.type": "CreateTime"})
        scene.fill(beats(1))
        assert [entry.record for entry in await log.read()] == beats(0)
        with pytest.raises(ControlLogUnusable, match="LogAppendTime"):
            await log.read()
        scene.cluster.configure_topic(NAME, {"message.timestamp.type": "LogAppendTime"})
        _, opening = await scene.opened()
        assert [(entry.record, entry.time_ms > 0) for entry in opening.entries] == [(beat(0), True), (beat(1), False)]

    run(scenario())


async def test_a_topic_that_became_compacted_refuses_appends_and_the_remedy_names_the_setting() -> None:
    scene = Scene()
    log, _ = await scene.opened()
    scene.cluster.configure_topic(NAME, {"cleanup.policy": "compact"})
    with pytest.raises(ControlLogUnusable, match=r"cleanup\.policy=delete"):
        await log.append(beats(1))


async def test_a_hole_in_the_log_is_never_skipped() -> None:
    scene = Scene()
    log, _ = await scene.opened()
    await log.append(beats(0))
    assert len(await read_to(log, 1)) == 1
    raw = bytes(build_batch([NewRecord(None, encode(beat(1)), EPOCH_MS)]))
    scene.cluster.append(NAME, 0, raw, at_offset=5)
    before = scene.fetched()
    with pytest.raises(ControlLogUnusable, match="begins at 5"):
        await read_to(log, 6)
    assert scene.fetched() - before == DAMAGED_READS_MOST


async def test_the_log_must_be_opened_before_it_is_read() -> None:
    log = Scene().log()
    for call in (log.read(), log.append(beats(1))):
        with pytest.raises(AssertionError, match="not opened"):
            await call


# Looking back


@pytest.mark.parametrize("seed", range(20))
async def test_at_any_moment_of_the_past_it_returns_what_a_reader_knew_then(seed: int) -> None:
    scene = Scene(seed)
    log, _ = await scene.opened()
    rng = random.Random(seed)
    known = [(scene.clock.wall_ms() - 1, 0)]
    for number in range(60):
        at = await log.append(
            [beat(number)] if number % 7 else [beat(number), snapshot(log.next_offset + 1, f"s{number}")]
        )
        await read_to(log, at + 1)
        known.append((scene.clock.wall_ms(), at + 1))
        await asyncio.sleep(rng.uniform(0.1, 5.0))
    for time_ms, end in known:
        opening = await scene.log().open_at(time_ms)
        last = opening.entries[-1].offset if opening.entries else opening.covers - 1
        assert last == end - 1, (seed, time_ms)
        assert (opening.state is None) == (opening.covers == 0)


async def test_who_has_looked_back_reads_on_from_there_without_a_gap() -> None:
    scene = Scene(1)
    log, _ = await scene.opened()
    for number in range(9):
        await log.append([beat(number)])
        await asyncio.sleep(1.0)
    back = scene.log()
    opening = await back.open_at(scene.clock.wall_ms() - 4_500)
    await log.append([beat(9)])
    later = await read_to(back, 10)
    assert [entry.offset for entry in [*opening.entries, *later]] == list(range(10))


async def test_of_a_moment_whose_records_are_deleted_it_says_that_nothing_is_known() -> None:
    scene = Scene()
    await scene.opened()
    scene.fill(beats(1, 2, 3))
    at_ms = scene.clock.wall_ms()
    await asyncio.sleep(10)
    scene.fill(beats(4, 5, 6))
    scene.cluster.delete_records(NAME, 0, 4)
    opening = await scene.log().open_at(at_ms)
    assert (opening.state, opening.entries, opening.log_start_offset) == (None, [], 4)
