"""A backlog behind a long link is read in stripes over many connections, whatever happens meanwhile: each record is
there once, in order, byte for byte."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from bench.processes import resident_mb
from bench.wan.link import BOTH_WAYS, Link, Way
from bench.wan.rig import Rig
from deploy.local.certificates import Authority, tls_listener, write_private
from deploy.local.kafka import KafkaCluster, start_clusters
from tests.checker.ledger import Ledger
from tests.checker.traffic import Planned, Traffic
from tests.cluster.cleaned_topics import rolls
from tests.cluster.copies import assert_copied, dump, new_topic, now_ms, producer, send, send_with
from tests.cluster.kafka_frames import FETCH, Direction, Frame
from tests.cluster.kafka_proxy import KafkaProxy
from tests.cluster.kafka_rules import Drip
from tests.cluster.running import ANSWER_S, PATIENCE, Value, pause, wait_until
from tests.cluster.wan.far import BATCH_BYTES, LATE_S, LINK, Backlog, Far
from tests.faults.asked import quota
from tests.faults.numbered import set_config
from tests.faults.scene import rounds

RECORDS = 8_000
"""About 20 MB."""
FAST = Link(round_trip_ms=100, megabits_per_s=100)
SHORT: dict[str, Value] = {"A.consumer.request.timeout.ms": 5_000, "A.admin.request.timeout.ms": 5_000}
"""So that a test sees several time-outs."""
ONE_CONNECTION_BYTES = 180_000
"""What one connection carries in a round trip, with a broker's default send buffer."""
LISTENERS = {"PLAINTEXT": "PLAINTEXT", "SECURE": "SASL_SSL"}
PASSWORD = "canary-password"  # noqa: S105
SPARE_CONNECTIONS = 80
"""Beside the 64 for backlogs there are those for the ends of logs, for positions and for questions."""


def test_a_kill_in_the_middle_of_stripes_loses_and_repeats_nothing(far: Far) -> None:
    """F01: a second worker copies the rest."""
    far.rig.change(FAST)
    backlog = far.backlog(RECORDS)
    properties = backlog.properties()
    with backlog.read_in_stripes(properties) as worker:
        worker.wait_for(RECORDS // 5)
        worker.run.kill()
    left = RECORDS - backlog.copied()
    with backlog.continued(properties) as worker:
        worker.conclude()
    assert left > 0, "it was killed too late"


@pytest.mark.slow
def test_kills_at_any_time_of_striped_reading_lose_and_repeat_nothing(far: Far) -> None:
    """F01, F04: each worker is killed a short while after it began to read in stripes; the last one ends the copy."""
    backlog = far.backlog(4 * RECORDS)
    properties = backlog.properties()
    chance = random.Random(21)
    for _ in range(rounds(6)):
        with backlog.read_in_stripes(properties) as worker:
            pause(chance.uniform(0, 1.5), "the moment of the kill")
            worker.run.kill()
    with backlog.read_in_stripes(properties) as worker:
        worker.conclude()


# Links that are cut


@pytest.mark.slow
@pytest.mark.parametrize("ways", [BOTH_WAYS, {Way.FROM_SOURCE}], ids=["both ways", "only what comes"])
def test_a_link_that_is_cut_under_stripes_costs_no_record(far: Far, ways: frozenset[Way]) -> None:
    """F26, and F28 for what comes from the source: for 20 s nothing passes, while requests may take 5 s. Requests of
    the second kind arrive, and are answered in vain."""
    backlog = far.backlog(2 * RECORDS)
    with backlog.read_in_stripes(backlog.properties(**SHORT)) as worker:
        before = worker.run.log[-1]
        far.rig.cut(frozenset(ways))
        pause(20, "the time of the cut is the fault")
        copied = backlog.copied()
        far.rig.restore()
        assert copied < backlog.records, "nothing was left to be read"
        worker.run.wait_for_event("broker.lost", after=before, cluster="A")
        worker.conclude()


@pytest.mark.slow
def test_a_link_that_comes_and_goes_under_stripes_leaves_no_connection_behind(far: Far) -> None:
    """F32: up for a second, down for a second."""
    backlog = far.backlog(2 * RECORDS)
    most = 0
    with backlog.read_in_stripes(backlog.properties(**SHORT)) as worker:
        for _ in range(rounds(20)):
            far.rig.cut()
            pause(1, "the second is the fault")
            far.rig.restore()
            pause(1, "the second is the fault")
            most = max(most, len(worker.connections()))
        print(f"{backlog.copied()} of {backlog.records} are copied, {most} connections at most")
        assert most <= SPARE_CONNECTIONS
        worker.conclude(ends=False)
        wait_until(lambda: len(worker.connections()) <= 24, "connections are closed again")
        assert worker.run.terminate() == 0


# Links that are bad


@pytest.mark.slow
def test_a_link_with_jitter_is_read_faster_than_by_one_connection(far: Far) -> None:
    """F33: 200 ms, and up to 50 ms more each way."""
    far.rig.change(Link(round_trip_ms=200, jitter_ms=50, megabits_per_s=200))
    backlog = far.backlog(4 * RECORDS)
    with backlog.read_in_stripes() as worker:
        begun_s, bytes_before = time.monotonic(), far.rig.counts()[Way.FROM_SOURCE].bytes_passed
        worker.wait_for(backlog.records)
        rate = (far.rig.counts()[Way.FROM_SOURCE].bytes_passed - bytes_before) / (time.monotonic() - begun_s)
        print(f"{rate / 1e6:.1f} MB/s over {len(worker.connections())} connections")
        worker.conclude()
    assert rate > 2 * ONE_CONNECTION_BYTES / 0.25


BAD = {
    "F34, loss": Link(round_trip_ms=100, megabits_per_s=40, loss=0.05),
    "F34, much loss": Link(round_trip_ms=20, megabits_per_s=40, loss=0.2),
    "F35": Link(round_trip_ms=100, megabits_per_s=40, overtaken=0.05, twice=0.05),
}


@pytest.mark.slow
@pytest.mark.parametrize("which", BAD)
def test_packets_that_are_lost_or_overtaken_or_come_twice_change_no_record(far: Far, which: str) -> None:
    """F34, F35: TCP hides it, and what it costs in time harms nothing."""
    far.rig.change(BAD[which])
    backlog = far.backlog(RECORDS)
    with backlog.read_in_stripes() as worker:
        worker.conclude()
    counts = far.rig.counts()[Way.FROM_SOURCE]
    print(counts)


@pytest.mark.slow
def test_a_narrow_link_is_read_without_time_outs_and_in_flat_memory(far: Far) -> None:
    """F36: 1 Mbit/s. What is asked for at once has to arrive before requests time out, or nothing ever does."""
    far.rig.change(Link(round_trip_ms=100, megabits_per_s=1, queue_bytes=200_000))
    backlog = far.backlog(2_500)
    with backlog.read_in_stripes() as worker:
        passed = far.rig.counts()[Way.FROM_SOURCE].bytes_passed
        worker.wait_for(400)
        resident = resident_mb(worker.run.pid)
        worker.wait_for(backlog.records)
        grown = resident_mb(worker.run.pid) - resident
        passed = far.rig.counts()[Way.FROM_SOURCE].bytes_passed - passed
        print(f"{passed / 1e6:.1f} MB passed, {grown:.1f} MB grown")
        assert grown < 20
        assert not worker.run.events("broker.lost"), worker.run.tail()
        worker.conclude()


# Brokers


@pytest.fixture
def proxy(far: Far) -> Iterator[KafkaProxy]:
    """A proxy beside the source; its connections to workers go over the link."""
    made = KafkaProxy(far.source.bootstrap, host=far.rig.source.address)
    with far.rig.source.entered(), made, far.rig.near.entered():
        yield made
        made.end_rules()


@pytest.mark.slow
def test_stripes_that_drip_are_read_again(far: Far, proxy: KafkaProxy) -> None:
    """F37: time-outs count the whole time of a request, not the time without a byte."""
    backlog = far.backlog(2 * RECORDS)

    def carries_much(frame: Frame) -> bool:
        return len(frame.content) > 10_000

    properties = backlog.properties(**{"A.bootstrap.servers": proxy.bootstrap, **SHORT})
    with backlog.read_in_stripes(properties) as worker:
        before = worker.run.log[-1]
        slow = proxy.rule(Drip(every_s=0.05), Direction.REPLY, api_key=FETCH, times=6, where=carries_much)
        slow.wait_until_fired(6, deadline_s=120 * PATIENCE)
        why = re.compile("did not answer Fetch within 5")
        worker.run.wait_for_event("broker.lost", after=before, cluster="A", why=why, deadline_s=120 * PATIENCE)
        worker.conclude()


@pytest.mark.slow
def test_a_quota_of_the_source_holds_up_all_connections_together(far: Far) -> None:
    """F76: two million bytes a second for the client, and no request times out for it."""
    per_s = 2_000_000
    backlog = far.backlog(3 * RECORDS)
    with quota(far.source, "consumer_byte_rate", per_s), backlog.read_in_stripes(backlog.properties(**SHORT)) as worker:
        worker.wait_for(RECORDS)  # what the broker saves up for a client is used by then
        begun_s, before = time.monotonic(), far.rig.counts()[Way.FROM_SOURCE].bytes_passed
        worker.wait_for(RECORDS)
        took_s, passed = time.monotonic() - begun_s, far.rig.counts()[Way.FROM_SOURCE].bytes_passed - before
        print(f"{passed / took_s / 1e6:.2f} MB/s, {len(worker.connections())} connections")
        assert took_s > passed / (1.3 * per_s)
        assert not worker.run.events("broker.lost"), worker.run.tail()
        worker.conclude()


# What is in the log


def transact(cluster: KafkaCluster, topic: str, records: Iterator[Planned], transactions: int) -> None:
    """Write transactions of one to two hundred records each; one of four is aborted."""
    client = producer(cluster, transactional_id=f"far-{topic}", batch_size=BATCH_BYTES)
    client.init_transactions(ANSWER_S)
    chance = random.Random(21)
    for number in range(transactions):
        client.begin_transaction()
        send_with(client, topic, islice(records, chance.choice((1, 10, 100, 200))))
        if number % 4 == 3:
            client.abort_transaction(ANSWER_S)
        else:
            client.commit_transaction(ANSWER_S)


def clean(cluster: KafkaCluster, topic: str, goal: int, ledger: Ledger) -> None:
    """Let the cleaner go over a topic until so few records are left, and then no more."""
    set_config(cluster, topic, segment_ms="200", min_cleanable_dirty_ratio="0.01")

    def is_cleaned() -> bool:
        send(cluster, topic, rolls(1), ledger=ledger)  # begins a new segment: the one before may be cleaned
        return len(dump(cluster, topic)[0]) < goal

    wait_until(is_cleaned, "the cleaner went over it", deadline_s=LATE_S)
    set_config(cluster, topic, min_compaction_lag_ms=str(10**12))


@pytest.mark.slow
def test_stripes_of_transactions_and_of_compacted_logs_are_put_together_right(far: Far) -> None:
    """B58, B60: each answer names the aborted transactions in it, offsets are missing, and no gap is reported."""
    transactions = new_topic(far.source, "transactions", 2)
    transact(
        far.source, transactions, Traffic(seed=2, partitions=2, value_bytes=2_000).records(), transactions=100
    )  # fmt: skip
    cleaned = new_topic(far.source, "cleaned", 1, {"cleanup.policy": "compact"})
    traffic = Traffic(
        seed=3, partitions=1, compacted=True, keys=3_000, value_bytes=2_000, plain=True, twins=False,
        first_timestamp_ms=now_ms(),
    )  # fmt: skip
    ledger = Ledger()
    send(far.source, cleaned, islice(traffic.records(), 2 * RECORDS), ledger=ledger, batch_size=BATCH_BYTES)
    clean(far.source, cleaned, RECORDS, ledger)
    backlog = Backlog(far, cleaned, 1, len(dump(far.source, cleaned)[0]))
    both: dict[str, Value] = {
        "A->B.topics": f"{transactions},{cleaned}",
        "A.consumer.isolation.level": "read_committed",
    }
    with backlog.read_in_stripes(backlog.properties(**both)) as worker:
        remote = f"A.{transactions}"
        print(
            assert_copied(
                far.source, far.target, transactions, remote, run=worker.run, read_committed=True, deadline_s=LATE_S
            )
        )
        assert worker.run.gaps("--all")[1] == []
        worker.conclude(ledger=ledger)


# Secured sources


@pytest.mark.slow
def test_a_source_with_tls_and_passwords_is_read_in_stripes(make_rig: Callable[[Link], Rig], tmp_path: Path) -> None:
    """Each of the connections is encrypted and authenticated by itself, and again while it reads."""
    rig = make_rig(LINK)
    authority = Authority()
    listener = tls_listener("SECURE", tmp_path, authority.issue("broker", [rig.source.address]), authority)
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        **listener,
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f'{login} user_anna="{PASSWORD}";',
        "listener.name.secure.connections.max.reauth.ms": "3000",
    }
    trust = write_private(tmp_path / "ca.pem", authority.pem())
    clusters = [
        KafkaCluster("far", network=rig.source, listeners=LISTENERS, settings=settings),
        KafkaCluster("near", network=rig.target),
    ]
    with start_clusters(clusters) as (source, target), rig.near.entered():
        backlog = Far(rig, source, target).backlog(RECORDS)
        secured: dict[str, Value] = {
            "A.bootstrap.servers": source.bootstrap_for("SECURE"),
            "A.security.protocol": "SASL_SSL",
            "A.ssl.truststore.type": "PEM",
            "A.ssl.truststore.location": str(trust),
            "A.sasl.mechanism": "PLAIN",
            "A.sasl.jaas.config": f'{login} username="anna" password="{PASSWORD}";',
        }
        with backlog.read_in_stripes(backlog.properties(**secured)) as worker:
            worker.conclude()
