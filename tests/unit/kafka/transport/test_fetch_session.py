"""Fetch sessions: what a broker believes to be wanted is always what is wanted, and nobody waits in vain."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.fetch.v12.request import FetchRequest as FetchRequestV12
from kio.schema.fetch.v17.request import FetchRequest as FetchRequestV17
from kio.serial import entity_reader

from mm2py.kafka.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
)
from mm2py.kafka.port import FetchedPartition, FetchReply, FetchRequest, PartitionFetch, TopicFetch
from mm2py.kafka.transport import wire
from mm2py.kafka.transport.fetch_session import EPOCH_MAX, REFUSED_PAUSE_S, FetchSession, SessionFetch

IDS = {name: uuid.uuid5(uuid.NAMESPACE_DNS, name) for name in "abc"}
Key = tuple[str, uuid.UUID | None, int]
Wanted = Mapping[Key, PartitionFetch]
INCONSISTENT_TOPIC_ID = 103


def request(wanted: Wanted, *, max_wait_ms: int = 500) -> FetchRequest:
    topics: dict[tuple[str, uuid.UUID | None], list[PartitionFetch]] = {}
    for (name, topic_id, _), partition in wanted.items():
        topics.setdefault((name, topic_id), []).append(partition)
    made = [TopicFetch(*topic, parts) for topic, parts in topics.items()]
    return FetchRequest(made, max_wait_ms, 1, 1 << 20, read_committed=False)


def flat(fetch: SessionFetch) -> dict[Key, PartitionFetch]:
    return {(topic.name, topic.topic_id, part.partition): part for topic in fetch.topics for part in topic.partitions}


Kept = dict[tuple[str | uuid.UUID | None, int], PartitionFetch]
"""As a broker keeps it: under the id or under the name, whatever travels in the version at hand."""


@dataclass
class Held:
    by_id: bool
    epoch: int
    wanted: Kept
    told: dict[tuple[str | uuid.UUID | None, int], int]
    """The log ends that were last told: only what differs from them is news."""


@dataclass
class Broker:
    """Keeps sessions as Kafka's brokers do, and answers the ends of logs, without records."""

    grants: bool = True
    throttles: bool = False
    sessions: dict[int, Held] = field(default_factory=dict)
    next_id: int = 1
    ends: dict[tuple[str | uuid.UUID | None, int], int] = field(default_factory=dict)
    reads: Kept = field(default_factory=dict)
    """What the last request made it read."""

    def take(self, fetch: SessionFetch, *, by_id: bool) -> FetchReply:
        def key(name: str, topic_id: uuid.UUID | None, number: int) -> tuple[str | uuid.UUID | None, int]:
            return topic_id if by_id else name, number

        sent = {key(*at): want for at, want in flat(fetch).items()}
        gone = [key(name, topic_id, number) for name, topic_id, numbers in fetch.forgotten for number in numbers]
        if fetch.epoch <= 0:
            assert not gone
            self.sessions.pop(fetch.session_id, None)
            self.reads = sent
            if self.throttles:
                return self.reply(0, {})
            news = {at: self.ends.get(at, 0) for at in sent}
            if fetch.epoch == -1 or not self.grants or not sent:
                return self.reply(0, news)
            self.next_id += 1
            self.sessions[self.next_id] = Held(by_id, 1, sent, dict(news))
            return self.reply(self.next_id, news)
        held = self.sessions.get(fetch.session_id)
        if held is None:
            return FetchReply([], 0, error_code=FETCH_SESSION_ID_NOT_FOUND)
        if held.epoch != fetch.epoch:
            return FetchReply([], 0, error_code=INVALID_FETCH_SESSION_EPOCH)
        if held.by_id != by_id:
            return FetchReply([], 0, error_code=FETCH_SESSION_TOPIC_ID_ERROR)
        held.wanted |= sent
        for at in gone:  # after what was sent, as in a broker
            del held.wanted[at]
            held.told.pop(at, None)
        self.reads = dict(held.wanted)
        if not held.wanted:
            del self.sessions[fetch.session_id]
            return self.reply(0, {})
        held.epoch = 1 if held.epoch == EPOCH_MAX else held.epoch + 1
        if self.throttles:
            return self.reply(fetch.session_id, {})
        ends = {at: self.ends.get(at, 0) for at in held.wanted}
        news = {at: end for at, end in ends.items() if held.told.get(at) != end}
        held.told |= news
        return self.reply(fetch.session_id, news)

    def reply(self, session_id: int, news: Mapping[tuple[str | uuid.UUID | None, int], int]) -> FetchReply:
        names = {topic_id: name for name, topic_id in IDS.items()}
        parts = [
            FetchedPartition(
                names.get(topic, str(topic)) if isinstance(topic, uuid.UUID) else str(topic), number, 0, end
            )
            for (topic, number), end in news.items()
        ]
        return FetchReply(parts, 0, session_id=session_id, throttle_ms=100 if self.throttles else 0)


@dataclass
class Client:
    """Does what a connection does."""

    broker: Broker
    session: FetchSession = field(default_factory=FetchSession)
    now_s: float = 0.0
    named: int = 0
    """Partitions that the last read named, wanted and forgotten ones."""

    def read(self, wanted: Wanted, *, by_id: bool = True, max_wait_ms: int = 500) -> FetchReply:
        self.named, asked = 0, request(wanted, max_wait_ms=max_wait_ms)
        for _ in range(2):
            fetch = self.session.next(asked, by_id=by_id, now_s=self.now_s)
            self.named += len(flat(fetch)) + sum(len(numbers) for _, _, numbers in fetch.forgotten)
            reply = self.broker.take(fetch, by_id=by_id)
            if self.session.answered(fetch, reply, waits=max_wait_ms > 0, now_s=self.now_s):
                assert reply.error_code == 0
                return reply
        raise AssertionError("more than one request in full")


def one(offset: int = 5, *, name: str = "a", number: int = 0) -> dict[Key, PartitionFetch]:
    return {(name, IDS[name], number): PartitionFetch(number, offset, 1)}


def epochs(session: FetchSession, now_s: float, wanted: Wanted | None = None) -> tuple[int, int]:
    """Return session id and epoch of the next request."""
    fetch = session.next(request(wanted or one()), by_id=True, now_s=now_s)
    return fetch.session_id, fetch.epoch


# Whatever happens


partitions = st.builds(
    lambda name, number, offset: ((name, IDS[name], number), PartitionFetch(number, offset, 1 << 20, 3, 3)),
    st.sampled_from("abc"),
    st.integers(0, 3),
    st.integers(0, 2),
)
EVENTS = ["lost reply", "evicted", "restarted", "full", "granted", "throttled", "another id", "an error", "later"]
steps = st.lists(
    st.tuples(
        st.sampled_from(["read"] * 6 + EVENTS),
        st.lists(partitions, max_size=8).map(dict),
        st.sampled_from([True, True, True, False]),
        st.sampled_from([0, 500]),
    ),
    max_size=30,
)


@given(steps)
def test_a_broker_reads_what_is_wanted_whatever_happened_before(
    story: list[tuple[str, dict[Key, PartitionFetch], bool, int]],
) -> None:
    client = Client(Broker())
    leaked = 0
    ids = dict(IDS)
    for event, asked, by_id, max_wait_ms in story:
        broker = client.broker
        wanted = {(name, ids[name], number): want for (name, _, number), want in asked.items()}
        broker.throttles = event == "throttled"
        match event:
            case "lost reply":
                fetch = client.session.next(request(wanted), by_id=by_id, now_s=client.now_s)
                broker.take(fetch, by_id=by_id)
                leaked += fetch.epoch == 0  # nobody learned the number of this one
                client.session.forget()
            case "an error":
                fetch = client.session.next(request(wanted), by_id=by_id, now_s=client.now_s)
                refused = FetchReply([], 0, error_code=INCONSISTENT_TOPIC_ID)
                assert client.session.answered(fetch, refused, waits=True, now_s=client.now_s)
                broker.take(fetch, by_id=by_id)
                leaked += fetch.epoch == 0
            case "evicted":
                broker.sessions.clear()
            case "restarted":
                client.broker = broker = Broker(next_id=broker.next_id)
            case "full" | "granted":
                broker.grants = event == "granted"
            case "another id":
                ids["a"] = uuid.uuid4()
            case "later":
                client.now_s += REFUSED_PAUSE_S
        reply = client.read(wanted, by_id=by_id, max_wait_ms=max_wait_ms)
        assert broker.reads == {
            (topic_id if by_id else name, number): want for (name, topic_id, number), want in wanted.items()
        }
        assert reply.partitions or max_wait_ms or broker.throttles or not wanted  # who does not wait gets an answer
        assert len(broker.sessions) <= 1 + leaked


# What is saved


def test_of_a_thousand_partitions_only_the_one_that_moved_is_named() -> None:
    client = Client(Broker())
    wanted: dict[Key, PartitionFetch] = {
        ("a", IDS["a"], number): PartitionFetch(number, 0, 1) for number in range(1000)
    }
    client.read(wanted)
    assert client.named == 1000
    client.read(wanted)
    assert client.named == 0
    wanted["a", IDS["a"], 7] = PartitionFetch(7, 1, 1)
    client.read(wanted)
    assert client.named == 1
    wanted["a", IDS["a"], 7] = wanted.pop(("a", IDS["a"], 7))  # in another order
    client.read(wanted)
    assert client.named == 0
    del wanted["a", IDS["a"], 8]
    client.read(wanted)
    assert client.named == 1


def test_a_list_that_its_caller_changes_afterwards_is_compared_as_it_was() -> None:
    session, broker = FetchSession(), Broker()
    asked = [PartitionFetch(0, 5, 1), PartitionFetch(1, 5, 1)]
    whole = FetchRequest([TopicFetch("a", IDS["a"], asked)], 500, 1, 1, read_committed=False)
    for offset in (5, 6, 7):
        asked[0] = PartitionFetch(0, offset, 1)
        fetch = session.next(whole, by_id=True, now_s=0.0)
        session.answered(fetch, broker.take(fetch, by_id=True), waits=True, now_s=0.0)
        assert broker.reads[IDS["a"], 0].fetch_offset == offset


# How it ends, and begins anew


@pytest.mark.parametrize(
    "code", [FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR]
)
def test_a_lost_session_is_reopened_unnoticed_by_the_caller(code: int) -> None:
    client = Client(Broker())
    for _ in range(3):
        client.read(one())
    fetch = client.session.next(request(one()), by_id=True, now_s=0.0)
    assert not client.session.answered(fetch, FetchReply([], 0, error_code=code), waits=True, now_s=0.0)
    again = client.session.next(request(one()), by_id=True, now_s=0.0)
    assert (again.session_id, again.epoch, flat(again)) == (fetch.session_id, 0, one())


def test_the_same_error_after_a_full_request_is_the_callers() -> None:
    session = FetchSession()
    fetch = session.next(request(one()), by_id=True, now_s=0.0)
    lost = FetchReply([], 0, error_code=FETCH_SESSION_ID_NOT_FOUND)
    assert session.answered(fetch, lost, waits=True, now_s=0.0)


def test_any_other_error_ends_the_session() -> None:
    client = Client(Broker())
    client.read(one())
    fetch = client.session.next(request(one()), by_id=True, now_s=0.0)
    reply = FetchReply([], 0, error_code=INCONSISTENT_TOPIC_ID)
    assert client.session.answered(fetch, reply, waits=True, now_s=0.0)
    assert epochs(client.session, 0.0) == (fetch.session_id, 0)


def test_a_session_left_behind_is_closed_by_the_next_full_request() -> None:
    """Brokers keep a thousand by default, for all clients: one that nobody uses takes somebody's place."""
    client = Client(Broker())
    client.read(one())
    (old,) = client.broker.sessions
    client.session.next(request(one()), by_id=True, now_s=0.0)
    client.session.forget()  # the caller was cancelled
    client.read(one())
    assert old not in client.broker.sessions
    assert len(client.broker.sessions) == 1


def test_a_broker_that_grants_no_session_is_asked_again_after_a_while() -> None:
    client = Client(Broker(grants=False))
    client.read(one())
    client.broker.grants = True
    client.now_s = REFUSED_PAUSE_S - 1
    client.read(one())
    assert not client.broker.sessions
    assert client.session.is_refused
    client.now_s = REFUSED_PAUSE_S
    client.read(one())
    assert len(client.broker.sessions) == 1
    assert not client.session.is_refused
    client.read(one())
    assert client.named == 0


def test_a_throttled_answer_is_no_refusal() -> None:
    client = Client(Broker(throttles=True))
    client.read(one())
    assert not client.session.is_refused
    client.broker.throttles = False
    client.read(one())
    assert len(client.broker.sessions) == 1


def test_a_session_that_never_serves_is_not_asked_for_each_time() -> None:
    client = Client(Broker())
    client.read(one())
    client.broker.sessions.clear()
    client.read(one())
    assert not client.broker.sessions
    assert client.session.is_refused
    assert epochs(client.session, REFUSED_PAUSE_S - 1)[1] == -1
    assert epochs(client.session, REFUSED_PAUSE_S)[1] == 0


def test_a_session_that_ends_because_a_topic_was_recreated_was_not_refused() -> None:
    session = FetchSession()
    fetch = session.next(request(one()), by_id=True, now_s=0.0)
    session.answered(fetch, FetchReply([FetchedPartition("a", 0, 0)], 0, session_id=9), waits=True, now_s=0.0)
    fetch = session.next(request(one()), by_id=True, now_s=0.0)
    assert not session.answered(fetch, FetchReply([], 0, FETCH_SESSION_TOPIC_ID_ERROR), waits=True, now_s=0.0)
    assert not session.is_refused


def test_a_full_answer_that_leaves_something_out_opens_no_session() -> None:
    """A broker keeps what it answered: it would never read the rest."""
    session = FetchSession()
    wanted = one(number=0) | one(number=1)
    fetch = session.next(request(wanted), by_id=True, now_s=0.0)
    half = FetchReply([FetchedPartition("a", 0, 0)], 0, session_id=9)
    assert session.answered(fetch, half, waits=True, now_s=0.0)
    assert epochs(session, 0.0, wanted) == (9, 0)


def test_an_answer_of_another_session_ends_this_one() -> None:
    client = Client(Broker())
    client.read(one())
    fetch = client.session.next(request(one()), by_id=True, now_s=0.0)
    other = replace(client.broker.take(fetch, by_id=True), session_id=0)
    assert client.session.answered(fetch, other, waits=True, now_s=0.0)
    assert epochs(client.session, 0.0)[1] == 0


def test_a_recreated_topic_starts_a_new_session() -> None:
    client = Client(Broker())
    client.read(one())
    wanted: dict[Key, PartitionFetch] = {("a", uuid.uuid4(), 0): PartitionFetch(0, 5, 1)}
    fetch = client.session.next(request(wanted), by_id=True, now_s=0.0)
    assert (fetch.epoch, flat(fetch), fetch.forgotten) == (0, wanted, ())


def test_a_session_does_not_survive_a_version_that_names_topics_otherwise() -> None:
    client = Client(Broker())
    client.read(one())
    fetch = client.session.next(request(one()), by_id=False, now_s=0.0)
    assert (fetch.epoch, flat(fetch)) == (0, one())


def test_nothing_wanted_closes_the_session() -> None:
    client = Client(Broker())
    client.read(one())
    assert client.read({}).partitions == []
    assert not client.broker.sessions


def test_a_read_that_does_not_wait_gets_the_end_of_the_log_even_if_nothing_changed() -> None:
    client = Client(Broker(ends={(IDS["a"], 0): 5}))
    for _ in range(3):
        (part,) = client.read(one(), max_wait_ms=0).partitions
        assert part.high_watermark == 5
    assert client.read(one(), max_wait_ms=500).partitions == []


def test_epochs_begin_again_at_one() -> None:
    client = Client(Broker())
    client.read(one())
    (held,) = client.broker.sessions.values()
    client.session._epoch = held.epoch = EPOCH_MAX
    client.read(one())
    assert held.epoch == 1
    client.read(one())
    assert client.named == 0


def test_the_bytes_are_what_kafka_s_own_layout_says() -> None:
    sent = SessionFetch(
        77, 5, [TopicFetch("a", IDS["a"], [PartitionFetch(3, 9, 1000, 2, 1)])], [("b", IDS["b"], [1, 2])]
    )
    whole = request({("a", IDS["a"], 3): PartitionFetch(3, 9, 1000, 2, 1)})
    old, _ = entity_reader(FetchRequestV12)(b"".join(wire.encode_fetch(whole, 12, sent)), 0)
    assert (old.session_id, old.session_epoch) == (77, 5)
    assert [(part.topic, part.partitions) for part in old.forgotten_topics_data] == [("b", (1, 2))]
    new, _ = entity_reader(FetchRequestV17)(b"".join(wire.encode_fetch(whole, 17, sent)), 0)
    assert (new.session_id, new.session_epoch) == (77, 5)
    assert [(part.topic_id, part.partitions) for part in new.forgotten_topics_data] == [(IDS["b"], (1, 2))]
    assert [part.partition for part in new.topics[0].partitions] == [3]
