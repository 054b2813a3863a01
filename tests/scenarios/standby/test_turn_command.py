"""``dr turn`` as an operator meets it: what it says, and what it leaves when it cannot do what was asked."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mm2py.cli.dr_turn import parse_arguments
from mm2py.config.settings import FlowSettings
from mm2py.dr import standing_run
from mm2py.dr.calls.asking import RecoveryAsked, RecoveryPlan
from mm2py.dr.calls.turn_call import TurnCall, TurnOptions
from mm2py.dr.journal_topic import JournalTopics
from mm2py.dr.journal_writer import JournalWriter
from mm2py.dr.open_run import RunIsOpen
from mm2py.dr.states import RecoveryEvent
from mm2py.flow import Flow
from mm2py.flow_sides import ClusterFailed, FlowSides
from mm2py.kafka.error_codes import TOPIC_AUTHORIZATION_FAILED
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import BrokerId
from mm2py.records.author import Author
from mm2py.status.cluster_inquiry import InquirySide
from tests.fakes.broker.broker_model import ClusterModel
from tests.scenarios.standby_world import BACK, THERE, TurnWorld
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)


class MutableLine:
    """The command's connection to a cluster; while it is muted no answer comes. A ``Brokers``."""

    def __init__(self, cluster: ClusterModel, is_muted: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._is_muted = is_muted

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        if self._is_muted():
            await asyncio.get_running_loop().create_future()
        return await self._cluster.send(broker, request, channel=channel)


async def agree(_: RecoveryPlan) -> int | None:
    return None


class TurnOperator:
    """Runs the command between two cluster models. Clusters of ``lost`` do not answer it."""

    def __init__(self, world: TurnWorld) -> None:
        self.world = world
        self.lost: set[str] = set()
        self.muted: set[str] = set()

    async def turn(self, flow: Flow, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Return the exit code, and the JSON."""
        file = self.world.settings_file
        found = parse_arguments([str(file.path), str(flow), "--yes", *arguments])
        asked = RecoveryAsked(
            file=file,
            flow=str(flow),
            author=Author("ann", "ops1"),
            command="mm2py dr turn",
            say=lambda _: None,
            progress=lambda _: None,
            clock=self.world.clock,
            rng=random.Random(1),
        )
        call = TurnCall(asked, TurnOptions(found.off, found.force, found.timeout), connect=self._connect)
        outcome = await call.run(agree)
        body: dict[str, Any] = json.loads(json.dumps(outcome.body))
        assert body["exit_code"] == outcome.code
        return outcome.code, body

    @asynccontextmanager
    async def _connect(self, _: str, settings: FlowSettings) -> AsyncIterator[FlowSides]:
        sides = FlowSides(
            *(
                InquirySide(alias, MutableLine(self.world.both[alias], lambda alias=alias: alias in self.muted))  # type: ignore[misc]
                for alias in (settings.flow.source, settings.flow.target)
            )
        )
        for side in sides:
            side.away = f"{side.alias} has not answered." if side.alias in self.lost else ""
        yield sides


async def copying() -> tuple[TurnWorld, TurnOperator]:
    """Start a worker of both flows, and let A->B copy."""
    world = TurnWorld()
    world.write(world.source)
    world.run()
    await world.until(world.is_same)
    await world.until(lambda: world.states(BACK) == ["standby"])
    return world, TurnOperator(world)


async def test_a_turn_that_is_refused_turns_the_other_flow_on_again_whatever_is_on_its_target_alone() -> None:
    """B has a topic of its own, which B->A has never copied. That must not keep A->B off."""
    world, operator = await copying()
    world.target.create_topic("orders-of-b", 1)
    world.write(world.target, topic="orders-of-b")

    async def write_on() -> None:
        while True:
            world.write(world.source, 1)
            await asyncio.sleep(0.1)

    writing = asyncio.ensure_future(write_on())  # the producers of A were not stopped
    code, told = await operator.turn(BACK)
    writing.cancel()
    assert code == 3 and told["now"] is None
    assert any("A has records that A->B has not copied to B" in line for line in told["said"]), told
    assert any("A->B is on " in line and "as before" in line for line in told["said"]), told
    await world.until(lambda: world.states(THERE) == ["running"])
    await world.until(world.is_same)
    await world.stays(world.is_same)


async def test_while_the_source_is_lost_a_flow_is_turned_off_so_that_it_writes_nothing_when_it_returns() -> None:
    """A is lost with records that were not copied, and clients go on on B. If A->B copied the rest when A returns, it
    would lie behind what the clients have written, and B->A begins behind that: their records would never reach A."""
    world, operator = await copying()
    world.processes[0].cut_off_from.add("A")
    operator.lost = {"A"}
    world.write(world.source, 2)
    code, told = await operator.turn(THERE, "--off")
    assert (code, told["now"].startswith("standby by ")) == (0, True), told
    with pytest.raises(ClusterFailed, match="A has not answered"):
        await operator.turn(BACK)
    world.write(world.target)
    of_clients = world.values(world.target)
    world.processes[0].cut_off_from.clear()
    operator.lost = set()
    await world.stays(lambda: world.values(world.target) == of_clients)
    code, told = await operator.turn(BACK, "--force")
    assert (code, sum(told["left"].values())) == (0, 4), told
    await world.until(lambda: of_clients <= world.values(world.source))
    await world.stays(lambda: set(world.values(world.source).values()) == {1})


async def test_off_that_is_asked_again_still_waits_for_workers_that_have_not_drained() -> None:
    world, operator = await copying()
    world.processes[0].freeze()
    for _ in range(2):
        with pytest.raises(ClusterFailed, match=r"A->B may still write: .* By now A->B is standby by") as failed:
            await operator.turn(THERE, "--off", "--timeout", "1")
        assert "each worker stops it when it reads that" in failed.value.what
    world.processes[0].thaw()
    assert (await operator.turn(THERE, "--off"))[0] == 0


async def test_a_turn_that_fails_in_the_middle_says_that_none_is_on_and_how_to_go_on() -> None:
    world, operator = await copying()
    world.processes[0].freeze()
    with pytest.raises(ClusterFailed, match="A->B may still write") as failed:
        await operator.turn(BACK, "--timeout", "1")
    what = failed.value.what
    assert "B->A is standby by its file" in what and "A->B is standby by" in what and "none is on" in what
    assert "dr turn" in what and "'B->A' or " in what and what.endswith("'A->B'."), what
    world.processes[0].thaw()
    await world.until(lambda: world.states(THERE) == ["standby"])
    code, told = await operator.turn(BACK)
    assert code == 0 and not any("no live worker" in line for line in told["said"])


async def test_a_cluster_that_falls_silent_in_the_middle_is_named_and_the_command_ends() -> None:
    world, operator = await copying()

    async def mute() -> None:
        while not (await world.stored(THERE)).startswith("standby"):
            await asyncio.sleep(0.05)
        operator.muted.add("A")

    muting = asyncio.ensure_future(mute())
    with pytest.raises(ClusterFailed, match="A did not answer within") as failed:
        await operator.turn(BACK)
    await muting
    assert "none is on" in failed.value.what, failed.value.what
    operator.muted.clear()
    assert (await operator.turn(BACK))[0] == 0


async def test_a_flow_that_is_turned_on_and_that_no_worker_runs_is_told() -> None:
    world, operator = await copying()
    await world.processes[0].stop()
    world.run("B")  # nothing serves A
    await world.until(lambda: world.states(THERE) == ["running"])
    code, told = await operator.turn(BACK)
    assert code == 0
    assert any("note: no live worker is known to run B->A" in line for line in told["said"]), told


async def test_a_flow_that_a_failover_has_ended_is_not_turned_on_unless_the_journals_tell_that_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A is back, and somebody wants copying to go on: A->B would copy behind what clients have written to B since."""
    world, operator = await copying()
    store = JournalTopics(THERE, {THERE.target: world.target}, clock=world.clock, rng=random.Random(1))
    journal = await JournalWriter.open(store, author=Author("ann", "ops1"), clock=world.clock, rng=random.Random(1))
    by = Author("ann", "ops1").by_command("mm2py dr failover")
    await world.off(THERE, by=by)
    await journal.append(RecoveryEvent.FAILOVER_ASKED, THERE, topics=("orders",))
    with pytest.raises(RunIsOpen, match=r"A->B is not turned by hand while the failover of A->B is CuttingOff"):
        await operator.turn(THERE)

    async def denied(*_: object) -> None:
        raise BrokerRefused("Reading the journal", TOPIC_AUTHORIZATION_FAILED)

    monkeypatch.setattr(standing_run, "read_agreed", denied)
    with pytest.raises(BrokerRefused):
        await operator.turn(THERE)
    code, told = await operator.turn(THERE, "--off")
    assert code == 0 and any("whether a recovery is open is not known" in line for line in told["said"]), told


async def test_a_control_log_that_is_gone_does_not_say_that_workers_have_drained() -> None:
    """Its worker is killed, and somebody deletes the topic: who ran the flow is not known any more."""
    world, operator = await copying()
    world.processes[0].kill()
    (name,) = [topic for topic in world.target.topics if topic.startswith("mm2-cluster.")]
    world.target.delete_topic(name)
    with pytest.raises(ClusterFailed, match=rf"A->B may still write: .* its control log {name} is gone") as failed:
        await operator.turn(THERE, "--off", "--timeout", "1")
    assert "start one: it evicts and fences" in failed.value.remedy
    world.run()
    await world.until(lambda: world.states(THERE) == ["standby"])
    assert (await operator.turn(THERE, "--off"))[0] == 0


async def test_a_worker_that_starts_while_the_source_is_lost_copies_nothing_when_it_returns_after_a_failover() -> None:
    """It reads that A->B is on, and waits for A. Then A->B is ended: it must not go by what it has read before."""
    world, operator = await copying()
    await world.processes[0].stop()
    world.write(world.source, 2)
    before = world.values(world.target)
    process = world.run()
    process.cut_off_from.add("A")
    operator.lost = {"A"}
    await asyncio.sleep(30)
    code, told = await operator.turn(THERE, "--off", "--timeout", "5")
    assert (code, told["now"].startswith("standby by ")) == (0, True), told
    world.write(world.target)
    of_clients = world.values(world.target) - before
    process.cut_off_from.clear()
    await world.stays(lambda: world.values(world.target) == before + of_clients)
