"""``mm2py dr fence`` and ``dr unfence`` on real brokers: producers of each kind stop, and everything is given back."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from deploy.local.broker_settings import render_properties
from deploy.local.kafka import KafkaCluster
from mm2py.config.configuration import flow_of, read_settings_file
from mm2py.dr.fence.asking import FenceInquiry
from mm2py.dr.fence.choosing import own_principals
from mm2py.dr.fence.fence_log import FenceLog, FenceStore
from mm2py.dr.fence.fenced_cluster import ClusterFence
from mm2py.dr.fence.lifting import lift_fence
from mm2py.dr.fence.plan import FenceWanted, plan_fence
from mm2py.dr.fence.raising import FenceWrite, raise_fence
from mm2py.dr.fence.record import FenceRecord, FenceWay
from mm2py.flow_clusters import BothClusters, both_of
from mm2py.records.author import Author
from tests.cluster.copies import make_topic, producer, set_by_hand
from tests.cluster.kafka_client import admin, new_name, offsets, record_count, values, write
from tests.cluster.least_rights import PASSWORD, GuardedPair, guarded_pair
from tests.cluster.running import (
    ANSWER_S,
    COMMAND_S,
    OWN_PATH,
    Mm2py,
    Value,
    one_way_properties,
    wait_until,
)
from tests.cluster.topics.test_topic_sync import own_settings, rule
from tests.fakes.fenced_cluster import Killed, Steps

ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
OURS, APP, OTHER = "user0", "user1", "user2"
ACCEPT = "--accept-unproven-fence"
"""The tests themselves are a super user."""
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


@pytest.fixture(scope="module")
def pair() -> Iterator[GuardedPair]:
    """Clusters on which ``OURS`` may do everything."""
    with guarded_pair() as found:
        everything = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{OURS}", "*", AclOperation.ALL, ALLOW)
            for kind, name in (
                (ResourceType.TOPIC, "*"),
                (ResourceType.GROUP, "*"),
                (ResourceType.TRANSACTIONAL_ID, "*"),
                (ResourceType.BROKER, "kafka-cluster"),
            )
        ]
        for cluster in (found.source, found.target):
            add(cluster, everything)
        yield found


def add(cluster: KafkaCluster, rules: Sequence[AclBinding]) -> None:
    for made in admin(cluster).create_acls(list(rules)).values():
        made.result(ANSWER_S)


def acls(cluster: KafkaCluster) -> set[str]:
    """Return all ACLs of a cluster, whole."""
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    return {str(one) for one in admin(cluster).describe_acls(everything).result(ANSWER_S)}


def let_write(cluster: KafkaCluster, topic: str, user: str = APP) -> None:
    add(cluster, [rule(topic, f"User:{user}", AclOperation.WRITE)])


def let_use(cluster: KafkaCluster, name: str, user: str = APP) -> None:
    add(cluster, [rule(name, f"User:{user}", AclOperation.WRITE, kind=ResourceType.TRANSACTIONAL_ID)])


def as_user(cluster: KafkaCluster, user: str = APP, **settings: Any) -> Producer:
    login = {
        "bootstrap_servers": cluster.bootstrap_for("SASL"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": user,
        "sasl_password": PASSWORD,
    }
    return producer(cluster, **login, **settings)


def error_of(client: Producer, topic: str, value: bytes = b"value", partition: int = 0) -> int | None:
    """Send one record; return the code of its error, None if it was taken."""
    found: list[int | None] = []
    client.produce(
        topic,
        value=value,
        partition=partition,
        on_delivery=lambda error, _: found.append(None if error is None else error.code()),
    )
    assert client.flush(ANSWER_S) == 0
    return found[0]


def new_alias() -> str:
    """Return an alias of a test's own: the workers of a flow store its settings, and each flow has one fence."""
    return new_name("A").replace("-", "")


def dr(file: Path, flow: str, verb: str, *arguments: str) -> tuple[int, str]:
    """Run ``mm2py dr VERB``; return its exit code and all that it prints."""
    ended = subprocess.run(
        [sys.executable, "-m", "mm2py", "dr", verb, str(file), flow, *arguments],
        capture_output=True,
        timeout=COMMAND_S,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": OWN_PATH},
    )
    return ended.returncode, (ended.stdout + ended.stderr).decode()


def file_of(tmp_path: Path, properties: dict[str, Value]) -> Path:
    file = tmp_path / "mm2.properties"
    file.write_text(render_properties(properties))
    return file


def test_producers_of_each_kind_stop_and_mm2py_goes_on_copying(pair: GuardedPair) -> None:
    alias = new_alias()
    flow = f"{alias}->B"
    orders, others, tx = new_name("orders"), new_name("others"), new_name("tx")
    for topic in (orders, others):
        make_topic(pair.source, topic, 2)
        let_write(pair.source, topic)
    let_use(pair.source, tx)
    plain = as_user(pair.source, enable_idempotence=False)
    idempotent = as_user(pair.source, enable_idempotence=True)
    transactional = as_user(pair.source, transactional_id=tx, transaction_timeout_ms=300_000)
    for client in (plain, idempotent):
        assert error_of(client, orders) is None
    transactional.init_transactions(ANSWER_S)
    transactional.begin_transaction()
    assert error_of(transactional, orders, partition=1) is None
    before = acls(pair.source)
    committed = {f"{alias}.consumer.isolation.level": "read_committed"}
    properties = pair.properties(OURS, alias, **{f"{flow}.topics": f"{orders}, {others}", **committed})
    with Mm2py(properties) as run:
        run.wait_until(lambda: record_count(pair.target, f"{alias}.{orders}") == 2, "it is copied")

        code, text = dr(run.file, flow, "fence", "--topics", orders, "--yes")
        assert code == 1 and "has super users (whose names brokers do not tell)" in text, text
        assert acls(pair.source) == before
        code, text = dr(run.file, flow, "fence", "--topics", orders, "--plan")
        assert code == 3 and f"DENY WRITE on topic {orders} for User:{APP}" in text, text
        assert f"DENY WRITE on transactional id {tx} for User:{APP}" in text, text
        assert "mm2py's own stay free: User:user0" in text, text
        assert dr(run.file, flow, "fence", "--topics", orders, ACCEPT)[0] == 2  # no terminal, no --yes
        assert acls(pair.source) == before

        code, text = dr(
            run.file,
            flow,
            "fence",
            "--topics",
            orders,
            ACCEPT,
            "--end-hanging",
            "--yes",
            "--json",
            "--reason",
            "ticket 4711",
        )
        assert code == 0, text
        found = json.loads(text)
        assert found["verified"] and found["fence"]["state"] == "standing" and found["fence"]["reason"] == "ticket 4711"
        (ended,) = found["ended_transactions"]
        assert tx in ended and f"{orders}-1" in ended
        denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert error_of(plain, orders) == denied
        assert error_of(idempotent, orders) == denied
        with pytest.raises(KafkaException):
            transactional.commit_transaction(ANSWER_S)
        again = as_user(pair.source, transactional_id=tx)
        with pytest.raises(KafkaException) as refused:
            again.init_transactions(ANSWER_S)
        assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert found["ends"] == {f"{orders}-{number}": offsets(pair.source, orders, number)[1] for number in (0, 1)}

        assert error_of(as_user(pair.source), others) is None  # a topic that was not chosen
        write(pair.source, orders, [b"late"])  # a super user, so there is something to copy
        run.wait_until(lambda: record_count(pair.target, f"{alias}.{others}") == 1, "another topic is copied")
        run.wait_until(lambda: record_count(pair.target, f"{alias}.{orders}") == 3, "so is the fenced one")
        assert error_of(as_user(pair.source, OURS), orders) is None  # the way back is open
        assert not values(pair.target, f"{alias}.{orders}", [1])  # what was open was aborted

        code, text = dr(run.file, flow, "unfence", "--yes")
        assert code == 0 and "the fence is lifted: 2 ACL(s)" in text, text
        assert acls(pair.source) == before
        for cluster in (pair.source, pair.target):
            config = own_settings(cluster, "mm2-dr-fences.internal")
            assert (config["cleanup.policy"], config["retention.ms"]) == ("delete", "-1")
        assert error_of(as_user(pair.source), orders) is None
        code, text = dr(run.file, flow, "unfence", "--yes")
        assert code == 0 and "no fence stands" in text, text
        assert run.terminate() == 0


def test_the_verification_is_red_while_a_super_user_still_writes(pair: GuardedPair, tmp_path: Path) -> None:
    alias = new_alias()
    flow = f"{alias}->B"
    topic = new_name("leaking")
    make_topic(pair.source, topic)
    let_write(pair.source, topic)
    before = acls(pair.source)
    file = file_of(tmp_path, pair.properties(OURS, alias, **{f"{flow}.topics": topic}))
    over = threading.Event()

    def leak() -> None:
        while not over.wait(0.5):
            write(pair.source, topic, [b"more"])

    leaking = threading.Thread(target=leak)
    leaking.start()
    try:
        code, text = dr(file, flow, "fence", ACCEPT, "--yes", "--timeout", "12")
    finally:
        over.set()
        leaking.join()
    assert code == 3 and "NOT verified" in text and f"{topic}-0 went from offset" in text, text
    assert "mm2py dr unfence" in text
    assert dr(file, flow, "fence", ACCEPT, "--yes")[0] == 0  # the same fence, again, and now nobody writes
    assert dr(file, flow, "unfence", "--yes")[0] == 0
    assert acls(pair.source) == before


def test_a_transaction_that_stays_open_is_no_proof(pair: GuardedPair, tmp_path: Path) -> None:
    alias = new_alias()
    flow = f"{alias}->B"
    topic, tx = new_name("open"), new_name("tx")
    make_topic(pair.source, topic)
    let_write(pair.source, topic)
    let_use(pair.source, tx)
    client = as_user(pair.source, transactional_id=tx, transaction_timeout_ms=300_000)
    client.init_transactions(ANSWER_S)
    client.begin_transaction()
    assert error_of(client, topic) is None
    file = file_of(tmp_path, pair.properties(OURS, alias, **{f"{flow}.topics": topic}))
    code, text = dr(file, flow, "fence", ACCEPT, "--yes", "--timeout", "11")
    assert code == 3 and f"{topic}-0 has an open transaction" in text, text
    code, text = dr(file, flow, "fence", ACCEPT, "--yes", "--end-hanging")
    assert code == 0 and f"transactional id {tx}" in text, text
    assert dr(file, flow, "unfence", "--yes")[0] == 0


class KilledFence(ClusterFence):
    """The process ends before or after a request that changes the cluster."""

    def __init__(self, clusters: BothClusters, steps: Steps) -> None:
        super().__init__("the source", clusters.source)
        self.steps = steps

    async def add(self, bindings: Any) -> None:
        self.steps.before()
        await super().add(bindings)
        self.steps.after()

    async def remove(self, bindings: Any) -> None:
        self.steps.before()
        await super().remove(bindings)
        self.steps.after()


class KilledLog(FenceLog):
    """The process ends before or after a record is stored."""

    steps: Steps

    async def write(self, record: FenceRecord) -> None:
        self.steps.before()
        await super().write(record)
        self.steps.after()


async def test_killed_at_any_step_everything_is_given_back_by_the_next_command(
    pair: GuardedPair, tmp_path: Path
) -> None:
    alias = new_alias()
    flow = f"{alias}->B"
    topic = new_name("killed")
    make_topic(pair.source, topic)
    let_write(pair.source, topic)
    let_write(pair.source, topic, OTHER)
    add(pair.source, [rule(topic, f"User:{OTHER}", AclOperation.WRITE, DENY)])  # it is there before any fence
    before = acls(pair.source)
    file = read_settings_file(file_of(tmp_path, pair.properties(OURS, alias, **{f"{flow}.topics": topic})), None)
    settings = flow_of(file, flow)
    rng = random.Random(1)
    ends = 0
    async with both_of("test", settings, rng) as clusters:

        def store(steps: Steps) -> FenceStore:
            logs = []
            for alias, brokers in ((settings.flow.source, clusters.source), (settings.flow.target, clusters.target)):
                log = KilledLog(alias, brokers, replication_factor=1, rng=rng)
                log.steps = steps
                logs.append(log)
            return FenceStore(flow, *logs)

        async def fence(steps: Steps) -> FenceRecord:
            cluster = KilledFence(clusters, steps)
            inquiry = FenceInquiry(alias, clusters.source, cluster)
            wanted = FenceWanted(alias, (topic,), FenceWay.ACLS, (), own_principals(file, settings.flow.source))
            plan = plan_fence(wanted, await inquiry.facts([topic]))
            return await raise_fence(plan, flow, store(steps), cluster, told())

        async def unfence(steps: Steps) -> None:
            await lift_fence(store(steps), KilledFence(clusters, steps), told())

        def told() -> FenceWrite:
            return FenceWrite(Author("ann"), "a test", 1_000, f"{rng.random()}")

        for lifts in (False, True):
            for last in range(1, 6):
                for is_done in (False, True):
                    if lifts:
                        await fence(Steps())
                    with pytest.raises(Killed):
                        await (unfence if lifts else fence)(Steps(last=last, is_done=is_done))
                    if not lifts and last % 2:
                        record = await fence(Steps())  # it goes on
                        assert record.bindings == tuple(sorted(record.bindings)) and len(record.bindings) == 1
                    await unfence(Steps())
                    ends += 1
                    wait_until(lambda: acls(pair.source) == before, "everything is as before")
    assert ends == 20


def test_a_process_that_is_killed_in_its_hook_leaves_a_fence_that_the_other_site_lifts(
    pair: GuardedPair, tmp_path: Path
) -> None:
    alias = new_alias()
    flow = f"{alias}->B"
    topic = new_name("hooked")
    make_topic(pair.source, topic)
    file = file_of(tmp_path, pair.properties(OURS, alias, **{f"{flow}.topics": topic}))
    marker, hook = tmp_path / "called", tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\necho $1 >> {marker}\ntest $1 = unfence && exit 0\nexec sleep 600\n")
    hook.chmod(0o755)
    running = subprocess.Popen(
        [sys.executable, "-m", "mm2py", "dr", "fence", str(file), flow, "--hook-fence", str(hook), "--yes"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": OWN_PATH},
    )
    wait_until(marker.exists, "the hook runs")
    os.kill(running.pid, signal.SIGKILL)
    running.wait(ANSWER_S)
    site = tmp_path / "b"
    site.mkdir()
    reverse = pair.properties(OURS, alias, **{f"{flow}.enabled": False, f"B->{alias}.enabled": True})
    other_site = file_of(site, reverse)
    code, text = dr(other_site, flow, "unfence", "--yes")
    assert code == 1 and f"raised by a hook, {hook}" in text, text
    code, text = dr(other_site, flow, "unfence", "--yes", "--hook-fence", str(hook))
    assert code == 0 and "the fence is lifted" in text, text
    assert marker.read_text().split() == ["fence", "unfence"]


def test_without_an_authorizer_a_hook_is_the_fence(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    topic, alias = new_name("open"), new_alias()
    flow = f"{alias}->B"
    make_topic(source_cluster, topic)
    properties = one_way_properties(source_cluster, target_cluster, names=(alias, "B"), **{f"{flow}.topics": topic})
    file = file_of(tmp_path, {**properties, "config.storage.replication.factor": 1})
    code, text = dr(file, flow, "fence", "--yes")
    assert code == 1 and "has no authorizer (SECURITY_DISABLED)" in text and "--hook-fence CMD" in text, text
    told, hook = tmp_path / "told", tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ncat >> {told}\necho it is broken\nexit $2\n")
    hook.chmod(0o755)
    code, text = dr(file, flow, "fence", "--yes", "--hook-fence", f"{hook} 7 'two words'")
    assert code == 1 and "two words" not in text, text  # $1 is 7, $2 the two words, $3 the verb
    hook.write_text(f"#!/bin/sh\ncat >> {told}\necho it is broken\nexit 7\n")
    code, text = dr(file, flow, "fence", "--yes", "--hook-fence", str(hook))
    assert code == 1 and "ended with exit code 7, saying: it is broken" in text, text
    told.unlink()
    hook.write_text(f"#!/bin/sh\ncat >> {told}\n")
    code, text = dr(file, flow, "fence", "--yes", "--hook-fence", str(hook))
    assert code == 0 and "verified" in text, text
    assert json.loads(told.read_text()) | {"by": ""} == {"verb": "fence", "flow": flow, "topics": [topic], "by": ""}
    assert dr(file, flow, "unfence", "--yes", "--hook-fence", str(hook))[0] == 0


def test_the_size_of_a_topic_stops_every_batch_and_is_not_synced(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    sized, default, alias = new_name("sized"), new_name("default"), new_alias()
    flow = f"{alias}->B"
    make_topic(source_cluster, sized, configs={"max.message.bytes": "2000000"})
    make_topic(source_cluster, default)
    properties = one_way_properties(
        source_cluster,
        target_cluster,
        names=(alias, "B"),
        **{f"{flow}.topics": f"{sized}, {default}", "config.storage.replication.factor": 1},
        **{"sync.topic.configs.interval.seconds": 1},
    )
    with Mm2py(properties) as run:
        remote = f"{alias}.{sized}"
        begun, own = {"retention.ms": "-1"}, {"max.message.bytes": "2000000"}
        run.wait_until(lambda: own_settings(target_cluster, remote) == begun | own, "it is copied")
        code, text = dr(run.file, flow, "fence", "--by-size", "--yes")
        assert code == 1 and "one that last wrote before that is not seen" in text, text
        code, text = dr(run.file, flow, "fence", "--by-size", "--yes", ACCEPT)
        assert code == 0 and "Small records may pass" in text and "would hang" in text, text
        for topic in (sized, default):
            for client in (producer(source_cluster, enable_idempotence=False), producer(source_cluster)):
                assert error_of(client, topic, b"") == KafkaError.MSG_SIZE_TOO_LARGE
        set_by_hand(source_cluster, sized, retention_ms="7000000")
        run.wait_until(
            lambda: own_settings(target_cluster, remote).get("retention.ms") == "7000000", "a round was made"
        )
        assert own_settings(target_cluster, remote) == {**own, "retention.ms": "7000000"}
        assert dr(run.file, flow, "unfence", "--yes")[0] == 0
        assert own_settings(source_cluster, sized) == {**own, "retention.ms": "7000000"}
        assert own_settings(source_cluster, default) == begun
        assert error_of(producer(source_cluster), default) is None
        client = producer(source_cluster, transactional_id=new_name("tx"))
        client.init_transactions(ANSWER_S)
        client.begin_transaction()
        assert error_of(client, default) is None
        client.commit_transaction(ANSWER_S)
        code, text = dr(run.file, flow, "fence", "--by-size", "--yes", ACCEPT)
        assert code == 1 and "has transactional producers" in text, text
        assert run.terminate() == 0


def test_the_sync_of_acls_leaves_the_fence_on_its_side(pair: GuardedPair) -> None:
    """Under the identity policy a DENY that follows would stop producers on the target, and nobody would remove it."""
    alias = new_alias()
    flow = f"{alias}->B"
    topic = new_name("same")
    make_topic(pair.source, topic)
    let_write(pair.source, topic)
    properties = pair.properties(
        OURS,
        alias,
        **{f"{flow}.topics": topic, "replication.policy.class": IDENTITY},
        **{"sync.topic.acls.enabled": True, "sync.topic.acls.interval.seconds": 1},
    )

    def denied() -> set[str]:
        return {one for one in acls(pair.target) if topic in one and "DENY" in one}

    def follows(user: str) -> bool:
        return any(topic in one and f"User:{user}" in one for one in acls(pair.target))

    with Mm2py(properties) as run:
        run.wait_for_event("topics.copying")
        assert dr(run.file, flow, "fence", "--topics", topic, ACCEPT, "--yes")[0] == 0
        run.wait_for_event("topic_acls.fence_held_back")
        add(pair.source, [rule(topic, "User:reader", AclOperation.READ)])
        run.wait_until(lambda: follows("reader"), "another ACL follows")
        assert not denied()
        assert dr(run.file, flow, "unfence", "--yes")[0] == 0
        add(pair.source, [rule(topic, "User:late", AclOperation.READ)])
        run.wait_until(lambda: follows("late"), "a round was made after it was lifted")
        assert not denied()
        add(pair.source, [rule(topic, f"User:{APP}", AclOperation.WRITE, DENY)])
        run.wait_until(denied, "the same ACL follows, now that an operator has made it")
        assert run.terminate() == 0
