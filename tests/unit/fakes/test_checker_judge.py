"""The judge accepts every legal copy and catches every mutant."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import islice, pairwise, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checker.dumped import Dumped, Sent, digest, sent
from tests.checker.judge import judge_partition
from tests.checker.mutants import AGAIN, CHANGES, CUTS, MUTANTS, REORDERINGS, Copy, Mutant, runs_of, written
from tests.checker.traffic import Traffic, origin

pytestmark = pytest.mark.one_python

AT_LEAST_ONCE = None


def letters(text: str) -> list[Dumped]:
    """Return a log of records whose content is one letter each."""
    return [Dumped(offset, 1, 1, None, letter.encode()) for offset, letter in enumerate(text)]


def dumps_of(traffic: Traffic, records: int) -> list[list[Dumped]]:
    """Return what the partitions hold after so much traffic, with a hole in the offsets here and there."""
    logs: list[list[Dumped]] = [[] for _ in range(traffic.partitions)]
    ends = [0] * traffic.partitions
    random = Random(traffic.seed)
    for record in islice(traffic.records(), records):
        ends[record.partition] += 1 if random.random() < 0.95 else 3
        partition = record.partition
        logs[partition].append(
            Dumped(ends[partition], 1, record.timestamp_ms, record.key, record.value, record.headers)
        )
    return logs


def as_copied(source: Sequence[Dumped]) -> list[Dumped]:
    return [record._replace(offset=offset) for offset, record in enumerate(source)]


def fewest_rewinds(source: str, target: str) -> int | None:
    """Return how many runs beyond the first explain the target, by trying everything; None if none do."""
    reached = {(-1, 0): 0}  # (place of the last record, frontier): rewinds
    for letter in target:
        after: dict[tuple[int, int], int] = {}
        for (place, frontier), rewinds in reached.items():
            for start in range(min(frontier, len(source) - 1) + 1):
                if source[start] == letter:
                    state = (start, max(frontier, start + 1))
                    cost = rewinds + (start != place + 1)
                    after[state] = min(cost, after.get(state, cost))
        reached = after
    return min((rewinds for (_, frontier), rewinds in reached.items() if frontier == len(source)), default=None)


# What is counted


def test_of_the_records_lost_those_are_told_apart_behind_which_nothing_was_copied() -> None:
    verdict = judge_partition(letters("abcdefgh"), letters("abef"))
    assert verdict.breaches["I1"] == 4
    assert verdict.unreached_records == 2


# What is legal


@given(source=st.text("ab", max_size=7), target=st.text("ab", max_size=11))
def test_the_judge_agrees_with_trying_every_split_into_runs(source: str, target: str) -> None:
    fewest = fewest_rewinds(source, target)
    verdict = judge_partition(letters(source), letters(target), max_rewinds=AT_LEAST_ONCE)
    assert verdict.ok == (fewest is not None)
    if fewest is not None:
        assert len(verdict.rewinds) == fewest
        assert verdict.repeated_records == len(target) - len(source)
        assert judge_partition(letters(source), letters(target), max_rewinds=0).ok == (source == target)


@given(data=st.data(), source=st.text("abc", min_size=1, max_size=6))
def test_any_split_into_runs_is_accepted_with_the_fewest_rewinds(data: st.DataObject, source: str) -> None:
    target, frontier, rewinds = "", 0, -1
    while frontier < len(source):
        is_last = rewinds == 7  # without a bound most examples grew too long, and were thrown away
        start = frontier if is_last else data.draw(st.integers(0, frontier), label="start")
        end = len(source) if is_last else data.draw(st.integers(start + 1, len(source)), label="end")
        target += source[start:end]
        frontier, rewinds = max(frontier, end), rewinds + 1
    verdict = judge_partition(letters(source), letters(target), max_rewinds=rewinds)
    assert verdict.ok
    assert len(verdict.rewinds) == fewest_rewinds(source, target)


def test_every_short_pair_is_judged_right() -> None:
    texts = ["".join(text) for size in range(5) for text in product("ab", repeat=size)]
    for source, target in product(texts, texts):
        verdict = judge_partition(letters(source), letters(target), max_rewinds=AT_LEAST_ONCE)
        assert (verdict.ok, len(verdict.rewinds) if verdict.ok else None) == (
            (fewest := fewest_rewinds(source, target)) is not None,
            fewest,
        ), (source, target)


def test_rewinds_are_measured_where_records_can_be_told_apart() -> None:
    source = dumps_of(Traffic(seed=1, partitions=1, plain=True), 1_000)[0]
    target = as_copied([*source[:700], *source[400:900], *source[895:]])
    verdict = judge_partition(source, target, max_rewinds=2, max_rewound_records=305)
    assert verdict.ok
    assert [(rewind.records, rewind.target_offset) for rewind in verdict.rewinds] == [(300, 700), (5, 1_200)]
    assert verdict.rewinds[0].source_offset == source[400].offset
    assert verdict.repeated_records == 305
    assert "I3" in judge_partition(source, target, max_rewinds=1).breaches
    assert "I3" in judge_partition(source, target, max_rewinds=2, max_rewound_records=304).breaches


def test_equal_records_are_counted_though_nobody_can_tell_them_apart() -> None:
    source = letters("a" * 5_000)
    assert judge_partition(source, letters("a" * 5_000)).ok
    assert judge_partition(source, letters("a" * 4_999)).breaches == {"I1": 1}
    assert judge_partition(source, letters("a" * 5_001)).breaches == {"I3": 1}
    rewound = judge_partition(source, letters("a" * 8_000), max_rewinds=1)
    assert rewound.ok
    assert rewound.repeated_records == 3_000
    assert 3_000 <= rewound.rewound_records < 3_010, "of so many places the judge follows only a sample"


def test_a_target_that_stamps_its_records_is_judged_without_timestamps() -> None:
    source = dumps_of(Traffic(seed=1, partitions=1), 100)[0]
    target = [record._replace(timestamp_ms=7, timestamp_type=2) for record in as_copied(source)]
    assert judge_partition(source, target, timestamps=False).ok
    assert judge_partition(source, target).breaches["I5"]


def test_the_copy_begins_at_the_start_that_was_given() -> None:
    source = letters("abcdefgh")
    assert judge_partition(source, letters("efgh"), start=4).ok
    assert judge_partition(source, letters("fgh"), start=4).breaches == {"I1": 1}
    assert judge_partition(source, letters("defgh"), start=4).breaches == {"I5": 1}


def test_one_breach_does_not_hide_the_next() -> None:
    verdict = judge_partition(letters("abcdefghij"), letters("acdfegXiij"))
    assert verdict.breaches == {"I1": 1, "I2": 1, "I5": 1, "I3": 1}
    assert [(f.invariant, f.source_offset, f.target_offset) for f in verdict.findings] == [
        ("I2", 4, 4),
        ("I5", 7, 6),
        ("I1", 1, 1),
        ("I3", 8, 8),
    ]


def test_a_source_that_lost_an_acknowledged_send_is_not_the_mirrors_fault() -> None:
    source = letters("abcde")
    ledger = [sent(record) for record in letters("abcdef")]
    assert judge_partition(source, letters("abcde"), ledger=ledger, source_end=5).ok
    assert judge_partition(source, letters("abcde"), ledger=ledger, source_end=6).breaches == {"A": 1}
    assert judge_partition(letters("abXde"), letters("abXde"), ledger=ledger, source_end=5).breaches == {"A": 1}


# What is not legal


@pytest.fixture(scope="module")
def copies() -> list[Copy]:
    two = dumps_of(Traffic(seed=3, partitions=2, keys=5), 400)
    made = [Copy(two[0], as_copied(two[0]), two[1]), Copy(two[1], as_copied(two[1]), two[0])]
    assert all(judge_partition(copy.source, copy.target).ok for copy in made)
    return made


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
@pytest.mark.walk(range(1))
def test_every_mutant_is_caught(mutant: Mutant, copies: list[Copy], seed: int) -> None:
    for copy in copies:
        target = mutant.apply(copy, Random(seed))
        assert target is not None, "the traffic holds every shape that a mutant needs"
        assert mutant.invariant in judge_partition(copy.source, target).breaches
        if mutant.invariant != "I3":
            at_least_once = judge_partition(copy.source, target, max_rewinds=AT_LEAST_ONCE)
            assert mutant.invariant in at_least_once.breaches


@pytest.mark.parametrize("mutant", AGAIN, ids=str)
def test_a_repeat_is_judged_by_the_rewinds_it_takes(mutant: Mutant) -> None:
    source = dumps_of(Traffic(seed=4, partitions=1, plain=True), 120)[0]
    copy = Copy(source, as_copied(source))
    for seed in range(5):
        target = mutant.apply(copy, Random(seed))
        assert target is not None
        rewinds = len(runs_of(mutant.name, copy, Random(seed))) - 1
        assert judge_partition(source, target, max_rewinds=rewinds).ok
        fewer = judge_partition(source, target, max_rewinds=rewinds - 1)
        assert fewer.breaches == {"I3": 1}
        shorter = judge_partition(source, target, max_rewinds=None, max_rewound_records=fewer.rewound_records - 1)
        assert shorter.breaches == {"I3": 1}


@given(text=st.text("ab", min_size=2, max_size=9), seed=st.integers(0, 1_000))
def test_mutants_of_equal_records_are_caught(text: str, seed: int) -> None:
    source = letters(text)
    copy = Copy(source, as_copied(source))
    for mutant in MUTANTS:
        target = mutant.apply(copy, Random(seed))
        if target is not None:
            assert not judge_partition(source, target).ok, str(mutant)
            if mutant.invariant != "I3":
                assert not judge_partition(source, target, max_rewinds=AT_LEAST_ONCE).ok, str(mutant)


def test_there_are_ten_mutants_and_more_of_each_invariant() -> None:
    assert min(len(CUTS), len(REORDERINGS), len(AGAIN), len(CHANGES)) >= 10
    assert len({str(mutant) for mutant in MUTANTS}) == len(MUTANTS)


# Compacted topics


def cleaned(log: Sequence[Dumped], random: Random, *, tombstones: bool) -> list[Dumped]:
    """Return what a cleaner leaves that got as far as some record; it may remove tombstones if it met them before."""
    end = random.randint(0, len(log))
    last = {record.key: record.offset for record in log[:end]}
    kept = [record for record in log[:end] if record.offset == last[record.key]]
    kept = [record for record in kept if not (tombstones and record.value is None and random.random() < 0.5)]
    return [*kept, *log[end:]]


@given(seed=st.integers(0, 100_000), restarts=st.integers(0, 3))
def test_what_cleaners_remove_is_never_counted_as_a_difference(seed: int, restarts: int) -> None:
    random = Random(seed)
    sends = dumps_of(Traffic(seed=seed, partitions=1, compacted=True, keys=8), random.randint(0, 80))[0]
    source = cleaned(sends, random, tombstones=False)
    copied = list(range(len(source)))
    for _ in range(restarts if source else 0):
        at = random.randint(1, len(copied))
        copied[at:at] = copied[random.randrange(at) : at]
    rewinds = sum(place != before + 1 for before, place in pairwise(copied))
    target = cleaned(as_copied([source[place] for place in copied]), random, tombstones=True)
    source = cleaned(source, random, tombstones=True)
    ledger = [sent(record) for record in sends]
    verdict = judge_partition(
        source, target, compacted=True, ledger=ledger, max_rewinds=rewinds, target_end=len(copied)
    )
    assert verdict.ok, [str(finding) for finding in verdict.findings]


@cache
def compacted_copies() -> list[Copy]:
    made = []
    for seed in range(6):
        random = Random(seed)
        sends, other = dumps_of(Traffic(seed=seed, partitions=2, compacted=True, keys=30), 300)
        source = cleaned(sends, random, tombstones=False)
        target = as_copied(source)
        if seed % 2:
            source = cleaned(source, random, tombstones=True)
            target = cleaned(target, random, tombstones=True)
        made.append(Copy(source, target, other, [sent(record) for record in sends]))
        assert judge_partition(source, target, compacted=True, ledger=made[-1].ledger).ok
    return made


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
@pytest.mark.walk(range(1))
def test_every_mutant_of_a_compacted_copy_is_caught(mutant: Mutant, seed: int) -> None:
    caught = 0
    for copy in compacted_copies():
        target = mutant.apply(copy, Random(seed))
        if target is not None:
            assert not judge_partition(copy.source, target, compacted=True, ledger=copy.ledger).ok
            caught += 1
    assert caught or "null" in mutant.name or "without a key" in mutant.name, "compacted topics have no null keys"


def test_a_delete_that_never_arrived_is_a_loss() -> None:
    value, tombstone = Dumped(0, 1, 0, b"k", b"v"), Dumped(1, 1, 1, b"k", None)
    ledger = [sent(value), sent(tombstone)]

    def breaches(source: list[Dumped], target: list[Dumped]) -> dict[str, int]:
        return judge_partition(source, target, compacted=True, ledger=ledger, target_end=9).breaches

    assert breaches([tombstone], [tombstone]) == {}
    assert breaches([], []) == {}, "both cleaners are done with the key"
    assert breaches([tombstone], [value]) == {"I1": 1}
    assert breaches([], [value]) == {"I1": 1}, "the value has outlived its delete"


def test_a_skipped_record_leaves_no_hole_where_a_cleaned_one_does() -> None:
    source = [Dumped(offset, 1, offset, key, b"v") for offset, key in enumerate([b"a", b"b", b"a", b"b"])]
    ledger = [sent(record) for record in source]
    cleaned_target = [source[0], source[2], source[3]]
    skipped_target = [record._replace(offset=place) for place, record in enumerate(cleaned_target)]
    assert judge_partition(source, cleaned_target, compacted=True, ledger=ledger).ok
    assert judge_partition(source, skipped_target, compacted=True, ledger=ledger).breaches == {"I1": 1}


def test_aborted_sends_may_be_missing_and_never_supersede() -> None:
    committed, aborted = Dumped(0, 1, 0, b"k", b"v"), Dumped(1, 1, 1, b"k", b"aborted")
    ledger: list[Sent] = [sent(committed), sent(aborted, is_aborted=True)]
    assert judge_partition([committed], [committed], compacted=True, ledger=ledger).ok
    assert judge_partition([], [], compacted=True, ledger=ledger).breaches == {"I1": 1}


def test_a_compacted_topic_is_not_judged_without_a_ledger() -> None:
    with pytest.raises(ValueError, match="ledger"):
        judge_partition([], [], compacted=True)


# Records


def test_digests_tell_apart_what_consumers_tell_apart() -> None:
    record = Dumped(0, 1, 5, b"k", b"v", (("a", b"1"), ("b", None)))
    others = [
        record._replace(timestamp_ms=6),
        record._replace(key=None),
        record._replace(key=b""),
        record._replace(key=b"kv", value=b""),
        record._replace(value=None),
        record._replace(headers=(("a", b"1"),)),
        record._replace(headers=(("b", None), ("a", b"1"))),
        record._replace(headers=(("a", b"1"), ("b", b""))),
        record._replace(headers=(("a1", b""), ("b", None))),
        record._replace(headers=()),
    ]
    assert len({digest(other) for other in [record, *others]}) == len(others) + 1
    assert digest(record._replace(offset=9, timestamp_type=2)) == digest(record)


def test_traffic_is_the_same_for_the_same_seed_and_shows_where_it_comes_from() -> None:
    first = list(islice(Traffic(seed=7, partitions=3, producer=2).records(), 500))
    assert first == list(islice(Traffic(seed=7, partitions=3, producer=2).records(), 500))
    assert first != list(islice(Traffic(seed=8, partitions=3, producer=2).records(), 500))
    origins = [found for record in first if (found := origin(record.value))]
    assert len(origins) > 100
    assert {producer for producer, _, _ in origins} == {2}
    assert all(record.key is not None for record in islice(Traffic(1, 1, compacted=True).records(), 500))


def test_offsets_of_a_mutant_keep_the_holes_of_its_copy_and_make_none() -> None:
    target = [Dumped(offset, 1, 0, None, b"%d" % offset) for offset in (3, 4, 7, 8)]
    assert [record.offset for record in written(target, target)] == [3, 4, 7, 8]
    assert [record.offset for record in written([target[0], target[2], target[3]], target)] == [3, 4, 5]
