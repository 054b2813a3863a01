"""``mm2py why`` names each cause for which a consumer group cannot continue on the target: the third part of the table
in docs/why.md. One worker runs flows of one source, each with settings of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import make_topic, only_rights
from tests.cluster.group_offsets import commit, member
from tests.cluster.kafka_client import create_topic, delete_topic, write
from tests.cluster.running import ANSWER_S, Value, wait_until
from tests.cluster.six_places import FIRST, MORE, SLOW_S, Scene
from tests.cluster.why_table import rows, wait_for_cause

EXTRA: Final[Mapping[str, Value]] = {
    "clusters": "{alias},{alias}N,{alias}D,B",
    "{alias}N.bootstrap.servers": "{source}",
    "{alias}N->B.enabled": True,
    "{alias}N->B.topics": "{stem}-t-.*",
    "{alias}N->B.emit.checkpoints.enabled": False,
    "{alias}D.bootstrap.servers": "{source}",
    "{alias}D->B.enabled": True,
    "{alias}D->B.topics": "{stem}-t-.*",
    "{alias}D->B.sync.group.offsets.enabled": False,
    "{alias}D->B.emit.offset-syncs.enabled": False,  # the topic on the source is the same for all flows to B
    "{alias}N->B.emit.offset-syncs.enabled": False,
    "emit.checkpoints.enabled": True,
    "emit.checkpoints.interval.seconds": 1,
    "sync.group.offsets.enabled": True,
    "sync.group.offsets.interval.seconds": 1,
    "{flow}.groups": "{stem}-g-.*",
    "{flow}.groups.exclude": "{stem}-g-not",
}
OF_GROUPS: Final = (
    *("group-not-included", "group-excluded", "group-excluded-by-default", "no-such-group", "group-elsewhere"),
    *("group-without-commit", "group-active", "may-not-commit", "group-ahead-of-copy", "group-topic-refused"),
    *("group-ahead-on-target", "group-topic-deleted", "no-checkpoints", "group-not-committed", "group-topic-stands"),
)


@dataclass(slots=True)
class GroupCauses:
    """Groups that cannot continue, each for a cause of its own."""

    scene: Scene
    ends: ExitStack
    """Gives back rights, and ends consumers."""
    paths: dict[str, str] = field(default_factory=dict)
    """Where ``/v1`` tells why, by cause."""

    def group(self, cause: str, topic: str = "", at: int = 5, *, name: str = "", letter: str = "") -> str:
        """Let a group commit in a topic, if one is named, and return the group's name."""
        group = name or f"{self.scene.stem}-g-{cause}"
        if topic:
            commit(self.scene.source, group, topic, at)
        self.paths[cause] = f"/v1/flows/{self.scene.alias}{letter}->B/why?group={group}"
        return group

    def make(self) -> None:
        scene, source, target, stem = self.scene, self.scene.source, self.scene.target, self.scene.stem
        create_topic(target, scene.remote(f"{stem}-t-full"), 1)
        write(target, scene.remote(f"{stem}-t-full"), ["whose is this?"])
        well, paused, deleted = (scene.topic(name) for name in ("well", "paused", "deleted"))
        for topic in (well, paused, deleted):
            scene.copied(topic, len(FIRST))
        full, other = scene.topic("full"), f"{stem}-other"
        make_topic(source, other, 1)
        write(source, other, FIRST)
        self.group("group-not-included", well, name=f"{stem}-others")
        self.group("group-excluded", well, name=f"{stem}-g-not")
        self.group("group-excluded-by-default", well, name=f"console-consumer-{stem}", letter="D")
        self.group("no-such-group")
        self.group("group-elsewhere", other)
        self.group("no-checkpoints", well, letter="N")
        self.group("group-not-committed", well, letter="D")
        self.idle_member(self.group("group-without-commit"), well)
        self.joined(target, self.group("group-active", well), scene.remote(well))
        denied = self.group("may-not-commit")
        self.ends.enter_context(only_rights(target, denied, [AclOperation.DESCRIBE], ResourceType.GROUP))
        self.group("may-not-commit", well)
        self.group("group-topic-refused", full)
        ahead = self.group("group-ahead-on-target", well)
        commit(target, ahead, scene.remote(well), 9)
        scene.run.ordered("pause", scene.flow, "--topic", paused, "--reason", "ticket 4711")
        scene.run.wait_for_event("topic.paused", topic=paused, deadline_s=SLOW_S)
        write(source, paused, MORE)
        self.group("group-topic-stands", paused)
        self.group("group-ahead-of-copy", paused, len(FIRST) + 5)
        self.group("group-topic-deleted", deleted)
        delete_topic(target, scene.remote(deleted))

    def joined(self, cluster: KafkaCluster, group: str, topic: str) -> Consumer:
        client = member(cluster, group)
        self.ends.callback(client.close)
        client.subscribe([topic])
        wait_until(lambda: client.poll(0.5) is not None, f"{group} reads", deadline_s=ANSWER_S)
        return client

    def idle_member(self, group: str, topic: str) -> None:
        """Let a group have a member that commits nothing."""
        self.joined(self.scene.source, group, topic)


@pytest.fixture(scope="module")
def causes(source_cluster: KafkaCluster, guarded_cluster: KafkaCluster) -> Iterator[GroupCauses]:
    scene = Scene(source_cluster, guarded_cluster, EXTRA)
    with scene.running(), ExitStack() as ends:
        found = GroupCauses(scene, ends)
        found.make()
        yield found


@pytest.mark.parametrize("cause", OF_GROUPS)
def test_why_names_the_cause_for_which_a_group_cannot_continue(causes: GroupCauses, cause: str) -> None:
    answer = wait_for_cause(cause, lambda: causes.scene.rest.told("GET", causes.paths[cause], 200))
    if rows()[cause].reason:
        assert (answer["replicated"], answer["exit_code"]) == ("no", 3), answer
    assert set(causes.paths) == set(OF_GROUPS)


def test_why_names_who_has_paused_what_follows_groups(causes: GroupCauses) -> None:
    """A group that has moved since cannot continue where it is; one that has not, does not follow any more."""
    scene = causes.scene
    topic = scene.topic("later")
    scene.copied(topic, len(FIRST))
    still = f"{scene.stem}-g-still"
    commit(scene.source, still, topic, 5)
    path = f"/v1/flows/{scene.flow}/why?group="

    def why(group: str) -> Any:
        return scene.rest.told("GET", path + group, 200)

    wait_until(lambda: why(still)["replicated"] == "yes", "it can continue", deadline_s=SLOW_S)
    scene.rest.told("PUT", f"{scene.rest.connector('Checkpoint')}/pause", 202)
    scene.run.wait_for_event("connector.paused", deadline_s=SLOW_S)
    commit(scene.source, moved := f"{scene.stem}-g-moved", topic, 7)
    answer = wait_for_cause("checkpoints-paused", lambda: why(moved))
    assert answer["replicated"] == "no", answer
    assert wait_for_cause("group-left-behind", lambda: why(still))["replicated"] == "yes"
