"""The client for applications on real brokers: groups, offsets in both directions, and topics that cannot be read."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, NewPartitions  # type: ignore[attr-defined, unused-ignore]

from deploy.local.kafka import KafkaCluster
from mm2py.client import (
    Answer,
    AnswerKind,
    ClusterAlias,
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    MirrorClient,
    MissingTopic,
    NewerLedgerFormat,
    ReadDenied,
    RemoteOffset,
    ReplicationPolicy,
)
from mm2py.client.topic_reader import read_to_end
from mm2py.flow import TopicName
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.runs import Hole, HoleCause, Run
from mm2py.records import checkpoint, ledger_record
from mm2py.records.batch import NewRecord
from mm2py.records.checkpoint import Checkpoint
from mm2py.records.ledger_record import ChunkKey, LedgerChunk
from tests.cluster.brokers.test_consumer_groups import seen_by_aiokafka
from tests.cluster.copies import new_topic, without_right
from tests.cluster.group_offsets import checkpoints_in
from tests.cluster.kafka_client import admin, create_topic, new_name, offsets, topic_names, write
from tests.cluster.running import (
    ANSWER_S,
    DEADLINE_S,
    OWN_PATH,
    PATIENCE,
    ROOT,
    Mm2py,
    one_way_properties,
    wait_until,
    within,
)

COMPACT = {"cleanup.policy": "compact"}
LEDGER_PARTITIONS = 3
T = TypeVar("T")


def asked(
    cluster: KafkaCluster, ask: Callable[[MirrorClient], Awaitable[T]], policy: ReplicationPolicy | None = None
) -> T:
    """Return what a client of the cluster answers. It leaves no task behind, whatever the answer."""

    async def play() -> T:
        client = MirrorClient(
            bootstrap_servers=cluster.internal_bootstrap, policy=policy or DefaultReplicationPolicy(), client_id="tests"
        )
        try:
            async with within(DEADLINE_S), client:
                return await ask(client)
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"still running: {left}"

    return asyncio.run(play())


def put(cluster: KafkaCluster, topic: str, records: Iterable[NewRecord], *, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": cluster.internal_bootstrap, "log_level": 0})
    _produce(producer, topic, records, partition)
    assert producer.flush(ANSWER_S) == 0


def put_in_transaction(cluster: KafkaCluster, topic: str, records: Iterable[NewRecord], *, commits: bool) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.internal_bootstrap, "transactional.id": f"tests-{uuid.uuid4()}", "log_level": 0}
    )
    producer.init_transactions(ANSWER_S)
    producer.begin_transaction()
    _produce(producer, topic, records, 0)
    assert producer.flush(ANSWER_S) == 0
    producer.commit_transaction(ANSWER_S) if commits else producer.abort_transaction(ANSWER_S)


def _produce(producer: Producer, topic: str, records: Iterable[NewRecord], partition: int) -> None:
    for record in records:
        stamp = record.timestamp_ms
        producer.produce(topic, key=record.key, value=record.value, partition=partition, timestamp=stamp)


def point(
    group: str, topic: str, upstream: int, downstream: int, *, partition: int = 0, metadata: str = ""
) -> NewRecord:
    return checkpoint.encode(Checkpoint(group, TopicName(topic), partition, upstream, downstream, metadata), 1000)


# -- topics ------------------------------------------------------------------------------------------------------------


def test_names_of_topics_tell_hops_clusters_and_copies(target_cluster: KafkaCluster) -> None:
    near, far, stem = new_name("near"), new_name("far"), new_name("orders")
    made = [f"{near}.heartbeats", f"{near}.{far}.heartbeats", f"{near}.{stem}", f"{near}.{far}.{stem}", stem]
    internal = [f"{near}.checkpoints.internal", f"mm2-ledger.{near}.internal"]
    for topic in made + internal:
        create_topic(target_cluster, topic)

    async def ask(client: MirrorClient) -> None:
        assert [await client.replication_hops(alias) for alias in (near, far, "nowhere")] == [1, 2, None]
        assert {near, far} <= await client.upstream_clusters()
        assert set(made[:2]) <= await client.heartbeat_topics()
        assert internal[0] in await client.checkpoint_topics()
        copies = set(made[:4])
        assert {topic for topic in await client.remote_topics() if topic.startswith(near)} == copies
        assert await client.remote_topics(near) == copies
        assert not await client.remote_topics(far)
        everything = await asyncio.gather(*(client.remote_topics(near) for _ in range(20)))
        assert everything == [copies] * 20

    asked(target_cluster, ask)


# -- groups ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "remote"),
    [
        (DefaultReplicationPolicy(), "{alias}.orders"),
        (DefaultReplicationPolicy(separator="_"), "{alias}_orders"),
        (DefaultReplicationPolicy(separator="_", internal_separator="."), "{alias}_orders"),
        (IdentityReplicationPolicy(), "orders"),
    ],
    ids=["default", "separator", "two separators", "identity"],
)
def test_the_last_checkpoint_of_each_partition_counts_whatever_else_is_in_the_topic(
    target_cluster: KafkaCluster, policy: DefaultReplicationPolicy, remote: str
) -> None:
    alias = ClusterAlias(new_name("A"))
    topic, orders = policy.checkpoints_topic(alias), remote.format(alias=alias)
    create_topic(target_cluster, topic, configs=COMPACT)
    put(
        target_cluster,
        topic,
        [
            point("bills", orders, 10, 5),
            point("bills", orders, 30, 25, metadata="ünder way"),
            point("bills", orders, 40, 30, partition=1),
            point("others", orders, 50, 40),
            NewRecord(b"\x00\x05bills", b"not ours", 1000),
            NewRecord(point("bills", orders, 0, 0).key, None, 1000),
            NewRecord(point("bills", orders, 0, 0).key, b"\x00\x00", 1000),
            point("bills", orders, 20, -1),
        ],
    )
    found = asked(target_cluster, lambda client: client.remote_consumer_offsets("bills", alias), policy)
    assert found == {
        (orders, 0): RemoteOffset(30, 25, "ünder way", is_exact=False),
        (orders, 1): RemoteOffset(40, 30, "", is_exact=False),
    }
    assert all(isinstance(place, TopicPartition) for place in found)
    assert asked(target_cluster, lambda client: client.remote_consumer_offsets("bill", alias), policy) == {}


def test_a_pattern_finds_all_groups_whose_whole_id_it_matches(target_cluster: KafkaCluster) -> None:
    alias = new_name("A")
    topic = f"{alias}.checkpoints.internal"
    create_topic(target_cluster, topic, configs=COMPACT)
    put(target_cluster, topic, [point(group, "A.orders", 7, 7) for group in ("bill", "bills", "my bills", "ships")])
    found = asked(
        target_cluster, lambda client: client.remote_consumer_offsets_matching(re.compile("bills?|s.*"), alias)
    )
    assert found.keys() == {"bill", "bills", "ships"}
    assert found["bill"] == {("A.orders", 0): RemoteOffset(7, 7, "", is_exact=False)}


def test_checkpoints_of_an_aborted_transaction_do_not_count_and_markers_at_the_end_hold_up_nothing(
    target_cluster: KafkaCluster,
) -> None:
    alias = new_name("A")
    topic = f"{alias}.checkpoints.internal"
    create_topic(target_cluster, topic, configs=COMPACT)
    put_in_transaction(target_cluster, topic, [point("bills", "A.orders", 7, 7)], commits=True)
    put_in_transaction(target_cluster, topic, [point("bills", "A.orders", 9, 9)], commits=False)
    found = asked(target_cluster, lambda client: client.remote_consumer_offsets("bills", alias))
    assert found == {("A.orders", 0): RemoteOffset(7, 7, "", is_exact=False)}


def test_a_topic_that_is_empty_or_was_emptied_has_no_offsets(target_cluster: KafkaCluster) -> None:
    alias = new_name("A")
    create_topic(target_cluster, f"{alias}.checkpoints.internal")
    assert asked(target_cluster, lambda client: client.remote_consumer_offsets("bills", alias)) == {}


def test_a_missing_topic_is_named_with_the_way_out_and_is_not_created(target_cluster: KafkaCluster) -> None:
    alias = new_name("A")
    with pytest.raises(MissingTopic, match=rf"{alias}\.checkpoints\.internal.*emit\.checkpoints\.enabled"):
        asked(target_cluster, lambda client: client.remote_consumer_offsets("bills", alias))
    with pytest.raises(MissingTopic, match=rf"mm2-ledger\.{alias}\.internal.*let mm2py copy"):
        asked(target_cluster, lambda client: client.translate(alias, {("orders", 0): [7]}))
    assert not {topic for topic in topic_names(target_cluster) if alias in topic}


def test_a_topic_that_may_not_be_read_is_named(guarded_cluster: KafkaCluster) -> None:
    alias = new_name("A")
    topic, ledger = f"{alias}.checkpoints.internal", f"mm2-ledger.{alias}.internal"
    for name in (topic, ledger):
        create_topic(guarded_cluster, name)
    put(guarded_cluster, topic, [point("bills", f"{alias}.orders", 7, 7)])
    put(guarded_cluster, ledger, [ledger_record.encode(chunk(new=True), 1000)])
    with without_right(guarded_cluster, topic, AclOperation.READ), pytest.raises(ReadDenied, match=f"READ on {topic}"):
        asked(guarded_cluster, lambda client: client.remote_consumer_offsets("bills", alias))
    with without_right(guarded_cluster, ledger, AclOperation.READ):
        with pytest.raises(ReadDenied, match=f"READ on {ledger}"):
            asked(guarded_cluster, lambda client: client.translate(alias, {("orders", 0): [7]}))
        found = asked(guarded_cluster, lambda client: client.remote_consumer_offsets("bills", alias))
        assert found == {(f"{alias}.orders", 0): RemoteOffset(7, 7, "", is_exact=False)}


# -- the ledger --------------------------------------------------------------------------------------------------------


def chunk(
    *runs: Run | Hole, new: bool = False, topic: str = "orders", copied_to: int = 0, number: int = 1
) -> LedgerChunk:
    source, target = runs[0][:2] if runs else (0, 0)
    end = runs[-1].source_end if runs else 0
    key = ChunkKey(TopicName(topic), 0, number, source)
    return LedgerChunk(key, target, tuple(runs), max(end, copied_to), is_whole=new)


CHUNKS = [
    chunk(Run(0, 0, 50), new=True),
    chunk(Run(0, 0, 50), Run(60, 51, 40), new=True),  # grown; ten source records were compacted away
    chunk(Hole(100, 91, 5, 0, HoleCause.GAP), Run(105, 91, 95), copied_to=210),
]
"""Of ``orders``, partition 0, in the order in which they are written."""


@pytest.fixture(scope="module")
def ledger(target_cluster: KafkaCluster) -> Iterator[tuple[str, list[Checkpoint]]]:
    """A ledger topic that got partitions after its first chunk, and checkpoints. Yields alias and checkpoints."""
    alias = new_name("A")
    topic = f"mm2-ledger.{alias}.internal"
    create_topic(target_cluster, topic, configs=COMPACT)
    others = [
        NewRecord(b"not ours", b"\x00", 1000),
        ledger_record.encode(chunk(Run(7, 7, 7), topic="payments"), 1000),
        NewRecord(ledger_record.encode_key(ChunkKey(TopicName("later"), 0, 1, 0)), b"\x09\x09 newer", 1000),
    ]
    put(target_cluster, topic, [ledger_record.encode(CHUNKS[0], 1000), *others])
    client = admin(target_cluster)
    client.create_partitions([NewPartitions(topic, LEDGER_PARTITIONS)])[topic].result(ANSWER_S)
    wait_until(lambda: len(client.list_topics(topic).topics[topic].partitions) == LEDGER_PARTITIONS, "it has grown")
    wait_until(lambda: offsets(target_cluster, topic, 2) == (0, 0), "the new partitions have leaders")
    put(target_cluster, topic, [ledger_record.encode(one, 2000) for one in CHUNKS[1:]], partition=2)
    points = [
        Checkpoint(group, TopicName(remote.format(alias)), 0, upstream, downstream, "")
        for group, remote, upstream, downstream in [
            ("exact", "{}.orders", 70, 61),
            ("behind", "{}.orders", 70, 55),
            ("at the end", "{}.orders", 210, 186),
            ("ahead", "{}.orders", 300, 186),
            ("without a ledger", "{}.unknown", 10, 10),
            ("of a newer mm2py", "{}.later", 10, 10),
            ("of the target itself", "orders", 70, 61),
        ]
    ]
    create_topic(target_cluster, f"{alias}.checkpoints.internal", configs=COMPACT)
    put(target_cluster, f"{alias}.checkpoints.internal", [checkpoint.encode(one, 1000) for one in points])
    yield alias, points


def test_any_offset_is_translated_exactly_in_both_directions(
    ledger: tuple[str, list[Checkpoint]], target_cluster: KafkaCluster
) -> None:
    alias, _ = ledger
    pairs = dict(zip([*range(50), *range(60, 100), *range(105, 200)], [*range(50), *range(51, 186)], strict=True))
    truth = PartitionLedger()
    for one in CHUNKS:
        truth.take(one)

    async def ask(client: MirrorClient) -> None:
        found = await client.translate(alias, {("orders", 0): range(250), ("unknown", 4): [7]})
        assert found.keys() == {(f"{alias}.orders", 0), (f"{alias}.unknown", 4)}
        answers = found[f"{alias}.orders", 0]
        assert {source: answers[source] for source in pairs} == {
            source: Answer(AnswerKind.COPIED, target, is_exact=True) for source, target in pairs.items()
        }
        assert answers == [truth.forward(source) for source in range(250)]
        assert answers[55] == Answer(AnswerKind.DROPPED, 51, is_exact=True)
        assert answers[102] == Answer(AnswerKind.GAP, 91, is_exact=True)
        assert answers[200] == answers[210] == Answer(AnswerKind.END, 186, is_exact=True)
        assert answers[211] == Answer(AnswerKind.NOT_YET, None, is_exact=False)
        assert found[f"{alias}.unknown", 4] == [Answer(AnswerKind.BEFORE_LEDGER, None, is_exact=False)]
        back = await client.translate_back(alias, {(f"{alias}.orders", 0): range(200)})
        assert back.keys() == {("orders", 0)}
        assert back["orders", 0] == [truth.reverse(target) for target in range(200)]
        for source, target in pairs.items():
            assert back["orders", 0][target] == Answer(AnswerKind.COPIED, source, is_exact=True)

    asked(target_cluster, ask)


def test_under_the_identity_policy_partitions_keep_their_names(
    ledger: tuple[str, list[Checkpoint]], target_cluster: KafkaCluster
) -> None:
    alias, _ = ledger
    policy = IdentityReplicationPolicy()
    there = asked(target_cluster, lambda client: client.translate(alias, {("orders", 0): [70]}), policy)
    back = asked(target_cluster, lambda client: client.translate_back(alias, {("orders", 0): [61]}), policy)
    assert (there, back) == (
        {("orders", 0): [Answer(AnswerKind.COPIED, 61, is_exact=True)]},
        {("orders", 0): [Answer(AnswerKind.COPIED, 70, is_exact=True)]},
    )


def test_an_offset_of_a_group_is_exact_if_the_ledger_says_the_same(
    ledger: tuple[str, list[Checkpoint]], target_cluster: KafkaCluster
) -> None:
    alias, points = ledger
    exact = {}
    for one in points:
        if one.group != "of a newer mm2py":
            found = asked(
                target_cluster, partial(MirrorClient.remote_consumer_offsets, group=one.group, source_alias=alias)
            )
            ((place, offset),) = found.items()
            assert place == (one.topic, one.partition)
            assert (offset.source_offset, offset.target_offset) == (one.upstream_offset, one.downstream_offset)
            exact[one.group] = offset.is_exact
    assert exact == {
        "exact": True,
        "behind": False,
        "at the end": True,
        "ahead": False,
        "without a ledger": False,
        "of the target itself": False,
    }


def test_a_ledger_of_a_newer_mm2py_is_an_error_but_its_groups_still_go_on_by_their_checkpoints(
    ledger: tuple[str, list[Checkpoint]], target_cluster: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    alias, _ = ledger
    with pytest.raises(NewerLedgerFormat):
        asked(target_cluster, lambda client: client.translate(alias, {("later", 0): [7]}))
    found = asked(target_cluster, lambda client: client.remote_consumer_offsets("of a newer mm2py", alias))
    assert found == {(f"{alias}.later", 0): RemoteOffset(10, 10, "", is_exact=False)}
    assert "holds a record of format 9" in caplog.text


async def test_a_client_that_asks_nothing_closes_quietly(target_cluster: KafkaCluster) -> None:
    async with MirrorClient(bootstrap_servers=target_cluster.internal_bootstrap):
        pass
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_brokers_that_freeze_or_die_cost_the_caller_its_deadline_and_leave_nothing_behind(
    make_cluster: Callable[..., KafkaCluster],
) -> None:
    cluster = make_cluster("doomed")
    (broker,) = cluster.brokers
    topic = "A.checkpoints.internal"
    create_topic(cluster, topic)
    put(cluster, topic, [point("bills", "A.orders", 7, 7, metadata="x" * 10_000) for _ in range(300)])
    client = MirrorClient(bootstrap_servers=cluster.internal_bootstrap)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await client.remote_consumer_offsets("bills", "A")

    async def meet_a_frozen_broker() -> None:
        async with client:
            assert await client.remote_consumer_offsets("bills", "A")
            broker.freeze()
            await give_up()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(meet_a_frozen_broker())
    broker.thaw()
    taken: list[int] = []

    def take(record: ConsumerRecord) -> None:
        taken.append(record.offset)
        if len(taken) == 10:
            broker.kill()

    async def meet_one_that_dies_in_the_middle_of_a_read() -> None:
        options = {"bootstrap_servers": cluster.internal_bootstrap, "auto_offset_reset": "earliest"}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await read_to_end(topic, options, take, remedy="")
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(meet_one_that_dies_in_the_middle_of_a_read())
    assert 10 <= len(taken) < 300


# -- the example of docs/client.md -------------------------------------------------------------------------------------


class Example:
    """The program in docs/client.md as it stands there, as a process."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        (program,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "client.md").read_text(), re.S | re.M)
        file = folder / "example.py"
        file.write_text(program)
        self._said, self._complained = folder / "said", folder / "complained"
        with self._said.open("wb") as said, self._complained.open("wb") as complained:
            self.process = subprocess.Popen(
                [sys.executable, str(file), *arguments],
                stdout=said,
                stderr=complained,
                env={**os.environ, "PYTHONPATH": OWN_PATH},
            )

    def records(self, topic: str) -> list[tuple[int, str]]:
        """Return offsets and values of the records of a topic that it has handled so far."""
        whole, _, _ = self._said.read_text().rpartition("\n")  # it may be in the middle of a line
        lines = [line.split(" ", 3) for line in whole.splitlines()]
        return [(int(offset), value) for name, _, offset, value in lines if name == topic]

    def complaints(self) -> str:
        return self._complained.read_text()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.timeout(400 * PATIENCE)
def test_the_consumer_of_the_docs_fails_over_and_skips_no_record(
    make_cluster: Callable[..., KafkaCluster], target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    source = make_cluster("doomed")
    alias, other, group = new_name("A"), new_name("B"), new_name("billing")
    topic = new_topic(source, "orders")
    remote = f"{alias}.{topic}"
    properties = one_way_properties(source, target_cluster, names=(alias, other)) | {
        f"{alias}->{other}.topics": topic,
        "groups": group,
        "emit.checkpoints.enabled": True,
        "emit.checkpoints.interval.seconds": 1,
    }
    values = [f"record {number}" for number in range(300)]
    write(source, topic, values[:200])
    arguments = (source.internal_bootstrap, target_cluster.internal_bootstrap, alias, topic, group)
    example = Example(tmp_path, *arguments)
    try:
        with Mm2py(properties) as run:
            wait_until(lambda: len(example.records(topic)) == 200, "it has read the source", deadline_s=2 * DEADLINE_S)

            def point() -> Checkpoint | None:
                found = checkpoints_in(target_cluster, f"{alias}.checkpoints.internal").get(group)
                return found if found is not None and found.upstream_offset == 200 else None

            run.wait_until(point, "a checkpoint behind what it has read", deadline_s=2 * DEADLINE_S)
            example.process.send_signal(signal.SIGSTOP)  # so that it does not read what comes now
            write(source, topic, values[200:])
            run.wait_until(
                lambda: offsets(target_cluster, remote)[1] == 300, "all is copied", deadline_s=2 * DEADLINE_S
            )
            (broker,) = source.brokers
            broker.kill()
            example.process.send_signal(signal.SIGCONT)
            last = wait_until(
                lambda: example.records(remote)[-1:], "it goes on with the copy", deadline_s=4 * DEADLINE_S
            )
            assert last
            wait_until(lambda: example.records(remote)[-1] == (299, values[299]), "it has read the copy")
            run.kill()
    except AssertionError as error:
        error.add_note(example.complaints())
        raise
    finally:
        example.close()
    again = example.records(remote)
    assert again == [(number, values[number]) for number in range(again[0][0], 300)]
    assert again[0][0] <= len(example.records(topic)), "it skips a record"
    assert f"Cluster {alias} does not answer" in example.complaints()
    committed = seen_by_aiokafka(target_cluster, group)
    assert committed[remote, 0].offset == 300
