"""A network that loses, delays, repeats, cuts and spoils single frames, between mm2py and real brokers.

Two topics are copied under load through proxies, one with records of today, one with records of a month ago. Each
record is there once and in its place, whatever answers get lost or come late, whoever is killed. Only where the network
itself delivers a request of old records a second time, which was acknowledged the first time, they may stand there
twice: the target forgets within moments who sent them, and takes the request for new (docs/broker-facts.md, C1). A real
one forgets every ten minutes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import pytest

from deploy.local.kafka import KafkaCluster, start_clusters
from tests.checker.load import Load
from tests.checker.traffic import Traffic
from tests.cluster.copies import COPY_DEADLINE_S, assert_copied, new_topic, now_ms
from tests.cluster.kafka_client import new_name, record_count
from tests.cluster.kafka_frames import (
    FETCH,
    PRODUCE,
    Direction,
    Frame,
    cut_last_batch,
    flip_any_bit,
    outcomes,
    records_of,
    with_records,
)
from tests.cluster.kafka_proxy import KafkaProxy
from tests.cluster.kafka_rules import Alter, Cut, Drip, Drop, Hold, Pass, Repeat, Reset
from tests.cluster.running import Mm2py, Value, one_way_properties

REQUEST, REPLY = Direction.REQUEST, Direction.REPLY
YOUNG, OLD = "young", "old"
AGES_MS: Final = {YOUNG: 0, OLD: 30 * 86_400_000}
PARTITIONS: Final = 2
PER_SECOND: Final = 500
"""Of each topic."""
REQUEST_TIMEOUT_S: Final = 1.0
DRIP_S: Final = 0.05
LARGE_BYTES: Final = 1_000
"""A reply of this size drips for 50 seconds."""
POSITIONS: Final = b"mm2-offsets.A.internal"
REWINDS_BY_REPEATS: Final = 20
"""Of old records, by ten requests of the partition: each a jump back, and one to where the copy was."""


@dataclass(frozen=True)
class Rig:
    """Two clusters, a proxy before each."""

    source: KafkaCluster
    target: KafkaCluster
    at_source: KafkaProxy
    at_target: KafkaProxy

    def properties(self, **extra: Value) -> dict[str, Value]:
        timeout_ms = int(REQUEST_TIMEOUT_S * 1000)
        return one_way_properties(
            self.at_source.bootstrap,
            self.at_target.bootstrap,
            **{
                "A.consumer.request.timeout.ms": timeout_ms,
                "A.admin.request.timeout.ms": timeout_ms,
                "B.producer.request.timeout.ms": timeout_ms,
                "B.admin.request.timeout.ms": timeout_ms,
                "B.offset.flush.interval.ms": 500,
                **extra,
            },
        )


class Copying:
    """Topics under load while the ``with`` block lasts, and their copies."""

    def __init__(self, rig: Rig, run: Mm2py, stem: str) -> None:
        self._rig = rig
        self._run = run
        self._running = ExitStack()
        self._loads = {
            age: Load(
                rig.source.internal_bootstrap,
                new_topic(rig.source, f"{stem}-{age}", PARTITIONS),
                Traffic(seed=len(stem), partitions=PARTITIONS, first_timestamp_ms=now_ms() - age_ms),
                codecs=["lz4"],
                per_second=PER_SECOND,
            )
            for age, age_ms in AGES_MS.items()
        }

    def __enter__(self) -> Copying:
        for load in self._loads.values():
            self._running.enter_context(load.in_background())
        self.wait_for_more(200)
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def copied(self) -> int:
        """Return how many records the remote topics hold."""
        topics = [f"A.{load.topic}" for load in self._loads.values()]
        return sum(record_count(self._rig.target, topic, range(PARTITIONS)) for topic in topics)

    def wait_for_more(self, more: int) -> None:
        """Wait until so many more records are copied."""
        goal = self.copied() + more
        self._run.wait_until(lambda: self.copied() >= goal, f"{more} more are copied", deadline_s=COPY_DEADLINE_S)

    def assert_right(self, *, old_rewinds: int = 0) -> None:
        """Let the checker judge both topics: each record is there once, and in order.

        Args:
            old_rewinds: so often a partition of old records may go back.
        """
        for age, load in self._loads.items():
            topic = load.topic
            rewinds = old_rewinds if age == OLD else 0
            report = assert_copied(
                self._rig.source, self._rig.target, topic, f"A.{topic}", run=self._run, max_rewinds=rewinds
            )
            print(report)


@pytest.fixture(scope="module")
def clusters() -> Iterator[Rig]:
    forgetful = {"producer.id.expiration.check.interval.ms": 100}
    made = [KafkaCluster("proxied-source"), KafkaCluster("proxied-target", settings=forgetful)]
    with (
        start_clusters(made) as (source, target),
        KafkaProxy(source.bootstrap) as at_source,
        KafkaProxy(target.bootstrap) as at_target,
    ):
        yield Rig(source, target, at_source, at_target)


@pytest.fixture
def rig(clusters: Rig) -> Iterator[Rig]:
    yield clusters
    clusters.at_source.end_rules()
    clusters.at_target.end_rules()


@pytest.fixture(scope="module")
def run(clusters: Rig) -> Iterator[Mm2py]:
    """One worker that lives through all of it."""
    with Mm2py(clusters.properties(**{"A->B.topics": "proxied-.*"})) as run:
        run.wait_for_event("flow.ready")
        yield run
        assert run.terminate() == 0
        assert not run.events("flow.crashed"), run.tail()


@pytest.fixture
def copying(rig: Rig, run: Mm2py) -> Iterator[Copying]:
    """Topics of the test's own, which it puts under load and lets be judged."""
    yield Copying(rig, run, new_name("proxied"))
    print(run.tail())


def carries_data(frame: Frame) -> bool:
    """Whether a Produce request is about copied records, not about positions or members."""
    return b".internal" not in frame.content


def carries_records(frame: Frame) -> bool:
    """Whether a reply of Fetch is worth spoiling."""
    return bool(records_of(frame))


# Requests pass, replies do not


def test_stored_batches_whose_acknowledgements_are_lost_stand_there_once(
    rig: Rig, run: Mm2py, copying: Copying
) -> None:
    """F28: the target stores what it is sent, and every answer vanishes for a while."""
    before = run.log[-1]
    with copying:
        lost = rig.at_target.rule(Drop(), REPLY, api_key=PRODUCE, times=None)
        lost.wait_until_fired(4)
        run.wait_for_event(
            "broker.lost", after=before, cluster="B", why=re.compile("did not answer Produce within 1 s")
        )
        lost.end()
        copying.wait_for_more(1_000)
    assert any(code == 0 for frame in lost.frames for code, _ in outcomes(frame)), "nothing was stored meanwhile"
    copying.assert_right()


# Slow, cut and reset


def test_an_answer_that_drips_is_not_waited_for(rig: Rig, run: Mm2py, copying: Copying) -> None:
    """F37: something arrives all the time, and yet the request times out on its whole time."""
    before = run.log[-1]
    with copying:
        slow = rig.at_source.rule(
            Drip(every_s=DRIP_S), REPLY, api_key=FETCH, times=3, where=lambda frame: len(frame.content) > LARGE_BYTES
        )
        slow.wait_until_over(3)
        copying.wait_for_more(1_000)
    times_s = [strike.took_s for strike in slow.strikes if strike.took_s is not None]
    assert min(times_s) > REQUEST_TIMEOUT_S / 2, times_s
    run.wait_for_event("broker.lost", after=before, cluster="A", why=re.compile("did not answer Fetch within 1"))
    copying.assert_right()


def test_connections_that_are_reset_again_and_again_cost_no_record(rig: Rig, run: Mm2py, copying: Copying) -> None:
    """F38: every connection to both clusters, over and over, also new ones; then some that pass most of the time."""
    with copying:
        cut_off = [
            proxy.rule(Reset(), direction, times=None)
            for proxy, direction in ((rig.at_source, REPLY), (rig.at_target, REPLY))
        ]
        reset = rig.at_source.reset_all() + rig.at_target.reset_all()
        for rule in cut_off:
            rule.wait_until_fired(4)
            rule.end()
        chance = random.Random(1)
        flaky = [
            proxy.rule(Reset(), times=5, where=lambda _: chance.random() < 0.2)
            for proxy in (rig.at_source, rig.at_target)
        ]
        for rule in flaky:
            rule.wait_until_fired(5)
        copying.wait_for_more(500)
    assert reset >= 2
    copying.assert_right()


@pytest.mark.parametrize("then_silence", [False, True], ids=["then the end", "then silence"])
def test_a_read_that_breaks_off_is_repeated(rig: Rig, run: Mm2py, copying: Copying, then_silence: bool) -> None:
    """F44."""
    with copying:
        cut = rig.at_source.rule(
            Cut(keep_bytes=500, then_silence=then_silence),
            REPLY,
            api_key=FETCH,
            times=2 if then_silence else 5,
            where=lambda frame: len(frame.content) > LARGE_BYTES,
        )
        cut.wait_until_fired(2 if then_silence else 5)
        copying.wait_for_more(500)
    copying.assert_right()


def test_a_batch_that_the_end_of_a_reply_cuts_is_read_as_a_whole(rig: Rig, run: Mm2py, copying: Copying) -> None:
    """F44: whole frames, in which the last batch of each partition is not."""
    with copying:
        cut = rig.at_source.rule(
            Alter(lambda frame: with_records(frame, cut_last_batch)),
            REPLY,
            api_key=FETCH,
            times=10,
            where=carries_records,
        )
        cut.wait_until_fired(10)
        copying.wait_for_more(500)
    copying.assert_right()


# Late and twice


def test_a_batch_that_arrives_after_it_was_sent_again_is_not_stored_again(
    rig: Rig, run: Mm2py, copying: Copying
) -> None:
    """F41: a request hangs in the network; the client gives up and sends the batch anew; then the first one arrives."""
    with copying:
        late = rig.at_target.rule(Hold(), REQUEST, api_key=PRODUCE, where=carries_data)
        late.wait_until_fired()
        copying.wait_for_more(500)
        late.release()
        (reply,) = late.wait_for_replies()
        copying.wait_for_more(500)
    print(outcomes(reply))
    copying.assert_right()


def test_a_position_that_arrives_after_its_worker_has_left_does_not_undo_a_later_one(
    rig: Rig, run: Mm2py, copying: Copying
) -> None:
    """F41, for our own records: positions lie in a compacted topic, in which the last one counts."""
    with copying:
        late = rig.at_target.rule(Hold(), REQUEST, api_key=PRODUCE, where=lambda frame: POSITIONS in frame.content)
        late.wait_until_fired()
        copying.wait_for_more(1_000)
        assert run.terminate() == 0
        late.release()
        (reply,) = late.wait_for_replies()
        run.start()
        copying.wait_for_more(500)
    print(outcomes(reply))
    copying.assert_right()


def test_a_batch_of_a_killed_worker_that_arrives_late_is_not_stored_again(
    rig: Rig, run: Mm2py, copying: Copying
) -> None:
    """F41: the worker dies while a request hangs in the network; its successor copies on; then the request arrives."""
    with copying:
        late = rig.at_target.rule(Hold(), REQUEST, api_key=PRODUCE, where=carries_data)
        late.wait_until_fired()
        run.kill()
        run.start()
        copying.wait_for_more(500)
        late.release()
        (reply,) = late.wait_for_replies()
        copying.wait_for_more(500)
    print(outcomes(reply))
    copying.assert_right()


def test_requests_that_arrive_twice_are_stored_once(rig: Rig, run: Mm2py, copying: Copying) -> None:
    """F42: the second comes right behind the first, on another connection."""
    with copying:
        repeated = rig.at_target.rule(Repeat(), REQUEST, api_key=PRODUCE, times=20)
        repeated.wait_until_fired(20)
        repeated.wait_until(lambda: len(repeated.answers) == 20, "all repeats are answered")
        first = [offset for frame in repeated.wait_for_replies() for offset in outcomes(frame)]
        copying.wait_for_more(500)
    second = [offset for frame in repeated.answers for offset in outcomes(frame)]
    print(sorted(first), sorted(second))
    copying.assert_right(old_rewinds=REWINDS_BY_REPEATS)


def test_requests_that_arrive_again_much_later_are_not_stored_again(rig: Rig, run: Mm2py, copying: Copying) -> None:
    """F42: when much has been stored behind them."""
    with copying:
        kept = rig.at_target.rule(Pass(), REQUEST, api_key=PRODUCE, times=10)
        kept.wait_until_fired(10)
        copying.wait_for_more(500)
        answers = rig.at_target.deliver(kept.frames)
        copying.wait_for_more(500)
    print([outcomes(answer) for answer in answers])
    copying.assert_right(old_rewinds=REWINDS_BY_REPEATS)


# Spoiled


def spoil(chance: random.Random, where: range) -> Callable[[Frame], Frame]:
    """Return what flips a bit in each partition's records, somewhere in these bytes of a batch."""
    return lambda frame: with_records(frame, lambda records: flip_any_bit(records, where, chance))


@pytest.mark.parametrize("where", [range(17, 21), range(21, 1_000_000)], ids=["of the checksum", "under the checksum"])
def test_a_flipped_bit_is_never_copied(rig: Rig, copying: Copying, where: range) -> None:
    """F43: what fails its checksum is read again."""
    with copying:
        spoiled = rig.at_source.rule(
            Alter(spoil(random.Random(1), where)), REPLY, api_key=FETCH, times=5, where=carries_records
        )
        spoiled.wait_until_fired(5)
        copying.wait_for_more(500)
    copying.assert_right()
