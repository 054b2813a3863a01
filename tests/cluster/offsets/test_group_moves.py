"""``mm2py groups --move`` and ``--move-back`` on real brokers, judged by consumers of librdkafka.

A group reads some records on A, moves, reads some on B, moves back, and reads the rest on A. All records are different
from each other, and in the end the group has read each of them exactly once.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, ShareConsumer, TopicPartition

from deploy.local.kafka import KafkaCluster
from mm2py.config.configuration import flow_of, read_settings_file
from mm2py.dr.groups.group_inquiry import GroupMoveInquiry
from mm2py.dr.groups.moving import JudgedGroup, commit_flow, judge_flow
from mm2py.flow_clusters import both_of
from mm2py.kafka.cluster import Cluster
from mm2py.kafka.consumer_groups import list_groups
from mm2py.logs import make_logger
from tests.checker.dump import dumped
from tests.checker.dumped import digest
from tests.cluster.copies import assert_copied
from tests.cluster.drills import DrillTopics, go_on
from tests.cluster.group_offsets import commit, member
from tests.cluster.judged_offsets import Place
from tests.cluster.kafka_client import admin, new_name, offsets, write
from tests.cluster.running import ANSWER_S, PATIENCE, Mm2py, Value, one_way_properties, until, wait_until

pytestmark = pytest.mark.timeout(600 * PATIENCE)

RECORDS = 400
"""Of each topic."""
READ_S = 60.0 * PATIENCE
REFUSED = 3


class MovingScene:
    """A flow of the topics of a drill, with aliases of its own."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, **extra: Value) -> None:
        self.source, self.target = source, target
        self.topics = DrillTopics(source, seed=7)
        self.alias, self.other = new_name("A").replace("-", ""), new_name("B").replace("-", "")
        self.flow = f"{self.alias}->{self.other}"
        self.topics.make_remotes(target, self.alias)
        self.properties: dict[str, Value] = one_way_properties(source, target, names=(self.alias, self.other)) | {
            f"{self.flow}.topics": ",".join(self.topics.topics),
            f"{self.alias}.consumer.isolation.level": "read_committed",
            "sync.topic.configs.enabled": False,
            "config.storage.replication.factor": 1,
            **{name.replace("_", "."): value for name, value in extra.items()},
        }

    @property
    def remotes(self) -> list[str]:
        return [f"{self.alias}.{topic}" for topic in self.topics.topics]

    def assert_copied(self, run: Mm2py) -> None:
        for topic, remote in zip(self.topics.topics, self.remotes, strict=True):
            assert_copied(
                *(self.source, self.target, topic, remote),
                run=run,
                deadline_s=READ_S,
                read_committed=True,
                ledger=self.topics.sends,
            )

    def asked(self, run: Mm2py, *arguments: str) -> tuple[int, str]:
        return run._output_of("groups", self.flow, *arguments)

    def told(self, run: Mm2py, *arguments: str) -> tuple[int, dict[str, object]]:
        code, text = self.asked(run, *arguments, "--json")
        return code, json.loads(text)


def read_some(client: Consumer, topics: list[str], count: int) -> list[bytes]:
    """Read so many records, commit what was read, and leave the group."""
    try:
        return read_on(client, topics, count)
    finally:
        client.close()


def read_on(client: Consumer, topics: list[str], count: int) -> list[bytes]:
    """Read so many records, commit the offsets behind them, and stay.

    librdkafka by itself would commit behind the markers that follow; programs that commit by the record do not.
    """
    found: list[bytes] = []
    behind: dict[Place, int] = {}
    client.subscribe(topics)

    def has_read() -> bool:
        for message in client.consume(count - len(found), 0.2):
            assert message.error() is None, message.error()
            record = dumped(message)
            found.append(digest(record))
            behind[str(message.topic()), message.partition() or 0] = record.offset + 1
        return len(found) == count

    wait_until(has_read, f"{count} records are read", deadline_s=READ_S)
    client.commit(offsets=[TopicPartition(*place, offset) for place, offset in behind.items()], asynchronous=False)
    return found


def commits(cluster: KafkaCluster, group: str) -> dict[Place, tuple[int, int]]:
    """Return offset and leader epoch of each partition in which a group has committed something."""
    asked = admin(cluster).list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    at: list[TopicPartition] = asked[group].result(ANSWER_S).topic_partitions
    return {
        (one.topic, one.partition): (one.offset, -1 if one.leader_epoch is None else one.leader_epoch)
        for one in at
        if one.offset >= 0
    }


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_moves_there_and_back_reads_every_record_once(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, protocol: str
) -> None:
    scene, group = MovingScene(source_cluster, target_cluster), new_name("moves")
    with Mm2py(scene.properties) as run:
        scene.topics.write(RECORDS)
        scene.assert_copied(run)
        logs = scene.topics.logs()
        wanted = Counter(digest(record) for log in logs.values() for record in log)
        count = wanted.total() // 3

        met = read_some(member(source_cluster, group, protocol=protocol), scene.topics.topics, count)
        code, plan = scene.told(run, "--move", group, "--plan")
        assert (code, plan["outcome"], commits(target_cluster, group)) == (0, "ready", {})
        text = run.ordered("groups", scene.flow, "--move", group, "--yes", "--reason", "ticket 4711")
        assert f"Group {group} is moved" in text and ", exact" in text
        there = commits(target_cluster, group)
        assert {(topic.removeprefix(f"{scene.alias}."), number) for topic, number in there} == commits(
            source_cluster, group
        ).keys()
        assert {epoch for _, epoch in there.values()} == {-1}, "epochs of A mean nothing on B"
        assert scene.told(run, "--move", group, "--yes")[1]["outcome"] == "there"

        met += read_some(member(target_cluster, group, protocol=protocol), scene.remotes, count)
        code, refused = scene.told(run, "--move", group, "--plan")
        assert code == REFUSED and "would be set back to" in str(refused["why"])
        code, back = scene.told(run, "--move-back", group, "--yes")
        assert (code, back["outcome"]) == (0, "moved"), back

        scene.topics.write(RECORDS // 10)  # the group goes on on A behind what it has read on B
        wanted = Counter(digest(record) for log in scene.topics.logs().values() for record in log)
        rest = go_on(source_cluster, group, scene.topics.places, reset="earliest")
        met += [digest(record) for records in rest.values() for record in records]
        history = run.ordered("history", scene.flow)
        assert run.terminate() == 0
    again = Counter(met) - wanted
    lost = wanted - Counter(met)
    # compaction may have removed a record that was read before from the log that was dumped last
    assert not lost and all(found == 1 for found in Counter(met).values()), (lost.total(), again.total())
    assert f"group {group} moved to {scene.other}" in history and "ticket 4711" in history
    assert f"group {group} moved to {scene.alias}" in history


def moved_nothing(scene: MovingScene, run: Mm2py, group: str, *arguments: str) -> str:
    """Ask for a move that is refused; return why."""
    before = commits(scene.target, group)
    code, found = scene.told(run, *arguments)
    assert (code, found["outcome"]) == (REFUSED, "refused"), found
    assert commits(scene.target, group) == before
    return str(found["why"])


def joined(client: Consumer, topic: str) -> Consumer:
    """Let a consumer join its group, read one record, and commit it."""
    client.subscribe([topic])

    def has_read() -> bool:
        message = client.poll(0.5)
        return message is not None and message.error() is None

    wait_until(has_read, "a record is read", deadline_s=READ_S)
    client.commit(asynchronous=False)
    return client


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_active_groups_are_refused_by_name_with_members_and_hosts(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, protocol: str
) -> None:
    scene, group, shares = MovingScene(source_cluster, target_cluster), new_name("busy"), new_name("shares")
    topic = scene.topics.plain
    share = ShareConsumer({"bootstrap.servers": source_cluster.internal_bootstrap, "group.id": shares, "log_level": 0})
    here = member(source_cluster, group, protocol=protocol)
    there = member(target_cluster, group, protocol=protocol)
    with Mm2py(scene.properties) as run:
        try:
            scene.topics.write(20)
            scene.assert_copied(run)
            joined(here, topic)
            why = moved_nothing(scene, run, group, "--move", group, "--yes")
            assert f"it has members on {scene.alias} (" in why and f"{here.memberid()} on 127.0.0.1" in why
            here.close()
            joined(there, f"{scene.alias}.{topic}")
            wait_until(lambda: "Empty" in state_of(source_cluster, group), "it has left A")
            why = moved_nothing(scene, run, group, "--move", group, "--yes")
            assert f"it has members on {scene.other} (" in why and f"{there.memberid()} on 127.0.0.1" in why

            share.subscribe([topic])
            wait_until(lambda: [*share.poll(0.2), *share_groups(source_cluster, shares)], "the share group is listed")
            why = moved_nothing(scene, run, shares, "--move", shares, "--yes")
            assert why == "it is a share group, and keeps its positions in another way: it is not moved"
        finally:
            share.close()
            there.close()
            here.close()
        assert run.terminate() == 0


def share_groups(cluster: KafkaCluster, group: str) -> list[str]:
    """Return the group if it is there as a share group, which librdkafka's list leaves out."""

    async def ask() -> list[str]:
        host, _, port = cluster.bootstrap.rpartition(":")
        brokers = Cluster("X", [(host, int(port))], rng=random.Random(1), client_id="groups")
        try:
            found = (await list_groups(brokers)).get(group)
        finally:
            await brokers.close()
        return [group] if found is not None and found.protocol_type == "share" else []

    return asyncio.run(ask())


def state_of(cluster: KafkaCluster, group: str) -> str:
    found = admin(cluster).list_consumer_groups().result(ANSWER_S)
    return next((f"{one.state}".title() for one in found.valid if one.group_id == group), "")


def test_group_sync_leaves_a_moved_group_where_it_reads_on_the_target(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """Rounds of group sync go on: another group is the clock by which they are seen."""
    stem = new_name("synced")
    scene = MovingScene(
        source_cluster,
        target_cluster,
        **{
            "emit.checkpoints.enabled": True,
            "emit.checkpoints.interval.seconds": 1,
            "sync.group.offsets.enabled": True,
            "sync.group.offsets.interval.seconds": 1,
            "sync.group.offsets.rewind": True,
            "groups": f"{stem}.*",
        },
    )
    group, other = f"{stem}-moved", f"{stem}-clock"
    place = (f"{scene.alias}.{scene.topics.plain}", 0)

    def a_round(run: Mm2py, offset: int) -> None:
        """Let rounds pass until a later commit of the other group is there."""
        commit(source_cluster, other, scene.topics.plain, offset)
        run.wait_until(lambda: commits(target_cluster, other).get(place, (-1, -1))[0] == offset, "a round of sync")

    with Mm2py(scene.properties) as run:
        write(source_cluster, scene.topics.plain, [f"{number}" for number in range(100)])
        run.wait_until(lambda: ended(target_cluster, place[0]) == 100, "all is copied")
        commit(source_cluster, group, scene.topics.plain, 40)
        assert scene.told(run, "--move", group, "--yes")[0] == 0
        a_round(run, 10)
        assert commits(target_cluster, group)[place][0] == 40
        commit(target_cluster, group, place[0], 70)
        for offset in (20, 30, 40):
            a_round(run, offset)
            assert commits(target_cluster, group)[place][0] == 70
        assert run.terminate() == 0


def ended(cluster: KafkaCluster, topic: str) -> int:
    client = member(cluster, new_name("looks"))
    try:
        return int(client.get_watermark_offsets(TopicPartition(topic, 0), ANSWER_S)[1])
    finally:
        client.close()


def test_at_fenced_ends_a_connected_group_that_has_read_all_is_final_and_moves_without_leaving(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """Its commits stand before the markers of the last transactions. No producer writes: the ends stay as they are."""
    stem = new_name("flow")
    checkpoints: dict[str, Value] = {"emit.checkpoints.enabled": True, "emit.checkpoints.interval.seconds": 3600}
    scene = MovingScene(source_cluster, target_cluster, **checkpoints, groups=f"{stem}.*")
    done, busy, idle = f"{stem}-done", f"{stem}-busy", f"{stem}-idle"
    members: list[Consumer] = []
    with Mm2py(scene.properties) as run:
        try:
            scene.topics.write(RECORDS)
            scene.assert_copied(run)
            logs = scene.topics.logs()
            wanted = Counter(digest(record) for log in logs.values() for record in log)
            members = [member(source_cluster, done, protocol="consumer"), member(source_cluster, busy)]
            read_on(members[0], scene.topics.topics, wanted.total())
            joined(members[1], scene.topics.plain)
            met = read_some(member(source_cluster, idle), scene.topics.topics, wanted.total() // 2)
            ends = {place: offsets(source_cluster, *place)[1] for place in scene.topics.places}
            stood = commits(source_cluster, done)
            assert any(at < ends[place] for place, (at, _) in stood.items()), f"markers follow: {stood} {ends}"
            states = asyncio.run(moved_flow(run, scene.flow, ends, busy))
            assert states == {done: "ready", busy: "waits", idle: "ready"}
        finally:
            for one in members:
                one.close()
        assert run.terminate() == 0
    places = [(f"{scene.alias}.{topic}", number) for topic, number in scene.topics.places]
    assert go_on(target_cluster, done, places) == {}
    rest = [
        digest(record)
        for records in go_on(target_cluster, idle, places, reset="earliest").values()
        for record in records
    ]
    assert Counter(met + rest) == wanted
    assert commits(target_cluster, busy) == {}


async def moved_flow(run: Mm2py, flow: str, ends: dict[Place, int], left: str) -> dict[str, str]:
    """Judge all groups of a flow, and move all but one; return what was said of each before."""
    settings = flow_of(read_settings_file(run.file, None), flow)
    async with both_of("tests", settings, random.Random(1)) as (source, target):
        inquiry = GroupMoveInquiry(settings, source, target, make_logger("warning", "text"), is_back=False)

        async def are_settled() -> list[JudgedGroup] | None:
            found = await judge_flow(inquiry, ends)  # the ledger may be a second late
            return None if any("ledger" in one.move.why for one in found) else found

        found = await until(are_settled, "the ledger has the ends")
        await commit_flow(inquiry, await judge_flow(inquiry, ends, left_groups=[left]), target)
    return {one.move.group: str(one.move.state) for one in found}


def test_without_a_terminal_and_without_yes_nothing_is_moved(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    scene, group = MovingScene(source_cluster, target_cluster), new_name("asks")
    with Mm2py(scene.properties) as run:
        scene.topics.write(20)
        scene.assert_copied(run)
        commit(source_cluster, group, scene.topics.plain, 5)
        code, text = scene.asked(run, "--move", group)
        assert code == 2 and "Nothing was moved: without a terminal --yes is needed." in text
        code, text = scene.asked(run, "--move", group, "--plan")
        assert code == 0 and f"{scene.topics.plain}-0  5 -> {scene.alias}.{scene.topics.plain}-0  5, exact" in text
        commit(source_cluster, group, scene.topics.plain, 10_000)
        code, text = scene.asked(run, "--move", group, "--yes")
        assert code == REFUSED and "its commit is beyond the end of" in text
        assert commits(target_cluster, group) == {}
        assert run.terminate() == 0
