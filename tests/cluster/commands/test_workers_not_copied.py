"""What is not copied while partitions change their workers, or have none: in six places, see ``test_not_copied.py``.

None of it is a problem, unless a partition has no worker.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping

from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import without_right
from tests.cluster.kafka_client import new_name, values, write
from tests.cluster.running import Mm2py, one_way_properties, wait_until
from tests.cluster.six_places import FIRST, MORE, SLOW_S, Scene

LONG: Mapping[str, int] = {"B.session.timeout.ms": 60_000}
"""A worker that is suspended is not evicted, and the tests need not hurry."""


def owner_of(scene: Scene, topic: str) -> str | None:
    """Return the member that has the only partition of a topic."""
    return next(iter((scene.in_v1(topic) or {"copy": {"owners": {}}})["copy"]["owners"]), None)


@contextlib.contextmanager
def another_worker(scene: Scene, topics: list[str]) -> Iterator[tuple[Mm2py, list[str]]]:
    """Start another worker of the group, and wait until it copies some of the topics, which are yielded with it."""
    before = {owner_of(scene, topic) for topic in topics}
    with Mm2py(scene.run.file) as worker:

        def owned() -> list[str]:
            return [topic for topic in topics if owner_of(scene, topic) not in before]

        found = worker.wait_until(owned, "it owns some", deadline_s=SLOW_S)
        for topic in topics:
            scene.is_copied(topic)
        yield worker, found


def copied_topics(scene: Scene, count: int) -> list[str]:
    topics = [f"{scene.stem}-t-first", *(scene.topic(f"{number}") for number in range(1, count))]
    for topic in topics:
        scene.copied(topic, len(FIRST))
        scene.is_copied(topic)
    return topics


def test_a_topic_that_its_previous_worker_has_not_released_is_moving(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """A worker that is suspended releases nothing."""
    with Scene(source_cluster, target_cluster, LONG).running() as scene:
        topics = copied_topics(scene, 8)
        with another_worker(scene, topics) as (suspended, _):
            suspended.signal(signal.SIGSTOP)
            with Mm2py(scene.run.file), Mm2py(scene.run.file):  # the first of them may take what others release
                moving = wait_until(
                    lambda: [topic for topic in topics if scene.in_v1(topic)["reason"] == "moving"],
                    "some move",
                    deadline_s=SLOW_S,
                )
                scene.says(moving[0], "moving", cause="moving")
                suspended.signal(signal.SIGCONT)
                scene.is_copied(moving[0])


def test_a_topic_of_which_it_is_found_out_where_to_go_on_is_starting(
    source_cluster: KafkaCluster, guarded_cluster: KafkaCluster
) -> None:
    """A worker was killed, and the next one may not read what that has written."""
    with Scene(source_cluster, guarded_cluster, {"stall.timeout.ms": 900_000}).running() as scene:
        topics = copied_topics(scene, 4)
        with another_worker(scene, topics) as (killed, (topic, *_)):
            with without_right(scene.target, scene.remote(topic), AclOperation.READ):
                killed.kill()
                write(scene.source, topic, MORE)
                scene.says(topic, "starting", lag=len(MORE), cause="starting")
            wait_until(lambda: values(scene.target, scene.remote(topic)) == FIRST + MORE, "all is copied once")
            scene.is_copied(topic)


def test_a_topic_that_no_worker_has_is_unowned(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    """The leader of the group runs another flow, and is suspended: the flow's coordinator lists a topic meanwhile."""
    names = (new_name("H").replace("-", ""), "B")
    group = {"mm2py.group": new_name("group"), "config.storage.replication.factor": 1, **LONG}
    other = {f"{names[0]}->B.topics": new_name("nothing")}
    with Mm2py(one_way_properties(source_cluster, target_cluster, names=names, **group, **other)) as leader:
        leader.wait_for_event("flow.ready", deadline_s=SLOW_S)
        with Scene(source_cluster, target_cluster, group).running() as scene:
            leader.signal(signal.SIGSTOP)
            topic = scene.topic("unowned")
            said = scene.wait_for_v1(topic, "unowned")
            assert said["remedy"], said
            scene.why_tells("no-owner", topic)
            look = scene.look()
            assert [(one["reason"], one["waits_for_operator"]) for one in look.topic(topic)["not_copied"]] == [
                ("unowned", True)
            ]
            (problem,) = [one for one in look.found["problems"] if one["where"] == scene.flow]
            assert (look.code, problem["kind"]) == (3, "unowned") and problem["text"] in look.text
            trace = scene.in_connect()["connector"]["trace"]
            assert trace is not None and f"{topic}: No worker has it." in trace
            assert 0 not in scene.lags(topic)
            leader.signal(signal.SIGCONT)
            scene.copied(topic, len(FIRST))
            scene.is_copied(topic)
