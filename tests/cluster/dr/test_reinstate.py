"""``mm2py dr extras``, ``reinstate`` and ``failback`` on real brokers: A is killed with records that B never got.

The scene is that of the cutovers: clients that obey hooks. A->B is turned off before A takes its last records, so it is
known exactly what B never got: records of a plain producer and of a committed transaction, and among them an aborted
one. What ``mm2py dr failover`` leaves in the journal is written by this test.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from deploy.local.kafka import KafkaCluster
from mm2py.clock import SystemClock
from mm2py.config.configuration import flow_of, read_settings_file
from mm2py.dr.journal_topic import JournalTopics
from mm2py.dr.journal_writer import JournalWriter
from mm2py.dr.states import RecoveryEvent
from mm2py.flow_clusters import connect
from mm2py.records.author import Author
from tests.cluster.copies import make_topic, producer
from tests.cluster.dr.test_cutover import IDENTITY, PREFIXED, CutoverScene
from tests.cluster.kafka_client import delete_topic, values
from tests.cluster.running import ANSWER_S, PATIENCE, wait_until

pytestmark = pytest.mark.timeout(600 * PATIENCE)

E = RecoveryEvent
FAILOVER = (E.FAILOVER_ASKED, E.WRITERS_CUT_OFF, E.GROUPS_AT_CHOSEN, E.SWITCH_CONFIRMED, E.HOOK_DONE, E.PRODUCERS_FREE)
EXTRA, COMMITTED, ABORTED = 3_000, 20, 30
"""Extra records of each partition."""


class ReturnScene(CutoverScene):
    """A cutover's scene, whose first cluster is lost and returns."""

    extras: Counter[bytes]

    def options(self) -> list[str]:
        return ["--yes", "--hook-fence", f"{self.hook} {self.folder}", "--timeout", f"{int(120 * PATIENCE)}"]

    def rest(self) -> None:
        """Let the producers stop, and the group read everything."""
        self._is_quiet.clear()
        self._no_load.set()
        wait_until(self._is_quiet.is_set, "the producers stop", deadline_s=ANSWER_S)
        wait_until(lambda: sum(self.read.values()) >= len(self.acked), "all is read", deadline_s=ANSWER_S)

    def go_on(self) -> None:
        self._no_load.clear()

    def lose_source(self) -> None:
        """End A->B, send clients to B, let A take more records, kill A, and note the failover on B alone."""
        source, target = self.clusters[self.a], self.clusters[self.b]
        self.rest()
        self.run.wait_until(lambda: self.held(self.b, target).total() == len(self.acked), "B has everything")
        code, text = self.run.dr("turn", self.flow, "--off", "--yes")
        assert code == 0, text
        self._place_group(target)
        self.send_to(self.b)
        self.go_on()
        self.wait_for_more()  # the group has left A: it reads none of what follows there
        self._write_extras(source)
        # A broker answers a commit before the markers are written: killed then, it has an open transaction for a while.
        is_committed = partial(self._has_extras, source)
        wait_until(is_committed, "what was committed can be read", deadline_s=ANSWER_S)
        source.broker(1).kill()
        asyncio.run(self._note_failover())
        self.wait_for_more()
        source.brokers[0].restart()

    def _write_extras(self, source: KafkaCluster) -> None:
        plain = [f"extra {number}".encode() for number in range(2 * EXTRA)]
        whole = [f"whole {number}".encode() for number in range(2 * COMMITTED)]
        self._send_only(producer(source), plain)
        client = producer(source, transactional_id=f"{self.topic}-app")
        client.init_transactions(ANSWER_S)
        for values_, ends in ((range(2 * ABORTED), client.abort_transaction), (whole, client.commit_transaction)):
            client.begin_transaction()
            self._send_only(client, [one if isinstance(one, bytes) else f"aborted {one}".encode() for one in values_])
            ends(ANSWER_S)
        self.extras = Counter([*plain, *whole])

    def _has_extras(self, source: KafkaCluster) -> bool:
        return not self.extras - Counter(values(source, self.topic, (0, 1)))

    def _send_only(self, client: object, records: list[bytes]) -> None:
        for at, value in enumerate(records):
            client.produce(self.topic, value, partition=at % 2)  # type: ignore[attr-defined]
        client.flush(ANSWER_S)  # type: ignore[attr-defined]

    def _place_group(self, target: KafkaCluster) -> None:
        """Commit the group behind the copies, as a failover does."""
        client = Consumer({"bootstrap.servers": target.internal_bootstrap, "group.id": self.group})
        try:
            topic = self.read_topics(self.b)[-1]
            at = [TopicPartition(topic, n, client.get_watermark_offsets(TopicPartition(topic, n))[1]) for n in (0, 1)]
            client.commit(offsets=at, asynchronous=False)
        finally:
            client.close()

    async def _note_failover(self) -> None:
        rng, clock = random.Random(), SystemClock()
        settings = flow_of(read_settings_file(self.run.file, None), self.flow)
        brokers = connect("dr", settings.flow, settings.target, timeout_s=30, rng=rng)
        try:
            store = JournalTopics(settings.flow, {settings.flow.target: brokers}, clock=clock, rng=rng)
            journal = await JournalWriter.open(store, author=Author("ann", "ops1"), clock=clock, rng=rng)
            for event in FAILOVER:
                await journal.append(event, settings.flow, topics=(self.topic,))
        finally:
            await brokers.close()

    def listed(self) -> tuple[int, dict[str, list[object]]]:
        """Return the exit code of ``dr extras``, and first offset, end and records by partition."""
        code, text = self.run.dr("extras", self.flow, "--json")
        body = json.loads(text)
        return code, {
            f"{one['topic']}-{one['partition']}": [one["first"], one["end"], one["records"]]
            for one in body["partitions"]
        }

    def killed_when(self, verb: str, *more: str, told: str) -> str:
        """Call a verb, and kill it as soon as it says something."""
        process = self.started(verb, *more)
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if told in line:
                os.kill(process.pid, signal.SIGKILL)
        process.wait(ANSWER_S)
        text = "".join(lines)
        assert process.returncode == -signal.SIGKILL, text
        return text

    def check_order(self) -> None:
        """The extras are on B in the order of A."""
        topic = self.topic if self.keeps_names else f"{self.a}.{self.topic}"
        for number in (0, 1):
            there = [one for one in values(self.clusters[self.b], topic, [number]) if one in self.extras]
            here = [one for one in values(self.clusters[self.a], self.topic, [number]) if one in self.extras]
            assert there == list(dict.fromkeys(here)), f"partition {number}"


@contextmanager
def returned(source: KafkaCluster, target: KafkaCluster, folder: Path, policy: str) -> Iterator[ReturnScene]:
    scene = ReturnScene(source, target, folder, policy)
    with scene.run:
        scene.run.wait_for_event("topics.copying", flow=scene.flow)
        with scene.load():
            scene.wait_for_more()
            scene.lose_source()
            yield scene
        assert scene.run.terminate() == 0


@pytest.mark.parametrize("policy", [IDENTITY, pytest.param(PREFIXED, marks=pytest.mark.slow)])
def test_extras_are_listed_replayed_once_although_killed_and_the_failback_loses_and_repeats_nothing(
    make_cluster: Callable[..., KafkaCluster], target_cluster: KafkaCluster, tmp_path: Path, policy: str
) -> None:
    source = make_cluster("returns")
    with returned(source, target_cluster, tmp_path, policy) as scene:
        code, found = scene.listed()
        assert code == 3
        assert [one[2] for one in found.values()] == [EXTRA + COMMITTED] * 2, "no marker, and nothing that was aborted"
        said = "are about to be replayed" if policy == IDENTITY else "to be copied by"
        scene.killed_when("reinstate", "--replay", told=said)
        scene.wait_for_more()
        code, text = scene.call("reinstate", "--replay")
        assert code == 0, text
        scene.check_order()
        scene.acked += scene.extras.elements()
        scene.wait_for_more()
        scene.judge()
        code, text = scene.call("failback", "--hook-switch", f"{scene.hook} {scene.folder}")
        assert code == 0, text
        assert (scene.at, scene.is_fenced(scene.a), scene.is_fenced(scene.b)) == (scene.a, False, True)
        scene.wait_for_more()
        scene.judge()


def test_without_a_decision_it_stops_and_what_is_exported_and_left_stays_on_the_old_side_alone(
    make_cluster: Callable[..., KafkaCluster], target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    source = make_cluster("returns")
    with returned(source, target_cluster, tmp_path, IDENTITY) as scene:
        code, text = scene.call("reinstate")
        assert code == 3 and "Nobody has decided yet" in text, text
        exported = f"extras.{scene.topic}"
        code, text = scene.run.dr("extras", scene.flow, "--export-topic", exported, "--plan")
        assert code == 3, text
        code, text = scene.run.dr("extras", scene.flow, "--export-topic", exported, "--yes")
        assert code == 0, text + scene.run.last_errors
        assert Counter(values(target_cluster, exported)) == scene.extras
        code, text = scene.call("reinstate")
        assert code == 0, text
        scene.wait_for_more()
        scene.rest()
        sent = Counter(scene.acked)
        scene.run.wait_until(
            lambda: scene.held(scene.a, source).total() >= sent.total() + scene.extras.total(),
            "A has everything",
            deadline_s=ANSWER_S,
        )
        assert scene.held(scene.a, source) == sent + scene.extras
        assert scene.held(scene.b, target_cluster) == sent == scene.read
        code, text = scene.run.dr("extras", scene.flow)
        assert code == 0 and f"exported to topic {exported}" in text, text


def test_a_topic_that_the_old_side_has_made_anew_is_a_gap_and_invents_no_extras(
    make_cluster: Callable[..., KafkaCluster], target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    source = make_cluster("returns")
    with returned(source, target_cluster, tmp_path, IDENTITY) as scene:
        delete_topic(source, scene.topic)
        make_topic(source, scene.topic, 2)
        code, text = scene.run.dr("extras", scene.flow)
        assert code == 3 and text.count("gap: ") == 2 and "0 record(s)" in text, text
