"""Which claim of a flow counts: the same for readers of the whole log and, after compaction, of a part of it."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from mm2py.records.connector_config import ConfigRecords
from mm2py.records.operator_request import MalformedRequest
from mm2py.records.owner_record import OWNER_KEY, Owner, OwnerRecords, decode_owner, encode_owner

TOPIC = "mm2-configs.A.internal"


def claim(group: str, write_id: str, based_on: str = "") -> Owner:
    return Owner(group, f"host-{group}:1", 1_700_000_000_000, write_id, based_on, "0.1.0")


def read(*owners: Owner) -> OwnerRecords:
    records = OwnerRecords(TOPIC)
    for owner in owners:
        records.take(encode_owner(owner))
    return records


def test_a_claim_is_read_as_it_was_written() -> None:
    owner = claim("mm2py", "a", "b")
    assert decode_owner(encode_owner(owner), TOPIC) == owner
    assert json.loads(encode_owner(owner)) == {
        "format": 1,
        "readable_from": 1,
        "group": "mm2py",
        "worker": "host-mm2py:1",
        "at_ms": 1_700_000_000_000,
        "write_id": "a",
        "based_on": "b",
        "mm2py": "0.1.0",
        "over": [],
        "takes_over": "",
        "source_cluster": "",
    }


def test_a_claim_names_the_source_cluster_and_an_earlier_version_reads_it() -> None:
    """A reader ignores fields that it does not know; an earlier version has written no such field."""
    owner = replace(claim("mm2py", "a"), source_cluster="id-of-A")
    assert decode_owner(encode_owner(owner), TOPIC) == owner
    fields = json.loads(encode_owner(owner))
    assert fields["readable_from"] == 1
    del fields["source_cluster"]
    assert decode_owner(json.dumps({**fields, "later": 1}).encode(), TOPIC) == claim("mm2py", "a")


def test_of_two_claims_that_name_the_same_one_before_them_the_first_counts() -> None:
    records = read(claim("g", "1"), claim("h", "2", "1"), claim("k", "3", "1"))
    assert records.current == claim("h", "2", "1") and records.is_covered
    assert records.has("3") and next_of(records, "m", "4").based_on == "2"


def test_a_claim_that_is_put_back_counts_for_readers_that_see_only_the_lost_one_before_it() -> None:
    lost = claim("k", "3", "1")
    records = read(claim("g", "1"), claim("h", "2", "1"), lost)
    again = records.put_back()
    records.take(encode_owner(again))
    assert not records.is_covered
    for seen in ([again], [lost, again]):
        assert read(*seen).current == again


def next_of(records: OwnerRecords, group: str, write_id: str) -> Owner:
    return records.next(claim(group, write_id))


@pytest.mark.parametrize("seed", range(100))
def test_wherever_compaction_lets_a_reader_begin_it_finds_the_owner_of_the_whole_log(seed: int) -> None:
    """Writers read to some place near the end, claim the flow, or put back what they know to be covered."""
    rng = random.Random(seed)
    log: list[Owner] = [claim("first", "0")]
    for number in range(1, 10):
        seen = read(*log[: rng.randint(max(1, len(log) - 3), len(log))])
        puts_back = seen.is_covered and rng.random() < 0.5
        log.append(seen.put_back() if puts_back else next_of(seen, f"g{number}", str(number)))
    while (records := read(*log)).is_covered:
        log.append(records.put_back())
    assert records.current is not None
    for begin in range(1, len(log)):
        found = read(*log[begin:])
        assert found.current is not None
        assert found.current.group == records.current.group, f"seed {seed}, from {begin} on"
        assert found.current.write_id == records.current.write_id


def test_a_deleted_claim_leaves_the_flow_without_an_owner_and_the_next_one_counts() -> None:
    records = read(claim("g", "1"))
    records.take(None)
    assert records.current is None and not records.is_covered and next_of(records, "h", "2").based_on == ""
    records.take(encode_owner(claim("h", "2")))
    assert records.current == claim("h", "2")


def test_a_claim_of_a_newer_mm2py_must_not_be_passed_over() -> None:
    records = read(claim("g", "1"))
    fields = json.loads(encode_owner(claim("h", "2", "1"))) | {"readable_from": 9, "mm2py": "9.0"}
    records.take(json.dumps(fields).encode())
    assert records.too_new is not None and "Run mm2py 9.0 or later." in str(records.too_new)
    records.take(encode_owner(claim("g", "1")))
    assert records.too_new is None


@pytest.mark.parametrize(
    "change",
    [
        *({"group": ""}, {"group": 7}, {"write_id": None}, {"at_ms": -1}, {"at_ms": True}),
        *({"readable_from": "1"}, {"over": 1}),
    ],
)
def test_what_mm2py_does_not_write_changes_nothing_and_is_told(change: dict[str, object]) -> None:
    value = json.dumps(json.loads(encode_owner(claim("h", "2"))) | change).encode()
    with pytest.raises(MalformedRequest):
        decode_owner(value, TOPIC)
    records = ConfigRecords(TOPIC)
    records.take(OWNER_KEY, encode_owner(claim("g", "1")), 0)
    records.take(OWNER_KEY, value, 1)
    assert records.owner.current == claim("g", "1")
    assert len(records.malformed) == 1 and "mm2py-owner" in records.malformed[0]
