"""``mm2py dr failover`` on real brokers: the source is killed under load, and groups go on at the exact record.

Every send that the source acknowledged is noted with its offset. What is lost must be exactly what the command named as
lost: of each partition all records from one source offset on, and none before it. When the source and its workers
return, nothing of the flow is written into the target any more.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import make_topic, producer
from tests.cluster.group_offsets import member
from tests.cluster.kafka_client import new_name, offsets, read, write
from tests.cluster.running import (
    ANSWER_S,
    OWN_PATH,
    PATIENCE,
    Mm2py,
    Value,
    pause,
    two_way_properties,
    wait_until,
)

pytestmark = pytest.mark.timeout(600 * PATIENCE)

PREFIXED, IDENTITY = "DefaultReplicationPolicy", "IdentityReplicationPolicy"
PARTITIONS: Final = 2
CALL_S: Final = 240.0 * PATIENCE
STATES: Final = ("CuttingOff", "CutOff", "GroupsPlaced", "FailingOver")
PROTOCOLS: Final = ("classic", "consumer")
ROOT: Final = Path(__file__).parents[3]
Place = tuple[str, int]


class LostScene:
    """A pair of clusters with aliases of its own. Orders are written, and for each one, once it is acknowledged, a
    bill. Groups of both protocols read both topics."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, policy: str) -> None:
        self.source, self.target = source, target
        self.a, self.b = new_name("A").replace("-", ""), new_name("B").replace("-", "")
        self.flow, self.back = f"{self.a}->{self.b}", f"{self.b}->{self.a}"
        self.keeps_names = policy == IDENTITY
        stem = new_name("shop")
        self.orders, self.bills = f"{stem}-orders", f"{stem}-bills"
        self.groups = {f"{stem}-{protocol}": protocol for protocol in PROTOCOLS}
        for topic in (self.orders, self.bills):
            make_topic(source, topic, PARTITIONS)
        standby: dict[str, Value] = {f"{self.back}.standby": True} if self.keeps_names else {}
        self.run = Mm2py(
            two_way_properties(
                source,
                target,
                names=(self.a, self.b),
                **{
                    "topics": f"{stem}-.*",
                    "groups": f"{stem}-.*",
                    "replication.policy.class": policy,
                    "config.storage.replication.factor": 1,
                    "emit.checkpoints.enabled": True,
                    "emit.checkpoints.interval.seconds": 1,
                    **standby,
                },
            ),
            clusters=[self.b],
        )
        self.acked: dict[Place, dict[int, bytes]] = {}
        self.read: dict[str, int] = dict.fromkeys(self.groups, 0)
        self._over = threading.Event()

    @property
    def places(self) -> list[Place]:
        return [(topic, number) for topic in (self.orders, self.bills) for number in range(PARTITIONS)]

    def remote(self, topic: str) -> str:
        return topic if self.keeps_names else f"{self.a}.{topic}"

    # Clients of the source

    def _send(self) -> None:
        client = producer(self.source, linger_ms=0, message_timeout_ms=5000)
        number = 0
        while not self._over.wait(0.002):
            if not self._sent(client, self.orders, number):
                return
            if not self._sent(client, self.bills, number):
                return
            number += 1

    def _sent(self, client: Producer, topic: str, number: int) -> bool:
        """Send one record; return whether it was acknowledged."""
        found: list[bool] = []

        def settled(error: KafkaError | None, message: Message) -> None:
            found.append(error is None)
            if error is None:
                place = (topic, message.partition() or 0)
                self.acked.setdefault(place, {})[message.offset() or 0] = message.value() or b""

        client.produce(topic, f"{topic} {number}".encode(), partition=number % PARTITIONS, on_delivery=settled)
        client.flush(ANSWER_S)
        return found == [True]

    def _consume(self, group: str, reader: subprocess.Popen[str]) -> None:
        for line in reader.stdout or ():
            self.read[group] += int(line)

    @contextmanager
    def load(self) -> Iterator[None]:
        readers = {
            group: subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.cluster.group_reader", self.source.internal_bootstrap),
                    *(group, protocol, self.orders, self.bills),
                ],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
            )
            for group, protocol in self.groups.items()
        }
        threads = [threading.Thread(target=self._send, daemon=True)]
        threads += [
            threading.Thread(target=self._consume, args=(group, reader), daemon=True)
            for group, reader in readers.items()
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for reader in readers.values():
                reader.kill()
                reader.wait()
            for thread in threads:
                thread.join(ANSWER_S)

    def lose_source(self) -> None:
        """Kill the source while everything works: records are written, copied and read, and checkpoints emitted."""
        with self.load():
            for group in self.groups:
                wait_until(lambda group=group: self.read[group] > 100, f"{group} reads", deadline_s=ANSWER_S)  # type: ignore[misc]
            self.run.wait_until(self._are_known, "the target knows where the groups are", deadline_s=ANSWER_S)
            self.run.signal(signal.SIGSTOP)
            before = self.count
            wait_until(lambda: self.count > before + 100, "more is written", deadline_s=ANSWER_S)
            self.source.broker(1).kill()
            self.run.signal(signal.SIGCONT)

    @property
    def count(self) -> int:
        return sum(len(found) for found in [*self.acked.values()])

    def _are_known(self) -> bool:
        name = f"{self.a}.checkpoints.internal"
        with suppress(KafkaException):
            found = {message.key() for message in read(self.target, name)}
            return len(found) >= len(self.groups) * len(self.places)
        return False

    # The command

    def started(self, *more: str, verb: str = "failover") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "mm2py", "dr", verb, str(self.run.file), self.flow, *more],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": OWN_PATH},
        )

    def call(self, *more: str, verb: str = "failover") -> tuple[int, str]:
        process = self.started(*more, verb=verb)
        text, _ = process.communicate(timeout=CALL_S)
        return process.returncode, text

    def failed_over(self, *more: str) -> dict[str, Any]:
        """Fail over, and return what ``dr history`` says of that run."""
        code, text = self.call("--accept-loss", "--yes", *more)
        assert code == 0, text
        print(text)
        code, text = self.run.dr("history", self.flow, "--json")
        (found,) = json.loads(text[text.index("{") :])["runs"]
        assert (found["verb"], found["flow"], found["state"]) == ("failover", self.flow, "FailedOver")
        return dict(found)

    def killed_at(self, state: str, hook: Path) -> None:
        """Call it, and kill it as soon as it has stored that it is in a state, or a moment later in another one."""
        process = self.started("--accept-loss", "--yes", "--hook-switch", str(hook))
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if any(f"Z  {one}" in line for one in STATES[STATES.index(state) :]):
                os.kill(process.pid, signal.SIGKILL)
        process.wait(ANSWER_S)
        assert process.returncode == -signal.SIGKILL, "".join(lines)

    # What must hold

    def held(self, place: Place) -> list[Message]:
        return read(self.target, self.remote(place[0]), [place[1]])

    def judge_loss(self, run: dict[str, Any]) -> dict[str, int]:
        """Compare what was acknowledged with the target: it has what is before the named offset, and nothing else."""
        last = run["steps"][-1] if run["steps"][-1]["copied_to"] else run["steps"][-2]
        named: dict[str, int] = last["copied_to"]
        for place in self.places:
            lost_from = named[f"{place[0]}-{place[1]}"]
            there = {message.value() for message in self.held(place)}
            acked = self.acked[place]
            assert {value for offset, value in acked.items() if offset < lost_from} <= there, "nothing else is lost"
            lost = {value for offset, value in acked.items() if offset >= lost_from}
            assert lost and not lost & there, "exactly that is lost"
            end = last["target_ends"][f"{place[0]}-{place[1]}"]
            assert all((message.offset() or 0) < end for message in self.held(place)), "only markers are behind it"
        return named

    def commits(self, group: str) -> dict[Place, int]:
        """Return what a group has committed on the target, by the source's names."""
        client = member(self.target, group)
        wanted = [TopicPartition(self.remote(topic), number) for topic, number in self.places]
        found = client.committed(wanted, timeout=ANSWER_S)
        client.close()
        return {place: one.offset for place, one in zip(self.places, found, strict=True)}

    def judge_exact(self, plan: dict[str, Any], named: dict[str, int]) -> None:
        """See that each group goes on at the record that follows its last known commit, as was told before."""
        groups = {one["group"]: one for one in plan["groups"]}
        assert set(groups) == set(self.groups)
        for group, told in groups.items():
            commits = self.commits(group)
            for place in self.places:
                part = told["partitions"][f"{place[0]}-{place[1]}"]
                assert commits[place] == part["goes_on_at"]
                committed, lost_from = part["committed"], named[f"{place[0]}-{place[1]}"]
                behind = [one.value() for one in self.held(place) if (one.offset() or 0) >= commits[place]]
                wanted = [value for at, value in sorted(self.acked[place].items()) if committed <= at < lost_from]
                assert behind[: len(wanted)] == wanted, "it skips nothing, and reads nothing again"
                assert len(behind) == part["reads_again_at_most"]

    def judge_return(self) -> None:
        """Let the source return with more records, and see that none is written into the target."""
        before = {place: offsets(self.target, self.remote(place[0]), place[1])[1] for place in self.places}
        self.source.start()
        for topic, number in self.places:
            write(self.source, topic, [f"late {at}" for at in range(20)], partition=number)

        def told() -> str:
            text = self.run.status_text()[1]
            return text if "was lost, and nothing of it is copied any more" in text else ""

        text = self.run.wait_until(told, "the status tells it", deadline_s=ANSWER_S)
        assert "(mm2py dr failover)" in text
        pause(5, "a worker that copied would have copied")
        after = {place: offsets(self.target, self.remote(place[0]), place[1])[1] for place in self.places}
        assert after == before


@contextmanager
def scene_of(source: KafkaCluster, target: KafkaCluster, policy: str) -> Iterator[LostScene]:
    scene = LostScene(source, target, policy)
    with scene.run:
        scene.run.wait_for_event("topics.copying", flow=scene.flow)
        yield scene


def plan_in(text: str) -> dict[str, Any]:
    return dict(json.loads(text[text.index("{") :])["plan"])


@pytest.mark.parametrize("policy", [IDENTITY, PREFIXED])
def test_groups_go_on_at_the_exact_record_and_exactly_what_was_named_is_lost(
    make_cluster: Callable[..., KafkaCluster], target_cluster: KafkaCluster, policy: str
) -> None:
    with scene_of(make_cluster("lost-source"), target_cluster, policy) as scene:
        code, text = scene.call("--accept-loss", "--yes")
        assert code == 1 and f"{scene.a} answers" in text, text
        scene.lose_source()
        code, text = scene.call("--yes")
        assert code == 1 and "accept what is lost, with --accept-loss" in text, text
        code, text = scene.call("--plan", "--json")
        assert code == 3, text
        plan = plan_in(text)
        run = scene.failed_over()
        named = scene.judge_loss(run)
        assert {name: one["lost_from"] for name, one in plan["lost"]["partitions"].items()} == named
        assert set(plan["lost"]["groups"]) == set(scene.groups)
        scene.judge_exact(plan, named)
        code, text = scene.call("--accept-loss", "--yes")
        assert code == 0 and "is FailedOver already" in text, text
        scene.judge_return()
        code, text = scene.call("--yes", verb="unfence")
        assert code == 1 and "mm2py dr reinstate" in text, text
        code, text = scene.call("--yes", verb="turn")
        assert code == 1 and "is not turned by hand while the failover of" in text, text
        assert scene.run.terminate() == 0


@pytest.mark.parametrize("point", ["safe", "time"])
def test_all_groups_go_on_from_one_instant_and_what_they_read_again_is_counted(
    make_cluster: Callable[..., KafkaCluster], target_cluster: KafkaCluster, point: str
) -> None:
    with scene_of(make_cluster("lost-source"), target_cluster, PREFIXED) as scene:
        scene.lose_source()
        if point == "time":
            middle = scene.held((scene.orders, 0))
            point = str(middle[len(middle) // 4].timestamp()[1])
        code, text = scene.call("--to", point, "--plan", "--json")
        assert code == 3, text
        plan = plan_in(text)
        run = scene.failed_over("--to", point)
        scene.judge_loss(run)
        held = {place: scene.held(place) for place in scene.places}
        again = 0
        for one in plan["groups"]:
            commits = scene.commits(one["group"])
            for place, messages in held.items():
                instant = next((at for at, each in enumerate(messages) if each.timestamp()[1] >= plan["to_ms"]), None)
                own = one["partitions"][f"{place[0]}-{place[1]}"]["committed"]
                assert commits[place] == (own if instant is None else min(own, instant))
                again += own - commits[place]
        assert again == sum(one["reads_again"] for one in plan["groups"])
        assert point == "safe" or again, "from the time on they read again"
        # What was written before the safe time is there, so no bill of that time is without its order.
        orders = {one.value() for number in range(PARTITIONS) for one in held[scene.orders, number]}
        safe_ms = plan["lost"]["safe_at_ms"]
        bills = [one for number in range(PARTITIONS) for one in held[scene.bills, number]]
        before = [one.value() or b"" for one in bills if one.timestamp()[1] < safe_ms]
        assert before and {one.replace(scene.bills.encode(), scene.orders.encode()) for one in before} <= orders


@pytest.mark.slow
def test_killed_after_each_step_it_goes_on_and_a_frozen_worker_writes_nothing_when_it_wakes(
    make_cluster: Callable[..., KafkaCluster], target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    hook = tmp_path / "hook"
    hook.write_text("#!/bin/sh\ncat > /dev/null\nsleep 3\necho switched >> $0.told\n")
    hook.chmod(0o755)
    with scene_of(make_cluster("lost-source"), target_cluster, PREFIXED) as scene:
        scene.lose_source()
        scene.run.signal(signal.SIGSTOP)
        for state in STATES:
            scene.killed_at(state, hook)
        run = scene.failed_over("--hook-switch", str(hook))
        assert (tmp_path / "hook.told").read_text().startswith("switched")
        scene.judge_loss(run)
        before = {place: offsets(scene.target, scene.remote(place[0]), place[1])[1] for place in scene.places}
        scene.source.start()
        for topic, number in scene.places:
            write(scene.source, topic, ["late"] * 20, partition=number)
        scene.run.signal(signal.SIGCONT)
        scene.run.wait_for_event("flow.standby", deadline_s=ANSWER_S)
        pause(5, "a worker that copied would have copied")
        after = {place: offsets(scene.target, scene.remote(place[0]), place[1])[1] for place in scene.places}
        assert after == before
        assert scene.run.terminate() == 0


def test_a_group_with_members_on_the_target_is_refused_by_name(
    make_cluster: Callable[..., KafkaCluster], target_cluster: KafkaCluster
) -> None:
    with scene_of(make_cluster("lost-source"), target_cluster, PREFIXED) as scene:
        scene.lose_source()
        first, second = scene.groups
        client = member(target_cluster, first)
        client.subscribe([scene.remote(scene.orders)])
        wait_until(lambda: client.consume(1, 1.0), "it reads on the target", deadline_s=ANSWER_S)
        code, text = scene.call("--accept-loss", "--yes")
        assert code == 1 and f"Group {first} cannot go on on {scene.b}: it has members" in text, text
        run = scene.failed_over("--leave-group", first)
        (placed,) = [step["groups"] for step in run["steps"] if step["event"] == "GroupsAtChosen"]
        assert list(placed) == [second]
        client.close()
