"""``mm2py status`` on broker models: what it reports of workers by the control log, whether one runs or not."""

from __future__ import annotations

import asyncio
import io
import json
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mm2py.cli.status import parse_arguments, show
from mm2py.clock import Clock
from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.config.settings import ClusterSettings
from mm2py.flow import ClusterAlias, Flow, Kind, parse_flow
from mm2py.flow_clusters import Connected
from mm2py.group.control_log import ControlLog
from mm2py.group.membership import GroupState
from mm2py.group.state_snapshot import read_snapshot, snapshot_text
from mm2py.kafka.errors import BrokerUnreachable, RequestTimedOut
from mm2py.kafka.port import BrokerId
from mm2py.logs import make_logger
from mm2py.records.control_record import (
    Assigned,
    Beat,
    Claim,
    ControlRecord,
    Fenced,
    Joined,
    Left,
    Listed,
    MemberId,
    Snapshot,
    TaskName,
    Writer,
    Writes,
)
from mm2py.status.cluster_inquiry import FAILING_S, HELD_UP_S, PART_S, PROBE_S, InquirySide
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_WAITS
from mm2py.status.facts import FlowFacts, GroupFacts
from mm2py.status.inquiry import Inquiry
from mm2py.status.mm2_inquiry import Mm2Inquiry
from mm2py.topics.names import control_log
from tests.fakes.broker.broker_model import ClusterModel, Record
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.gate import Request
from tests.scenarios.world import World

A_TO_B = parse_flow("A->B")
W1, W2 = MemberId("00000001"), MemberId("00000002")
LOG = control_log("mm2py", producer_expiry_ms=86_400_000)
FILE = """\
clusters = A, B
A.bootstrap.servers = a:1
B.bootstrap.servers = b:1
A->B.enabled = true
A->B.topics = orders, payments
emit.heartbeats.enabled = false
offset.storage.partitions = 3
"""


def joined(member: MemberId, name: str, url: str = "") -> Joined:
    return Joined(member, name, "0.1.0", url, (A_TO_B,), (), {}, "cluster-B", "log", 3000)


def tasks(*keys: tuple[str, int]) -> list[TaskName]:
    return [TaskName(A_TO_B, Kind.SOURCE), *(TaskName(A_TO_B, Kind.SOURCE, *key) for key in keys)]


class WrongClock:
    """The clock of a machine that is set wrong."""

    def __init__(self, right: Clock, off_ms: int) -> None:
        self._right = right
        self._off_ms = off_ms

    def monotonic(self) -> float:
        return self._right.monotonic()

    def boottime(self) -> float:
        return self._right.boottime()

    def wall_ms(self) -> int:
        return self._right.wall_ms() + self._off_ms


class Link:
    """A connection of the command to a cluster; ``is_up`` decides for each request whether it arrives."""

    def __init__(self, cluster: ClusterModel, is_up: Callable[[BrokerId, Request], bool]) -> None:
        self._cluster = cluster
        self._is_up = is_up

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        if not self._is_up(broker, request):
            raise BrokerUnreachable("b:1", "connection refused")
        return await self._cluster.send(broker, request, channel=channel)

    async def close(self) -> None:
        pass


class Scene(World):
    """Two clusters, a control log that the test writes, and the command."""

    def __init__(self, seed: int, folder: Path, *, text: str = FILE, nodes: int = 3) -> None:
        self.path = folder / "mm2.properties"
        self.path.write_text(text)
        super().__init__(seed, nodes=nodes)
        self.is_up: dict[str, Callable[[BrokerId, Request], bool]] = {}

    def file(self, _: Mapping[str, str]) -> SettingsFile:
        return read_settings_file(self.path, None)

    async def append(self, *records: ControlRecord) -> None:
        await (await self.log_of_members()).append(records)

    async def view(self) -> GroupState:
        """Return the group as the control log describes it now."""
        opening = await self.control_log().open()
        view = GroupState() if opening.state is None else read_snapshot(opening.state)
        for entry in opening.entries:
            view.take(entry)
        return view

    async def log_of_members(self) -> ControlLog:
        log = self.control_log()
        await log.open()
        return log

    def control_log(self) -> ControlLog:
        return ControlLog(
            self.target,
            LOG,
            poll_s=0.5,
            append_timeout_s=2.0,
            clock=self.clock,
            rng=random.Random(1),
            log=make_logger("error", "text", io.StringIO()),
        )

    async def form_group(self, *partitions: tuple[str, int], topics: dict[str, int]) -> None:
        """Two members; the first leads, and they own alternate partitions."""
        view = await self.view()
        epoch, generation = view.leader_epoch + 1, view.generation
        owners = {task: (W1, W2)[at % 2] for at, task in enumerate(tasks(*partitions))}
        await self.append(
            joined(W1, "host1-10", "http://user:hunter2@host1:8083/x"),
            joined(W2, "host2-20"),
            Claim(W1, epoch, "c1"),
            Assigned(W1, epoch, generation + 1, {TaskName(A_TO_B, Kind.SOURCE): W1}),
            Listed(W1, A_TO_B, topics),
            Assigned(W1, epoch, generation + 2, owners),
        )

    @asynccontextmanager
    async def beating(self, *members: MemberId) -> AsyncIterator[None]:
        """While the block runs, members send heartbeats twice a second."""
        log = await self.log_of_members()

        async def beat() -> None:
            while True:
                await log.append([Beat(member) for member in members])
                await asyncio.sleep(0.5)

        task = asyncio.ensure_future(beat())
        try:
            await asyncio.sleep(0.1)
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def inquiry(self, clock: Clock | None = None) -> Inquiry:
        return Inquiry(self.file({}), self._connect, clock=clock or self.clock, rng=random.Random(2))

    def _connect(self, flow: Flow, cluster: ClusterSettings, timeout_s: float, rng: random.Random) -> Connected:
        model = self.source if cluster.alias == "A" else self.target

        def is_up(broker: BrokerId, request: Request) -> bool:
            rule = self.is_up.get(f"{flow} {cluster.alias}") or self.is_up.get(cluster.alias)
            return rule is None or rule(broker, request)

        return Link(model, is_up)

    async def status(self, *arguments: str, clock: Clock | None = None) -> tuple[int, str]:
        """Run the command once and return its exit code and what it wrote."""
        inquiry, out = self.inquiry(clock), io.StringIO()
        options = parse_arguments([str(self.path), *arguments])
        code = await show(options, inquiry, out.write, asyncio.Event(), clock=self.clock)
        await inquiry.close()
        return code, out.getvalue()

    async def found(self, *, clock: Clock | None = None) -> Any:
        """Return the command's output as an object."""
        code, text = await self.status("--json", clock=clock)
        found = json.loads(text)
        assert found["exit_code"] == code
        return found

    async def copy(self, topic: str, values: Sequence[bytes], *, partitions: int = 1) -> None:
        """Let a worker copy records of a new topic, and drain."""
        self.source.create_topic(topic, partitions)
        for partition in range(partitions):
            self.source.append(topic, partition, list(values))
        async with self.worker() as herder:
            await self.copied({topic: f"A.{topic}"})
            await self.stop(herder)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    run_virtual(scenario, limit_s=3600)


def kinds(found: Any) -> list[str]:
    return [problem["kind"] for problem in found["problems"]]


async def test_copied_records_and_the_last_leader_are_still_shown_when_no_worker_runs(tmp_path: Path) -> None:
    scene = Scene(3, tmp_path)
    await scene.copy("orders", [b"0", b"1", b"2"])
    await scene.form_group(("orders", 0), topics={"orders": 1})
    async with scene.beating(W1, W2):
        await asyncio.sleep(1)
    await asyncio.sleep(60)
    scene.source.append("orders", 0, [b"3"])
    code, text = await scene.status()
    assert code == EXIT_WAITS
    assert (
        "no worker runs, last record 60 s ago, leader epoch 1" in text or "no worker runs, last record 62 s" in text
    ), text
    found = await scene.found()
    assert kinds(found) == ["not-running"]
    (group,), (flow,) = found["groups"], found["flows"]
    assert (group["runs"], group["leader"]) == (False, W1)
    assert {member["state"] for member in group["members"]} == {"stopped"}
    assert (flow["lag"], flow["guarantee"]["level"], flow["unowned"], flow["tasks"]) == (1, "exactly-once", 0, [])


async def test_a_group_that_has_left_in_order_is_shown_as_not_running(tmp_path: Path) -> None:
    scene = Scene(4, tmp_path)
    await scene.append(joined(W1, "host1-10"), Claim(W1, 1, "c1"), Left(W1, outcome_unknown=False))
    found = await scene.found()
    (group,) = found["groups"]
    assert (group["runs"], group["members"], group["last_append_ms_ago"] is not None) == (False, [], True)
    assert kinds(found) == ["not-running"]


async def test_a_wrong_clock_of_the_operator_does_not_make_a_running_group_look_dead(tmp_path: Path) -> None:
    for off_ms in (3_600_000, -3_600_000):
        scene = Scene(5, tmp_path)
        await scene.form_group(("orders", 0), topics={"orders": 1})
        async with scene.beating(W1, W2):
            found = await scene.found(clock=WrongClock(scene.clock, off_ms))
        (group,) = found["groups"]
        assert group["runs"] is True
        assert all(member["last_seen_ms_ago"] < 1000 for member in group["members"])


async def test_a_member_whose_session_expired_is_named_first(tmp_path: Path) -> None:
    scene = Scene(7, tmp_path)
    await scene.form_group(("orders", 0), topics={"orders": 1})
    async with scene.beating(W1):
        await asyncio.sleep(5)
        found = await scene.found()
    first, second = found["groups"][0]["members"]
    assert (first["name"], first["state"]) == ("host2-20", "session-expired")
    assert (second["name"], second["state"]) == ("host1-10", "alive")
    assert first["last_seen_ms_ago"] > 4000
    assert kinds(found) == ["member"], "the group handles it by itself"
    assert found["exit_code"] == EXIT_DONE


async def test_tasks_without_an_owner_wait_for_an_operator(tmp_path: Path) -> None:
    scene = Scene(8, tmp_path)
    scene.source.create_topic("orders", 3)
    await scene.form_group(("orders", 0), topics={"orders": 3})
    async with scene.beating(W1, W2):
        found = await scene.found()
    assert found["exit_code"] == EXIT_WAITS
    assert kinds(found) == ["unowned"]
    (flow,) = found["flows"]
    assert (flow["unowned"], flow["topics"][0]["unowned"]) == (2, 2)
    assert flow["topics"][0]["owners"] == {W2: "0"}


async def test_an_open_gap_is_a_problem_and_its_topic_comes_first(tmp_path: Path) -> None:
    scene = Scene(9, tmp_path)
    for topic in ("orders", "payments"):
        scene.source.create_topic(topic, 1)
        scene.source.append(topic, 0, [b"0", b"1", b"2"])
    async with scene.worker() as herder:
        await scene.copied({"orders": "A.orders", "payments": "A.payments"})
        await asyncio.sleep(5)
        scene.source.truncate("payments", 0, 1)
        scene.source.append("payments", 0, [b"other"])
        await asyncio.sleep(20)
        await scene.stop(herder)
    scene.source.append("orders", 0, [b"more"] * 50)
    found = await scene.found()
    assert [(one["kind"], one["where"]) for one in found["problems"]] == [
        ("not-running", "group mm2py on B"),
        ("gap", "A->B payments"),
    ]
    (flow,) = found["flows"]
    assert [topic["topic"] for topic in flow["topics"]] == ["payments", "orders"]
    (gap,) = flow["open_gaps"]
    assert (gap["topic"], gap["kind"], gap["position"]) == ("payments", "truncated", 3)
    assert (flow["topics"][0]["ahead"], flow["topics"][0]["lag"]) == (1, None), "what waits is not known"
    assert flow["topics"][1]["lag"] == 50


async def test_a_topic_that_the_user_who_asks_may_not_describe_is_neither_gone_nor_well(tmp_path: Path) -> None:
    """A user who saw two of seven topics was told that nothing is wrong, and that the other five were deleted."""
    scene = Scene(15, tmp_path)
    await scene.copy("orders", [b"0"])
    await scene.form_group(("orders", 0), topics={"orders": 1})
    scene.source.append("orders", 0, [b"1"])
    scene.source.create_topic("payments", 1)
    scene.source.denied_topics.add("orders")
    async with scene.beating(W1, W2):
        code, text = await scene.status()
        found = await scene.found()
        scene.source.denied_topics.clear()
        scene.source.delete_topic("orders")
        later = await scene.found()
    assert code == EXIT_FAILED
    assert "may not describe orders on A" in text and "Grant it DESCRIBE there" in text
    (topic,) = [one for one in found["flows"][0]["topics"] if one["topic"] == "orders"]
    assert (topic["lag"], topic["unknown"], topic["is_gone"]) == (None, 1, False)
    assert found["flows"][0]["lag_is_partial"] and not topic["not_copied"]
    (topic,) = [one for one in later["flows"][0]["topics"] if one["topic"] == "orders"]
    assert topic["is_gone"] and [one["reason"] for one in topic["not_copied"]] == ["gone"]


async def test_a_file_that_enables_no_flow_is_not_well_and_a_misspelt_key_is_named(tmp_path: Path) -> None:
    """``enabeld`` gave "nothing is wrong", exit code 0; only a worker's log named it."""
    scene = Scene(16, tmp_path, text=FILE.replace("A->B.enabled", "A->B.enabeld").replace("emit", "#"))
    code, text = await scene.status()
    assert code == EXIT_WAITS and "! the file: it enables no flow" in text
    assert "A->B.enabeld is not known; did you mean A->B.enabled?" in text and "\nnote: " in text
    assert any("did you mean" in note for note in (await scene.found())["notes"])


async def test_a_source_that_does_not_answer_hides_nothing_else(tmp_path: Path) -> None:
    scene = Scene(10, tmp_path)
    await scene.copy("orders", [b"0"])
    await scene.form_group(("orders", 0), topics={"orders": 1})
    scene.is_up["A"] = lambda *_: False
    async with scene.beating(W1, W2):
        code, text = await scene.status()
        found = await scene.found()
    assert code == EXIT_FAILED
    assert "leader host1-10" in text
    assert "lag was 0" in text and "the source does not answer: lag and positions are as of 20" in text
    assert "last record copied is of 20" in text
    assert [(one["kind"], one["where"]) for one in found["problems"]] == [("unreachable", "A")]
    assert "connection refused" in found["problems"][0]["text"]
    assert "keeps trying" not in text
    (flow,) = found["flows"]
    assert (flow["lag"], flow["guarantee"]["level"], flow["topics"][0]["owners"]) == (
        0,
        "exactly-once",
        {W2: "0"},
    )
    assert flow["lag_as_of_ms"] is not None


async def test_a_target_that_never_answers_is_named_within_seconds_and_the_source_is_still_shown(
    tmp_path: Path,
) -> None:
    scene = Scene(11, tmp_path)
    scene.source.create_topic("orders", 2)
    scene.target.hung_apis.add("Metadata")
    begun_s = scene.clock.monotonic()
    found = await scene.found()
    assert scene.clock.monotonic() - begun_s < PROBE_S + 2
    assert found["exit_code"] == EXIT_FAILED
    assert [not why for why in found["clusters"].values()] == [True, False]
    assert found["problems"][0]["text"].startswith("B did not answer within 10 s.")
    assert found["groups"][0]["runs"] is None, "this is unknown"
    (flow,) = found["flows"]
    assert (flow["guarantee"]["level"], flow["topics"][0]["partitions"]) == ("unknown", 2)


async def test_an_unavailable_source_broker_hides_only_the_lag_of_its_partitions(tmp_path: Path) -> None:
    scene = Scene(12, tmp_path)
    await scene.copy("orders", [b"0", b"1"], partitions=6)
    for partition in range(6):
        scene.source.append("orders", partition, [b"2"])
    scene.is_up["A"] = lambda broker, _: broker != BrokerId(1)
    begun_s = scene.clock.monotonic()
    found = await scene.found()
    assert FAILING_S <= scene.clock.monotonic() - begun_s < FAILING_S + 5
    assert found["exit_code"] == EXIT_FAILED
    (flow,) = found["flows"]
    (topic,) = flow["topics"]
    assert 0 < topic["unknown"] < 6
    assert topic["lag"] == flow["lag"] == 6 - topic["unknown"]
    assert flow["lag_is_partial"] is True


async def test_an_unreadable_control_log_hides_no_lag(tmp_path: Path) -> None:
    scene = Scene(13, tmp_path)
    await scene.copy("orders", [b"0"])
    await scene.form_group(("orders", 0), topics={"orders": 1})
    scene.target.deny(str(LOG.name))
    found = await scene.found()
    (group,), (flow,) = found["groups"], found["flows"]
    assert found["exit_code"] == EXIT_FAILED
    assert (group["runs"], "mm2py needs DESCRIBE and READ on" in group["unread"]) == (None, True)
    assert (flow["lag"], flow["guarantee"]["level"]) == (0, "exactly-once")


async def test_a_record_of_a_newer_mm2py_is_named_with_the_version_that_reads_it(tmp_path: Path) -> None:
    scene = Scene(14, tmp_path)
    await scene.form_group(topics={"orders": 1})
    younger = {"format": 99, "kind": "Merge", "member": W1, "version": "9.9.9", "skippable": False}
    scene.target.append(str(LOG.name), 0, [Record(json.dumps(younger).encode())])
    found = await scene.found()
    assert found["exit_code"] == EXIT_FAILED
    assert "9.9.9" in found["groups"][0]["unread"]


async def test_reading_starts_at_the_newest_snapshot(tmp_path: Path) -> None:
    scene = Scene(15, tmp_path)
    await scene.form_group(("orders", 0), topics={"orders": 1})
    log, view = await scene.log_of_members(), GroupState()
    reader = await scene.log_of_members()
    for entry in (await reader.open()).entries:
        view.take(entry)
    for _ in range(10):
        await log.append([Beat(member) for member in (W1, W2) for _ in range(200)])
    state = snapshot_text(view)
    await log.append([Snapshot(W1, 1, view.next_offset, "s1", state)])
    await log.append([Fenced(W1, 1, None, {}, {7: "no coordinator"})])
    found = await scene.found()
    (group,) = found["groups"]
    assert (group["runs"], group["leader"], group["generation"]) == (True, W1, 2)
    assert group["unfenced"] == {"7": "no coordinator"}
    assert (found["flows"][0]["guarantee"]["level"], found["flows"][0]["guarantee"]["reasons"]) == (
        "at-least-once",
        ["1 producer id(s) could not be fenced: no coordinator"],
    )


async def test_a_member_without_a_transactional_id_makes_the_guarantee_at_least_once(tmp_path: Path) -> None:
    scene = Scene(16, tmp_path)
    await scene.form_group(("orders", 0), topics={"orders": 1})
    await scene.append(Writes(W2, Writer(A_TO_B, None, 77, 0)))
    (flow,) = (await scene.found())["flows"]
    assert flow["guarantee"]["level"] == "at-least-once"
    assert flow["guarantee"]["reasons"] == ["host2-20 writes without a transactional id, and cannot be fenced surely"]


async def test_no_secret_is_printed(tmp_path: Path) -> None:
    secured = FILE + (
        "B.security.protocol = SASL_PLAINTEXT\nB.sasl.mechanism = PLAIN\n"
        "B.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="mirror" password="hunter2";\n'
    )
    scene = Scene(17, tmp_path, text=secured)
    await scene.form_group(("orders", 0), topics={"orders": 1})
    async with scene.beating(W1, W2):
        text = (await scene.status("--all"))[1] + (await scene.status("--json"))[1]
    assert "http://host1:8083/x" in text
    assert "hunter2" not in text and "user:" not in text


async def test_foreign_records_in_a_topic_cannot_control_the_terminal(tmp_path: Path) -> None:
    scene = Scene(18, tmp_path)
    await scene.append(joined(W1, "host\x1b[2J\nfake line"), Claim(W1, 1, "c1"))
    _, text = await scene.status()
    assert "host\\x1b[2J\\nfake line" in text
    assert "\x1b" not in text


class Watching:
    """The command with ``--watch``, and its output so far."""

    def __init__(self, scene: Scene, *arguments: str, screen: int | None = None, write: Any = None) -> None:
        self.blocks: list[str] = []
        self.stopped = asyncio.Event()
        self._inquiry = scene.inquiry()
        options = parse_arguments([str(scene.path), *arguments])
        self._task = asyncio.ensure_future(
            show(
                options,
                self._inquiry,
                write or self.blocks.append,
                self.stopped,
                clock=scene.clock,
                screen=None if screen is None else lambda: screen,
            )
        )

    async def code(self) -> int:
        return await self._task


async def test_watching_shows_changes_and_reads_nothing_twice(tmp_path: Path) -> None:
    scene = Scene(19, tmp_path)
    await scene.copy("orders", [b"0"])
    await scene.form_group(("orders", 0), topics={"orders": 1})
    await scene.append(*(Beat(W1) for _ in range(3000)))
    async with scene.beating(W1, W2):
        watching = Watching(scene, "--watch", "--json")
        await asyncio.sleep(1)
        (first,) = watching.blocks
        scene.source.append("orders", 0, [b"1", b"2"])
        before, opened = (scene.target.counts[what] for what in ("partitions asked for", "request ListOffsets"))
        await asyncio.sleep(2)
        first, second = watching.blocks
        assert [json.loads(block)["flows"][0]["lag"] for block in (first, second)] == [0, 2]
        assert all(block.count("\n") == 1 for block in watching.blocks), "one object a line"
        assert scene.target.counts["partitions asked for"] - before < 20
        assert scene.target.counts["request ListOffsets"] == opened, "the control log is opened once"
        await asyncio.sleep(20)
        watching.stopped.set()
        assert await watching.code() == EXIT_DONE
        assert 10 <= len(watching.blocks) <= 13


async def test_watching_shows_a_group_that_dies_and_returns_and_its_recreated_log(tmp_path: Path) -> None:
    scene = Scene(20, tmp_path)
    await scene.form_group(topics={})
    watching = Watching(scene, "--watch", "1", "--json")

    def runs() -> Any:
        return json.loads(watching.blocks[-1])["groups"][0]["runs"]

    async with scene.beating(W1, W2):
        await asyncio.sleep(5)
        assert runs() is True
    await asyncio.sleep(20)
    assert runs() is False
    async with scene.beating(W1, W2):
        await asyncio.sleep(5)
        assert runs() is True
    scene.target.delete_topic(str(LOG.name))
    await asyncio.sleep(15)
    assert runs() is False
    assert {json.loads(block)["groups"][0]["unread"] for block in watching.blocks} == {""}
    await scene.append(joined(W1, "host1-11"), Claim(W1, 1, "c9"))
    async with scene.beating(W1):
        await asyncio.sleep(5)
        (member,) = json.loads(watching.blocks[-1])["groups"][0]["members"]
        assert (runs(), member["name"], member["leads"]) == (True, "host1-11", True)
    watching.stopped.set()
    await watching.code()


async def test_watching_continues_while_a_cluster_is_unavailable_and_ends_at_once_on_request(tmp_path: Path) -> None:
    scene = Scene(21, tmp_path)
    await scene.form_group(topics={})
    async with scene.beating(W1, W2):
        watching = Watching(scene, "--watch", screen=40)
        await asyncio.sleep(3)
        scene.is_up["B"] = lambda *_: False
        await asyncio.sleep(5)
        assert "connection refused" in watching.blocks[-1]
        scene.is_up.clear()
        await asyncio.sleep(5)
        assert "connection refused" not in watching.blocks[-1]
        assert all(block.startswith("\x1b[H") and block.endswith("\x1b[J") for block in watching.blocks)
        scene.target.hung_apis.add("Metadata")
        await asyncio.sleep(3)
        stopped_s = scene.clock.monotonic()
        watching.stopped.set()
        assert await watching.code() == EXIT_DONE, "the last report that was shown"
        assert scene.clock.monotonic() - stopped_s < 0.1


async def test_on_a_small_screen_problems_stay_visible(tmp_path: Path) -> None:
    scene = Scene(22, tmp_path)
    scene.source.create_topic("orders", 1)
    watching = Watching(scene, "--watch", screen=5)
    await asyncio.sleep(1)
    watching.stopped.set()
    await watching.code()
    (block,) = watching.blocks
    lines = block.splitlines()
    assert block.count("\n") == 4
    assert "! group mm2py on B: no worker runs" in lines[1]
    assert "more lines: make the window larger" in lines[3]


async def test_watching_ends_when_its_reader_closes_the_pipe(tmp_path: Path) -> None:
    def write(_: str) -> None:
        raise BrokenPipeError

    scene = Scene(23, tmp_path)
    assert await Watching(scene, "--watch", write=write).code() == EXIT_WAITS


async def test_watching_shows_new_topics_and_moved_leaders(tmp_path: Path) -> None:
    scene = Scene(24, tmp_path)
    scene.source.create_topic("orders", 1)
    watching = Watching(scene, "--watch", "1", "--json")
    await asyncio.sleep(3)
    scene.source.move_leader("orders", 0)
    scene.source.append("orders", 0, [b"0"])
    await asyncio.sleep(4)
    assert json.loads(watching.blocks[-1])["flows"][0]["lag"] == 1, "its new leader was asked"
    scene.source.create_topic("payments", 1)
    await asyncio.sleep(17)
    watching.stopped.set()
    await watching.code()
    found = json.loads(watching.blocks[-1])
    assert {topic["topic"]: topic["lag"] for topic in found["flows"][0]["topics"]} == {"orders": 1, "payments": 0}
    assert found["flows"][0]["unread"] == []
    assert scene.source.counts["request Metadata"] < 1.5 * len(watching.blocks), "not all topics for each report"


async def test_deleted_positions_are_not_remembered(tmp_path: Path) -> None:
    scene = Scene(25, tmp_path)
    await scene.copy("orders", [b"0", b"1"])
    watching = Watching(scene, "--watch", "1", "--json")
    await asyncio.sleep(3)
    scene.target.delete_topic("mm2-offsets.A.internal")
    await asyncio.sleep(5)
    watching.stopped.set()
    await watching.code()
    first, last = (json.loads(watching.blocks[at])["flows"][0]["topics"][0] for at in (0, -1))
    assert (first["lag"], first["not_started"]) == (0, 0)
    assert (last["lag"], last["not_started"]) == (2, 1)


async def test_offsets_partitions_without_a_leader_leave_only_their_lag_unknown(tmp_path: Path) -> None:
    scene = Scene(26, tmp_path, text=FILE + "offset.storage.replication.factor = 1\n")
    await scene.copy("orders", [b"0"], partitions=8)
    offsets = scene.target.topics["mm2-offsets.A.internal"]
    (lost, *_) = {replica for part in offsets.partitions for replica in part.replicas}
    scene.target.stop_broker(lost)
    await asyncio.sleep(20)
    found = await scene.found()
    (flow,) = found["flows"]
    assert found["exit_code"] == EXIT_FAILED
    assert any("of mm2-offsets.A.internal have no leader" in why for why in flow["unread"]), flow["unread"]
    assert 0 < flow["topics"][0]["unknown"] < 8
    assert flow["topics"][0]["lag"] == 0


async def test_records_of_an_open_transaction_are_no_lag_of_a_read_committed_flow(tmp_path: Path) -> None:
    for level, lag in (("read_committed", 1), ("read_uncommitted", 3)):
        text = FILE + f"A->B.consumer.isolation.level = {level}\n"
        scene = Scene(27, tmp_path, text=text)
        scene.source.create_topic("orders", 1)
        scene.source.append("orders", 0, [b"0"])
        transaction = scene.source.transaction()
        transaction.append("orders", 0, [b"1", b"2"])
        (flow,) = (await scene.found())["flows"]
        assert flow["lag"] == lag, level


async def test_a_control_log_without_a_leader_is_named_within_seconds_also_while_watching(tmp_path: Path) -> None:
    scene = Scene(28, tmp_path)
    await scene.form_group(topics={})
    leader = scene.target.partition(str(LOG.name), 0).leader
    watching = Watching(scene, "--watch", "1", "--json")
    async with scene.beating(W1, W2):
        await asyncio.sleep(3)
        scene.is_up["B"] = lambda broker, _: broker != leader
        begun_s = scene.clock.monotonic()
        found = await scene.found()
        assert HELD_UP_S <= scene.clock.monotonic() - begun_s < HELD_UP_S + 3
        await asyncio.sleep(10)
        watching.stopped.set()
        await watching.code()
        assert json.loads(watching.blocks[0])["groups"][0]["runs"] is True
        for group in (found["groups"][0], json.loads(watching.blocks[-1])["groups"][0]):
            assert group["runs"] is None
            assert "connection refused" in group["unread"]


async def test_all_records_since_the_last_report_are_read_however_many_they_are(tmp_path: Path) -> None:
    scene = Scene(29, tmp_path)
    await scene.form_group(topics={})
    watching = Watching(scene, "--watch", "2", "--json")
    await asyncio.sleep(1)
    await scene.append(*[Snapshot(W1, 1, 1, f"s{at}", "x" * 400_000, 0, 2) for at in range(5)], Left(W2, False))
    await asyncio.sleep(2)
    watching.stopped.set()
    await watching.code()
    first, second = (json.loads(block)["groups"][0]["members"] for block in watching.blocks)
    assert (len(first), len(second)) == (2, 1)


async def test_a_cluster_that_refuses_only_one_flow_is_named(tmp_path: Path) -> None:
    scene = Scene(30, tmp_path, text=FILE + "B->A.enabled = true\n")
    scene.source.create_topic("orders", 1)
    scene.is_up["A->B B"] = lambda *_: False
    found = await scene.found()
    assert {alias: not why for alias, why in found["clusters"].items()} == {"A": True, "B": False}
    unread = {flow["flow"]: bool(flow["unread"]) for flow in found["flows"]}
    assert unread == {"A->B": True, "B->A": False}


async def test_a_slow_report_does_not_delay_the_next_one_further(tmp_path: Path) -> None:
    scene = Scene(31, tmp_path)
    scene.target.hung_apis.add("Metadata")
    watching = Watching(scene, "--watch", "10")
    await asyncio.sleep(4 * PROBE_S + 1)
    watching.stopped.set()
    await watching.code()
    assert len(watching.blocks) == 4


async def test_a_flow_that_mirrormaker_2_runs_says_so_while_no_worker_does(tmp_path: Path) -> None:
    """The command said only that no worker runs: an operator in the middle of a migration starts one then."""
    scene = Scene(31, tmp_path)
    scene.source.create_topic("orders", 1)
    scene.target.groups.activate("A-mm2", members=3, protocol_type="connect")
    code, text = await scene.status()
    assert code == EXIT_WAITS
    assert "MirrorMaker 2 runs it: group A-mm2 on B has 3 members." in text
    found = await scene.found()
    assert kinds(found) == ["not-running", "not-running"]
    assert [one["where"] for one in found["problems"]] == ["group mm2py on B", "A->B"]
    scene.target.groups.deactivate("A-mm2")
    assert kinds(await scene.found()) == ["not-running"]


async def test_mirrormaker_2_is_not_looked_for_while_a_worker_runs_the_flow(tmp_path: Path) -> None:
    scene = Scene(32, tmp_path)
    await scene.copy("orders", [b"0"])
    await scene.form_group(("orders", 0), topics={"orders": 1})
    async with scene.beating(W1, W2):
        asked = scene.target.counts["request DescribeGroups"]
        assert kinds(await scene.found()) == []
        assert scene.target.counts["request DescribeGroups"] == asked


async def test_a_target_that_does_not_tell_of_mirrormaker_2_costs_a_look_two_seconds_and_no_more(
    tmp_path: Path,
) -> None:
    scene = Scene(33, tmp_path)
    scene.target.groups.activate("A-mm2", protocol_type="connect")
    flow, group = FlowFacts(scene.settings), GroupFacts(ClusterAlias("B"), "mm2py", "log", None)

    async def told() -> str:
        asking = Mm2Inquiry({ClusterAlias("B"): InquirySide(ClusterAlias("B"), scene.target)})
        begun_s = scene.clock.monotonic()
        (found,) = await asking.look([flow], [group], scene.clock.wall_ms())
        assert scene.clock.monotonic() - begun_s < 2.1
        return found.mm2_runs

    assert await told() == "MirrorMaker 2 runs it: group A-mm2 on B has 1 member."
    scene.target.hung_apis.add("DescribeGroups")
    assert await told() == ""
    scene.target.hung_apis.clear()
    scene.target.groups.denied.add("A-mm2")
    assert await told() == ""


async def test_a_part_that_fails_just_when_its_time_is_over_is_told_and_ends_no_look() -> None:
    """A request timed out after the thirty seconds that the part had, and the look ended with a RuntimeError."""
    side = InquirySide(ClusterAlias("B"), World(1).target)

    async def ask() -> None:
        try:
            await asyncio.sleep(2 * PART_S)
        except asyncio.CancelledError:
            raise RequestTimedOut("b:1", "Metadata", PART_S) from None

    assert "Metadata" in await side.why_not("asking", ask)
