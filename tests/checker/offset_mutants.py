"""Mutants: false offset syncs, checkpoints, groups and answers, made from true ones, to test ``offsets.py``.

Each breaks its invariant by construction. A mutant that has nothing to change (no second run, say) returns None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from tests.checker.offsets import Answered, Checkpointed
from tests.checker.pairs import Pairs, runs_of

Runs = list[tuple[int, int, int]]
"""Source offset, target offset and number of records of each stretch of equal difference."""
Answers = dict[int, Answered]


@dataclass(frozen=True, slots=True)
class Said:
    """A mirror's offset syncs, checkpoints and groups of one partition."""

    pairs: Pairs
    syncs: tuple[tuple[int, int], ...]
    checkpoints: tuple[Checkpointed, ...]
    source_groups: dict[str, int]
    target_groups: dict[str, int]


def truth(pairs: Pairs, random: Random, *, groups: int = 6) -> Said:
    """Return the statements of an exact mirror, with groups at random offsets: records, markers, the end."""
    everything = list(zip(pairs.here.copied, pairs.there.copied, strict=True))
    syncs = tuple(sorted(random.sample(everything, min(len(everything), 10))))
    stood = {f"group-{number}": random.randint(pairs.here.start, pairs.here.end) for number in range(groups)}
    exact = {group: _first_copy(pairs, offset) for group, offset in stood.items()}
    checkpoints = [
        Checkpointed(group, earlier, _first_copy(pairs, earlier))
        for group, offset in stood.items()
        for earlier in sorted(random.randint(pairs.here.start, offset) for _ in range(3))
    ]
    checkpoints += [Checkpointed(group, offset, exact[group]) for group, offset in stood.items()]
    return Said(pairs, syncs, tuple(checkpoints), stood, exact)


def _first_copy(pairs: Pairs, source_offset: int) -> int:
    place = pairs.here.copies_before(source_offset)
    return pairs.there.copied[place] if place < len(pairs.there.copied) else pairs.there.end


@dataclass(frozen=True, slots=True)
class Mutant:
    """A false statement about offset syncs, checkpoints or groups."""

    name: str
    invariant: str
    apply: Callable[[Said, Random], Said | None]

    def __str__(self) -> str:
        return f"{self.invariant} {self.name}"


# I7: offset syncs


def _sync(name: str, change: Callable[[tuple[int, int], Said], tuple[int, int] | None]) -> Mutant:
    def apply(said: Said, random: Random) -> Said | None:
        for at in random.sample(range(len(said.syncs)), len(said.syncs)):
            changed = change(said.syncs[at], said)
            if changed is not None and changed != said.syncs[at]:
                return replace(said, syncs=(*said.syncs[:at], changed, *said.syncs[at + 1 :]))
        return None

    return Mutant(name, "I7", apply)


def _marker(sync: tuple[int, int], said: Said) -> tuple[int, int] | None:
    """Return the sync with a marker's source offset in place of the record's."""
    log = said.pairs.here
    markers = set(range(log.start, log.end)) - set(log.copied) - log.others
    return (min(markers), sync[1]) if markers else None


SYNCS = [
    _sync("the target offset is one too high", lambda sync, _: (sync[0], sync[1] + 1)),
    _sync("the target offset is one too low", lambda sync, _: (sync[0], sync[1] - 1)),
    _sync("the source offset is one too high", lambda sync, _: (sync[0] + 1, sync[1])),
    _sync("the source offset is one too low", lambda sync, _: (sync[0] - 1, sync[1])),
    _sync("both offsets are of the source", lambda sync, _: (sync[0], sync[0])),
    _sync("the target offset is of another sync", lambda sync, said: (sync[0], said.syncs[0][1])),
    _sync("the source offset is that of a marker", _marker),
    _sync("the source's record is another", lambda sync, said: (said.pairs.here.copied[0], sync[1])),
    _sync("the sync is ahead of the copy", lambda _, said: (said.pairs.here.end, said.pairs.there.end)),
]


# I6: checkpoints


def _checkpoint(name: str, change: Callable[[Checkpointed, Said], int | None]) -> Mutant:
    """Return a mutant in which the last checkpoint of a group has another target offset."""

    def apply(said: Said, random: Random) -> Said | None:
        last = len(said.checkpoints) - len(said.source_groups)
        for at in random.sample(range(last, len(said.checkpoints)), len(said.source_groups)):
            one = said.checkpoints[at]
            target_offset = change(one, said)
            if target_offset is not None and target_offset != one.target_offset:
                changed = one._replace(target_offset=target_offset)
                return replace(said, checkpoints=(*said.checkpoints[:at], changed, *said.checkpoints[at + 1 :]))
        return None

    return Mutant(name, "I6", apply)


def _behind_next(source_offset: int, said: Said, *, records: int = 1) -> int | None:
    """Return the target offset after the next records that a group has not read."""
    copied = said.pairs.there.copied
    place = said.pairs.here.copies_before(source_offset) + records - 1
    return copied[place] + 1 if place < len(copied) else None


def _before_last(source_offset: int, said: Said, *, records: int = 1) -> int | None:
    """Return the target offset of the last records that a group has read."""
    place = said.pairs.here.copies_before(source_offset) - records
    return said.pairs.there.copied[place] if place >= 0 else None


def _goes_back(said: Said, random: Random) -> Said | None:
    for one in random.sample(said.checkpoints, len(said.checkpoints)):
        lower = _before_last(one.source_offset, said)
        if lower is not None:
            again = [one._replace(target_offset=lower), one]
            return replace(said, checkpoints=(*said.checkpoints, one, *again))
    return None


def _old_one_again(said: Said, _: Random) -> Said | None:
    """A worker that was frozen writes an old target offset with the present source offset."""
    for one in said.checkpoints:
        newest = said.source_groups[one.group]
        if said.pairs.cost(newest, one.target_offset).read_again:
            return replace(said, checkpoints=(*said.checkpoints, one._replace(source_offset=newest)))
    return None


CHECKPOINTS = [
    _checkpoint("one record too high", lambda one, said: _behind_next(one.source_offset, said)),
    _checkpoint("one record too low", lambda one, said: _before_last(one.source_offset, said)),
    _checkpoint("ten records too high", lambda one, said: _behind_next(one.source_offset, said, records=10)),
    _checkpoint("ten records too low", lambda one, said: _before_last(one.source_offset, said, records=10)),
    _checkpoint("at the start", lambda one, said: 0 if said.pairs.cost(one.source_offset, 0).read_again else None),
    _checkpoint("behind the end", lambda _, said: said.pairs.there.end + 1),
    _checkpoint("below all offsets", lambda _one, _said: -1),
    Mutant("one goes back and returns", "I6", _goes_back),
    Mutant("an old one is written again", "I6", _old_one_again),
]


# I12: groups


def _group(name: str, change: Callable[[int, Said], int | None], *, deletes: bool = False) -> Mutant:
    def apply(said: Said, random: Random) -> Said | None:
        for group in random.sample(sorted(said.source_groups), len(said.source_groups)):
            changed = change(said.source_groups[group], said)
            if deletes:
                return replace(said, target_groups={one: at for one, at in said.target_groups.items() if one != group})
            if changed is not None:
                return replace(said, target_groups={**said.target_groups, group: changed})
        return None

    return Mutant(name, "I12", apply)


GROUPS = [
    _group("one record too far", _behind_next),
    _group("one record behind", _before_last),
    _group("a hundred records behind", lambda offset, said: _before_last(offset, said, records=100)),
    _group("behind the end", lambda _, said: said.pairs.there.end + 1),
    _group("nothing committed", lambda _offset, _said: None, deletes=True),
]
MUTANTS = [*SYNCS, *CHECKPOINTS, *GROUPS]


# L: the runs of a ledger


RunsMutant = Callable[[Runs, Random], Runs | None]


def _one_run(change: Callable[[tuple[int, int, int]], Sequence[tuple[int, int, int]]]) -> RunsMutant:
    """Return a mutant that replaces one run by others."""

    def apply(runs: Runs, random: Random) -> Runs | None:
        if not runs:
            return None
        at = random.randrange(len(runs))
        changed = change(runs[at])
        return [*runs[:at], *(run for run in changed if run[2] > 0 and min(run[:2]) >= 0), *runs[at + 1 :]]

    return apply


def _shift_from_one_on(runs: Runs, random: Random) -> Runs | None:
    """From some run on every target offset is one too high: another writer's record was not noticed."""
    if not runs:
        return None
    at = random.randrange(len(runs))
    return [*runs[:at], *((source, target + 1, count) for source, target, count in runs[at:])]


def _joined(runs: Runs, random: Random) -> Runs | None:
    """Two runs become one, as if there were no marker between them."""
    places = [at for at, (one, other) in enumerate(pairwise(runs)) if one[0] + one[2] < other[0]]
    if not places:
        return None
    at = random.choice(places)
    return [*runs[:at], (*runs[at][:2], runs[at][2] + runs[at + 1][2]), *runs[at + 2 :]]


def _stretched(runs: Runs, random: Random) -> Runs | None:
    """A run includes the marker after it."""
    places = [
        at
        for at, (one, other) in enumerate(pairwise(runs))
        if one[0] + one[2] < other[0] and one[1] + one[2] < other[1]
    ]
    if not places:
        return None
    at = random.choice(places)
    return [*runs[:at], (*runs[at][:2], runs[at][2] + 1), *runs[at + 1 :]]


RUNS: dict[str, RunsMutant] = {
    "a run is shifted by one on the target": _one_run(lambda run: [(run[0], run[1] + 1, run[2])]),
    "a run is shifted back by one on the target": _one_run(lambda run: [(run[0], run[1] - 1, run[2])]),
    "a run is shifted by one on the source": _one_run(lambda run: [(run[0] + 1, run[1], run[2])]),
    "a run is shifted back by one on the source": _one_run(lambda run: [(run[0] - 1, run[1], run[2])]),
    "from a run on all are shifted by one": _shift_from_one_on,
    "a run is missing": _one_run(lambda run: []),
    "the first record of a run is missing": _one_run(lambda run: [(run[0] + 1, run[1] + 1, run[2] - 1)]),
    "the last record of a run is missing": _one_run(lambda run: [(run[0], run[1], run[2] - 1)]),
    "a record in a run is missing": _one_run(
        lambda run: [(*run[:2], run[2] // 2), (run[0] + run[2] // 2 + 1, run[1] + run[2] // 2 + 1, (run[2] - 1) // 2)]
    ),
    "two runs are one": _joined,
    "a run reaches over a marker": _stretched,
    "the first run is missing": lambda runs, _: runs[1:] if runs else None,
    "the last run is missing": lambda runs, _: runs[:-1] if runs else None,
    "the first and the last record are all there is": lambda runs, _: (
        [(*runs[0][:2], 1), (runs[-1][0] + runs[-1][2] - 1, runs[-1][1] + runs[-1][2] - 1, 1)]
        if sum(run[2] for run in runs) > 2
        else None
    ),
    "there are no runs": lambda runs, _: [] if runs else None,
}


# L: single answers


AnswersMutant = Callable[[Answers, Pairs, Random], Answers | None]


def _copied_answer(change: Callable[[int, Answered], Answered | None]) -> AnswersMutant:
    """Return a mutant that changes the answer for a copied record's offset; ``pairs.here`` has the asked offsets."""

    def apply(answers: Answers, pairs: Pairs, random: Random) -> Answers | None:
        if not pairs.here.copied:
            return None
        place = random.randrange(len(pairs.here.copied))
        offset = pairs.here.copied[place]
        changed = change(offset, answers[offset])
        if changed is None:
            return {asked: answer for asked, answer in answers.items() if asked != offset}
        return {**answers, offset: changed}

    return apply


def _moved(answer: Answered, by: int) -> Answered:
    assert answer.offset is not None
    return answer._replace(offset=answer.offset + by)


def _end_too_early(answers: Answers, pairs: Pairs, _: Random) -> Answers | None:
    """A group that has read all records is sent back to the last one."""
    if not pairs.there.copied:
        return None
    wrong = answers[pairs.here.end]._replace(offset=pairs.there.copied[-1], is_exact=True)
    return {**answers, pairs.here.end: wrong}


def _end_too_far(answers: Answers, pairs: Pairs, _: Random) -> Answers | None:
    return {**answers, pairs.here.end: answers[pairs.here.end]._replace(offset=pairs.there.end + 1)}


def _marker_is_a_record(answers: Answers, pairs: Pairs, random: Random) -> Answers | None:
    records = set(pairs.here.copied)
    markers = [offset for offset in answers if offset not in records]
    if not markers:
        return None
    offset = random.choice(markers)
    return {**answers, offset: answers[offset]._replace(is_copied=True)}


ANSWERS: dict[str, AnswersMutant] = {
    "an answer skips the record": _copied_answer(lambda _, answer: _moved(answer, 1)),
    "an answer is one too low": _copied_answer(lambda _, answer: _moved(answer, -1)),
    "an answer is not said to be exact": _copied_answer(
        lambda _, answer: answer._replace(is_exact=False, is_copied=False)
    ),
    "a record is said to be none": _copied_answer(lambda _, answer: answer._replace(is_copied=False)),
    "an answer is missing": _copied_answer(lambda _offset, _answer: None),
    "the ledger cannot say": _copied_answer(lambda _, answer: answer._replace(offset=None)),
    "the start is answered": _copied_answer(lambda offset, answer: answer._replace(offset=-1)),
    "the end is one record too early": _end_too_early,
    "the end is too far": _end_too_far,
    "a marker is said to be a record": _marker_is_a_record,
}


def honest_runs(pairs: Pairs) -> Runs:
    """Return the runs of a true ledger."""
    return list(runs_of(pairs))
