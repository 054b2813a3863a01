"""The history of a flow on broker models: one writer, which moves with the coordinator, and all tell the same."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any

from mm2py.flight.pending import ANEW_MS, FlightPending
from mm2py.flow import Flow
from mm2py.flow_history.rings import HistoryChart, HistoryGap
from mm2py.kafka.list_offsets import EARLIEST
from mm2py.kafka.port import ProduceRequest
from mm2py.records.flow_history_record import FINE_S, MINUTE_S, Series
from mm2py.records.standstill import Cause
from mm2py.status.facts import Facts, FlowFacts
from mm2py.status.inquiry import Inquiry
from mm2py.status.report import report_of
from mm2py_rest.clusters.live import LiveReport, View
from mm2py_rest.events.sources import FlightSource
from mm2py_rest.history.keeper import HistoryKeeper
from mm2py_rest.history.log import HistoryLog
from mm2py_rest.history.sources import history_sources
from mm2py_rest.worker_link import WorkerSilent
from tests.fakes.broker.record_batch import Record
from tests.fakes.open_rest import report_at_once
from tests.scenarios.process import Process
from tests.scenarios.settings.test_status_command import Link
from tests.scenarios.shared_world import SESSION_S, SharedWorld, run
from tests.scenarios.world import World

GROUP = {"B.session.timeout.ms": str(int(SESSION_S * 1000)), "B.heartbeat.interval.ms": "500"}
TOPIC = "mm2-history.A.internal"


class RestOfWorker:
    """What the REST process of one worker does for the history."""

    def __init__(self, world: SharedWorld, process: Process) -> None:
        self._process = process
        file, rng = world.file(GROUP), random.Random(world.rng.random())
        configuration = file.configuration()
        settings = next(one for one in configuration.flows if one.flow == world.flow)

        self.away: set[str] = set()
        """Clusters that refuse connections."""

        def to(alias: str) -> Any:
            cluster = world.source if alias == "A" else world.target
            return Link(cluster, lambda *_: alias not in self.away)

        self.inquiry = Inquiry(
            file,
            lambda _, cluster, __, ___: to(cluster.alias),
            clock=world.clock,
            rng=rng,
        )
        self.failures: list[str] = []
        live = LiveReport(self.inquiry.look, world.clock, self.failures.append, make=report_at_once)
        self.log = HistoryLog(settings, lambda: to("B"), clock=world.clock, rng=rng, log=world.log)
        keeper = HistoryKeeper(
            self.log,
            self.coordinated,
            live.glance,
            lambda since_ms: history_sources(
                settings,
                configuration.groups[settings.flow.target],
                lambda: to("B"),
                since_ms,
                clock=world.clock,
                rng=rng,
            ),
            worker=process.name,
            clock=world.clock,
            log=world.log,
        )
        self.keeping = asyncio.create_task(keeper.run(), name=f"history of {process.name}")

    async def coordinated(self) -> frozenset[Flow]:
        if not self._process.is_up:
            raise WorkerSilent("The worker is gone.")
        return self._process.herder.coordinated()

    async def end(self) -> None:
        self.keeping.cancel()
        await asyncio.gather(self.keeping, return_exceptions=True)
        await self.inquiry.close()
        assert not self.failures


class HistoryWorld(SharedWorld):
    """Workers with their REST processes."""

    def __init__(self) -> None:
        super().__init__(extra={**GROUP, "internal.topics.replication.factor": "3"})
        self.rests: dict[Process, RestOfWorker] = {}

    def begin(self) -> Process:
        process = self.start(GROUP)
        self.rests[process] = RestOfWorker(self, process)
        return process

    async def kill(self, process: Process) -> None:
        process.kill()
        await self.rests[process].end()

    async def end(self) -> None:
        for process in self.up:
            await self.kill(process)

    def coordinator(self) -> Process | None:
        return next((one for one in self.up if one.is_coordinator(self.flow)), None)

    def written(self) -> list[dict[str, Any]]:
        """Return the points of ten seconds in the topic, in the order of the log."""
        found = [json.loads(record.value or b"") for record in self.target.records(TOPIC, 0)]
        return [one for one in found if one.get("step_s") == FINE_S]

    def chart(self, process: Process, step_s: int = FINE_S) -> HistoryChart:
        now_ms = self.clock.wall_ms()
        return self.rests[process].log.history.chart(now_ms - 600_000, now_ms, step_s, now_ms)


def test_the_coordinator_alone_writes_also_while_it_moves_and_every_worker_tells_the_same() -> None:
    async def scenario() -> None:
        world = HistoryWorld()
        world.make_topics(2, 3)
        for _ in range(3):
            world.begin()
        traffic = asyncio.create_task(world.traffic(["t0", "t1"], every_s=1.0))
        await world.until(world.is_fully_assigned)
        await asyncio.sleep(65)
        first = world.coordinator()
        assert first is not None
        await first.stop()
        await world.rests[first].end()
        await asyncio.sleep(65)
        second = world.coordinator()
        assert second is not None and second is not first
        late = world.begin()  # and with it a REST process that has read nothing yet
        await world.until(lambda: world.rests[late].log.history.newest_ms is not None)
        await asyncio.sleep(25)
        written = world.written()
        writers = [one["by"] for one in written]
        assert set(writers) == {first.name, second.name}
        assert writers == sorted(writers, key=[first.name, second.name].index), "one after the other"
        slots = Counter(one["at_ms"] // 10_000 for one in written)
        assert set(slots.values()) == {1}
        assert world.chart(late) == world.chart(second)
        assert world.chart(late, MINUTE_S) == world.chart(second, MINUTE_S)
        rates = [one for one in world.chart(late).series[Series.COPIED_RECORDS_PER_S] if one is not None]
        assert rates and max(rates) > 5, "six partitions get a record a second each"
        assert "member.left" in [one.kind for one in world.chart(late).events]
        traffic.cancel()
        await world.end()

    run(scenario())


def test_a_killed_coordinator_leaves_a_gap_and_its_successor_says_what_happened() -> None:
    async def scenario() -> None:
        world = HistoryWorld()
        world.make_topics(1, 2)
        first = world.begin()
        await world.until(world.is_fully_assigned)
        await asyncio.sleep(45)
        await world.kill(first)
        await asyncio.sleep(60)
        second = world.begin()
        await world.until(world.is_fully_assigned)
        await asyncio.sleep(35)
        chart = world.chart(second)
        (gap,) = chart.gaps
        assert isinstance(gap, HistoryGap) and 50_000 <= gap.to_ms - gap.from_ms <= 80_000
        lag = dict(zip(chart.times_ms, chart.series[Series.LAG_RECORDS], strict=True))
        assert {lag[at] for at in range(gap.from_ms, gap.to_ms, 10_000)} == {None}
        assert lag[gap.from_ms - 10_000] == 0 and lag[gap.to_ms] == 0
        kinds = Counter(one.kind for one in chart.events)
        assert kinds["member.evicted"] == 1 and kinds["member.joined"] >= 1
        assert len({one.place for one in chart.events}) == len(chart.events), "each event once"
        await world.end()

    run(scenario())


def test_a_worker_that_is_cut_off_from_its_group_writes_nothing_though_its_rest_process_still_could() -> None:
    async def scenario() -> None:
        world = HistoryWorld()
        world.make_topics(1, 2)
        first = world.begin()
        await world.until(world.is_fully_assigned)
        second = world.begin()
        await world.until(world.is_fully_assigned)
        await asyncio.sleep(35)
        assert world.coordinator() is first
        first.cut_off_from = {"B"}
        await world.until(lambda: second.is_coordinator(world.flow))
        taken_ms = world.clock.wall_ms()
        await asyncio.sleep(45)
        assert {one["by"] for one in world.written() if one["at_ms"] > taken_ms} == {second.name}
        await world.end()

    run(scenario())


def test_a_source_that_is_away_is_an_event_and_the_lag_is_not_known_meanwhile() -> None:
    async def scenario() -> None:
        world = HistoryWorld()
        world.make_topics(1, 2)
        first = world.begin()
        await world.until(world.is_fully_assigned)
        await asyncio.sleep(35)
        away_ms = world.clock.wall_ms()
        first.cut_off_from = world.rests[first].away = {"A"}
        await asyncio.sleep(90)
        back_ms = world.clock.wall_ms()
        first.cut_off_from = world.rests[first].away = set()
        await asyncio.sleep(60)
        chart = world.chart(first)
        assert chart.gaps == [], "the coordinator goes on writing"
        during = [slot for slot, at in enumerate(chart.times_ms) if away_ms + 20_000 < at < back_ms - 10_000]
        assert during
        for name in (Series.LAG_RECORDS, Series.LAG_S, Series.IN_RECORDS_PER_S):
            assert {chart.series[name][slot] for slot in during} == {None}, name
        ages = [chart.series[Series.SAFE_AGE_S][slot] for slot in during]
        assert None not in ages and ages == sorted(ages, key=lambda age: age or 0), "it grows"
        assert chart.series[Series.LAG_RECORDS][-1] == 0
        told = [one.text for one in chart.events if one.kind == "not-copied"]
        assert any("source-silent" in text for text in told), told
        verdicts = [one.text.partition(":")[0] for one in chart.events if one.kind == "verdict"]
        assert verdicts[-3:] == ["safe", "behind (was safe)", "safe (was behind)"], verdicts
        lags = [one.text for one in chart.events if one.kind == "lag"]
        assert [text.partition(":")[0].partition(" ")[2] for text in lags] == [
            "is more than 60 s behind",
            "keeps up again",
        ]
        await world.end()

    run(scenario())


class _Keeper:
    """A keeper whose worker says what the test wants, and whose clusters are never looked at in vain."""

    def __init__(self, *says: bool) -> None:
        self.world = World(1)
        self.away: tuple[type[Any], ...] = ()
        """Requests that the target does not answer."""
        self.says = list(says)
        self.log = HistoryLog(
            self.world.settings,
            lambda: Link(self.world.target, lambda _, request: not isinstance(request, self.away)),  # type: ignore[arg-type, return-value]
            clock=self.world.clock,
            rng=self.world.rng,
            log=self.world.log,
        )
        facts = Facts(self.world.clock.wall_ms(), {}, [], [FlowFacts(self.world.settings, selected={})], {})
        view = View(0.0, facts, report_of(facts))

        async def glance() -> View:
            return view

        keeper = HistoryKeeper(
            self.log, self.coordinated, glance, lambda _: [], worker="w1", clock=self.world.clock, log=self.world.log
        )
        self.keeping = asyncio.create_task(keeper.run(), name="history")

    async def coordinated(self) -> frozenset[Flow]:
        says = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        return frozenset({self.world.settings.flow}) if says else frozenset()

    def written(self) -> int:
        return len(self.world.target.records(TOPIC, 0)) if TOPIC in self.world.target.topics else 0


async def test_a_worker_that_is_coordinator_no_more_when_its_point_is_ready_writes_nothing() -> None:
    keeper = _Keeper(True, False)
    await asyncio.sleep(45)
    assert keeper.written() == 0
    keeper.says = [True]
    await asyncio.sleep(10)
    assert keeper.written() == 1
    keeper.keeping.cancel()


async def test_while_the_target_is_away_this_is_said_once_and_a_late_point_is_not_written_afterwards() -> None:
    keeper = _Keeper(True)
    await asyncio.sleep(25)
    before = keeper.written()
    assert before
    keeper.away = (object,)
    await asyncio.sleep(120)
    assert keeper.log.problem
    keeper.away = ()
    await asyncio.sleep(20)
    assert keeper.log.problem == ""
    lines = keeper.world.log_text.getvalue()
    assert lines.count("history.waiting") == 1 and "CREATE, READ and WRITE" in lines
    assert lines.count("history.back") == 1
    now_ms = keeper.world.clock.wall_ms()
    (gap,) = keeper.log.history.chart(now_ms - 600_000, now_ms, FINE_S, now_ms).gaps
    assert gap.to_ms - gap.from_ms >= 110_000
    keeper.keeping.cancel()


async def test_a_topic_that_can_be_read_and_not_written_is_told_until_another_worker_coordinates() -> None:
    keeper = _Keeper(True)
    await asyncio.sleep(25)
    keeper.away = (ProduceRequest,)
    await asyncio.sleep(20)
    await keeper.log.read()
    assert keeper.log.problem and not keeper.log.unread
    keeper.says = [False]
    await asyncio.sleep(10)
    assert not keeper.log.problem
    keeper.keeping.cancel()


async def test_a_defect_of_the_history_ends_no_rest_process() -> None:
    keeper = _Keeper(True)
    keeper.log.history.minutes_due = None  # type: ignore[assignment, method-assign]
    await asyncio.sleep(60)
    assert not keeper.keeping.done()
    assert "This is a defect in mm2py" in keeper.world.log_text.getvalue()
    keeper.keeping.cancel()


async def test_what_a_worker_records_anew_each_hour_is_no_event() -> None:
    world = World(1)
    pending = FlightPending("m")
    world.target.create_topic("mm2-flight.A.internal", 1)
    source = FlightSource(world.settings, lambda: Link(world.target, lambda *_: True), begin_at=EARLIEST)  # type: ignore[arg-type, return-value]
    found: list[str] = []
    for at_ms in range(0, 3 * ANEW_MS, 600_000):
        pending.show({"orders": [Cause("stalled", "records wait", "", 1)]}, at_ms)
        for _, value in pending.take(at_ms):
            world.target.append("mm2-flight.A.internal", 0, [Record(value=value)])
        found += [one.event.text for one in await source.poll()]
    assert found == ["orders: stalled since 1970-01-01T00:00:00Z: records wait"]
