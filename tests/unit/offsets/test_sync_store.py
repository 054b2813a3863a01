"""The 64 slots of a source partition, with the numbers of MirrorMaker 2's own tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, combinations, cycle, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.kafka.port import TopicPartition
from mm2py.offsets.sync_store import BEFORE_OLDEST, SLOTS, SyncStore

KEY: TopicPartition = ("orders", 3)
OFFSET_MOST = 2**63 - 1


def add_all(store: SyncStore, offsets: Iterable[int]) -> None:
    for offset in offsets:
        store.add(KEY, offset, offset)


def kept(store: SyncStore) -> list[int]:
    assert all(upstream == downstream for upstream, downstream in store.syncs(KEY))
    return [upstream for upstream, _ in store.syncs(KEY)]


def live_store() -> SyncStore:
    store = SyncStore(keeps_history=False)
    store.loaded()
    return store


def assert_slots_hold_the_invariants(store: SyncStore) -> None:
    upstream = [sync[0] for sync in store.slots(KEY)]
    assert len(upstream) == SLOTS
    for newer, older in combinations(range(SLOTS), 2):
        if upstream[newer] != upstream[older]:
            assert upstream[newer] <= upstream[older] + 2**older - 2**newer, f"B of {newer} and {older}: {upstream}"
            assert upstream[newer] >= upstream[older] + 2 ** max(newer - 2, 0), f"C of {newer} and {older}: {upstream}"


# -- translation -------------------------------------------------------------------------------------------------------


def test_a_group_is_translated_through_the_newest_sync_it_has_reached() -> None:
    store = live_store()
    store.add(KEY, 100, 200)
    assert store.translate(KEY, 150) == 201
    assert store.translate(KEY, 100) == 200
    assert store.translate(KEY, 5) == BEFORE_OLDEST == -1
    store.add(KEY, 200, 10)
    assert store.translate(KEY, 200) == 10
    assert store.translate(KEY, 150) == 201
    store.add(KEY, 20, 20)
    assert store.translate(KEY, 20) == 20
    assert store.translate(KEY, 19) == BEFORE_OLDEST
    assert store.syncs(KEY) == [(20, 20)]


def test_nothing_is_translated_before_the_topic_was_read_once() -> None:
    store = SyncStore(keeps_history=True)
    store.add(KEY, 100, 200)
    assert store.translate(KEY, 150) is None
    store.loaded()
    assert store.translate(KEY, 150) == 201


def test_a_partition_without_a_sync_is_not_translated() -> None:
    store = live_store()
    store.add(("orders", 4), 100, 200)
    store.add(("payments", 3), 100, 200)
    assert store.translate(KEY, 150) is None
    assert store.syncs(KEY) == store.slots(KEY) == []


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=150), st.data())
def test_a_group_never_skips_a_record(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    """Downstream offsets run ahead of upstream ones or behind them, but never back: the order of records is kept."""
    syncs = list(accumulate(steps, lambda last, step: (last[0] + step[0], last[1] + step[1])))
    store = live_store()
    for sync in syncs:
        store.add(KEY, *sync)
    group = data.draw(st.integers(0, syncs[-1][0] + 10))
    translated = store.translate(KEY, group)
    reached = [sync for sync in syncs if sync[0] <= group]
    if not reached:
        assert translated == BEFORE_OLDEST
    else:
        upstream, downstream = reached[-1]
        assert translated is not None
        assert syncs[0][1] <= translated <= downstream + (upstream < group)


# -- which syncs are kept ----------------------------------------------------------------------------------------------


def test_without_checkpoints_only_the_last_loaded_sync_is_kept() -> None:
    store = SyncStore(keeps_history=False)
    add_all(store, range(0, 1001, 10))
    assert kept(store) == [1000]
    store.loaded()
    add_all(store, range(1010, 10_001, 10))
    assert kept(store) == [10_000, 9990, 9970, 9940, 9880, 9640, 9160, 8680, 6760, 4840, 1000]


def test_with_checkpoints_older_syncs_survive_loading() -> None:
    store = SyncStore(keeps_history=True)
    add_all(store, range(0, 1001, 10))
    assert kept(store) == [1000, 990, 960, 900, 840, 720, 480, 0]
    store.loaded()
    add_all(store, range(1000, 10_001, 10))
    assert kept(store) == [10_000, 9990, 9960, 9900, 9840, 9600, 9120, 8640, 7680, 3840, 0]


def test_a_sync_that_fits_into_no_slot_is_dropped() -> None:
    """After 67 it is too old for slots up to 6 (B), and from slot 6 on too close to 2, which is in the next one (C)."""
    store = live_store()
    add_all(store, [2, 10, 67])
    assert kept(store) == [67, 2]
    assert_slots_hold_the_invariants(store)


def test_a_sync_that_is_written_twice_changes_nothing() -> None:
    store = live_store()
    add_all(store, [0, 10, 20])
    before = store.slots(KEY)
    store.add(KEY, 20, 20)
    assert store.slots(KEY) == before


def test_a_step_back_upstream_forgets_all_older_syncs() -> None:
    store = live_store()
    add_all(store, range(0, 1001, 10))
    store.add(KEY, 999, 5000)
    assert store.slots(KEY) == [(999, 5000)] * SLOTS


def test_the_largest_offsets_are_kept_and_translated() -> None:
    store = live_store()
    oldest = OFFSET_MOST - 2**62
    add_all(store, [oldest, OFFSET_MOST - 1, OFFSET_MOST])
    assert_slots_hold_the_invariants(store)
    assert kept(store) == [OFFSET_MOST, OFFSET_MOST - 1, oldest]
    assert store.translate(KEY, OFFSET_MOST) == OFFSET_MOST


@given(
    st.booleans(),
    st.lists(
        st.one_of(st.integers(0, 4), st.integers(0, 1000), st.integers(0, 2**40), st.just(-1)),
        min_size=1,
        max_size=120,
    ),
    st.integers(0, 120),
)
def test_slots_hold_the_invariants_and_end_with_the_first_sync(
    keeps_history: bool, steps: list[int], loaded_after: int
) -> None:
    """A step of -1 goes back upstream, after which that sync is the first one."""
    store = SyncStore(keeps_history=keeps_history)
    upstream = first = 5
    newest = None
    for number, step in enumerate(steps):
        is_back = step < 0 and upstream > 0
        upstream = upstream + step if step >= 0 or is_back else upstream
        if number == loaded_after:
            store.loaded()
        forgets = number < loaded_after and not keeps_history
        if newest is None or is_back or forgets:
            first = upstream
        newest = (upstream, number)
        store.add(KEY, *newest)
        slots = store.slots(KEY)
        assert slots[0] == newest
        assert slots[-1][0] == first
        assert store.syncs(KEY) == list(dict.fromkeys(slots))
    assert_slots_hold_the_invariants(store)


def even(gap: int) -> Iterator[int]:
    return cycle([gap])


def alternating(gap: int) -> Iterator[int]:
    return cycle([gap, 2 * gap])


def within_bits(bits: int) -> Iterator[int]:
    randomness = random.Random(bits)
    while True:
        yield randomness.randrange(2**bits)


def most_dropped_at_once(gaps: Iterator[int], inserts: int = 1000) -> int:
    store = live_store()
    add_all(store, [0])
    before, most = 1, 0
    for upstream in accumulate(islice(gaps, inserts)):
        add_all(store, [upstream])
        after = len(kept(store))
        most = max(most, before + 1 - after)
        before = after
    assert_slots_hold_the_invariants(store)
    return most


@pytest.mark.parametrize("gap", [1, 2, 3, 7, 10, 64, 100, 1000, 2**20, 2**40])
@pytest.mark.parametrize(("gaps", "bound"), [(even, 1), (alternating, 2)])
def test_a_new_sync_drops_few_of_the_older_ones(gaps: Callable[[int], Iterator[int]], bound: int, gap: int) -> None:
    assert most_dropped_at_once(gaps(gap)) <= bound


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16, 32, 50])
def test_random_gaps_drop_at_most_two_more_than_they_have_bits(bits: int) -> None:
    assert most_dropped_at_once(within_bits(bits)) <= bits + 2
