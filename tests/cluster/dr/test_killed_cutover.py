"""``mm2py dr cutover`` killed behind every step, or without what it needs: it goes on, or stops and says why."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from deploy.local.kafka import KafkaCluster
from mm2py.flow import parse_flow
from mm2py.topics.names import recovery_topic
from tests.cluster.copies import producer
from tests.cluster.dr.test_cutover import BATCH, IDENTITY, PARTITIONS, PREFIXED, CutoverScene, running_scene
from tests.cluster.kafka_client import admin, create_topic, delete_topic, topic_names
from tests.cluster.least_rights import PASSWORD, GuardedPair, guarded_pair
from tests.cluster.running import ANSWER_S, PATIENCE
from tests.cluster.topics.test_topic_sync import rule

APP: Final = "user1"
STEPS: Final = ("Fencing", "Fenced", "FenceVerified", "Drained", "GroupsFinal", "Switching", "Switched", "Reversed")


class AclScene(CutoverScene):
    """The producers are a user who is fenced by ACLs. What they may not write, they write where they are sent next."""

    def __init__(self, pair: GuardedPair, folder: Path, policy: str) -> None:
        super().__init__(pair.source, pair.target, folder, policy)
        for cluster in self.clusters.values():
            rules = [rule(self.topic, f"User:{APP}", one) for one in (AclOperation.WRITE, AclOperation.DESCRIBE)]
            for made in admin(cluster).create_acls(rules).values():
                made.result(ANSWER_S)

    def options(self) -> list[str]:
        hook = f"{self.hook} {self.folder}"
        timeout = ["--timeout", f"{int(120 * PATIENCE)}"]
        return ["--yes", "--accept-unproven-fence", "--hook-switch", hook, *timeout]

    def is_fenced(self, alias: str) -> bool:
        denied = (AclOperation.WRITE, AclPermissionType.DENY)
        wanted = AclBindingFilter(ResourceType.TOPIC, self.topic, ResourcePatternType.LITERAL, None, None, *denied)
        return bool(admin(self.clusters[alias]).describe_acls(wanted).result(ANSWER_S))

    def _produce(self) -> None:
        clients = {alias: self._client(cluster) for alias, cluster in self.clusters.items()}
        number = 0
        waiting: list[bytes] = []
        while not self._over.wait(0.05):
            if self._no_load.is_set() and not waiting:
                self._is_quiet.set()
                continue
            self._is_quiet.clear()
            if not waiting:
                waiting = [f"{number + at}".encode() for at in range(BATCH)]
                number += BATCH
            if self._consumers_at == self.at:
                waiting = self._refused(clients[self.at], waiting)

    def _client(self, cluster: KafkaCluster) -> Producer:
        return producer(
            cluster,
            bootstrap_servers=cluster.bootstrap_for("SASL"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username=APP,
            sasl_password=PASSWORD,
        )

    def _refused(self, client: Producer, records: list[bytes]) -> list[bytes]:
        """Send records; return those that the fence has refused."""
        refused: list[bytes] = []

        def settled(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.acked.append(message.value() or b"")
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                refused.append(message.value() or b"")
            else:
                self.failures.append(f"a record was refused: {error}")

        for value in records:
            client.produce(self.topic, value, partition=int(value) % PARTITIONS, on_delivery=settled)
        client.flush(ANSWER_S)
        return refused


@contextmanager
def scene_by(way: str, policy: str, source: KafkaCluster, target: KafkaCluster, folder: Path) -> Iterator[CutoverScene]:
    if way == "acls":
        with guarded_pair() as pair, running_scene(AclScene(pair, folder, policy)) as scene:
            yield scene
    else:
        with running_scene(CutoverScene(source, target, folder, policy)) as scene:
            yield scene


@pytest.mark.slow
@pytest.mark.timeout(1800 * PATIENCE)
@pytest.mark.parametrize(("policy", "way"), [(PREFIXED, "acls"), (PREFIXED, "hook"), (IDENTITY, "hook")])
def test_killed_behind_every_step_it_goes_on_here_and_at_the_other_site(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path, policy: str, way: str
) -> None:
    with scene_by(way, policy, source_cluster, target_cluster, tmp_path) as scene:
        other_site = tmp_path / "site-b.properties"
        shutil.copy(scene.run.file, other_site)
        for at, state in enumerate(STEPS):
            scene.killed_at("cutover", state, file=other_site if at % 2 else None)
        process = scene.started("cutover", "--json", file=other_site)
        text, _ = process.communicate(timeout=ANSWER_S * 2)
        found = json.loads(text[text.index("{") :])
        assert (process.returncode, found["exit_code"]) == (0, 0), text
        assert found["run"]["state"] == "Reversed"
        assert (scene.at, scene.is_fenced(scene.a), scene.is_fenced(scene.b)) == (scene.b, True, False)
        scene.wait_for_more()
        scene.judge()
        for state in ("Fenced", "Switching"):
            scene.killed_at("rollback", state)
        code, text = scene.call("rollback")
        assert code == 0, text
        assert (scene.at, scene.is_fenced(scene.a), scene.is_fenced(scene.b)) == (scene.a, False, True)
        scene.wait_for_more()


def test_a_journal_that_is_lost_in_the_middle_stops_everything_and_says_what_to_do(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    with running_scene(CutoverScene(source_cluster, target_cluster, tmp_path, PREFIXED)) as scene:
        scene.killed_at("cutover", "FenceVerified")
        name = str(recovery_topic(parse_flow(scene.flow)).name)
        delete_topic(target_cluster, name)
        for verb in ("cutover", "rollback"):
            code, text = scene.call(verb)
            assert code == 1, text
            assert "was deleted, or made again" in text or "disagree" in text, text
            assert "delete the topic mm2-recovery.*.internal of the pair on both clusters" in text, text
        assert (scene.at, scene.is_fenced(scene.a)) == (scene.a, True)
        # The way out that it names
        hook = ["--hook-fence", f"{scene.hook} {scene.folder}"]
        assert scene.run.dr("unfence", scene.flow, "--yes", *hook)[0] == 0
        assert not scene.is_fenced(scene.a)
        for cluster in scene.clusters.values():
            if name in topic_names(cluster):
                delete_topic(cluster, name)
        code, text = scene.call("cutover")
        assert code == 0, text
        scene.wait_for_more()


LOST: Final = {
    "positions": (
        "mm2-offsets.{a}.internal",
        3,
        "has no position of it. ",
        "create it again by hand, with as many partitions",
    ),
    "fence": ("mm2-dr-fences.internal", 1, "What the fence on", "Remove by hand what stops producers of"),
    "control log": ("mm2-cluster.{group}.internal", 1, "its control log mm2-cluster.", "worker is dead, start one"),
}
"""By what is lost: the topic, exit code of the next call, what it says, and what it tells the operator to do."""


@pytest.mark.slow
@pytest.mark.parametrize("lost", LOST)
def test_what_a_cutover_rests_on_is_lost_in_the_middle_and_nothing_is_switched_by_guess(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path, lost: str
) -> None:
    """With the control log its workers are lost, too: else they make it again, and say themselves how they stand."""
    topic, exit_code, what, remedy = LOST[lost]
    with running_scene(CutoverScene(source_cluster, target_cluster, tmp_path, IDENTITY)) as scene:
        is_switched = lost == "control log"
        scene.killed_at("cutover", "Switched" if is_switched else "FenceVerified")
        if is_switched:
            scene.run.kill()
        (group,) = re.findall(r"^mm2py\.group *= *(\S+)", scene.run.file.read_text(), re.MULTILINE)
        name = topic.format(a=scene.a, group=group)
        for cluster in (source_cluster, target_cluster):
            if name in topic_names(cluster):
                delete_topic(cluster, name)
        code, text = scene.call("cutover")
        assert (code, what in text, remedy in text) == (exit_code, True, True), text
        state = json.loads(scene.run.dr("history", scene.flow, "--json")[1])["runs"][-1]["state"]
        match lost:
            case "positions":  # all is taken back, and the worker goes on with what it knows
                assert (state, scene.at, scene.is_fenced(scene.a)) == ("TakenBack", scene.a, False)
                code, text = scene.call("cutover")
                assert code == 1 and what in text and remedy in text and not scene.is_fenced(scene.a), text
                create_topic(target_cluster, name, 25, {"cleanup.policy": "compact"})  # by hand, as it says
                scene.run.wait_until(lambda: scene.call("cutover")[0] == 0, "it cuts over", deadline_s=ANSWER_S)
            case "fence":
                assert (state, scene.at, scene.is_fenced(scene.a)) == ("TakingBack", scene.a, True)
                (scene.folder / f"{scene.a}.fenced").unlink()  # by hand, as it says
            case _:
                assert (state, scene.at, scene.is_fenced(scene.a)) == ("Switched", scene.b, True)
                scene.run.start()
                scene.run.wait_until(lambda: scene.call("cutover")[0] == 0, "it goes on", deadline_s=ANSWER_S)
        scene.wait_for_more()
