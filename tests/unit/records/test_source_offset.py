"""Positions as MirrorMaker 2 keeps them: its own bytes are read, ours are bytes that its reader takes."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from mm2py.records.lag_seen import LagSeen
from mm2py.records.source_offset import (
    BY_OPERATOR,
    MalformedPosition,
    SourcePartition,
    StoredPosition,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    murmur2,
    partition_of,
)

MM2_KEY = b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t1"}]'
MM2_VALUE = b'{"offset":99}'
T1 = SourcePartition("A", "t1", 0)
TOPIC_ID = uuid.UUID("475d48dc-ce13-4a55-b1ed-09349b365bd5")
OURS = StoredPosition(
    next_source=100,
    source_cluster="Cy_0q_9sRGmoF03_vNT5Ag",
    source_topic_id=TOPIC_ID,
    source_leader_epoch=3,
    next_target=200,
    target_topic_id=uuid.UUID(int=2),
    target_leader_epoch=4,
    producer_id=1000,
    producer_epoch=2,
    next_sequence=17,
    by="mm2py-mm2py-45854f8c194d-0-A->B",
    skipped=((10, 12), (20, 20)),
    ledger=1_760_000_000_000,
    ledger_run=(40, 30, True),
    newest_ms=1_760_000_000_500,
    record_bytes=1024,
    mode="repack",
    source_end=120,
    moved_ms=1_760_000_001_000,
    behind_since_ms=1_760_000_000_000,
    lag_before=LagSeen(1_760_000_000_900, 90, 80, 1_760_000_000_400),
)


int32s = st.integers(0, 2**31 - 1)
int64s = st.integers(0, 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=40)
ids = st.uuids()
positions = st.builds(
    StoredPosition,
    next_source=int64s,
    source_cluster=st.none() | texts,
    source_topic_id=st.none() | ids,
    source_leader_epoch=st.none() | int32s,
    next_target=st.none() | int64s,
    target_topic_id=st.none() | ids,
    target_leader_epoch=st.none() | int32s,
    producer_id=st.none() | int64s,
    producer_epoch=st.none() | st.integers(0, 2**15 - 1),
    next_sequence=st.none() | int32s,
    by=st.none() | texts,
    skipped=st.lists(st.tuples(int64s, int64s), max_size=4).map(tuple),
    drained=st.booleans(),
    ledger=st.none() | int64s,
    ledger_run=st.none() | st.tuples(int64s, int64s, st.booleans()),
    newest_ms=st.none() | int64s,
    record_bytes=st.none() | int32s,
    mode=st.none() | texts,
    source_end=st.none() | int64s,
    moved_ms=st.none() | int64s,
    behind_since_ms=int64s,
    lag_before=st.none() | st.builds(LagSeen, int64s, int64s, int64s, st.none() | int64s),
    unknown=st.dictionaries(st.text("xyz", min_size=1), st.none() | st.booleans() | int64s | texts, max_size=3),
)


# -- what MirrorMaker 2 wrote ------------------------------------------------------------------------------------------


def test_mm2s_key_is_read_and_written_byte_for_byte() -> None:
    assert decode_key(MM2_KEY) == T1
    assert encode_key(T1) == MM2_KEY


def test_mm2s_value_names_the_last_record_copied_so_the_next_one_follows() -> None:
    assert decode_value(MM2_VALUE) == StoredPosition(next_source=100)


@pytest.mark.parametrize("value", [None, b"null", b'{"offset":-1}', b'{"offset":-100}'])
def test_a_tombstone_or_a_negative_offset_is_no_position(value: bytes | None) -> None:
    assert decode_value(value) is None


@pytest.mark.parametrize(
    "key",
    [
        b'["MirrorCheckpointConnector",{"cluster":"A","partition":0,"topic":"t1"}]',
        b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]',
        b'["file-source",{"filename":"x"}]',
        b'["another",null]',
    ],
)
def test_what_other_connectors_keep_in_the_same_topic_is_passed_over(key: bytes) -> None:
    assert decode_key(key) is None


def test_fields_of_a_later_mm2_are_kept_when_the_position_is_written_again() -> None:
    position = decode_value(b'{"offset":99,"leaderEpoch":7,"note":"h\xc3\xa9"}')
    assert position == StoredPosition(100, unknown={"leaderEpoch": 7, "note": "hé"})
    assert position is not None
    written = json.loads(encode_value(replace(position, next_source=101)))
    assert (written["offset"], written["leaderEpoch"], written["note"]) == (100, 7, "hé")


def test_spaces_and_another_order_of_fields_do_not_matter() -> None:
    assert decode_key(b' [ "MirrorSourceConnector" , {"topic":"t1", "partition":0, "cluster":"A"} ]') == T1
    assert decode_value(b' { "offset" : 99 } ') == StoredPosition(100)


def test_names_beyond_ascii_are_written_as_java_writes_them() -> None:
    assert encode_key(SourcePartition("köln", "t", 1)) == (
        '["MirrorSourceConnector",{"cluster":"köln","partition":1,"topic":"t"}]'.encode()
    )


# -- what mm2py writes -------------------------------------------------------------------------------------------------


def test_our_value_is_flat_because_connect_refuses_anything_else() -> None:
    """OffsetUtils.validateFormat throws on nested values: MirrorMaker 2 could not be started again after us."""
    fields = json.loads(encode_value(OURS))
    assert all(value is None or isinstance(value, str | int) for value in fields.values())
    assert fields["offset"] == 99


def test_a_partition_that_keeps_up_has_no_more_fields_than_it_needs() -> None:
    keeps_up = replace(OURS, behind_since_ms=None)
    assert not {"behind_since_ms", "lag_before"} & json.loads(encode_value(keeps_up)).keys()
    assert decode_value(encode_value(keeps_up)) == replace(keeps_up, lag_before=None)


@pytest.mark.parametrize("text", [b"", b"1760000000900,90,80", b"x,90,80,", b"1,2,3,y"])
def test_a_position_counts_without_a_lag_that_cannot_be_read(text: bytes) -> None:
    stored = encode_value(OURS).replace(b"1760000000900,90,80,1760000000400", text)
    assert decode_value(stored) == replace(OURS, lag_before=None)


def test_a_lag_with_more_numbers_is_of_a_later_version() -> None:
    stored = encode_value(OURS).replace(b"1760000000400", b"1760000000400,7,8")
    assert decode_value(stored) == OURS


def test_our_value_says_all_that_a_successor_must_know() -> None:
    assert json.loads(encode_value(OURS)) == {
        "offset": 99,
        "mm2py": 1,
        "next_source": 100,
        "source_cluster": "Cy_0q_9sRGmoF03_vNT5Ag",
        "source_topic_id": str(TOPIC_ID),
        "source_leader_epoch": 3,
        "next_target": 200,
        "target_topic_id": str(uuid.UUID(int=2)),
        "target_leader_epoch": 4,
        "producer_id": 1000,
        "producer_epoch": 2,
        "next_sequence": 17,
        "by": "mm2py-mm2py-45854f8c194d-0-A->B",
        "skipped": "10-12,20-20",
        "drained": False,
        "ledger": 1_760_000_000_000,
        "ledger_run": "40,30,1",
        "newest_ms": 1_760_000_000_500,
        "record_bytes": 1024,
        "mode": "repack",
        "source_end": 120,
        "moved_ms": 1_760_000_001_000,
        "behind_since_ms": 1_760_000_000_000,
        "lag_before": "1760000000900,90,80,1760000000400",
    }


def test_an_operators_position_names_the_producer_that_is_to_be_fenced() -> None:
    named = StoredPosition(5, producer_id=7, producer_epoch=2, by=BY_OPERATOR, previous_by="mm2py-g-0a-0-A->B")
    assert decode_value(encode_value(named)) == named
    assert (named.producer_name, named.leaves_producer_open) == ("mm2py-g-0a-0-A->B", True)
    assert not StoredPosition(5, by=BY_OPERATOR).leaves_producer_open
    assert StoredPosition(5, producer_id=7, by="mm2py-g-0a-0-A->B").producer_name == "mm2py-g-0a-0-A->B"


def test_a_deleted_position_is_none_for_mm2_and_allows_a_second_copy() -> None:
    deleted = StoredPosition(0, by=BY_OPERATOR, recopy=True)
    assert json.loads(encode_value(deleted))["offset"] == -1
    assert decode_value(encode_value(deleted)) == deleted


def test_a_partition_of_which_nothing_was_copied_yet_has_a_position_all_the_same() -> None:
    """MirrorMaker 2 takes offset -1 for none and starts at the first record, which is the same place."""
    at_start = StoredPosition(next_source=0)
    assert json.loads(encode_value(at_start))["offset"] == -1
    assert decode_value(encode_value(at_start)) == at_start


@given(position=positions)
def test_every_position_comes_back_as_it_was(position: StoredPosition) -> None:
    assert decode_value(encode_value(position)) == position


@given(cluster=texts, topic=texts, partition=int32s)
def test_every_key_comes_back_as_it_was(cluster: str, topic: str, partition: int) -> None:
    whose = SourcePartition(cluster, topic, partition)
    assert decode_key(encode_key(whose)) == whose


# -- what nobody wrote -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"null",
        b"[]",
        b"{}",
        b'["MirrorSourceConnector"]',
        b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t1"},1]',
        b'["MirrorSourceConnector",null]',
        b'["MirrorSourceConnector",{"cluster":"A","partition":0}]',
        b'["MirrorSourceConnector",{"cluster":"A","partition":-1,"topic":"t1"}]',
        b'["MirrorSourceConnector",{"cluster":"A","partition":"0","topic":"t1"}]',
        b'["MirrorSourceConnector",{"cluster":"A","partition":true,"topic":"t1"}]',
        b'["MirrorSourceConnector",{"cluster":"A","partition":0.0,"topic":"t1"}]',
        b'["MirrorSourceConnector",{"cluster":1,"partition":0,"topic":"t1"}]',
        b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":null}]',
        MM2_KEY[:-1],
        b"\xff" + MM2_KEY,
    ],
)
def test_a_key_that_is_none_is_malformed(key: bytes | None) -> None:
    with pytest.raises(MalformedPosition, match=r"^key "):
        decode_key(key)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b'"99"',
        b"true",
        b"{}",
        b'{"offset":"99"}',
        b'{"offset":99.5}',
        b'{"offset":true}',
        b'{"offset":null}',
        b'{"offset":NaN}',
        b'{"mm2py":1,"offset":99}',
        b'{"mm2py":1,"next_source":"1"}',
        b'{"mm2py":1,"next_source":1,"source_topic_id":"no id"}',
        b'{"mm2py":1,"next_source":1,"producer_id":"1"}',
        b'{"mm2py":1,"next_source":1,"by":5}',
        b'{"mm2py":1,"next_source":1,"skipped":"1-2-3"}',
        b'{"mm2py":1,"next_source":1,"skipped":"a-b"}',
        b"\xff\xfe\xff",
    ],
)
def test_a_value_that_is_none_is_malformed(value: bytes) -> None:
    with pytest.raises(MalformedPosition, match=r"^value "):
        decode_value(value)


def test_an_offset_that_no_log_can_have_is_malformed() -> None:
    with pytest.raises(MalformedPosition):
        decode_value(b'{"offset":9223372036854775807}')


def test_deep_nesting_is_malformed_and_not_the_end_of_the_flow() -> None:
    for decode in (decode_key, decode_value):
        with pytest.raises(MalformedPosition):
            decode(b"[" * 100_000)


def test_a_malformed_value_is_shown_shortened() -> None:
    with pytest.raises(MalformedPosition) as raised:
        decode_value(b'"' + b"x" * 10_000)
    assert len(str(raised.value)) < 250


@given(
    noise=st.binary(max_size=60)
    | st.text('[]{}":,0123456789.-eoffsetMirrorSourceConnector', max_size=60).map(str.encode)
)
def test_noise_is_malformed_or_nobodys_and_nothing_else(noise: bytes) -> None:
    for decode in (decode_key, decode_value):
        try:
            decode(noise)
        except MalformedPosition:
            continue


# -- where MirrorMaker 2 looks for it ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "hash_of_java"),
    [
        # UtilsTest.testMurmur2 of Kafka 4.3
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        # asked of org.apache.kafka.common.utils.Utils in a JVM
        (b"", 275646681),
        (b"k", -1567496736),
        (b"ka", -94968955),
        (b"kaf", 576643159),
        (b"kafk", 2122128005),
        (b"kafka", -798503068),
        (b"\xff\x80\x00", -616959190),
        (MM2_KEY, -325340394),
        (bytes(range(256)), -1948347274),
    ],
)
def test_the_hash_is_javas(data: bytes, hash_of_java: int) -> None:
    assert murmur2(data) == hash_of_java % 2**32


@given(data=st.binary(max_size=100), partitions=st.integers(1, 100))
def test_the_partition_is_that_of_other_clients(data: bytes, partitions: int) -> None:
    assert murmur2(data) == aiokafka_murmur2(data) & 0xFFFFFFFF
    assert partition_of(data, partitions) == (aiokafka_murmur2(data) & 0x7FFFFFFF) % partitions


def test_mm2_finds_t1_in_the_partition_where_it_keeps_it() -> None:
    assert partition_of(MM2_KEY, 25) == 4
