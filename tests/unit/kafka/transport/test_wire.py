"""Fetch 12-17 and Produce 9-13 byte for byte, against kio's generated classes as somebody else's reading of Kafka."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import io
import struct
import uuid
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta

from mm2py.kafka.port import (
    FetchRequest,
    PartitionFetch,
    PartitionProduce,
    ProduceRequest,
    TopicFetch,
    TopicProduce,
)
from mm2py.kafka.transport import wire
from mm2py.kafka.transport.wire import Malformed

FETCH = range(wire.FETCH_VERSIONS[0], wire.FETCH_VERSIONS[1] + 1)
PRODUCE = range(wire.PRODUCE_VERSIONS[0], wire.PRODUCE_VERSIONS[1] + 1)
HEAD = 5
"""Where a reply's body begins in its frame: behind the correlation id and the header's tags."""

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
counts = st.integers(0, 2**31 - 1)
names = st.text("abcXYZ019._-", min_size=1, max_size=249)
ids = st.uuids().filter(lambda topic_id: topic_id.int > 0)
codes = st.sampled_from([int(code) for code in ErrorCode])
texts = st.none() | st.text(st.characters(codec="utf-8"), max_size=300)

partition_fetches = st.builds(PartitionFetch, counts, int64s, counts, int32s, int32s)
fetch_requests = st.builds(
    FetchRequest,
    st.lists(st.builds(TopicFetch, names, ids, st.lists(partition_fetches, max_size=3)), max_size=3),
    max_wait_ms=counts,
    min_bytes=counts,
    max_bytes=counts,
    read_committed=st.booleans(),
    rack=st.just("") | st.text(max_size=200),
)
partition_produces = st.builds(PartitionProduce, counts, st.binary(max_size=300))
produce_requests = st.builds(
    ProduceRequest,
    st.lists(st.builds(TopicProduce, names, ids, st.lists(partition_produces, max_size=3)), max_size=3),
    timeout_ms=counts,
    transactional_id=st.none() | names,
)


def kio_module(api: str, version: int, side: str) -> ModuleType:
    return importlib.import_module(f"kio.schema.{api}.v{version}.{side}")


def written(entity: Any) -> bytearray:
    """Return a reply frame: a correlation id, no tags, and what kio writes."""
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return bytearray(b"\0\0\0\7\0") + out.getvalue()


def milliseconds(count: int) -> i32Timedelta:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=count))


def topic_of(version: int, name: str, topic_id: uuid.UUID, by_name: str = "name") -> dict[str, Any]:
    return {"topic_id": topic_id} if version >= wire.FIRST_WITH_TOPIC_IDS else {by_name: name}


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", FETCH)
@given(request=fetch_requests)
def test_a_fetch_request_is_read_by_others_as_we_meant_it(version: int, request: FetchRequest) -> None:
    body = b"".join(wire.encode_fetch(request, version))
    module = kio_module("fetch", version, "request")
    read, size = entity_reader(module.FetchRequest)(body, 0)
    assert size == len(body)
    assert read == module.FetchRequest(
        **({"replica_id": -1} if version <= 14 else {}),
        max_wait=milliseconds(request.max_wait_ms),
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=int(request.read_committed),
        session_id=0,
        session_epoch=-1,
        topics=tuple(
            module.FetchTopic(
                **topic_of(version, topic.name, topic.topic_id, "topic"),
                partitions=tuple(
                    module.FetchPartition(
                        partition=want.partition,
                        current_leader_epoch=want.current_leader_epoch,
                        fetch_offset=want.fetch_offset,
                        last_fetched_epoch=want.last_fetched_epoch,
                        log_start_offset=-1,
                        partition_max_bytes=want.max_bytes,
                    )
                    for want in topic.partitions
                ),
            )
            for topic in request.topics
        ),
        forgotten_topics_data=(),
        rack_id=request.rack,
    )


@pytest.mark.parametrize("version", PRODUCE)
@given(request=produce_requests)
def test_a_produce_request_is_read_by_others_as_we_meant_it(version: int, request: ProduceRequest) -> None:
    body = b"".join(wire.encode_produce(request, version))
    module = kio_module("produce", version, "request")
    read, size = entity_reader(module.ProduceRequest)(body, 0)
    assert size == len(body)
    assert read == module.ProduceRequest(
        transactional_id=request.transactional_id,
        acks=-1,
        timeout=milliseconds(request.timeout_ms),
        topic_data=tuple(
            module.TopicProduceData(
                **topic_of(version, topic.name, topic.topic_id),
                partition_data=tuple(
                    module.PartitionProduceData(index=part.partition, records=bytes(part.records))
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def test_batches_are_handed_on_and_not_copied() -> None:
    batch = bytearray(b"a batch")
    view = memoryview(bytearray(b"another one"))
    request = ProduceRequest(
        [TopicProduce("t", uuid.uuid4(), [PartitionProduce(0, batch), PartitionProduce(1, view)])], timeout_ms=1000
    )
    parts = wire.encode_produce(request, 13)
    assert any(part is batch for part in parts)
    assert any(part is view for part in parts)


@pytest.mark.parametrize("request_type", ["fetch", "produce"])
def test_a_topic_without_an_id_is_named_in_the_last_version_that_has_names(request_type: str) -> None:
    with_id, without = uuid.uuid4(), None
    for topic_id, highest, wanted in [(with_id, 13, 13), (without, 13, 12), (without, 12, 12), (with_id, 12, 12)]:
        request: FetchRequest | ProduceRequest
        if request_type == "fetch":
            request = FetchRequest([TopicFetch("t", topic_id, [])], 0, 0, 0, read_committed=False)
        else:
            request = ProduceRequest([TopicProduce("t", topic_id, [])], 0)
        assert wire.usable_version(request, highest) == wanted


def test_a_batch_of_a_transaction_is_never_sent_in_a_version_that_begins_one_by_itself() -> None:
    request = ProduceRequest([TopicProduce("t", uuid.uuid4(), [])], 0, transactional_id="mine")
    assert [wire.usable_version(request, highest) for highest in (9, 11, 12, 13)] == [9, 11, 11, 11]


def test_a_topic_without_an_id_cannot_be_named_by_id() -> None:
    with pytest.raises(ValueError, match=r"Topic orders has no id"):
        wire.encode_produce(ProduceRequest([TopicProduce("orders", None, [])], 0), 13)


# -- replies -----------------------------------------------------------------------------------------------------------


@st.composite
def fetch_replies(draw: st.DrawFn, version: int) -> Any:
    module = kio_module("fetch", version, "response")
    partitions = st.builds(
        module.PartitionData,
        partition_index=counts,
        error_code=codes.map(ErrorCode),
        high_watermark=int64s,
        last_stable_offset=int64s,
        log_start_offset=int64s,
        diverging_epoch=st.builds(module.EpochEndOffset, epoch=int32s, end_offset=int64s),
        current_leader=st.builds(module.LeaderIdAndEpoch, leader_id=int32s, leader_epoch=int32s),
        snapshot_id=st.builds(module.SnapshotId, end_offset=int64s, epoch=int32s),
        aborted_transactions=st.none()
        | st.lists(st.builds(module.AbortedTransaction, producer_id=int64s, first_offset=int64s), max_size=3).map(
            tuple
        ),
        preferred_read_replica=int32s,
        records=st.none() | st.binary(max_size=300),
    )
    topics = [
        module.FetchableTopicResponse(
            **topic_of(version, draw(names), draw(ids), "topic"),
            partitions=tuple(draw(st.lists(partitions, max_size=3))),
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    more: dict[str, Any] = {}
    if version >= 16:
        endpoint = st.builds(module.NodeEndpoint, node_id=int32s, host=names, port=int32s, rack=st.none() | names)
        more["node_endpoints"] = tuple(draw(st.lists(endpoint, max_size=2)))
    return module.FetchResponse(
        throttle_time=milliseconds(draw(counts)),
        error_code=ErrorCode(draw(codes)),
        session_id=draw(int32s),
        responses=tuple(topics),
        **more,
    )


@st.composite
def produce_replies(draw: st.DrawFn, version: int) -> Any:
    module = kio_module("produce", version, "response")
    leaders = {}
    if version >= 10:
        leaders["current_leader"] = st.builds(module.LeaderIdAndEpoch, leader_id=int32s, leader_epoch=int32s)
    partitions = st.builds(
        module.PartitionProduceResponse,
        index=counts,
        error_code=codes.map(ErrorCode),
        base_offset=int64s,
        log_append_time=st.none()
        | st.integers(0, 2**41).map(
            lambda ms: datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(milliseconds=ms)
        ),
        log_start_offset=int64s,
        record_errors=st.lists(
            st.builds(module.BatchIndexAndErrorMessage, batch_index=int32s, batch_index_error_message=texts), max_size=5
        ).map(tuple),
        error_message=texts,
        **leaders,
    )
    topics = [
        module.TopicProduceResponse(
            **topic_of(version, draw(names), draw(ids)),
            partition_responses=tuple(draw(st.lists(partitions, max_size=3))),
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    return module.ProduceResponse(responses=tuple(topics), throttle_time=milliseconds(draw(counts)))


def asked_for(reply: Any) -> tuple[dict[uuid.UUID, str], list[str]]:
    """Return the ids of a reply's topics with made-up names, and the name that we should find for each topic."""
    by_id: dict[uuid.UUID, str] = {}
    found = []
    for number, topic in enumerate(reply.responses):
        topic_id = getattr(topic, "topic_id", None)
        if topic_id is None:
            found.append(str(getattr(topic, "topic", None) or topic.name))
        else:
            found.append(by_id.setdefault(topic_id, f"topic {number}"))
    return by_id, found


@pytest.mark.parametrize("version", FETCH)
@given(data=st.data())
def test_a_fetch_reply_is_read_as_others_wrote_it(version: int, data: st.DataObject) -> None:
    reply = data.draw(fetch_replies(version))
    by_id, topic_names = asked_for(reply)
    frame = written(reply)
    asked = sum(max(1, len(topic.partitions)) for topic in reply.responses)
    ours = wire.decode_fetch(frame, HEAD, version, by_id, asked=asked)
    assert ours.error_code == reply.error_code
    assert ours.throttle_ms == reply.throttle_time // datetime.timedelta(milliseconds=1)
    assert ours.size_bytes == len(frame)
    theirs = [
        (
            name,
            part.partition_index,
            int(part.error_code),
            part.high_watermark,
            part.last_stable_offset,
            part.log_start_offset,
            part.records or b"",
            [(txn.producer_id, txn.first_offset) for txn in part.aborted_transactions or ()],
            None
            if (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (-1, -1)
            else (part.diverging_epoch.epoch, part.diverging_epoch.end_offset),
            part.preferred_read_replica,
        )
        for name, topic in zip(topic_names, reply.responses, strict=True)
        for part in topic.partitions
    ]
    assert [
        (
            part.topic,
            part.partition,
            part.error_code,
            part.high_watermark,
            part.last_stable_offset,
            part.log_start_offset,
            bytes(part.records),
            list(part.aborted),
            part.diverging_epoch,
            part.preferred_replica,
        )
        for part in ours.partitions
    ] == theirs


@pytest.mark.parametrize("version", PRODUCE)
@given(data=st.data())
def test_a_produce_reply_is_read_as_others_wrote_it(version: int, data: st.DataObject) -> None:
    reply = data.draw(produce_replies(version))
    by_id, topic_names = asked_for(reply)
    asked = sum(max(1, len(topic.partition_responses)) for topic in reply.responses)
    ours = wire.decode_produce(written(reply), HEAD, version, by_id, asked=asked)
    assert ours.throttle_ms == reply.throttle_time // datetime.timedelta(milliseconds=1)
    epoch = datetime.datetime.fromtimestamp(0, datetime.UTC)
    theirs = [
        (
            name,
            part.index,
            int(part.error_code),
            part.base_offset,
            -1
            if part.log_append_time is None
            else (part.log_append_time - epoch) // datetime.timedelta(milliseconds=1),
            part.log_start_offset,
            "; ".join(
                filter(None, [part.error_message, *(one.batch_index_error_message for one in part.record_errors[:3])])
            )
            or None,
        )
        for name, topic in zip(topic_names, reply.responses, strict=True)
        for part in topic.partition_responses
    ]
    assert [
        (
            part.topic,
            part.partition,
            part.error_code,
            part.base_offset,
            part.log_append_time_ms,
            part.log_start_offset,
            part.error_message,
        )
        for part in ours.partitions
    ] == theirs


def test_fetched_batches_are_writable_views_of_the_frame_that_came() -> None:
    frame = bytearray(fetch_frame(b"some batch"))
    (part,) = wire.decode_fetch(frame, HEAD, 12, {}, asked=1).partitions
    part.records[0:4] = b"SOME"
    assert frame.count(b"SOME batch") == 1


def fetch_frame(records: bytes, version: int = 12) -> bytes:
    module = kio_module("fetch", version, "response")
    part = module.PartitionData(
        partition_index=0,
        error_code=ErrorCode(0),
        high_watermark=1,
        diverging_epoch=module.EpochEndOffset(epoch=3, end_offset=9),
        aborted_transactions=(module.AbortedTransaction(producer_id=1, first_offset=2),),
        records=records,
    )
    topic = module.FetchableTopicResponse(**topic_of(version, "orders", uuid.UUID(int=7), "topic"), partitions=(part,))
    return bytes(
        written(
            module.FetchResponse(
                throttle_time=milliseconds(0), error_code=ErrorCode(0), session_id=0, responses=(topic,)
            )
        )
    )


def produce_frame(version: int = 9) -> bytes:
    module = kio_module("produce", version, "response")
    error = module.BatchIndexAndErrorMessage(batch_index=3, batch_index_error_message="too old")
    part = module.PartitionProduceResponse(
        index=0, error_code=ErrorCode(87), base_offset=-1, record_errors=(error,), error_message="refused"
    )
    topic = module.TopicProduceResponse(**topic_of(version, "orders", uuid.UUID(int=7)), partition_responses=(part,))
    return bytes(written(module.ProduceResponse(responses=(topic,))))


# -- what is no reply --------------------------------------------------------------------------------------------------

Decode = Callable[[bytearray], object]
NAMES = {uuid.UUID(int=7): "orders"}
DECODERS: list[tuple[str, Decode, bytes]] = [
    *(
        (
            f"fetch {version}",
            lambda frame, version=version: wire.decode_fetch(frame, HEAD, version, NAMES, asked=2),
            fetch_frame(b"x" * 70, version),
        )
        for version in FETCH
    ),
    *(
        (
            f"produce {version}",
            lambda frame, version=version: wire.decode_produce(frame, HEAD, version, NAMES, asked=2),
            produce_frame(version),
        )
        for version in PRODUCE
    ),
]
each_decoder = pytest.mark.parametrize(
    ("decode", "frame"), [row[1:] for row in DECODERS], ids=[row[0] for row in DECODERS]
)


@each_decoder
def test_a_reply_cut_at_any_byte_is_malformed(decode: Decode, frame: bytes) -> None:
    decode(bytearray(frame))
    for size in range(HEAD, len(frame)):
        with pytest.raises(Malformed):
            decode(bytearray(frame[:size]))


@each_decoder
@given(changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_damaged_reply_is_read_or_malformed_and_nothing_else(
    decode: Decode, frame: bytes, changes: list[tuple[int, int]]
) -> None:
    damaged = bytearray(frame)
    for at, byte in changes:
        damaged[HEAD + at % (len(frame) - HEAD)] = byte
    with contextlib.suppress(Malformed):
        decode(damaged)


@each_decoder
@given(noise=st.binary(max_size=200))
def test_noise_is_read_or_malformed_and_nothing_else(decode: Decode, frame: bytes, noise: bytes) -> None:
    with contextlib.suppress(Malformed):
        decode(bytearray(frame[:HEAD] + noise))


@pytest.mark.parametrize("announced", [2**28, 2**31, 2**34])
def test_a_count_that_the_frame_cannot_hold_is_refused_before_anything_is_made_for_it(announced: int) -> None:
    body = struct.pack(">ihi", 0, 0, 0) + wire.uvarint(announced + 1)
    with pytest.raises(Malformed, match=r"elements announced in 8 bytes"):
        wire.decode_fetch(bytearray(b"\0" * HEAD + body + b"\0" * 8), HEAD, 12, {}, asked=2**40)


def test_a_topic_that_was_not_requested_is_malformed() -> None:
    with pytest.raises(Malformed, match=r"topic id .*7 was not asked for"):
        wire.decode_fetch(bytearray(fetch_frame(b"", 13)), HEAD, 13, {uuid.UUID(int=8): "other"}, asked=1)


@given(st.integers(0, 2**32 - 1))
def test_varints_come_back(value: int) -> None:
    reader = wire._Reader(memoryview(wire.uvarint(value)), 0)
    assert reader.uvarint() == value
