"""Offsets of groups beside MirrorMaker 2: its own classes read our records and translate as we do, its client finds our
checkpoints, and we read what a real MirrorMaker 2 wrote."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from py4j.java_gateway import JavaGateway

from deploy.local.broker_settings import render_properties
from deploy.local.jars import jar_directory
from deploy.local.jvm import JavaServer
from deploy.local.kafka import KafkaCluster
from mm2py.flow import TopicName
from mm2py.offsets.sync_store import SyncStore
from mm2py.records import checkpoint, offset_sync
from mm2py.records.batch import NewRecord
from mm2py.records.checkpoint import Checkpoint
from mm2py.records.offset_sync import OffsetSync
from tests.cluster.brokers.test_consumer_groups import seen_by_aiokafka
from tests.cluster.copies import new_topic
from tests.cluster.group_offsets import checkpoints_in, commit, member, syncs_in, take, write_transaction
from tests.cluster.kafka_client import new_name, offsets, read, values, write
from tests.cluster.running import PATIENCE, Mm2py, one_way_properties, wait_until
from tests.parity.test_policies_parity import MIRROR, java_map, java_objects, reflected

MM2_DEADLINE_S = 150.0 * PATIENCE
ARRIVAL_S = 60.0 * PATIENCE
OFFSET_MOST = 2**63 - 1
TEXTS = ["orders", "", "ü-東京 ☃ \U0001f600", "x" * 32_767]
OFFSETS = [(100, 57), (0, 0), (OFFSET_MOST, OFFSET_MOST), (-1, -(2**63))]

pytestmark = pytest.mark.timeout(400 * PATIENCE)


# -- records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", TEXTS)
@pytest.mark.parametrize(("upstream", "downstream"), OFFSETS)
def test_mm2s_own_class_writes_the_bytes_of_our_offset_syncs_and_reads_ours(
    jvm: JavaGateway, topic: str, upstream: int, downstream: int
) -> None:
    ours = OffsetSync(TopicName(topic), 2**31 - 1, upstream, downstream)
    record = offset_sync.encode(ours, 0)
    java_class = jvm.jvm.org.apache.kafka.connect.mirror.OffsetSync
    theirs = java_class(_place(jvm, topic, ours.partition), upstream, downstream)
    assert _written(jvm, "OffsetSync", theirs) == [record.key, record.value]
    assert offset_sync.decode(*_written(jvm, "OffsetSync", theirs)) == ours
    assert java_class.deserializeRecord(_consumed(jvm, record, b"more")).equals(theirs)


@pytest.mark.parametrize(
    ("group", "topic", "metadata"),
    [("g1", "A.t1", ""), ("", "", ""), (TEXTS[2], "A.ü", TEXTS[2]), (TEXTS[3], TEXTS[3], TEXTS[3])],
    ids=["plain", "empty", "unicode", "longest"],
)
@pytest.mark.parametrize(("upstream", "downstream"), OFFSETS)
def test_mm2s_own_class_writes_the_bytes_of_our_checkpoints_and_reads_ours(
    jvm: JavaGateway, group: str, topic: str, metadata: str, upstream: int, downstream: int
) -> None:
    ours = Checkpoint(group, TopicName(topic), 3, upstream, downstream, metadata)
    record = checkpoint.encode(ours, 0)
    java_class = jvm.jvm.org.apache.kafka.connect.mirror.Checkpoint
    theirs = java_class(group, _place(jvm, topic, 3), upstream, downstream, metadata)
    assert _written(jvm, "Checkpoint", theirs) == [record.key, record.value]
    assert checkpoint.decode(*_written(jvm, "Checkpoint", theirs)) == ours
    assert java_class.deserializeRecord(_consumed(jvm, record, b"more")).equals(theirs)


def _place(jvm: JavaGateway, topic: str, partition: int) -> Any:
    return jvm.jvm.org.apache.kafka.common.TopicPartition(topic, partition)


def _written(jvm: JavaGateway, class_name: str, record: Any) -> list[bytes]:
    """Return key and value as MirrorMaker 2's class writes them; only its package may ask it to."""
    return [
        bytes(reflected(jvm, class_name, "getDeclaredMethods", name, 0).invoke(record, java_objects(jvm)))
        for name in ("recordKey", "recordValue")
    ]


def _consumed(jvm: JavaGateway, record: NewRecord, trailing: bytes = b"") -> Any:
    """Return a record as Java's consumer would hand it out; ``trailing`` stands behind its key and its value."""
    return jvm.jvm.org.apache.kafka.clients.consumer.ConsumerRecord(
        "internal", 0, 0, (record.key or b"") + trailing, (record.value or b"") + trailing
    )


# -- translation -------------------------------------------------------------------------------------------------------


class JavaStore:
    """MirrorMaker 2's own OffsetSyncStore, in both of its modes.

    Its constructor without arguments, which its own tests use, leaves out the reader of the topic. So ``start`` cannot
    be called: it would start that reader. The two fields that ``start`` sets are set here.
    """

    def __init__(self, jvm: JavaGateway, *, keeps_history: bool) -> None:
        self._jvm = jvm
        constructor = reflected(jvm, "OffsetSyncStore", "getDeclaredConstructors", "OffsetSyncStore", 0)
        self._store = constructor.newInstance(java_objects(jvm))
        self._handle = reflected(jvm, "OffsetSyncStore", "getDeclaredMethods", "handleRecord", 1)
        self._argument = java_objects(jvm, None)
        self._set("initializationMustReadToEnd", not keeps_history)

    def add(self, sync: OffsetSync) -> None:
        self._argument[0] = _consumed(self._jvm, offset_sync.encode(sync, 0))
        self._handle.invoke(self._store, self._argument)

    def loaded(self) -> None:
        self._set("readToEnd", True)

    def translate(self, place: Any, upstream_offset: int) -> int | None:
        text = self._store.translateDownstream("group", place, upstream_offset).toString()
        return None if text == "OptionalLong.empty" else int(text.removeprefix("OptionalLong[").removesuffix("]"))

    def _set(self, name: str, value: bool) -> None:
        field = self._jvm.jvm.java.lang.Class.forName(f"{MIRROR}OffsetSyncStore").getDeclaredField(name)
        field.setAccessible(True)
        field.setBoolean(self._store, value)


@pytest.mark.parametrize("keeps_history", [True, False], ids=["history", "read to end"])
@pytest.mark.parametrize("seed", range(3))
def test_both_stores_translate_every_offset_alike(jvm: JavaGateway, seed: int, keeps_history: bool) -> None:
    """Asked are the offsets around all syncs that ours keeps: one that only Java's keeps would answer in between."""
    rng = random.Random(seed)
    key = ("orders", 3)
    place = _place(jvm, *key)
    ours, theirs = SyncStore(keeps_history=keeps_history), JavaStore(jvm, keeps_history=keeps_history)
    loaded_after = rng.randrange(50, 150)
    upstream = downstream = rng.randrange(1000)
    for number in range(300):
        if number == loaded_after:
            assert theirs.translate(place, upstream) is ours.translate(key, upstream) is None
            ours.loaded()
            theirs.loaded()
        is_rewind = rng.random() < 0.01  # the topic was created again, or is copied from an earlier offset
        upstream = rng.randrange(upstream + 1) if is_rewind else min(OFFSET_MOST - 1, upstream + _step(rng))
        downstream = rng.randrange(downstream + 1) if rng.random() < 0.01 else downstream + rng.randrange(1, 300)
        ours.add(key, upstream, downstream)
        theirs.add(OffsetSync(TopicName(key[0]), key[1], upstream, downstream))
        if number % 50 == 49 and number >= loaded_after:
            around = {0, OFFSET_MOST} | {sync[0] + by for sync in ours.syncs(key) for by in (-1, 0, 1)}
            for asked in sorted(around):
                found = ours.translate(key, asked), theirs.translate(place, asked)
                assert found[0] == found[1], f"seed {seed}, sync {number}, offset {asked}: {ours.syncs(key)}"
    assert len(ours.syncs(key)) > 3, "else hardly anything was compared"


def _step(rng: random.Random) -> int:
    return rng.choice([0, 1, rng.randrange(1, 10), 101, rng.randrange(1000), rng.randrange(2 ** rng.randrange(1, 40))])


# -- MirrorMaker 2's client beside mm2py -------------------------------------------------------------------------------

PLACES = [1, 120, 230, 299, 300, 390]
COUNT = 420


class Copied(NamedTuple):
    """What mm2py left behind: a topic whose groups have read up to several places, and have left."""

    source: str
    target: str
    topic: str
    groups: dict[str, int]
    """How many records each of them has read."""

    @property
    def remote(self) -> str:
        return f"{self.source}.{self.topic}"


@pytest.fixture(scope="module")
def copied(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Copied:
    """Let mm2py copy a topic with transactions, one of them aborted, and groups leave it at several places."""
    a, b, stem = new_name("A"), new_name("B"), new_name("reads")
    topic = new_topic(source_cluster, "orders")
    found = Copied(a, b, topic, {f"{stem}-{count}": count for count in [*PLACES, COUNT]} | {f"{stem}-log-end": COUNT})
    write(source_cluster, topic, _numbered(0, 200))
    write_transaction(source_cluster, topic, _numbered(200, 300))
    write_transaction(source_cluster, topic, ["aborted"] * 50, commits=False)
    write(source_cluster, topic, _numbered(300, 400))
    properties = one_way_properties(source_cluster, target_cluster, names=(a, b)) | {
        f"{a}->{b}.topics": topic,
        f"{a}.consumer.isolation.level": "read_committed",
        "emit.checkpoints.enabled": True,
        "emit.checkpoints.interval.seconds": 1,
        "groups": f"{stem}.*",
    }
    with Mm2py(properties) as run:
        run.wait_until(lambda: offsets(target_cluster, found.remote)[1] == 400, "it is copied", deadline_s=ARRIVAL_S)
        write_transaction(source_cluster, topic, _numbered(400, COUNT))  # the log ends with a marker
        for group, count in found.groups.items():
            if group.endswith("-log-end"):  # where Java's consumer stands that has read everything
                commit(source_cluster, group, topic, offsets(source_cluster, topic)[1], "ünder way")
                continue
            client = member(source_cluster, group)
            assert take(client, topic, count) == [value.encode() for value in _numbered(0, count)]
            client.close()

        def all_emitted() -> bool:
            last = checkpoints_in(target_cluster, f"{a}.checkpoints.internal")
            at_end = [one.downstream_offset for one in last.values() if found.groups[one.group] == COUNT]
            return last.keys() == found.groups.keys() and at_end == [COUNT, COUNT]

        run.wait_until(all_emitted, "all have checkpoints, those at the end the exact one", deadline_s=ARRIVAL_S)
        assert run.terminate() == 0
    return found


def _numbered(begin: int, end: int) -> list[str]:
    return [f"record {number}" for number in range(begin, end)]


def test_mm2s_client_tells_each_group_where_to_go_on_so_that_none_skips_a_record(
    jvm: JavaGateway, copied: Copied, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    copies = [(message.offset() or 0, message.value()) for message in read(target_cluster, copied.remote)]
    assert [value for _, value in copies] == [value.encode() for value in _numbered(0, COUNT)]
    for group, count in copied.groups.items():
        (answer,) = translated(jvm, target_cluster, copied.source, group).items()
        place, (offset, metadata) = answer
        assert place == (copied.remote, 0)
        committed = seen_by_aiokafka(source_cluster, group)[copied.topic, 0].metadata  # librdkafka's adds a zero byte
        assert metadata == committed
        assert metadata.startswith("ünder way" if group.endswith("-log-end") else "")
        left = [value for at, value in copies if at >= offset]
        assert len(left) >= COUNT - count, f"{group} skips {COUNT - count - len(left)} records"
        if count == COUNT:
            assert offset == offsets(target_cluster, copied.remote)[1], "a group that has read all has nothing to read"


def translated(
    jvm: JavaGateway, target: KafkaCluster, source_alias: str, group: str
) -> dict[tuple[str, int], tuple[int, str]]:
    """Ask RemoteClusterUtils where a group may continue: offset and metadata by topic and partition."""
    found = jvm.jvm.org.apache.kafka.connect.mirror.RemoteClusterUtils.translateOffsets(
        java_map(jvm, {"bootstrap.servers": target.internal_bootstrap}),
        source_alias,
        group,
        jvm.jvm.java.time.Duration.ofSeconds(30),
    )
    return {(place.topic(), place.partition()): (one.offset(), one.metadata()) for place, one in found.items()}


def test_kafkas_console_formatters_print_our_records(
    jvm: JavaGateway, copied: Copied, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    lines = printed(jvm, "OffsetSync", source_cluster, f"mm2-offset-syncs.{copied.target}.internal")
    syncs = syncs_in(source_cluster, f"mm2-offset-syncs.{copied.target}.internal")
    assert lines == [
        f"OffsetSync{{topicPartition={copied.topic}-0, upstreamOffset={sync.upstream_offset},"
        f" downstreamOffset={sync.downstream_offset}}}"
        for sync in syncs
    ]
    lines = printed(jvm, "Checkpoint", target_cluster, f"{copied.source}.checkpoints.internal")
    for one in checkpoints_in(target_cluster, f"{copied.source}.checkpoints.internal").values():
        assert (
            f"Checkpoint{{consumerGroupId={one.group}, topicPartition={copied.remote}-0, upstreamOffset="
            f"{one.upstream_offset}, downstreamOffset={one.downstream_offset}, metadata={one.metadata}}}"
        ) in lines


def printed(jvm: JavaGateway, kind: str, cluster: KafkaCluster, topic: str) -> list[str]:
    formatter = getattr(jvm.jvm.org.apache.kafka.connect.mirror.formatters, f"{kind}Formatter")()
    out = jvm.jvm.java.io.ByteArrayOutputStream()
    stream = jvm.jvm.java.io.PrintStream(out, True, "UTF-8")
    for message in read(cluster, topic):
        formatter.writeTo(_consumed(jvm, NewRecord(message.key(), message.value(), 0)), stream)
    return str(out.toString("UTF-8")).splitlines()


# -- a real MirrorMaker 2 ----------------------------------------------------------------------------------------------


@pytest.fixture
def mirror_maker(tmp_path: Path) -> Iterator[JavaServer]:
    """MirrorMaker 2, to be started with ``tmp_path / "mm2.properties"``."""
    server = JavaServer(
        "org.apache.kafka.connect.mirror.MirrorMaker",
        [str(tmp_path / "mm2.properties")],
        jars=jar_directory(),
        log_path=tmp_path / "mm2.log",
    )
    try:
        yield server
    finally:
        server.stop()


def test_our_store_translates_mm2s_own_syncs_to_what_its_checkpoints_say(
    mirror_maker: JavaServer, tmp_path: Path, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """Each group goes back once all is quiet: then MirrorMaker 2 emits what its store says, exact or not."""
    a, b, stem = new_name("S"), new_name("T"), new_name("reads")
    topic = new_topic(source_cluster, "orders")
    places = {f"{stem}-{place}": place for place in (0, 1, 77, 149, 150, 215, 290, 450, 500, 508)}
    write(source_cluster, topic, _numbered(0, 150))
    write_transaction(source_cluster, topic, _numbered(150, 210))
    write_transaction(source_cluster, topic, ["aborted"] * 8, commits=False)
    for group in places:
        commit(source_cluster, group, topic, offsets(source_cluster, topic)[1])
    properties = one_way_properties(source_cluster, target_cluster, names=(a, b)) | {
        f"{a}->{b}.topics": topic,
        f"{a}.consumer.isolation.level": "read_committed",
        f"{b}.offset.flush.interval.ms": 1000,
        "groups": f"{stem}.*",
        "offset.lag.max": 10,
        "emit.checkpoints.enabled": True,
        "emit.checkpoints.interval.seconds": 1,
        "sync.topic.acls.enabled": False,
        "config.storage.replication.factor": 1,
    }
    del properties["topics.watch.interval.ms"]
    (tmp_path / "mm2.properties").write_text(render_properties(properties))

    def wait_for(upstream: dict[str, int], downstream: int | None = None) -> dict[str, Checkpoint]:
        def emitted() -> dict[str, Checkpoint]:
            last = checkpoints_in(target_cluster, f"{a}.checkpoints.internal")
            moved = {name: one.upstream_offset for name, one in last.items()} == upstream
            exact = downstream is None or all(one.downstream_offset == downstream for one in last.values())
            found.update(last)
            return last if moved and exact else {}

        found: dict[str, Checkpoint] = {}
        try:
            return wait_until(emitted, f"checkpoints of {upstream}", deadline_s=MM2_DEADLINE_S)
        except AssertionError as error:
            error.add_note(f"Its last ones: {found}")
            raise

    mirror_maker.start()
    end = offsets(source_cluster, topic)[1]
    wait_for(dict.fromkeys(places, end), downstream=210)
    write(source_cluster, topic, _numbered(210, 500))
    end = offsets(source_cluster, topic)[1]
    for group in places:
        commit(source_cluster, group, topic, end)
    wait_for(dict.fromkeys(places, end), downstream=500)  # so its store knows the last record of all
    assert len(values(target_cluster, f"{a}.{topic}")) == 500
    for group, place in places.items():
        commit(source_cluster, group, topic, place)
    last = wait_for(places)
    store = SyncStore(keeps_history=True)
    syncs = syncs_in(source_cluster, f"mm2-offset-syncs.{b}.internal")
    assert len(syncs) > 5  # it leaves some out where many are due at once
    for sync in syncs:
        store.add((sync.topic, sync.partition), sync.upstream_offset, sync.downstream_offset)
    store.loaded()
    said = {name: one.downstream_offset for name, one in last.items()}
    assert said == {name: store.translate((topic, 0), place) for name, place in places.items()}
    assert len(set(said.values())) >= 3, "else hardly anything was compared"
