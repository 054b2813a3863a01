"""Fetch sessions: what a broker believes to be wanted is always what is wanted."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.fetch.v12.request import FetchRequest as FetchRequestV12
from kio.schema.fetch.v17.request import FetchRequest as FetchRequestV17
from kio.serial import entity_reader

from mm2py.kafka import wire
from mm2py.kafka.fetch_session import (
    EPOCH_MAX,
    INVALID_SESSION_EPOCH,
    SESSION_ID_NOT_FOUND,
    FetchSession,
    SessionFetch,
    outside,
)
from mm2py.kafka.port import FetchRequest, PartitionFetch, TopicFetch

IDS = {name: uuid.uuid5(uuid.NAMESPACE_DNS, name) for name in "abc"}
Wanted = dict[tuple[str, uuid.UUID | None, int], PartitionFetch]


def request(wanted: Wanted) -> FetchRequest:
    topics: dict[tuple[str, uuid.UUID | None], list[PartitionFetch]] = {}
    for (name, topic_id, _), partition in wanted.items():
        topics.setdefault((name, topic_id), []).append(partition)
    return FetchRequest([TopicFetch(*topic, parts) for topic, parts in topics.items()], 500, 1, 1 << 20, False)


def flat(fetch: SessionFetch) -> Wanted:
    return {(topic.name, topic.topic_id, part.partition): part for topic in fetch.topics for part in topic.partitions}


@dataclass
class Broker:
    """Keeps sessions as FetchManager of Apache Kafka does."""

    grants: bool = True
    sessions: dict[int, tuple[int, Wanted]] = field(default_factory=dict)
    next_id: int = 1

    def take(self, fetch: SessionFetch) -> tuple[int, int, Wanted]:
        """Return session id, error, and what the broker will read."""
        if fetch.epoch == -1:
            return 0, 0, flat(fetch)
        if fetch.epoch == 0:
            self.sessions.pop(fetch.session_id, None)
            if not self.grants:
                return 0, 0, flat(fetch)
            self.next_id += 1
            self.sessions[self.next_id] = (1, flat(fetch))
            return self.next_id, 0, flat(fetch)
        if fetch.session_id not in self.sessions:
            return 0, SESSION_ID_NOT_FOUND, {}
        epoch, held = self.sessions[fetch.session_id]
        if epoch != fetch.epoch:
            return 0, INVALID_SESSION_EPOCH, {}
        held = held | flat(fetch)
        for name, topic_id, numbers in fetch.forgotten:
            for number in numbers:
                del held[name, topic_id, number]
        self.sessions[fetch.session_id] = (1 if epoch == EPOCH_MAX else epoch + 1, held)
        return fetch.session_id, 0, held


def read(session: FetchSession, broker: Broker, wanted: Wanted) -> tuple[Wanted, int]:
    """Do what a connection does. Returns what the broker reads, and how many partitions were named on the way."""
    named = 0
    while True:
        fetch = session.next(request(wanted), by_id=True)
        named += len(flat(fetch)) + sum(len(numbers) for _, _, numbers in fetch.forgotten)
        session_id, error, reads = broker.take(fetch)
        if session.answered(session_id, error):
            assert error == 0
            return reads, named


partitions = st.builds(
    lambda name, number, offset: ((name, IDS[name], number), PartitionFetch(number, offset, 1 << 20, 3, 3)),
    st.sampled_from("abc"),
    st.integers(0, 3),
    st.integers(0, 2),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["read", "read", "read", "lost reply", "evicted", "restarted", "full", "granted"]),
        st.lists(partitions, max_size=8).map(dict),
    ),
    max_size=30,
)


@settings(max_examples=400, deadline=None)
@given(steps)
def test_a_broker_reads_what_is_wanted_whatever_happened_before(story: list[tuple[str, Wanted]]) -> None:
    session, broker = FetchSession(), Broker()
    for event, wanted in story:
        match event:
            case "lost reply":
                broker.take(session.next(request(wanted), by_id=True))
                session.forget()
            case "evicted":
                broker.sessions.clear()
            case "restarted":
                broker = Broker()
            case "full" | "granted":
                broker.grants = event == "granted"
        reads, _ = read(session, broker, wanted)
        assert reads == wanted


def test_of_a_thousand_partitions_only_the_one_that_moved_is_named() -> None:
    session, broker = FetchSession(), Broker()
    wanted: Wanted = {("a", IDS["a"], number): PartitionFetch(number, 0, 1) for number in range(1000)}
    assert read(session, broker, wanted)[1] == 1000
    assert read(session, broker, wanted)[1] == 0
    wanted["a", IDS["a"], 7] = PartitionFetch(7, 1, 1)
    assert read(session, broker, wanted)[1] == 1
    del wanted["a", IDS["a"], 8]
    assert read(session, broker, wanted)[1] == 1


def test_a_topic_made_anew_is_another_one() -> None:
    session, broker = FetchSession(), Broker()
    old, new = uuid.uuid4(), uuid.uuid4()
    read(session, broker, {("a", old, 0): PartitionFetch(0, 5, 1)})
    wanted: Wanted = {("a", new, 0): PartitionFetch(0, 5, 1)}
    fetch = session.next(request(wanted), by_id=True)
    assert flat(fetch) == wanted
    assert fetch.forgotten == [("a", old, [0])]


def test_a_session_does_not_survive_a_version_that_names_topics_otherwise() -> None:
    session, broker = FetchSession(), Broker()
    wanted: Wanted = {("a", None, 0): PartitionFetch(0, 5, 1)}
    read(session, broker, wanted)
    fetch = session.next(request(wanted), by_id=False)
    assert (fetch.session_id, fetch.epoch, flat(fetch)) == (0, 0, wanted)


def test_epochs_begin_again_at_one() -> None:
    session, broker = FetchSession(), Broker()
    wanted: Wanted = {("a", IDS["a"], 0): PartitionFetch(0, 5, 1)}
    read(session, broker, wanted)
    session._epoch = EPOCH_MAX
    ((session_id, (_, held)),) = broker.sessions.items()
    broker.sessions[session_id] = (EPOCH_MAX, held)
    read(session, broker, wanted)
    assert read(session, broker, wanted) == (wanted, 0)


def test_a_request_beside_one_that_is_under_way_goes_outside_the_session() -> None:
    session = FetchSession()
    wanted: Wanted = {("a", IDS["a"], 0): PartitionFetch(0, 5, 1)}
    session.next(request(wanted), by_id=True)
    assert session.is_busy
    assert outside(request(wanted)).epoch == -1


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
