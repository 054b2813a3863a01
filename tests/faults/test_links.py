"""Links that are cut, half open, late and unreliable, to three brokers on each side: each record is there once, in
order.

Faults of single frames are in ``tests/cluster/copying/test_proxy_faults.py``. Here whole links fail, for as long as
request time-outs and longer.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from tests.cluster.kafka_client import record_count, topic_id
from tests.cluster.kafka_frames import (
    FETCH,
    PRODUCE,
    Direction,
    Frame,
    Place,
    cut_last_batch,
    flip_a_bit,
    flip_any_bit,
    outcomes,
    places_of,
    with_records,
)
from tests.cluster.kafka_proxy import KafkaProxy
from tests.cluster.kafka_rules import Action, Alter, Cut, Drip, Drop, Hold, Repeat, Reset, Rule
from tests.cluster.loads import PARTITIONS
from tests.cluster.running import PATIENCE, Value, pause, wait_until
from tests.faults.scene import BEGIN_S, NODES, Pair, Scene, leader_of, rounds

REQUEST, REPLY = Direction.REQUEST, Direction.REPLY
FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 10, 22, 24, 26
KINDS: Final = {
    "Produce": PRODUCE,
    "FindCoordinator": FIND_COORDINATOR,
    "InitProducerId": INIT_PRODUCER_ID,
    "AddPartitionsToTxn": ADD_PARTITIONS,
    "EndTxn": END_TXN,
}
PER_SECOND: Final = 300
CUT_S: Final = 30.0
SHORT: Final[dict[str, Value]] = {
    "A.consumer.request.timeout.ms": 2_000,
    "A.admin.request.timeout.ms": 2_000,
    "B.producer.request.timeout.ms": 2_000,
    "B.admin.request.timeout.ms": 2_000,
    "B.offset.flush.interval.ms": 500,
}
"""Requests time out sooner than by default, so that a test sees several time-outs."""
OVER_S: Final = 120.0 * PATIENCE
"""How long copying may take to resume after a link is back: requests of 30 s time out one after the other."""
LARGE_BYTES: Final = 1_000
"""A reply of this size drips for 50 seconds."""
LEAK_MOST: Final = 4
"""The number of additional connections that may be open for a moment."""


@dataclass(frozen=True)
class Links:
    """A proxy before each cluster."""

    source: KafkaProxy
    target: KafkaProxy

    def scene(self, pair: Pair, stem: str, properties: dict[str, Value] | None = None) -> Scene:
        return Scene(
            pair,
            stem,
            source=self.source.bootstrap,
            target=self.target.bootstrap,
            per_second=PER_SECOND,
            properties=properties,
        )


@pytest.fixture
def links(pair: Pair) -> Iterator[Links]:
    with KafkaProxy(pair.source.bootstrap) as source, KafkaProxy(pair.target.bootstrap) as target:
        yield Links(source, target)
        source.end_rules()
        target.end_rules()


def carries_data(frame: Frame) -> bool:
    """Whether a Produce request is about copied records."""
    return b".internal" not in frame.content


def copied(scene: Scene) -> int:
    """Return the number of records in the remote topics, markers among them."""
    return sum(record_count(scene.pair.target, topic, range(PARTITIONS)) for topic in scene.remotes)


def wait_until_copying(scene: Scene, *, deadline_s: float = OVER_S) -> float:
    """Wait until more records are copied than now, and return how long it took, in seconds."""
    begun_s, before = time.monotonic(), copied(scene)
    wait_until(lambda: copied(scene) > before + PER_SECOND, "copying resumes", deadline_s=deadline_s)
    return time.monotonic() - begun_s


# Cut


def cut_off(proxy: KafkaProxy, how: str) -> Rule:
    """Pass nothing through a proxy until the rule ends."""
    if how == "refused":
        rule = proxy.rule(Reset(), times=None)
        proxy.reset_all()
        return rule
    return proxy.rule(Drop(), times=None)


@pytest.mark.parametrize("how", ["refused", "unanswered"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_worker_cut_off_from_a_whole_cluster_resumes_when_the_link_is_back(
    pair: Pair, links: Links, side: str, how: str
) -> None:
    """F26, F27: for 30 s, as long as a request may take."""
    with links.scene(pair, f"cut-{side}") as scene:
        scene.copy_more(PER_SECOND)
        cut = cut_off(getattr(links, side), how)
        pause(CUT_S, "the time of the cut is the fault")
        cut.end()
        print(f"copying resumes after {wait_until_copying(scene):.1f} s")
        assert cut.fired
        scene.conclude()
        assert scene.run.events("broker.lost")


@pytest.mark.skipif(NODES == 1, reason="there is no other broker")
def test_a_worker_cut_off_from_one_broker_continues_with_the_others(pair: Pair, links: Links) -> None:
    """F29: the other brokers report the lost one as alive, and it leads as before."""
    with links.scene(pair, "cut-one", SHORT) as scene:
        scene.copy_more(PER_SECOND)
        lost = leader_of(pair.target, scene.remotes[0]).node_id
        places = [(topic, number) for topic in scene.remotes for number in range(PARTITIONS)]
        others = [place for place in places if leader_of(pair.target, *place).node_id != lost]
        assert others, "one broker leads all"
        cut = links.target.rule(Drop(), broker=lost, times=None)
        cut.wait_until_fired()
        before = {key: record_count(pair.target, key[0], [key[1]]) for key in others}
        wait_until(
            lambda: all(record_count(pair.target, key[0], [key[1]]) > before[key] + 50 for key in others),
            "the other partitions are copied",
            deadline_s=OVER_S,
        )
        cut.end()
        print(f"copying resumes after {wait_until_copying(scene):.1f} s")
        scene.conclude()


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_half_open_link_is_noticed_by_our_own_time_outs(pair: Pair, links: Links, side: str) -> None:
    """F39: a cluster vanishes while its connections stay open, as when a firewall forgets them. TCP would wait for a
    quarter of an hour. New connections work.
    """
    with links.scene(pair, f"half-open-{side}") as scene:
        scene.copy_more(5 * PER_SECOND)  # until the connections are open that stay in use
        before, begun_s = scene.run.log[-1], time.monotonic()
        assert getattr(links, side).silence_all()
        scene.run.wait_for_event(
            "broker.lost", after=before, cluster={"source": "A", "target": "B"}[side], deadline_s=60 * PATIENCE
        )
        noticed_s = time.monotonic() - begun_s
        wait_until_copying(scene)
        print(f"noticed after {noticed_s:.1f} s, copying resumes after {time.monotonic() - begun_s:.1f} s")
        scene.conclude()


# Unanswered, late and repeated requests


def test_a_target_whose_replies_are_lost_has_each_record_once(pair: Pair, links: Links) -> None:
    """F28: for 40 s every request is carried out and every reply is lost, those to fences and new epochs too."""
    with links.scene(pair, "unheard", SHORT) as scene:
        scene.copy_more(PER_SECOND)
        lost = links.target.rule(Drop(), REPLY, times=None)
        pause(40, "the time is the fault")
        lost.end()
        print(f"copying resumes after {wait_until_copying(scene):.1f} s, {lost.fired} replies were lost")
        scene.conclude()


@pytest.mark.parametrize("api", KINDS)
def test_an_unanswered_kind_of_request_costs_no_record(pair: Pair, links: Links, api: str) -> None:
    """F28: records are not acknowledged, so a fence starts, and the replies to one kind of its requests are lost."""
    with links.scene(pair, "unheard", SHORT) as scene:
        scene.copy_more(PER_SECOND)
        unheard = links.target.rule(Drop(), REPLY, api_key=KINDS[api], times=3)
        if KINDS[api] != PRODUCE:
            links.target.rule(Drop(), REPLY, api_key=PRODUCE, where=carries_data, times=2)
        unheard.wait_until_fired(3, deadline_s=BEGIN_S)
        wait_until_copying(scene)
        scene.conclude()


def test_the_late_end_of_a_fence_that_arrives_during_the_next_one_harms_neither(pair: Pair, links: Links) -> None:
    """F40: a killed worker's successor fences it. The end of the first fence is delayed in the network, is sent again,
    and arrives when the next fence has started under the same id and epoch.
    """
    with links.scene(pair, "late-end", SHORT) as scene:
        scene.copy_more(PER_SECOND)
        scene.run.kill()
        scene.loads.wait_for(PER_SECOND)
        late = links.target.rule(Hold(), REQUEST, api_key=END_TXN)
        next_end = links.target.rule(Hold(), REQUEST, api_key=END_TXN, skip=1)
        before = scene.run.log[-1]
        scene.run.start()
        next_end.wait_until_fired(deadline_s=BEGIN_S)
        late.release()
        (reply,) = late.wait_for_replies()
        next_end.release()
        scene.run.wait_for_event("topics.copying", after=before, deadline_s=BEGIN_S)
        scene.copy_more(PER_SECOND)
        print(f"the late end is answered with error {int.from_bytes(reply.content[-3:-1])}")
        scene.conclude()


def test_batches_that_arrive_after_their_sender_has_fenced_itself_are_not_stored(pair: Pair, links: Links) -> None:
    """F41: a request is delayed in the network, its batches are sent again after a fence, and then it arrives."""
    with links.scene(pair, "late-batch", SHORT) as scene:
        scene.copy_more(PER_SECOND)
        (old,) = [remote for remote in scene.remotes if "-old-" in remote]
        names = (old.encode(), topic_id(pair.target, old).bytes)  # new batches are just sent again
        late = links.target.rule(
            Hold(), REQUEST, api_key=PRODUCE, where=lambda frame: any(name in frame.content for name in names)
        )
        late.wait_until_fired(deadline_s=BEGIN_S)
        scene.run.wait_for_event("partitions.reconciled", deadline_s=OVER_S)
        late.release()
        print(outcomes(late.wait_for_replies()[0]))
        scene.copy_more(PER_SECOND)
        scene.conclude()


# Slow, cut and damaged reads


def carries_much(frame: Frame) -> bool:
    """Whether a reply of Fetch is large enough to be cut."""
    return len(frame.content) > LARGE_BYTES and bool(places_of(frame))


def test_a_dripping_read_times_out_as_a_whole(pair: Pair, links: Links) -> None:
    """F37: some bytes arrive all the time, from one broker or another."""
    with links.scene(pair, "dripping", SHORT) as scene:
        scene.copy_more(PER_SECOND)
        before = scene.run.log[-1]
        slow = links.source.rule(Drip(every_s=0.05), REPLY, api_key=FETCH, times=3, where=carries_much)
        slow.wait_until_over(3, deadline_s=OVER_S)
        scene.run.wait_for_event(
            "broker.lost", after=before, cluster="A", why=re.compile("did not answer Fetch within 2")
        )
        print([f"{strike.took_s:.1f} s" for strike in slow.strikes if strike.took_s is not None])
        wait_until_copying(scene)
        scene.conclude()


CUTS: Final[dict[str, Action]] = {
    "then the end": Cut(keep_bytes=500),
    "then silence": Cut(keep_bytes=500, then_silence=True),
    "within the last batches": Alter(lambda frame: with_records(frame, cut_last_batch)),
}


@pytest.mark.parametrize("how", CUTS)
def test_a_read_that_breaks_off_loses_no_record(pair: Pair, links: Links, how: str) -> None:
    """F44: the connection ends, or falls silent; or frames arrive in which each partition's last batch is cut."""
    with links.scene(pair, "broken-off", SHORT) as scene:
        scene.copy_more(PER_SECOND)
        cut = links.source.rule(CUTS[how], REPLY, api_key=FETCH, times=rounds(10), where=carries_much)
        cut.wait_until_fired(rounds(10), deadline_s=OVER_S)
        print(f"copying resumes after {wait_until_copying(scene):.1f} s")
        scene.copy_more(PER_SECOND)
        scene.conclude()
        lost = [event for event in scene.run.events("broker.lost", cluster="A") if "Fetch" in event["why"]]
        assert bool(lost) is (how == "then silence"), lost


def ids_of(pair: Pair, scene: Scene) -> dict[Place, tuple[str, int]]:
    """Return the partitions under load, as a fetch reply names them."""
    return {
        (topic_id(pair.source, topic), number): (topic, number)
        for topic in scene.topics
        for number in range(PARTITIONS)
    }


@pytest.mark.parametrize(
    "where",
    [range(17, 21), range(21, 1_000_000)],
    ids=["of the checksum", "under the checksum"],
)
def test_a_flipped_bit_in_a_read_is_named_and_never_copied(pair: Pair, links: Links, where: range) -> None:
    """F43: once in each partition; that one is read again, and the log names it."""
    chance = random.Random(43)
    spoiled: set[Place] = set()

    def spoil(frame: Frame) -> Frame:
        new = places_of(frame) - spoiled
        spoiled.update(new)
        return with_records(frame, lambda records: flip_any_bit(records, where, chance), of=new)

    with links.scene(pair, "flipped") as scene:
        scene.copy_more(5 * PER_SECOND)
        names = ids_of(pair, scene)
        struck = links.source.rule(
            Alter(spoil), REPLY, api_key=FETCH, times=None, where=lambda frame: bool(places_of(frame) - spoiled)
        )
        struck.wait_until(lambda: len(spoiled) == len(names), "all partitions came spoiled", deadline_s=OVER_S)
        scene.copy_more(5 * PER_SECOND)
        scene.conclude()
        named = scene.run.events("source.damaged", level="warning", why=re.compile("came damaged once, and whole when"))
        assert sorted((event["topic"], event["partition"]) for event in named) == sorted(names.values())
        assert not scene.run.events(level="error"), scene.run.tail()


def test_a_partition_whose_reads_are_always_damaged_raises_an_alarm_and_resumes_when_they_are_not(
    pair: Pair, links: Links
) -> None:
    """F43: as from a bad disk or cable. The read is repeated every 30 s, and no other partition is delayed."""
    with links.scene(pair, "spoiled") as scene:
        scene.copy_more(PER_SECOND)
        place, (topic, number) = next(iter(ids_of(pair, scene).items()))
        remote = f"A.{topic}"
        spoiled = links.source.rule(
            Alter(lambda frame: with_records(frame, flip_a_bit, of={place})),
            REPLY,
            api_key=FETCH,
            times=None,
            where=lambda frame: place in places_of(frame),
        )
        alarm = scene.run.wait_for_event("source.crc_mismatch", topic=topic, partition=number, deadline_s=OVER_S)
        assert alarm["level"] == "error"
        stands_at = record_count(pair.target, remote, [number])
        assert f"source offset {stands_at} cannot be copied" in alarm["why"], f"{alarm['why']}; {stands_at} are copied"
        scene.copy_more(10 * PER_SECOND)
        assert record_count(pair.target, remote, [number]) == stands_at, "damaged records were copied"
        spoiled.end()
        wait_until(
            lambda: record_count(pair.target, remote, [number]) > stands_at, "it resumes by itself", deadline_s=OVER_S
        )
        scene.conclude()
        assert len(scene.run.events("source.crc_mismatch")) == 1, "the same alarm is logged again and again"


# Unreliable links


def test_a_link_that_comes_and_goes_leaves_no_connection_behind(pair: Pair, links: Links) -> None:
    """F32, F38: down for a second, up for a second, to both clusters."""
    with links.scene(pair, "flapping", SHORT) as scene:
        scene.copy_more(PER_SECOND)
        open_before = links.source.connections + links.target.connections
        for _ in range(rounds(30)):
            down = [cut_off(proxy, "refused") for proxy in (links.source, links.target)]
            pause(1, "the second is the fault")
            for rule in down:
                rule.end()
            pause(1, "the second is the fault")
        wait_until_copying(scene)
        wait_until(
            lambda: links.source.connections + links.target.connections <= open_before + LEAK_MOST,
            "connections are as many as before",
        )
        scene.conclude()


@pytest.mark.parametrize("seed", range(3))
def test_a_link_that_constantly_loses_repeats_and_resets_frames_costs_no_record(
    pair: Pair, links: Links, seed: int
) -> None:
    """F28, F38, F42: one frame in a hundred, on both sides, for as long as some thousands of records take."""
    chance = random.Random(seed)
    with links.scene(pair, "shaky", SHORT) as scene:
        scene.copy_more(PER_SECOND)
        rules = [
            links.target.rule(Repeat(), REQUEST, api_key=PRODUCE, times=None, where=lambda _: chance.random() < 0.05)
        ]
        for proxy in (links.source, links.target):
            rules += [
                proxy.rule(Reset(), times=None, where=lambda _: chance.random() < 0.01),
                proxy.rule(Drop(), times=None, where=lambda _: chance.random() < 0.01),
            ]
        for _ in range(rounds(10)):
            wait_until_copying(scene, deadline_s=2 * OVER_S)
        fired = [rule.fired for rule in rules]
        for rule in rules:
            rule.end()
        print(f"struck {fired} times")
        assert sum(fired) > 10
        wait_until_copying(scene)
        scene.conclude()
