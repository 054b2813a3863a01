"""The latest records of keys, of many ranges: what differs is the same as with all of them in memory."""

from __future__ import annotations

import asyncio
import random
from contextlib import closing

import pytest

from mm2py.backfill.verifying.latest import LATER, LATER_PLACE, DifferingKeys, LatestRecord, LatestRecords
from mm2py.backfill.verifying.local import key_table
from mm2py.backfill.verifying.local.key_table import KeyTable, NoRoomForKeys, differing_keys
from mm2py.backfill.verifying.ranges import ComparedRange
from mm2py.kafka.port import TopicPartition

SOURCE, TARGET = 0, 1


def found_in(topic: str, *sides: dict[str, tuple[int, str | None]]) -> LatestRecords:
    """Return what a range has found: place and digest of each key, on both sides."""
    found = LatestRecords(ComparedRange(0, topic, 0, f"A.{topic}", (0, 9), (0, 9), (), is_compacted=True))
    for side, keys in zip(found.sides, sides, strict=True):
        for key, (place, digest) in keys.items():
            side[key.encode()] = LatestRecord(place, None if digest is None else digest.encode())
    return found


def later(*keys: str) -> dict[str, tuple[int, str | None]]:
    return dict.fromkeys(keys, (LATER_PLACE, LATER.decode()))


async def differing(*ranges: LatestRecords) -> dict[TopicPartition, DifferingKeys]:
    with closing(KeyTable()) as table:
        for one in ranges:
            await table.add(one)
        return await table.differing()


async def test_the_latest_record_of_all_ranges_counts_on_each_side() -> None:
    first = found_in("t", {"a": (0, "old"), "b": (2, "b")}, {"a": (0, "other"), "b": (2, "b")})
    second = found_in("t", {"a": (8, "new")}, {"a": (8, "new")})
    assert await differing(first, second) == {}
    assert await differing(first) == {("t", 0): DifferingKeys(1, 0, 0)}


async def test_a_tombstone_is_like_no_record_and_a_missing_record_a_difference() -> None:
    assert await differing(found_in("t", {"a": (0, None)}, {})) == {}
    assert await differing(found_in("t", {"a": (4, "x")}, {})) == {("t", 0): DifferingKeys(1, 4, None)}
    gone = found_in("t", {}, {"a": (4, "x")}), found_in("u", {"a": (6, None)}, {"a": (4, "x")})
    assert await differing(*gone) == {("t", 0): DifferingKeys(1, None, 4), ("u", 0): DifferingKeys(1, 6, 4)}


async def test_a_key_that_was_written_again_after_the_compared_ranges_is_not_judged() -> None:
    compared = found_in("t", {"a": (0, "x"), "b": (2, "x")}, {"a": (0, "y"), "b": (2, "y")})
    assert await differing(compared, found_in("t", later("b"), {})) == {("t", 0): DifferingKeys(1, 0, 0)}
    assert await differing(compared, found_in("t", later("b"), later("a"))) == {}


async def test_the_first_difference_is_that_of_the_lowest_place_as_spark_orders_it() -> None:
    found = found_in("t", {"a": (10, "x"), "c": (12, "z")}, {"b": (10, "y"), "c": (12, "other")})
    assert await differing(found) == {("t", 0): DifferingKeys(3, None, 10)}


async def test_random_ranges_give_what_a_dict_gives() -> None:
    rng = random.Random(7)
    for _ in range(20):
        ranges, latest = [], ({}, {})
        for number in range(5):
            sides: tuple[dict[str, tuple[int, str | None]], ...] = ({}, {})
            for side in (SOURCE, TARGET):
                for key in rng.sample("abcdefghij", rng.randint(0, 10)):
                    one = (100 * number + 2 * "abcdefghij".index(key), rng.choice(["x", "x", "y", None]))
                    sides[side][key] = latest[side][key] = one
            ranges.append(found_in("t", *sides))
        rng.shuffle(ranges)
        wrong = [key for key in "abcdefghij" if latest[0].get(key, (0, None))[1] != latest[1].get(key, (0, None))[1]]
        found = (await differing(*ranges)).get(("t", 0))
        assert (0 if found is None else found.key_count) == len(wrong)
        if found is not None:
            firsts = {min(side[key][0] for side in latest if key in side) for key in wrong}
            assert min(one for one in found[1:] if one is not None) == min(firsts)


def test_rows_of_one_key_are_compared_and_nothing_of_another_partition() -> None:
    rows = [(0, b"k", SOURCE, 2, b"x"), (1, b"k", TARGET, 2, b"x")]
    assert differing_keys(rows) == {0: DifferingKeys(1, 2, None), 1: DifferingKeys(1, None, 2)}
    assert differing_keys([(0, b"k", SOURCE, 2, b"x"), (0, b"k", TARGET, 2, b"x")]) == {}


@pytest.mark.real_time
async def test_a_table_that_is_cancelled_stops_working_before_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_table, "STEPS_A_LOOK", 1)
    many = {str(at): (2 * at, "x") for at in range(50_000)}
    with closing(KeyTable()) as table:
        await table.add(found_in("t", many, many))
        asking = asyncio.create_task(table.differing())
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        with pytest.raises(NoRoomForKeys, match=r"cannot be sorted on disk: interrupted\. Set SQLITE_TMPDIR"):
            await table.differing()
