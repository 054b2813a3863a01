"""Three workers copy under load while an operator changes settings, pauses, stops, restarts and alters over REST.

F31, F72 and F73 of docs/faults.md. All tests share the workers, their flow and its two topics. At the end of each test
the load ends, and the checker looks for records that are lost, repeated or out of order. How long partitions pause for
a change is measured by bench/settings_pause.py, and asserted in tests/scenarios/settings/test_changed_in_place.py.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import pytest

from deploy.local.kafka import KafkaCluster
from tests.checker.dump import Reader
from tests.checker.ledger import Ledger
from tests.checker.load import Load
from tests.checker.traffic import Traffic
from tests.cluster.copies import assert_copied, bounds_of, dump, new_topic, now_ms, partitions_of
from tests.cluster.groups import Group
from tests.cluster.judged_offsets import Flow, Place
from tests.cluster.kafka_client import new_name
from tests.cluster.loads import AGES_MS
from tests.cluster.rest.serving import LISTENERS, Asked
from tests.cluster.rest.test_rest_process import rest_processes
from tests.cluster.running import DEADLINE_S, PATIENCE, Mm2py, one_way_properties, wait_until

WORKERS: Final = 3
PARTITIONS: Final = 4
PER_SECOND: Final = 500
"""Records of each of the two topics."""
FOLLOWED_S: Final = 10 * 2.0 * PATIENCE
"""Ten times the two seconds in which workers follow: other programs use the machine, too."""
MORE: Final = 300
"""Records: what is awaited to see that copying goes on, or does not."""
SET_BACK: Final = 50


class Scene:
    """Workers that serve REST and share the flow ``A->B``, and a load that is on in ``with scene.load()``."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster) -> None:
        self.source, self.target = source, target
        self.names = new_name("A"), new_name("B")
        self.flow = "->".join(self.names)
        self._loads = {
            age: Load(
                source.internal_bootstrap,
                new_topic(source, age, PARTITIONS),
                Traffic(1, PARTITIONS, first_timestamp_ms=now_ms() - age_ms, plain=True),  # no two are equal
                codecs=["lz4"],
                per_second=PER_SECOND,
            )
            for age, age_ms in AGES_MS.items()
        }
        self.young, self.old = (load.topic for load in self._loads.values())
        self.copied = [self.young]
        """The topics that the stored settings select."""
        self.copied_again: dict[Place, int] = {}
        """Records that an operator wanted to have once more, by source topic and partition."""
        more = {f"{self.flow}.topics": self.young, "listeners": LISTENERS, "config.storage.replication.factor": 1}
        self.group = Group(target, one_way_properties(source, target, names=self.names, **more), workers=WORKERS)
        self._clients: dict[Mm2py, Asked] = {}

    # Workers, and those who ask them

    @property
    def workers(self) -> list[Mm2py]:
        """Those that run, the longest first."""
        return [worker for worker in self.group.workers if worker.alive]

    def at(self, worker: Mm2py) -> Asked:
        """Return who asks a worker's REST, once it is healthy."""
        if worker not in self._clients:
            client = Asked(worker.wait_for_event("rest.listening")["at"], self.flow)
            wait_until(lambda: client.get("/health").status_code == 200, "the worker is healthy")
            self._clients[worker] = client
        return self._clients[worker]

    def make_ready(self) -> None:
        """Whatever became of the test before: as many workers as at first share the flow, and copy."""
        while len(self.workers) < WORKERS:
            self.group.start_another()
        clients = [self.at(worker) for worker in self.workers]
        clients[0].told("PUT", f"{clients[0].connector()}/resume", 202)
        self.group.wait_until_assigned(len(self.places), each=False)

    @contextmanager
    def reachable_only(self, worker: Mm2py) -> Iterator[None]:
        """Stop the REST processes of the others, as if nobody could reach their ports."""
        found = [pid for other in self.workers if other is not worker for pid in rest_processes(other.pid)]
        assert len(found) == len(self.workers) - 1
        for pid in found:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in found:
                os.kill(pid, signal.SIGCONT)

    # Changes

    def change(self, worker: Mm2py, settings: Mapping[str, str | None], *, restarts: bool = False) -> int:
        """Change settings at one worker by ``PUT``, null to the default; return their version once all applied it."""
        client = self.at(worker)
        path = f"{client.connector()}/config"

        def answer() -> Any:
            read = client.get(path)  # up to two seconds old: then another version is stored, and the answer is 409
            found = client.put(path, json={**read.json(), **settings}, headers={"If-Match": read.headers["etag"]})
            assert found.status_code in {200, 409}, found.text
            return found.json() if found.status_code == 200 else None

        stored = wait_until(answer, f"{settings} are stored")
        assert stored["restarts_for"] == (sorted(settings) if restarts else [])
        version: int = stored["version"]
        self.wait_for_all("config.changed", version=version, by="rest")
        return version

    def applied(self, worker: Mm2py) -> list[int]:
        """Return the versions that the workers run by, as one of them tells."""
        settings = self.at(worker).told("GET", f"/v1/flows/{self.flow}", 200)["report"]["settings"]
        return [one["version"] for one in settings["applied"]]

    def wait_for_all(self, event: str, **fields: Any) -> None:
        """Wait until all workers have logged it, soon."""
        for worker in self.workers:
            worker.wait_for_event(event, deadline_s=FOLLOWED_S, **fields)

    def ready(self) -> list[int]:
        """Return how often each worker has started the flow."""
        return [len(worker.events("flow.ready")) for worker in self.workers]

    # Records

    @property
    def places(self) -> list[Place]:
        return [(topic, number) for topic in self.copied for number in range(PARTITIONS)]

    def remote(self, topic: str) -> str:
        return f"{self.names[0]}.{topic}"

    @contextmanager
    def load(self) -> Iterator[None]:
        with ExitStack() as running:
            for load in self._loads.values():
                running.enter_context(load.in_background())
            self.goes_on()
            yield

    def ends(self) -> dict[Place, int]:
        """Return where the copies end, by source topic and partition."""
        found = {topic: bounds_of(self.target, self.remote(topic), range(PARTITIONS)) for topic in self.copied}
        return {place: found[place[0]][place[1]].end for place in self.places}

    def comes_to_rest(self) -> None:
        """Wait until no more copies come, although records do.

        A worker logs a pause or a stop when it reads of it. Batches that are in flight then may be stored a moment
        later, and so may those of a worker that was killed.
        """

        def is_at_rest() -> bool:
            before, goals = self.ends(), {load: load.acknowledged + MORE for load in self._loads.values()}
            wait_until(lambda: all(load.acknowledged >= goal for load, goal in goals.items()), f"{MORE} more are sent")
            return self.ends() == before

        wait_until(is_at_rest, "no more copies come")

    def goes_on(self) -> None:
        """Wait until each partition has got more records."""
        before = self.ends()
        wait_until(
            lambda: all(end > before[place] for place, end in self.ends().items()), "each partition is copied on"
        )

    def nothing_is_copied(self, meanwhile: Callable[[], object]) -> None:
        """Let something happen and records come in: no copy is written. The markers of a fence may be."""
        before, goals = self.ends(), {load: load.acknowledged + MORE for load in self._loads.values()}
        meanwhile()
        wait_until(lambda: all(load.acknowledged >= goal for load, goal in goals.items()), f"{MORE} more are sent")
        with Reader(self.target.internal_bootstrap, read_committed=False) as reader:
            for (topic, number), end in self.ends().items():
                assert not [*reader.records(self.remote(topic), number, before[topic, number], end)]

    def position(self, place: Place) -> int:
        """Return the source offset that is copied next: offsets are without gaps there."""
        topic, number = place
        return len(dump(self.target, self.remote(topic), [number])[number]) - self.copied_again.get(place, 0)

    def judge(self) -> None:
        """The load has ended: each record is there once and in order, but for what was copied again on purpose."""
        for topic in self.copied:
            report = assert_copied(
                self.source, self.target, topic, self.remote(topic), run=self.workers[0], max_rewinds=None
            )
            again = {(topic, one.partition): one.rewound_records for one in report.verdicts if one.rewinds}
            assert again == {place: records for place, records in self.copied_again.items() if place[0] == topic}
            print(report)
        for worker in self.group.workers:
            assert not worker.events("flow.crashed"), worker.tail()


@pytest.fixture(scope="module")
def running(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[Scene]:
    scene = Scene(source_cluster, target_cluster)
    with scene.group:
        yield scene


@pytest.fixture
def scene(running: Scene) -> Scene:
    running.make_ready()
    return running


def test_settings_changed_at_one_worker_under_load_are_applied_by_all_and_repeat_nothing(scene: Scene) -> None:
    """F72: topics and the number of tasks change in place; exactly-once restarts the flow, which is drained first."""
    first, second, third = scene.workers
    with scene.load():
        before = scene.ready()
        scene.change(first, {"offset.lag.max": "7", "source.consumer.fetch.max.wait.ms": "300"})
        scene.goes_on()
        scene.change(second, {"topics": f"{scene.young},{scene.old}"})
        scene.copied = [scene.young, scene.old]
        wait_until(
            lambda: partitions_of(scene.target, scene.remote(scene.old)) == PARTITIONS, "the other is copied, too"
        )
        scene.goes_on()
        scene.change(third, {"tasks.max": "2"})
        wait_until(lambda: len({*scene.group.partitions().values()}) == 2, "two workers have all partitions")
        scene.goes_on()
        scene.change(second, {"tasks.max": None})
        scene.group.wait_until_assigned(len(scene.places), among=WORKERS)
        scene.goes_on()
        assert scene.ready() == before
        scene.change(first, {"exactly.once.source.support": "enabled"}, restarts=True)
        wait_until(lambda: scene.ready() == [count + 1 for count in before], "all workers have restarted the flow")
        scene.goes_on()
    wait_until(lambda: len(set(scene.applied(second))) == 1, "all run by the same version")
    assert len(scene.applied(third)) == WORKERS
    scene.judge()
    Flow(scene.source, scene.target, *scene.names, scene.copied, Ledger()).assert_exact(first)
    scene.group.assert_steady()


def test_workers_cut_from_each_others_rest_apply_what_is_changed_at_any_of_them(scene: Scene) -> None:
    """F31: REST calls no other worker, so nothing is forwarded, and nothing hangs."""
    before = scene.ready()
    with scene.load():
        for number, worker in enumerate(scene.workers[:2]):
            client = scene.at(worker)
            with scene.reachable_only(worker):
                version = scene.change(worker, {"offset.lag.max": str(20 + number)})
                wait_until(
                    lambda worker=worker: len(set(scene.applied(worker))) == 1, "it tells of all that applied it"
                )
                found = client.told("GET", f"{client.connector()}/status", 200)
                assert found["connector"]["state"] == "RUNNING"
                scene.goes_on()
    for worker in scene.workers:  # what a worker tells may be two seconds old
        wait_until(lambda worker=worker: scene.applied(worker) == [version] * WORKERS, "each tells the same")
    assert scene.ready() == before
    scene.judge()


def test_paused_stopped_restarted_and_altered_under_load_while_workers_die_and_join(scene: Scene) -> None:
    """F73: while it is paused nothing is written; offsets are altered only while it is stopped, N goes on at N+1."""
    first, second, third = scene.workers
    client = scene.at(first)
    connector = client.connector()
    with scene.load():
        client.told("PUT", f"{connector}/pause", 202)
        scene.wait_for_all("connector.paused")
        scene.comes_to_rest()

        def one_dies_and_one_joins() -> None:
            second.kill()
            scene.group.start_another().wait_for_event("connector.paused", deadline_s=DEADLINE_S)

        scene.nothing_is_copied(one_dies_and_one_joins)
        fourth = scene.workers[-1]
        at_fourth = scene.at(fourth)
        at_fourth.told("PUT", f"{connector}/resume", 202)
        scene.group.wait_until_assigned(len(scene.places), each=False)
        scene.goes_on()

        before = scene.ready()
        at_fourth.told("POST", f"{connector}/restart", 204)
        wait_until(lambda: scene.ready() == [count + 1 for count in before], "it restarts on all workers, once")
        at_fourth.told("POST", f"/v1/flows/{scene.flow}/topics/{scene.young}/restart", 202)
        scene.goes_on()

        dies = scene.group.member_of(third)
        lasting = [share for share, owner in scene.group.partitions().items() if owner != dies]
        place = next((str(share.topic), int(share.partition)) for share in lasting if share.partition is not None)
        there = {"cluster": scene.names[0], "topic": place[0], "partition": place[1]}
        refused = client.told("PATCH", f"{connector}/offsets", 400, json=altered(there, 0))
        assert "STOPPED" in refused["message"]
        client.told("PUT", f"{connector}/stop", 204)
        third.kill()
        scene.wait_for_all("connector.stopped")
        scene.comes_to_rest()
        last = scene.position(place) - 1

        def is_altered() -> bool:
            answer = at_fourth.patch(f"{connector}/offsets", json=altered(there, last - SET_BACK))
            assert answer.status_code in {200, 409}, answer.text  # 409: the dead worker is not fenced yet
            return answer.status_code == 200

        scene.nothing_is_copied(lambda: wait_until(is_altered, "the offset is altered"))
        scene.copied_again[place] = SET_BACK
        client.told("PUT", f"{connector}/resume", 202)
        scene.goes_on()
    scene.judge()


def altered(partition: Mapping[str, object], offset: int) -> dict[str, object]:
    """Return the body that lets a partition go on behind an offset."""
    return {"offsets": [{"partition": partition, "offset": {"offset": offset}}]}
