"""The judges of offsets accept what is true of a copy, and catch every false statement about it."""

from __future__ import annotations

from itertools import islice, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.offsets.ledger import EntryOutOfOrder, Ledger
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.runs import Run
from mm2py.records.ledger_record import ChunkKey, CorruptRuns, LedgerChunk, decode, encode
from tests.checker.dumped import Dumped, sent
from tests.checker.offset_mutants import (
    ANSWERS,
    MUTANTS,
    RUNS,
    Answers,
    Mutant,
    Runs,
    Said,
    honest_runs,
    truth,
)
from tests.checker.offsets import judge_checkpoints, judge_groups, judge_ledger, judge_syncs
from tests.checker.pairs import EXACT, NotInOrder, Pairs, pair_up
from tests.checker.traffic import Traffic
from tests.checker.verdict import Verdict
from tests.cluster.ledgers import answers_of

pytestmark = pytest.mark.one_python


def records_of(seed: int, count: int, *, compacted: bool = False) -> list[Dumped]:
    """Return a log with holes in its offsets, as markers and aborted records leave them."""
    random, offset, found = Random(seed), -1, []
    for planned in islice(Traffic(seed=seed, partitions=1, compacted=compacted, keys=9).records(), count):
        offset += 1 if random.random() < 0.8 else random.randint(2, 5)
        found.append(Dumped(offset, 1, planned.timestamp_ms, planned.key, planned.value, planned.headers))
    return found


def copied(source: list[Dumped], random: Random, *, others: bool) -> list[Dumped]:
    """Return a remote log: markers of its own; if wanted, refused records are missing, and others have written."""
    offset, found = -1, []
    for at, record in enumerate(source):
        if others and random.random() < 0.05:
            continue
        offset += 1 if random.random() < 0.9 else 2
        found.append(record._replace(offset=offset))
        if others and random.random() < 0.05:
            offset += 1
            found.append(Dumped(offset, 1, 7, b"foreign", b"%d" % at))
    return found


def cleaned(log: list[Dumped]) -> list[Dumped]:
    """Return what a cleaner leaves of a log that it went over."""
    last = {record.key: record.offset for record in log}
    return [record for record in log if record.offset == last[record.key]]


def scene(seed: int, *, count: int = 120, compacted: bool = False, target_cleaned: bool = False) -> Pairs:
    random = Random(seed)
    sends = records_of(seed, count, compacted=compacted)
    there = cleaned(sends[: count // 3]) + sends[count // 3 :] if compacted else sends
    target = copied(there, random, others=not compacted)
    bounds = (0, sends[-1].offset + 1 + random.randrange(3)), (0, target[-1].offset + 1 + random.randrange(3))
    return pair_up(
        cleaned(there) if compacted else sends,
        cleaned(target) if target_cleaned else target,
        source_bounds=bounds[0],
        target_bounds=bounds[1],
        sends=[sent(record) for record in sends],
        source_cleaned=compacted,
        target_cleaned=target_cleaned,
    )


def breaches(said: Said) -> set[str]:
    verdict = Verdict("orders", 0)
    judge_syncs(said.syncs, said.pairs, verdict)
    judge_checkpoints(said.checkpoints, said.pairs, verdict)
    judge_groups(said.source_groups, said.target_groups, said.pairs, verdict)
    return set(verdict.breaches)


def ledger_of(runs: Runs, pairs: Pairs) -> PartitionLedger:
    """Return what the ledger topic holds of these runs, written and read again."""
    key = ChunkKey("orders", 0, 1, 0)
    chunk = LedgerChunk(key, 0, tuple(Run(*run) for run in runs), copied_to=pairs.here.end, is_whole=True)
    record = encode(chunk, 0)
    read = decode(record.key, record.value)
    assert read is not None
    ledger = PartitionLedger()
    ledger.take(read)
    return ledger


def judged(forward: Answers, backward: Answers, pairs: Pairs) -> Verdict:
    verdict = Verdict("orders", 0)
    judge_ledger(forward, backward, pairs, verdict)
    return verdict


# What is true


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("target_cleaned", [False, True])
@given(seed=st.integers(0, 100_000))
def test_what_is_true_is_never_a_breach(seed: int, compacted: bool, target_cleaned: bool) -> None:
    pairs = scene(seed, compacted=compacted, target_cleaned=target_cleaned and compacted)
    assert not breaches(truth(pairs, Random(seed)))
    forward, backward = answers_of(ledger_of(honest_runs(pairs), pairs), pairs)
    verdict = judged(forward, backward, pairs)
    assert verdict.ok, [str(finding) for finding in verdict.findings]


@given(seed=st.integers(0, 100_000))
def test_a_ledger_may_know_records_that_a_cleaner_has_removed_since(seed: int) -> None:
    """The ledger was written when all copies stood there. Only what is left of the target is known now."""
    before = scene(seed, compacted=True)
    after = scene(seed, compacted=True, target_cleaned=True)
    forward, backward = answers_of(ledger_of(honest_runs(before), before), after)
    verdict = judged(forward, backward, after)
    assert verdict.ok, [str(finding) for finding in verdict.findings]


@given(seed=st.integers(0, 100_000))
def test_a_cost_is_what_a_reader_of_the_copy_meets(seed: int) -> None:
    """Counted record by record: what it has not read and never meets, and what it meets though it has read it."""
    pairs, random = scene(seed, count=30), Random(seed)
    together = list(zip(pairs.here.copied, pairs.there.copied, strict=True))
    for _ in range(50):
        here, there = random.randint(0, pairs.here.end), random.randint(0, pairs.there.end)
        unread = {pair for pair in together if pair[0] >= here}
        met = {pair for pair in together if pair[1] >= there}
        assert pairs.cost(here, there) == (len(unread - met), len(met - unread))
        assert pairs.flipped.cost(there, here) == (len(met - unread), len(unread - met))


def test_a_marker_and_the_record_behind_it_are_the_same_to_a_reader() -> None:
    source = [Dumped(offset, 1, offset, None, b"v") for offset in (0, 1, 4, 5)]
    target = [record._replace(offset=offset) for offset, record in zip((0, 2, 3, 5), source, strict=True)]
    pairs = pair_up(source, target, source_bounds=(0, 7), target_bounds=(0, 7))
    for here, there in [(1, 1), (1, 2), (2, 3), (3, 3), (4, 3), (5, 4), (5, 5), (6, 6), (6, 7), (7, 6)]:
        assert pairs.cost(here, there) == EXACT, (here, there)
    assert pairs.cost(4, 4) == (1, 0)
    assert pairs.cost(4, 2) == (0, 1)
    assert pairs.partner(4) == 3
    assert pairs.partner(3) is None
    assert pairs.flipped.partner(5) == 5


def test_a_copy_that_goes_back_has_no_pairs() -> None:
    source = [Dumped(offset, 1, offset, None, b"v") for offset in range(4)]
    target = [source[place]._replace(offset=offset) for offset, place in enumerate((0, 1, 0, 1, 2, 3))]
    with pytest.raises(NotInOrder, match="target offset 2"):
        pair_up(source, target, source_bounds=(0, 4), target_bounds=(0, 6))


def test_a_cleaned_source_is_not_paired_up_without_its_sends() -> None:
    with pytest.raises(ValueError, match="sends"):
        pair_up([], [], source_bounds=(0, 0), target_bounds=(0, 0), source_cleaned=True)


def test_the_same_sync_is_right_or_wrong_by_what_a_cleaner_may_have_removed() -> None:
    source = [Dumped(offset, 1, offset, b"k%d" % offset, b"v") for offset in range(6)]
    sends = [sent(record) for record in source]
    target = [source[0], source[1], source[4], source[5]]

    def why(here: int, there: int, *, target_cleaned: bool) -> str | None:
        bounds = {"source_bounds": (0, 6), "target_bounds": (0, 6)}
        return pair_up(source, target, sends=sends, target_cleaned=target_cleaned, **bounds).why_no_pair(here, there)

    assert why(2, 2, target_cleaned=True) is None
    assert why(2, 2, target_cleaned=False) == "there is no record at 2, the log is that from 0 to 6"
    assert why(2, 4, target_cleaned=True) == "2 belongs to None, and 4 to 4"
    assert why(4, 4, target_cleaned=False) is None


# What is false


@pytest.fixture(scope="module")
def truths() -> list[Said]:
    made = [truth(scene(seed, compacted=seed % 2 == 1), Random(seed)) for seed in range(8)]
    assert not any(map(breaches, made))
    return made


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_every_false_sync_checkpoint_and_group_is_caught(mutant: Mutant, truths: list[Said]) -> None:
    caught = 0
    for seed, said in enumerate(truths):
        changed = mutant.apply(said, Random(seed))
        if changed is not None:
            assert breaches(changed) == {mutant.invariant}, changed
            caught += 1
    assert caught > 1, "the scenes have what a mutant needs"


@pytest.mark.parametrize("name", RUNS)
def test_every_ledger_of_wrong_runs_is_caught(name: str) -> None:
    """Some contradict themselves so much that no ledger takes them in; of the others both logs know better."""
    caught = 0
    for seed in range(30):
        pairs = scene(seed, compacted=seed % 3 == 2)
        runs = RUNS[name](honest_runs(pairs), Random(seed))
        if runs is None:
            continue
        try:
            ledger = ledger_of(runs, pairs)
        except (CorruptRuns, EntryOutOfOrder):
            continue
        forward, backward = answers_of(ledger, pairs)
        assert "L" in judged(forward, backward, pairs).breaches
        caught += 1
    assert caught > 1


@pytest.mark.parametrize("name", ANSWERS)
def test_every_wrong_answer_of_a_ledger_is_caught_in_both_directions(name: str) -> None:
    caught = 0
    for seed in range(8):
        pairs = scene(seed, compacted=seed % 3 == 2)
        forward, backward = answers_of(ledger_of(honest_runs(pairs), pairs), pairs)
        wrong = ANSWERS[name](forward, pairs, Random(seed)), ANSWERS[name](backward, pairs.flipped, Random(seed))
        for changed in ((wrong[0], backward), (forward, wrong[1])):
            if changed[0] is not None and changed[1] is not None:
                assert "L" in judged(changed[0], changed[1], pairs).breaches
                caught += 1
    assert caught > 1


def test_a_ledger_that_is_not_exact_may_say_so_but_never_skips() -> None:
    pairs = scene(3)
    empty = PartitionLedger([])
    forward, backward = answers_of(empty, pairs)
    asked = pairs.here.end + 1 + pairs.there.copied[-1] + 2
    assert judged(forward, backward, pairs).breaches["L"] == asked, "no answers at all"
    early = {
        offset: answer._replace(is_exact=False, is_copied=False, offset=0)
        for offset, answer in answers_of(ledger_of(honest_runs(pairs), pairs), pairs)[0].items()
    }
    _, backward = answers_of(ledger_of(honest_runs(pairs), pairs), pairs)
    verdict = Verdict("orders", 0)
    judge_ledger(early, backward, pairs, verdict, exact=False)
    assert verdict.ok
    judge_ledger(early, backward, pairs, verdict)
    assert verdict.breaches["L"]


def test_there_are_many_mutants_and_all_have_names_of_their_own() -> None:
    assert len({str(mutant) for mutant in MUTANTS}) == len(MUTANTS)
    assert len(MUTANTS) + len(RUNS) + len(ANSWERS) >= 40


def test_the_runs_of_pairs_are_the_longest() -> None:
    pairs = scene(1)
    runs = honest_runs(pairs)
    assert sum(count for _, _, count in runs) == len(pairs.here.copied)
    assert not any((one[0] + one[2], one[1] + one[2]) == (other[0], other[1]) for one, other in pairwise(runs)), (
        "two runs that continue each other are one"
    )
    ledger = Ledger(0, 0, is_whole=True)
    for run in runs:
        ledger.append(Run(*run))
    assert [tuple(entry) for entry in ledger.entries()] == runs


def test_copies_of_records_that_the_source_has_no_more_count_or_do_not() -> None:
    sends = [Dumped(offset, 1, offset, b"k%d" % (offset % 4), b"v") for offset in range(8)]
    pairs = pair_up(
        [*sends[:2], *sends[4:]],
        sends,
        source_bounds=(0, 8),
        target_bounds=(0, 8),
        sends=[sent(record) for record in sends],
        source_cleaned=True,
    )
    assert pairs.gone == {2, 3}
    assert pairs.cost(2, 4) == (2, 0)
    assert pairs.without_gone.cost(2, 4) == EXACT
    assert pairs.without_gone.cost(2, 5) == (1, 0)
    assert pairs.without_gone.flipped.cost(4, 2) == EXACT
    assert pairs.without_gone.partner(3) == 3
