"""What ``mm2py translate`` finds out between two cluster models; the tests write the ledger."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from mm2py.cli.translate import parse_arguments
from mm2py.errors import ConfigError
from mm2py.flow import TopicName
from mm2py.offsets.runs import Hole, HoleCause, Run
from mm2py.records.batch import NewRecord
from mm2py.records.gap_record import Done, Gap, GapKind, encode_value
from mm2py.records.quarantined import (
    Provenance,
    QuarantineEntry,
    RecordOrigin,
    Replayed,
    encode_quarantined,
    encode_replayed,
)
from mm2py.status.offset_inquiry import STRETCHES_READ, Question, ask_where
from mm2py.status.offset_report import OffsetReport, WayBack, line_of
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.record_batch import Record
from tests.fakes.ledger_topic import chunk, write_chunks
from tests.scenarios.offsets.test_exact_checkpoints import sync
from tests.scenarios.sync_world import IDENTITY
from tests.scenarios.world import World

KEY: Final = ("orders", 0)
STATUS, QUARANTINE = "mm2-status.A.internal", "mm2-quarantine.A.internal"


def make() -> World:
    world = World(1)
    world.target.create_topic("A.orders", 1)
    world.target.append("A.orders", 0, [b"%d" % number for number in range(100)])
    world.source.create_topic("orders", 1)
    world.source.append("orders", 0, [b"%d" % number for number in range(200)])
    return world


async def ask(world: World, *offsets: int, is_reverse: bool = False) -> list[OffsetReport]:
    question = Question(KEY, offsets, is_reverse)
    return await ask_where(world.settings, question, world.source, world.target, world.log)


async def lines(world: World, *offsets: int, is_reverse: bool = False) -> list[str]:
    return [line_of(one) for one in await ask(world, *offsets, is_reverse=is_reverse)]


def put(cluster: ClusterModel, topic: str, *records: NewRecord) -> None:
    if topic not in cluster.topics:
        cluster.create_topic(topic, 1)
    cluster.append(topic, 0, [Record(one.value, one.key, tuple(one.headers)) for one in records])


def quarantined(offset: int, value: bytes, topic: str = "orders") -> NewRecord:
    origin = RecordOrigin(topic, 0, offset)
    record = NewRecord(b"k", value, 5, [("h", b"1")])
    return encode_quarantined(QuarantineEntry(Provenance("A->B", None, origin, 5, 10, "too large", 6), record))


def replayed(offset: int) -> NewRecord:
    return encode_replayed(Replayed(RecordOrigin("orders", 0, offset), "A.orders", 7))


async def test_one_line_says_where_an_offset_is_how_surely_and_why() -> None:
    world = make()
    write_chunks(world.target, [chunk(Run(5, 0, 10), Run(16, 10, 4), copied_to=21, is_whole=True, begin=(5, 0))])
    assert await lines(world, 6, 15, 21, 22, 3) == [
        "orders-0 offset 6 -> A.orders-0 offset 1, exact (copied)",
        "orders-0 offset 15 -> A.orders-0 offset 10, exact"
        " (nothing to copy there: a marker, aborted or compacted away; the next copied record)",
        "orders-0 offset 21 -> A.orders-0 offset 14, exact (behind the last copied record)",
        "orders-0 offset 22 -> A.orders-0: no answer (not copied yet)",
        "orders-0 offset 3 -> A.orders-0 offset 0, exact (expired; the first copied record)",
    ]
    assert await lines(world, 12, is_reverse=True) == ["A.orders-0 offset 12 -> orders-0 offset 18, exact (copied)"]


async def test_what_the_ledger_does_not_know_is_answered_by_offset_syncs_and_said_to_be_inexact() -> None:
    world = make()
    assert (await lines(world, 7))[0].endswith("no answer (before the ledger, and no offset sync is as old)")
    sync(world, (10, 9))
    (line,) = await lines(world, 17)
    assert line == (
        "orders-0 offset 17 -> A.orders-0 offset 10, not exact"
        " (before the ledger; by offset syncs, records may be read again)"
    )
    (back,) = await ask(world, 12, is_reverse=True)
    assert (back.other_offset, back.is_exact, back.basis) == (11, False, "offset-syncs")


async def test_a_copy_that_was_deleted_is_not_where_the_ledger_says_and_not_exact() -> None:
    world = make()
    write_chunks(world.target, [chunk(Run(0, 0, 100), begin=(0, 0), is_whole=True)])
    world.target.delete_records("A.orders", 0, 90)
    world.source.delete_records("orders", 0, 95)
    assert await lines(world, 10, 90, 89) == [
        "orders-0 offset 10 -> A.orders-0 offset 90, not exact (expired; the records before it were deleted there)",
        "orders-0 offset 90 -> A.orders-0 offset 90, exact (copied)",
        "orders-0 offset 89 -> A.orders-0 offset 90, not exact (expired; the records before it were deleted there)",
    ]
    found = await ask(world, 94, 95, is_reverse=True)
    assert [(one.kind, one.other_offset, one.is_exact) for one in found] == [
        ("expired", 95, False),
        ("copied", 95, True),
    ]


@pytest.mark.parametrize("side", ["A", "B"])
async def test_the_ledger_of_a_topic_that_was_recreated_answers_nothing(side: str) -> None:
    world = make()
    ids = world.source.topics["orders"].id, world.target.topics["A.orders"].id
    of_these = chunk(Run(0, 0, 100), is_whole=True, source_topic_id=ids[0], target_topic_id=ids[1])
    write_chunks(world.target, [of_these])
    assert [one.is_exact for one in await ask(world, 10)] == [True]
    cluster, name = (world.source, "orders") if side == "A" else (world.target, "A.orders")
    cluster.delete_topic(name)
    await asyncio.sleep(5)  # until all brokers know
    for is_reverse in (False, True):
        (found,) = await ask(world, 10, is_reverse=is_reverse)
        assert (found.other_offset, found.is_exact, found.basis) == (None, False, "")
        assert found.text == f"{name}-0 does not exist on {side}"
    cluster.create_topic(name, 1)
    cluster.append(name, 0, [b"new"])
    await asyncio.sleep(5)  # until all brokers know
    for is_reverse in (False, True):
        (found,) = await ask(world, 10, is_reverse=is_reverse)
        assert (found.kind, found.other_offset, found.is_exact) == ("before_ledger", None, False)
        assert found.text == f"{name} was recreated on {side}, and the ledger is of the topic before"
    sync(world, (0, 0))
    (found,) = await ask(world, 10)
    assert (found.is_exact, found.basis) == (False, "offset-syncs") and found.text.startswith(name)


async def test_a_record_that_was_lost_in_a_gap_is_said_to_be_also_if_its_owner_noted_no_hole() -> None:
    world = make()
    write_chunks(world.target, [chunk(Run(0, 0, 10), Run(20, 10, 10))])
    gap = Gap(GapKind.EXPIRED, "orders", 0, 10, 14, Done.CONTINUED, 10, "expired", 1)
    other = Gap(GapKind.FOREIGN, "orders", 0, 15, 19, Done.CONTINUED, 15, "foreign", 1)
    put(world.target, STATUS, *(NewRecord(one.key, encode_value(one), 1) for one in (gap, other)))
    found = await ask(world, 9, 10, 14, 15)
    assert [(one.kind, one.other_offset) for one in found] == [
        ("copied", 9),
        ("gap", 10),
        ("gap", 10),
        ("dropped", 10),
    ]


async def test_a_record_in_quarantine_is_said_to_be_there_and_whether_it_was_replayed() -> None:
    world = make()
    write_chunks(world.target, [chunk(Run(0, 0, 10), Run(12, 10, 8), Hole(20, 18, 1, 0, HoleCause.QUARANTINED))])
    put(
        world.target,
        QUARANTINE,
        quarantined(10, b"big"),
        quarantined(11, b"bigger"),
        quarantined(13, b"elsewhere", topic="other"),
        quarantined(20, b"biggest"),
        replayed(11),
    )
    found = await ask(world, 10, 11, 13, 20)
    assert [one.kind for one in found] == ["quarantined", "quarantined", "copied", "quarantined"]
    assert [one.other_offset for one in found] == [10, 10, 11, 18]
    assert [one.offset for one in found if "mm2py replay has appended it since" in one.text] == [11]


@pytest.mark.parametrize("behind", [0, 5])
async def test_a_replayed_record_is_found_by_what_it_says(behind: int) -> None:
    """Marks do not know where a record was appended. Another foreign record may stand beside it."""
    world = make()
    headers: tuple[tuple[str, bytes | None], ...] = (("h", b"1"),)
    world.target.append("A.orders", 0, [Record(b"big", b"k", headers), Record(b"foreign", b"k", headers)])
    runs = [Run(0, 0, 10), Run(11, 10, 90)]
    write_chunks(world.target, [chunk(*runs, *([Run(101, 102, behind)] if behind else []))])
    put(world.target, QUARANTINE, quarantined(10, b"big"), quarantined(9, b"other"), quarantined(8, b"big"))
    assert (await ask(world, 100, is_reverse=True))[0].kind == ("not_ours" if behind else "end")
    put(world.target, QUARANTINE, replayed(10))
    (found,) = await ask(world, 100, is_reverse=True)
    assert (found.kind, found.other_offset, found.is_exact) == ("replayed", 10, True)
    assert (await ask(world, 101, is_reverse=True))[0].kind == ("not_ours" if behind else "not_yet")
    assert (await ask(world, 5_000, is_reverse=True))[0].kind == "not_yet"


async def test_a_replayed_record_is_found_in_the_middle_of_a_batch() -> None:
    world = make()
    big = Record(b"big", b"k", (("h", b"1"),))
    world.target.append("A.orders", 0, [Record(b"foreign"), big, Record(b"foreign")])
    write_chunks(world.target, [chunk(Run(0, 0, 10), Run(11, 10, 90), Run(101, 103, 5))])
    put(world.target, QUARANTINE, quarantined(10, b"big"), replayed(10))
    found = await ask(world, 100, 101, 102, is_reverse=True)
    assert [(one.kind, one.other_offset) for one in found] == [
        ("not_ours", 101),
        ("replayed", 10),
        ("not_ours", 101),
    ]


def test_back_again_the_topic_may_be_named_as_on_either_side() -> None:
    settings = World(1).settings
    assert settings.source_topic("orders", is_reverse=False) == "orders"
    assert settings.source_topic("A.orders", is_reverse=True) == "orders"
    assert settings.source_topic(TopicName("orders"), is_reverse=True) == "orders"
    for name in ("mm2-ledger.A.internal", "B.orders"):
        with pytest.raises(ConfigError, match="does not copy"):
            settings.source_topic(name, is_reverse=True)


def test_several_offsets_may_be_asked_for_at_once_and_none_that_no_log_has() -> None:
    given = ["f", "A->B", "--topic", "t", "--partition", "3", "--offset", "1", "2", "--offset", "9"]
    assert parse_arguments(given).offset == [1, 2, 9]
    for wrong in (["--offset", "-1"], ["--offset", "x"], ["--partition", "2147483648"], ["--offset", str(2**63)]):
        with pytest.raises(ConfigError):
            parse_arguments([*given, *wrong])


# The way back, under the identity policy


def failed_over(*copies: Run | Hole, copied_to: int) -> World:
    """Return a flow under the identity policy: its ledger, and 100 records in the topic on the target."""
    world = World(1, extra=IDENTITY)
    for cluster, count in ((world.source, 200), (world.target, 100)):
        cluster.create_topic("orders", 1)
        cluster.append("orders", 0, [b"%d" % number for number in range(count)])
    write_chunks(world.target, [chunk(*copies, copied_to=copied_to, is_whole=True)])
    return world


async def test_a_flow_back_is_told_where_it_begins_and_what_others_wrote_before_and_behind_that() -> None:
    """One began at the end of the topic, another behind the last copy: both lost what clients had written to B."""
    world = failed_over(Run(0, 0, 10), Run(10, 14, 60), copied_to=70)
    (report,) = await ask(world, 70)
    assert report.way_back == WayBack(begins_at=74, left_out=4, first_left_out=10, is_read=True, log_end=100)
    assert line_of(report) == (
        "orders-0 offset 70 -> orders-0 offset 74, exact (behind the last copied record; a flow back to A begins at"
        " 74, not at the end of the log, 100: the 26 offsets between hold no copy. Of the offsets before 74 it"
        " leaves out 4 that hold no copy, the first record at 10. To take them along, begin at 10: the copies"
        " behind it come twice)"
    )
    assert [one.way_back for one in await ask(world, 5, 71)] == [None, None]
    for one in await ask(world, 74, 100, is_reverse=True):
        assert one.way_back == report.way_back and "a flow back to A begins at 74" in one.text
    (copied,) = await ask(world, 20, is_reverse=True)
    assert copied.way_back is None


async def test_markers_are_no_records_that_a_flow_back_leaves_out() -> None:
    """Each worker that is killed leaves a marker among the copies."""
    world = failed_over(Run(0, 0, 100), Run(100, 101, 5), copied_to=105)
    world.target.write_marker("orders", 0, 7, 1)
    world.target.append("orders", 0, [b"copy"] * 5)
    (report,) = await ask(world, 105)
    assert report.way_back == WayBack(begins_at=106, left_out=1, first_left_out=None, is_read=True, log_end=106)
    assert report.text == "behind the last copied record; a flow back to A begins at 106"


async def test_what_the_target_has_deleted_is_not_counted() -> None:
    runs = [Run(number, 3 * number, 1) for number in range(33)]
    world = failed_over(*runs, copied_to=33)
    world.target.delete_records("orders", 0, 50)
    (report,) = await ask(world, 33)
    assert report.way_back == WayBack(begins_at=97, left_out=97 - 50 - 16, first_left_out=50, is_read=True, log_end=100)


async def test_what_was_not_read_of_many_stretches_is_said_to_be_possible_only() -> None:
    runs = [Run(number, 2 * number, 1) for number in range(30)]
    world = failed_over(*runs, copied_to=30)
    world.target.delete_records("orders", 0, 100)
    for _ in range(100):
        world.target.write_marker("orders", 0, 7, 1)
    runs = [Run(number, 100 + 2 * number, 1) for number in range(30)]
    write_chunks(world.target, [chunk(*runs, copied_to=30, is_whole=True)])
    (report,) = await ask(world, 30)
    assert report.way_back == WayBack(
        begins_at=159, left_out=29, first_left_out=101 + 2 * STRETCHES_READ, is_read=False, log_end=200
    )
    assert f"not read from {101 + 2 * STRETCHES_READ} on, where records may be" in report.text


async def test_a_target_that_has_lost_copies_says_so_to_who_goes_back() -> None:
    world = failed_over(Run(0, 0, 120), copied_to=120)
    (report,) = await ask(world, 120)
    assert report.way_back == WayBack(begins_at=120, left_out=0, first_left_out=None, is_read=True, log_end=100)
    assert "the log ends at 100: copies are missing there" in report.text


async def test_under_the_default_policy_no_flow_leads_back_from_a_remote_topic() -> None:
    world = make()
    write_chunks(world.target, [chunk(Run(0, 5, 10), is_whole=True)])
    (report,) = await ask(world, 10)
    assert (report.kind, report.way_back, report.text) == ("end", None, "behind the last copied record")
