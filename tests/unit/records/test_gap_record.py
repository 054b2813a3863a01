"""Our records in the status topic: read back as written, foreign ones left alone, bad ones reported, not guessed at."""

from __future__ import annotations

import json

import pytest

from mm2py.records.gap_record import (
    Command,
    CommandAnswer,
    Done,
    Gap,
    GapKind,
    GapLogRecord,
    MalformedGapRecord,
    decode,
    encode_value,
    is_own_key,
)

GAP = Gap(GapKind.EXPIRED, "orders-2.x", 3, 10, 19, Done.STOPPED, 10, "source offsets 10 to 19 were deleted", 1_000)
RECORDS: list[GapLogRecord] = [
    GAP,
    Gap(GapKind.DELETED, "bestellungen-ä", 0, None, None, Done.KEPT, 7, "gone", 1_000),
    Command("c0ffee", "orders", 3, 10, 2_000),
    CommandAnswer("c0ffee", False, "it stands at 12", 3_000),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_is_read_back_as_it_was_written(record: GapLogRecord) -> None:
    assert decode(record.key, encode_value(record)) == record


def test_every_key_is_ours_and_no_two_records_share_one() -> None:
    assert all(is_own_key(record.key) for record in RECORDS)
    assert len({record.key for record in RECORDS}) == len(RECORDS)


@pytest.mark.parametrize("key", [None, b"", b"status-connector-MirrorSourceConnector", b"status-task-x-0", b"mm2"])
def test_records_of_connect_and_of_others_are_left_alone(key: bytes | None) -> None:
    assert not is_own_key(key)


def test_two_gaps_of_one_partition_stand_beside_each_other() -> None:
    later = Gap(GapKind.EXPIRED, "orders-2.x", 3, 40, 49, Done.CONTINUED, 40, "again", 1_000)
    assert later.key != GAP.key


def test_what_is_done_about_a_gap_replaces_what_was_said_of_it_before() -> None:
    accepted = Gap(GapKind.EXPIRED, "orders-2.x", 3, 10, 19, Done.ACCEPTED, 10, "an operator let it go on", 2_000)
    assert accepted.key == GAP.key
    assert GAP.is_open and not accepted.is_open


def test_fields_of_younger_versions_are_passed_over() -> None:
    fields = {**json.loads(encode_value(GAP)), "colour": ["red"]}
    assert decode(GAP.key, json.dumps(fields).encode()) == GAP


def test_a_kind_of_record_that_only_younger_versions_know_is_passed_over() -> None:
    assert decode(b"mm2py-weather-1", b"{}") is None


def test_a_younger_format_is_not_guessed_at() -> None:
    fields = {**json.loads(encode_value(GAP)), "mm2py": 2}
    with pytest.raises(MalformedGapRecord, match="format 2"):
        decode(GAP.key, json.dumps(fields).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "lost"},
        {"done": 7},
        {"partition": "3"},
        {"partition": True},
        {"position": None},
        {"topic": 5},
        {"first_offset": 1.5},
        {"mm2py": None},
    ],
    ids=str,
)
def test_a_malformed_gap_is_reported(change: dict[str, object]) -> None:
    value = json.dumps({**json.loads(encode_value(GAP)), **change}).encode()
    with pytest.raises(MalformedGapRecord):
        decode(GAP.key, value)


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"null", b"{}", b"\xff", b"[" * 100_000], ids=range(7))
@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_value_that_is_no_record_is_reported(record: GapLogRecord, value: bytes) -> None:
    with pytest.raises(MalformedGapRecord):
        decode(record.key, value)


def test_a_record_under_the_key_of_another_is_reported() -> None:
    with pytest.raises(MalformedGapRecord, match="holds the record of"):
        decode(RECORDS[1].key, encode_value(GAP))
