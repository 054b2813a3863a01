"""Control records as bytes: what was written is read, what is junk is passed over, what is too new stops the worker."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py import __version__
from mm2py.flow import ClusterAlias, Flow, Kind
from mm2py.records import control_codec
from mm2py.records.control_codec import MalformedControlRecord, NewerFormat, decode, encode
from mm2py.records.control_record import (
    UNASSIGNED,
    Assigned,
    Beat,
    Claim,
    ControlRecord,
    Evicted,
    Fenced,
    Joined,
    Left,
    Listed,
    Loads,
    MemberId,
    NotStarted,
    Released,
    Resigned,
    Skipped,
    Snapshot,
    TaskName,
    TopicClaim,
    Writer,
    Writes,
)
from mm2py.records.flow_waits import FlowWaits
from mm2py.records.link_use import LinkUse

MEMBER = MemberId("0123456789ab")
WHERE = "mm2-cluster.mm2py.internal offset 7"
KIND = "MirrorSourceConnector"

numbers = st.integers(0, 2**40)
names = st.text('ab.-_,=*é"\\', min_size=1, max_size=6)
flows = st.sampled_from([Flow(ClusterAlias(a), ClusterAlias("target")) for a in ("A", "b.c", "c,*=")])
members = names.map(MemberId)
shares = st.builds(TaskName, flows, st.sampled_from(Kind), names | st.just(""), st.integers(-1, 40))
writers = st.builds(Writer, flows, st.none() | names, numbers, st.integers(-1, 32767))
parts = st.tuples(numbers, numbers).map(sorted).map(lambda pair: {"part": pair[0], "parts": pair[1] + 1})
epochs = st.dictionaries(numbers, numbers)
by_flow = st.dictionaries(flows, numbers)
loads = st.dictionaries(shares, numbers.map(float))
tuples = st.lists(flows).map(tuple)


def _leading(listed: Listed, claims: list[TopicClaim]) -> Listed:
    return replace(listed, claims=dict(zip(listed.partitions, cycle(claims), strict=False)))


records: st.SearchStrategy[ControlRecord] = st.one_of(
    st.builds(
        Joined,
        members,
        names,
        names,
        names,
        tuples,
        tuples,
        by_flow,
        st.none() | names,
        names,
        st.integers(1, 10**6),
        tuples,
    ),
    st.builds(Beat, members, by_flow, by_flow),
    st.builds(Loads, members, loads),
    st.builds(Writes, members, writers),
    st.builds(
        _leading,
        st.builds(
            Listed, members, flows, st.dictionaries(names, numbers), st.dictionaries(names, numbers), st.none() | names
        ),
        st.lists(st.builds(TopicClaim, names | st.just(""), st.booleans())),
    ),
    st.builds(Claim, members, numbers, names, names),
    st.builds(Resigned, members, numbers),
    st.builds(
        lambda numbered, **rest: Assigned(part=numbered["part"], parts=numbered["parts"], **rest),
        parts,
        member=members,
        leader_epoch=numbers,
        generation=numbers,
        owners=st.dictionaries(shares, members | st.just(UNASSIGNED)),
    ),
    st.builds(Released, members, numbers, st.frozensets(shares)),
    st.builds(Evicted, members, numbers, members),
    st.builds(
        Fenced,
        members,
        numbers,
        st.none() | members,
        st.dictionaries(numbers, numbers),
        st.dictionaries(numbers, names),
    ),
    st.builds(Left, members, st.booleans()),
    st.builds(
        lambda numbered, **rest: Snapshot(part=numbered["part"], parts=numbered["parts"], **rest),
        parts,
        member=members,
        leader_epoch=numbers,
        covers=numbers,
        snapshot_id=names,
        state=names,
    ),
)


def changed(record: ControlRecord, **fields: Any) -> bytes:
    return json.dumps({**json.loads(encode(record)), **fields}).encode()


@given(records)
def test_what_was_written_is_read_again(record: ControlRecord) -> None:
    assert decode(encode(record), where=WHERE) == record


@given(records)
def test_every_record_names_its_kind_and_the_version_that_wrote_it(record: ControlRecord) -> None:
    fields = json.loads(encode(record))
    assert (fields["format"], fields["kind"], fields["version"]) == (1, type(record).__name__, __version__)
    assert fields["member"] == record.member


@given(records)
def test_fields_of_a_younger_version_are_ignored(record: ControlRecord) -> None:
    assert decode(changed(record, since="1.7"), where=WHERE) == record


def test_a_beat_of_a_version_before_pauses_holds_no_flow() -> None:
    assert decode(encode(Beat(MEMBER, {})), where=WHERE) == Beat(MEMBER, {}, {})
    using = Beat(MEMBER, links={Flow(ClusterAlias("A"), ClusterAlias("B")): LinkUse(14, 23_400_000, 92, "the link")})
    assert decode(encode(using), where=WHERE) == using


def test_a_beat_says_of_which_flows_the_source_has_not_answered_and_older_versions_pass_that_over() -> None:
    flow = Flow(ClusterAlias("A"), ClusterAlias("B"))
    why = NotStarted(1_700_000_000_000, "source-silent", "connection refused")
    beat = Beat(MEMBER, {flow: 3}, not_started={flow: why})
    assert decode(encode(beat), where=WHERE) == beat
    fields = json.loads(encode(beat))
    assert (fields["format"], fields["skippable"]) == (1, True), "unknown fields are ignored"
    del fields["not_started"]
    assert decode(json.dumps(fields).encode(), where=WHERE) == Beat(MEMBER, {flow: 3})


def test_a_beat_says_what_a_flow_waits_for_and_other_versions_read_what_they_know_of_it() -> None:
    flow = Flow(ClusterAlias("A"), ClusterAlias("B"))
    waits = FlowWaits(3, {"target": 93, "source": 7}, cpu=20, target_ms=412, rebuilds="repack")
    beat = Beat(MEMBER, {flow: 3}, waits={flow: waits})
    assert decode(encode(beat), where=WHERE) == beat
    keeps_up = Beat(MEMBER, waits={flow: FlowWaits()})
    assert decode(encode(keeps_up), where=WHERE) == keeps_up, "it keeps up, which is not the same as to tell nothing"
    fields = json.loads(encode(beat))
    assert (fields["format"], fields["skippable"]) == (1, True), "earlier versions ignore the field"
    fields["waits"]["A->B"] |= {"phase": "waning", "waits": {"the moon": 80, "source": 20}}
    later = decode(json.dumps(fields).encode(), where=WHERE)
    assert isinstance(later, Beat) and later.waits[flow] == replace(waits, waits={"the moon": 80, "source": 20})
    del fields["waits"]
    assert decode(json.dumps(fields).encode(), where=WHERE) == Beat(MEMBER, {flow: 3})


def test_a_beat_is_small() -> None:
    applied = {Flow(ClusterAlias("A"), ClusterAlias("B")): 12}
    assert len(encode(Beat(MEMBER, applied))) < 120


@pytest.mark.parametrize("changes", [{"kind": "Rebalanced"}, {"format": 2}])
def test_a_worker_that_meets_what_it_may_not_skip_is_told_which_version_it_needs(changes: dict[str, Any]) -> None:
    newer = changed(Left(MEMBER, outcome_unknown=False), version="3.1.0", **changes)
    with pytest.raises(NewerFormat, match=r"to mm2py 3\.1\.0 or later") as caught:
        decode(newer, where=WHERE)
    assert caught.value.needs_version == "3.1.0"
    assert caught.value.kind in {"Rebalanced", "Left"}


@pytest.mark.parametrize("changes", [{"kind": "Mood"}, {"format": 2}])
def test_what_may_be_skipped_is_still_a_sign_of_life(changes: dict[str, Any]) -> None:
    """Else w1 of the old version calls w2 silent, while w3 of the new one does not."""
    newer = changed(Beat(MEMBER), version="3.1.0", **changes)
    assert decode(newer, where=WHERE) == Skipped(MEMBER, str(changes.get("kind", "Beat")), "3.1.0")


def test_what_a_version_wrote_that_knows_no_checkpoints_and_no_claims_is_read() -> None:
    flow = Flow(ClusterAlias("A"), ClusterAlias("B"))
    joined = Joined(MEMBER, "host", "0.1.0", "", (flow,), (flow,), {}, None, "log", 3000)
    listed = Listed(MEMBER, flow, {"orders": 3})
    for record, field in ((joined, "checkpoints"), (listed, "claims")):
        fields = json.loads(encode(record))
        fields.pop(field, None)
        assert decode(json.dumps(fields).encode(), where=WHERE) == record


@given(record=records)
def test_a_version_with_a_format_of_its_own_reads_what_this_one_wrote(record: ControlRecord) -> None:
    """Else the first worker that is updated passes over who is a member, and who claims."""
    written = encode(record)
    with pytest.MonkeyPatch.context() as younger:
        younger.setattr(control_codec, "FORMAT_VERSION", control_codec.FORMAT_VERSION + 1)
        assert decode(written, where=WHERE) == record


def test_only_what_changes_no_verdict_may_be_skipped() -> None:
    skippable = {
        kind
        for kind, record in {
            "Beat": Beat(MEMBER),
            "Loads": Loads(MEMBER, {}),
            "Left": Left(MEMBER, outcome_unknown=True),
            "Claim": Claim(MEMBER, 1, "x"),
            "Released": Released(MEMBER, 1, frozenset()),
            "Snapshot": Snapshot(MEMBER, 1, 2, "x", ""),
        }.items()
        if json.loads(encode(record))["skippable"]
    }
    assert skippable == {"Beat", "Loads", "Snapshot"}


def test_what_was_skipped_cannot_be_written() -> None:
    with pytest.raises(TypeError):
        encode(Skipped(MEMBER, "Mood", "3.1.0"))


@pytest.mark.parametrize(
    "junk",
    [
        None,
        b"",
        b"\xff\xfe",
        b"[]",
        b"7",
        b"{}",
        b"[" * 100_000,
        b'{"format":1,"kind":"Beat"}',
        changed(Beat(MEMBER), member=""),
        changed(Beat(MEMBER), member=7),
        changed(Beat(MEMBER), format="1"),
        changed(Beat(MEMBER), format=True),
        changed(Beat(MEMBER), format=0),
        changed(Beat(MEMBER), kind=["Beat"]),
        changed(Beat(MEMBER), applied={"A": 1}),
        changed(Beat(MEMBER), applied={"A->B": "1"}),
        changed(Claim(MEMBER, 1, "x"), leader_epoch=-1),
        changed(Claim(MEMBER, 1, "x"), leader_epoch=True),
        changed(Left(MEMBER, outcome_unknown=True), outcome_unknown=1),
        changed(Released(MEMBER, 1, frozenset()), tasks={"A->B": {"MirrorSourceConnector": {"t": "0-99999999999"}}}),
        changed(Released(MEMBER, 1, frozenset()), tasks={"A->B": {"MirrorSourceConnector": {"t": "-3"}}}),
        changed(Released(MEMBER, 1, frozenset()), tasks={"A->B": {"MirrorSourceConnector": {"t": "5-4"}}}),
        changed(Released(MEMBER, 1, frozenset()), tasks={"A->B": {"Mirror": {"t": "5"}}}),
        changed(Assigned(MEMBER, 1, 1, {}), owners={"members": ["w"], "tasks": {"A->B": {KIND: {"t": "0=7"}}}}),
        changed(Assigned(MEMBER, 1, 1, {}), owners={"members": ["w"], "tasks": {"A->B": {KIND: {"t": "0=-1"}}}}),
        changed(Assigned(MEMBER, 1, 1, {}), part=1),
        changed(Left(MEMBER, outcome_unknown=True), format=2, skippable=False, version=None),
    ],
    ids=lambda junk: repr(junk)[:60],
)
def test_what_a_foreign_writer_put_there_is_named_and_passed_over(junk: bytes | None) -> None:
    with pytest.raises(MalformedControlRecord, match=re.escape(WHERE)):
        decode(junk, where=WHERE)


@given(
    st.binary() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda x: json.dumps(x).encode())
)
def test_no_bytes_at_all_surprise_a_reader(junk: bytes) -> None:
    with pytest.raises(MalformedControlRecord):
        decode(junk, where=WHERE)


@given(records, st.data())
def test_a_record_with_any_field_spoilt_is_read_or_named_but_nothing_else(record: ControlRecord, data: Any) -> None:
    name = data.draw(st.sampled_from(sorted(json.loads(encode(record)))))
    value = data.draw(st.sampled_from([None, -1, 2**70, "", "x", [], {}, {"x": {}}, [[]], 1.5, True]))
    try:
        read = decode(changed(record, **{name: value}), where=WHERE)
    except (MalformedControlRecord, NewerFormat) as error:
        assert error.remedy
    else:
        assert read.member


def test_fifty_thousand_tasks_of_a_hundred_owners_are_not_much() -> None:
    flow = Flow(ClusterAlias("A"), ClusterAlias("B"))
    owners = {
        TaskName(flow, Kind.SOURCE, f"some.topic-{topic}", partition): MemberId(
            f"{topic * 7 + partition * 13 % 100:012x}"
        )
        for topic in range(1000)
        for partition in range(50)
    }
    assert len(encode(Assigned(MEMBER, 1, 1, owners))) < 512 * 1024
    together = dict.fromkeys(owners, MEMBER)
    assert len(encode(Assigned(MEMBER, 1, 1, together))) < 40 * 1024
