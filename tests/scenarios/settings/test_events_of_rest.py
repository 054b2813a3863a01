"""The feed of events that REST streams, on broker models and virtual time: what it tells, and where it goes on."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from mm2py.kafka.errors import BrokerUnreachable
from mm2py.records.audit_record import AuditRecord, audit_key, encode_audit
from mm2py.records.backfill_record import Backfill, BackfillState, Range, backfill_key, encode_backfill
from mm2py.records.connector_config import FLOW_KEY, DecidedBy, FlowConfig, encode_flow
from mm2py.records.gap_record import Done, Gap, GapKind, encode_value
from mm2py.records.history_record import SettingChange, moved_entry
from mm2py.records.operator_request import (
    LOG_LEVEL,
    RestartConnector,
    RestartPartitions,
    Target,
    TargetState,
    encode_log_level,
    encode_restart,
    encode_target,
    target_key,
)
from mm2py_rest.events import feed as feeds
from mm2py_rest.events.configs import ConfigsSource
from mm2py_rest.events.event import (
    Event,
    EventKind,
    Happened,
    WrongEventCursor,
    WrongSince,
    key_of,
    read,
    read_since,
    written,
)
from mm2py_rest.events.feed import EventFeed, TooManyStreams
from mm2py_rest.events.sources import GapsSource, GroupSource
from tests.fakes.broker.record_batch import Record
from tests.fakes.virtual_time import VirtualClock
from tests.scenarios.config_world import log_of, put
from tests.scenarios.group_world import GroupWorld
from tests.scenarios.settings.test_history import ANNA, three_changes
from tests.scenarios.world import World

KEY = key_of("B", "topic", 0)


class Script:
    """A source whose events the test writes."""

    def __init__(self, name: str = "topic", *, begin: int = 0) -> None:
        self.name = name
        self.key = key_of("B", name, 0)
        self.positions: dict[str, int] = {}
        self.begins = {self.key: begin}
        self.is_up = True
        self._next = begin
        self._new: list[Happened] = []
        self._is_open = False

    def happen(self, count: int = 1) -> None:
        for _ in range(count):
            event = Event(kind=EventKind.GAP, at_ms=1, flow="A->B", text=f"{self.name} {self._next}", data={})
            self._new.append(Happened(self.key, self._next, not self._is_open, event))
            self._next += 1

    async def poll(self) -> Sequence[Happened]:
        if not self.is_up:
            raise BrokerUnreachable("b:1", "connection refused")
        found, self._new, self._is_open = self._new, [], True
        self.positions = {self.key: self._next}
        return found


@asynccontextmanager
async def running(feed: EventFeed) -> AsyncIterator[EventFeed]:
    reading = asyncio.create_task(feed.run())
    try:
        yield feed
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


class Listener:
    """One stream: what was told, with the id of the last event."""

    def __init__(
        self, feed: EventFeed, last_id: str | None = None, flow: str | None = None, from_ms: int | None = None
    ) -> None:
        self.last_id = last_id
        self.comments: list[str] = []
        self._stream = feed.stream(None if last_id is None else read(last_id), flow, from_ms=from_ms)

    async def events(self, count: int, *, within_s: float = 60.0) -> list[dict[str, Any]]:
        """Return the next events."""
        found: list[dict[str, Any]] = []
        async with asyncio.timeout(within_s):
            while len(found) < count:
                block = await anext(self._stream)
                lines = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
                self.comments += [line for line in block.splitlines() if line.startswith(":")]
                self.last_id = lines.get("id", self.last_id)
                if "data" in lines:
                    found.append({**json.loads(lines["data"]), "id": lines["id"]})
                elif not count:
                    break
        return found

    async def connected(self) -> Listener:
        await anext(self._stream)
        return self

    def close(self) -> None:
        self._stream.close()  # type: ignore[attr-defined]


def texts(events: Sequence[dict[str, Any]]) -> list[str]:
    return [event["text"] for event in events]


async def test_a_new_stream_tells_what_happens_from_now_on() -> None:
    script = Script()
    script.happen(3)
    async with running(EventFeed([script], VirtualClock())) as feed:
        listener = await Listener(feed).connected()
        script.happen()
        assert texts(await listener.events(1)) == ["topic 3"]


async def test_a_stream_goes_on_behind_its_last_event_also_at_another_worker() -> None:
    first, second = Script("one"), Script("two")
    async with running(EventFeed([first, second], VirtualClock())) as feed:
        listener = await Listener(feed).connected()
        first.happen(2)
        second.happen()
        seen = await listener.events(2)
        listener.close()
        again = Listener(feed, seen[0]["id"])
        rest = await again.events(2)
        assert sorted(texts([seen[0], *rest])) == ["one 0", "one 1", "two 0"]
    elsewhere = Script("one"), Script("two")
    elsewhere[0].happen(3)
    elsewhere[1].happen(1)
    async with running(EventFeed(elsewhere, VirtualClock())) as other:
        moved = Listener(other, rest[-1]["id"])
        assert texts(await moved.events(1)) == ["one 2"], "it has seen the others at the first worker"


async def test_where_events_are_missing_the_stream_says_so() -> None:
    async with running(EventFeed([Script(begin=100)], VirtualClock())) as feed:
        late = Listener(feed, written({KEY: 40}))
        assert [event["kind"] for event in await late.events(1)] == ["events.missed"]
        up_to_date = Listener(feed, written({KEY: 100}))
        with pytest.raises(TimeoutError):
            await up_to_date.events(1, within_s=10)


async def test_a_slow_caller_is_told_that_it_has_missed_some_and_costs_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "KEPT_MOST", 10)
    script = Script()
    async with running(EventFeed([script], VirtualClock())) as feed:
        listener = await Listener(feed).connected()
        script.happen(25)
        await asyncio.sleep(5)
        found = await listener.events(11)
    assert found[0]["kind"] == "events.missed"
    assert texts(found[1:]) == [f"topic {number}" for number in range(15, 25)]


async def test_a_quiet_stream_says_that_it_is_alive_and_how_far_it_has_read() -> None:
    script = Script()
    async with running(EventFeed([script], VirtualClock(), alive_s=15)) as feed:
        listener = await Listener(feed).connected()
        with pytest.raises(TimeoutError):
            await listener.events(1, within_s=20)
    assert listener.comments == [": alive"] and listener.last_id == written({KEY: 0})


async def test_a_topic_that_cannot_be_read_holds_no_other_up_and_is_named() -> None:
    dead, live = Script("dead"), Script("live")
    dead.is_up = False
    async with running(EventFeed([dead, live], VirtualClock())) as feed:
        listener = await Listener(feed).connected()
        live.happen()
        assert texts(await listener.events(1)) == ["live 0"]
        assert "dead cannot be read" in listener.comments[0], "it says so before the first event"
        with pytest.raises(TimeoutError):
            await listener.events(1, within_s=16)
        assert "dead cannot be read" in listener.comments[-1]
        dead.is_up = True
        dead.happen()
        with pytest.raises(TimeoutError):
            await Listener(feed).events(1, within_s=10)  # what was there before is not told as news


async def test_more_than_thirty_streams_are_refused_and_a_closed_one_makes_room() -> None:
    feed = EventFeed([], VirtualClock())
    streams = [Listener(feed) for _ in range(feeds.STREAMS_MOST)]
    with pytest.raises(TooManyStreams):
        feed.stream(None)
    streams[0].close()
    feed.stream(None)


async def test_all_streams_end_when_the_process_ends() -> None:
    async with running(EventFeed([Script()], VirtualClock())) as feed:
        listener = await Listener(feed).connected()
        await feed.close()
        with pytest.raises(StopAsyncIteration):
            await listener.events(1)
        assert feed.streams == 0


async def test_a_stream_ends_when_its_user_may_not_listen_any_more_before_it_tells_more() -> None:
    script, allowed = Script(), [True]

    async def may_go_on() -> bool:
        return allowed[0]

    async with running(EventFeed([script], VirtualClock(), alive_s=15)) as feed:
        told = feed.stream(None, None, may_go_on)
        await anext(told)
        script.happen()
        assert "topic 0" in await anext(told)
        allowed[0] = False
        script.happen()
        assert await anext(told) == feeds.ENDED
        with pytest.raises(StopAsyncIteration):
            await anext(told)
        assert feed.streams == 0

        allowed[0] = True
        quiet = feed.stream(None, None, may_go_on)
        await anext(quiet)
        allowed[0] = False
        async with asyncio.timeout(16):
            assert await anext(quiet) == feeds.ENDED


@pytest.mark.parametrize("text", ["x", "zzzzzzzz1", "12345678", "1234567", "12345678-1"])
def test_what_is_no_event_id_is_refused(text: str) -> None:
    with pytest.raises(WrongEventCursor):
        read(text)
    assert read(written({KEY: 7, key_of("A", "t", 3): 0})) == {KEY: 7, key_of("A", "t", 3): 0}


# What topics say


async def told(source: Any) -> list[tuple[str, str]]:
    return [(str(one.event.kind), one.event.text) for one in await source.poll()]


async def test_changed_settings_name_their_writer_and_no_secret() -> None:
    world = World(1)
    source = ConfigsSource(world.settings, lambda: world.target)
    assert await told(source) == [], "the topic is not there yet"
    world.target.create_topic(world.settings.configs_topic, 1)
    first = FlowConfig({"topics": "a"}, DecidedBy.FILE, 1, worker="w1", at_ms=5)
    noted = FlowConfig({"topics": "a"}, DecidedBy.FILE, 1, worker="w2", at_ms=5, seen=("d",))
    second = FlowConfig({"topics": "b", "tasks.max": "3"}, DecidedBy.REST, 2, worker="w1", at_ms=9)
    await put(world, (FLOW_KEY, encode_flow(first)), (FLOW_KEY, encode_flow(noted)))
    assert await told(source) == [
        ("settings.changed", "Version 1 of its settings was stored by file (w1)."),
    ]
    await put(world, (FLOW_KEY, encode_flow(second)))
    (changed,) = await source.poll()
    assert changed.event.text == "Version 2 of its settings was stored by rest (w1): tasks.max, topics changed."
    assert changed.event.data["changes"] == ["tasks.max: (default) -> '3'", "topics: 'a' -> 'b'"]
    assert (changed.event.at_ms, changed.event.flow, changed.is_old) == (9, "A->B", False)


async def test_pauses_restarts_and_log_levels_name_who_asked() -> None:
    world = World(1)
    source = ConfigsSource(world.settings, lambda: world.target)
    world.target.create_topic(world.settings.configs_topic, 1)
    key, connector, by = target_key("MirrorSourceConnector"), "MirrorSourceConnector", "REST of w1"
    restarts = [RestartConnector(connector, True), RestartPartitions("orders", 1), RestartPartitions("orders")]
    await put(
        world,
        (key, encode_target(Target(TargetState.STOPPED, by, 7))),
        *(encode_restart(replace(one, by=by), request_id="1", at_ms=8) for one in restarts),
        (LOG_LEVEL, encode_log_level("DEBUG", by=by, at_ms=9)),
        (key, b'{"state":"STARTED"}'),
        (key, None),
        (key, b"no JSON"),
        (b"target-state-x", b'{"state":"ASLEEP"}'),
    )
    found = [one.event for one in await source.poll()]
    assert [(str(one.kind), one.text) for one in found] == [
        ("connector.state", "MirrorSourceConnector is to be stopped, by REST of w1."),
        ("restart", "MirrorSourceConnector is to restart where it has failed, by REST of w1."),
        ("restart", "orders-1 is to restart, by REST of w1."),
        ("restart", "orders is to restart, by REST of w1."),
        ("log.level", "All workers are to log at DEBUG, by REST of w1."),
        (
            "connector.state",
            "MirrorSourceConnector is to be running, by another writer of the configs topic than mm2py.",
        ),
    ]
    assert [one.at_ms for one in found[:5]] == [7, 8, 8, 8, 9] and {one.flow for one in found} == {"A->B"}
    unknown = {"by": by, "user": "", "host": "", "reason": ""}
    assert found[0].data == {"connector": connector, "state": "stopped", **unknown}
    assert found[2].data == {"topic": "orders", "partition": 1, **unknown}


async def test_what_the_history_keeps_is_told_once_with_user_host_and_reason() -> None:
    """Of the records themselves only the last ones are left; each stands behind its entry."""
    world = World(1)
    source = ConfigsSource(world.settings, lambda: world.target)
    await three_changes(world)
    found = [one.event for one in await source.poll()]
    assert [(str(one.kind), one.text) for one in found] == [
        (
            "settings.changed",
            "Version 1 of its settings was stored by anna on ops1 (mm2py apply). Reason: raise topics for team x.",
        ),
        (
            "settings.changed",
            "Version 2 of its settings was stored by anna on ops1 (mm2py apply): topics changed."
            " Reason: raise topics for team x.",
        ),
        (
            "connector.state",
            "MirrorSourceConnector is to be paused, by bob over REST on worker vm. Reason: maintenance.",
        ),
        (
            "connector.state",
            "MirrorSourceConnector is to be running, by bob over REST on worker vm. Reason: maintenance.",
        ),
        ("restart", "MirrorSourceConnector is to restart, by bob over REST on worker vm. Reason: maintenance."),
        ("restart", "orders-3 is to restart, by bob over REST on worker vm. Reason: maintenance."),
    ]
    assert {(one.data["user"], one.data["host"]) for one in found} == {("anna", "ops1"), ("bob", "vm")}
    assert found[1].data["changes"] == ["topics: 'one' -> 'two'"]
    assert (found[1].data["version"], found[1].data["by"], found[1].data["worker"]) == (2, "apply", "mm2py apply")


async def test_a_group_that_was_moved_is_an_event() -> None:
    world = World(1)
    source = ConfigsSource(world.settings, lambda: world.target)
    log = await log_of(world, "mm2py groups")
    offsets = [SettingChange("orders-0", "orders-0  60 -> A.orders-0  60, exact")]
    by = ANNA.by_command("mm2py groups --move")
    await log.write_history(moved_entry("pay", "B", offsets, at_ms=world.clock.wall_ms(), by=by, author=ANNA))
    (found,) = [one.event for one in await source.poll()]
    assert (str(found.kind), found.data["group"], found.data["moved_to"]) == ("group.moved", "pay", "B")
    assert found.text == (
        "Group pay was moved to B, by anna on ops1 (mm2py groups --move). Reason: raise topics for team x."
    )


async def test_a_stream_since_a_time_begins_with_what_the_topics_keep_of_it() -> None:
    world = World(1)
    await three_changes(world)
    now_ms = world.clock.wall_ms()
    async with running(EventFeed([ConfigsSource(world.settings, lambda: world.target)], world.clock)) as feed:
        listener = Listener(feed, from_ms=now_ms - 70_000)
        kinds = [event["kind"] for event in await listener.events(4)]
        assert kinds == ["connector.state", "connector.state", "restart", "restart"]
        await (await log_of(world, "w1")).write_target("MirrorSourceConnector", TargetState.PAUSED, by="ann")
        (live,) = await listener.events(1)
        assert live["data"]["state"] == "paused"
        listener.close()

        whole = Listener(feed, from_ms=0)
        seen = await whole.events(3)
        whole.close()
        again = Listener(feed, seen[-1]["id"], from_ms=0)
        assert len(await again.events(4)) == 4, "a client that lost the stream asks with the same URL"
        assert texts(await Listener(feed, from_ms=now_ms + 10**6).events(0)) == []


async def test_a_stream_since_a_time_says_where_events_were_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "KEPT_MOST", 3)
    script = Script()
    script.happen(5)
    async with running(EventFeed([script], VirtualClock())) as feed:
        found = await Listener(feed, from_ms=0).events(4)
        assert [event["kind"] for event in found] == ["events.missed", "gap", "gap", "gap"]


def test_since_takes_a_time_or_the_id_of_an_event() -> None:
    cursor = {KEY: 7, key_of("A", "t", 3): 0}
    assert read_since(written(cursor), 10**12) == (cursor, None)
    assert read_since("1970-01-01T00:00:01Z", 10**12) == (None, 1_000)
    assert read_since("1764000000000", 10**12) == (None, 1_764_000_000_000)
    assert read_since("1h", 10**12) == (None, 10**12 - 3_600_000)
    with pytest.raises(WrongSince, match="no time: write 24h"):
        read_since("yesterday", 10**12)


async def test_a_backfill_is_an_event_when_it_begins_and_ends_and_not_each_time_that_its_driver_writes() -> None:
    world = World(1)
    source = ConfigsSource(world.settings, lambda: world.target)
    world.target.create_topic(world.settings.configs_topic, 1)
    begun = Backfill("0badcafe", {"orders": {0: Range(0, 9)}}, (), seen_at_ms=5, by="ann@host7")
    stopped = replace(begun, state=BackfillState.STOPPED, reason="abandoned", seen_at_ms=9)
    written = [begun, replace(begun, seen_at_ms=6), replace(begun, seen_at_ms=7), stopped, replace(begun, run=1)]
    await put(world, *((backfill_key(one.id), encode_backfill(one)) for one in written))
    await put(world, (backfill_key("0badcafe"), b"no JSON"), (backfill_key("0badcafe"), None))
    found = [one.event for one in await source.poll()]
    assert [(str(one.kind), one.at_ms, one.text) for one in found] == [
        ("backfill", 5, "Backfill 0badcafe of 1 topic(s) is copying."),
        ("backfill", 9, "Backfill 0badcafe of 1 topic(s) is stopped: abandoned."),
        ("backfill", 5, "Backfill 0badcafe of 1 topic(s) is copying."),
    ]
    assert found[0].data["topics"] == ["orders"]
    assert [one.data["run"] for one in found] == [0, 0, 1]


async def test_calls_that_change_something_are_events_with_user_and_outcome_and_without_address() -> None:
    world = World(1)
    source = ConfigsSource(world.settings, lambda: world.target)
    world.target.create_topic(world.settings.configs_topic, 1)
    path = "/connectors/A->B.MirrorSourceConnector/offsets"
    done = AuditRecord(5, "alice", "token", "192.0.2.7", "PATCH", path, "A->B", 200, "", '{"offsets":[]}', "w1")
    denied = AuditRecord(6, "bob", "password", "192.0.2.8", "PUT", "/admin/loggers/root", "", 403, "", "", "w1")
    await put(
        world,
        (audit_key(5, 1), encode_audit(done)),
        (audit_key(6, 2), encode_audit(denied)),
        (audit_key(1, 3), None),
        (audit_key(7, 4), b"no JSON"),
    )
    first, second = [one.event for one in await source.poll()]
    assert (str(first.kind), first.flow, first.at_ms) == ("audit", "A->B", 5)
    assert first.text == f"alice asked for PATCH {path}: done, 200."
    assert first.data["body"] == '{"offsets":[]}' and first.data["proof"] == "token"
    assert second.flow is None and second.text == "bob asked for PUT /admin/loggers/root: not done, 403."
    assert "192.0.2" not in first.model_dump_json() + second.model_dump_json()


async def test_gaps_are_events_and_connects_own_states_are_none() -> None:
    world = World(1)
    world.target.create_topic(world.settings.status_topic, 2)
    source = GapsSource(world.settings, lambda: world.target)
    gap = Gap(GapKind.EXPIRED, "orders", 1, 5, 9, Done.STOPPED, 5, "it has expired", 1_000)
    records = [Record(b"{}", b"status-task-x"), Record(encode_value(gap), gap.key)]
    world.target.append(world.settings.status_topic, 1, records)
    (found,) = await source.poll()
    assert found.event.text == "orders-1: expired, stopped. it has expired"
    assert found.event.data["open"] and found.key == key_of("B", world.settings.status_topic, 1)
    assert await told(source) == []


async def test_a_group_tells_who_is_evicted_leads_and_joins() -> None:
    world = GroupWorld()
    async with world.running(2) as workers:
        source = GroupSource(workers[0].settings, lambda: world.cluster, clock=world.clock, rng=random.Random(1))
        await world.list_topic(workers, 4)
        assert all(one.is_old for one in await source.poll())
        await world.leader(workers).kill()
        await asyncio.sleep(10)
        found = await source.poll()
        kinds = [str(one.event.kind) for one in found]
        assert kinds.index("leader.elected") < kinds.index("member.evicted") < kinds.index("assignment.changed")
        assert not any(one.is_old for one in found)
        elected = found[kinds.index("leader.elected")].event
        assert (elected.group, elected.flow, elected.data["leader_epoch"]) == ("g on B", None, 2)
        world.add("w3")
        await asyncio.sleep(5)
        assert "member.joined" in [str(one.event.kind) for one in await source.poll()]


async def test_without_a_flow_there_are_no_events_and_the_feed_goes_on() -> None:
    """A worker that only emits heartbeats has no source of events. Its REST process once ended with the feed."""
    reading = asyncio.create_task(EventFeed((), VirtualClock()).run())
    await asyncio.sleep(3600.0)
    assert not reading.done()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
