"""Mutants: illegal copies made from the dump of a legal one, to test the judge.

Each mutant breaks its invariant by construction, given an exact copy (target content = source content):

* I1: fewer records are left than the source has, or a unique one is missing: no split into runs covers it.
* I2: the same number of the same records in another order. A legal copy of the source's length is the source itself.
* I3: the target is a list of runs, none of which continues where the previous one ended: legal if that many rewinds
  are allowed, illegal if one fewer is allowed, and so always after a clean stop.
* I5: at least one record equals no record that was ever sent to the partition.

A mutant that has nothing to change (no tombstone, say) returns None. It assigns new offsets, as if the target had been
written that way: a removed record leaves no hole, because only compaction leaves holes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from tests.checker.dumped import Dumped, Sent, digest, sent

BATCH = 16
"""The number of records that mutants treat as one batch; real batches do not matter to a judge of content."""


@dataclass(frozen=True)
class Copy:
    """A partition and its exact copy. ``elsewhere``: records that were never in it, of other partitions or aborted."""

    source: Sequence[Dumped]
    target: Sequence[Dumped]
    elsewhere: Sequence[Dumped] = ()
    ledger: Sequence[Sent] = ()
    known: frozenset[bytes] = field(init=False)
    unique: frozenset[bytes] = field(init=False)
    """Digests of records that were sent once, are still on both sides, and cannot have been compacted away."""

    def __post_init__(self) -> None:
        history = {record.offset: sent(record) for record in self.source}
        history |= {entry.offset: entry for entry in self.ledger}
        times = Counter(entry.digest for entry in history.values())
        here = {digest(record) for record in self.source} & {digest(record) for record in self.target}
        if self.ledger and any(record.offset != place for place, record in enumerate(self.target)):
            last = {history[offset].key: history[offset] for offset in sorted(history)}
            here &= {entry.digest for entry in last.values() if not entry.is_tombstone}
        object.__setattr__(self, "known", frozenset(times))
        object.__setattr__(self, "unique", frozenset(d for d in here if times[d] == 1))

    def is_unique(self, record: Dumped) -> bool:
        return digest(record) in self.unique

    def breaks(self, places: Iterable[int]) -> bool:
        """Whether a mutant without these places, or with them twice, must be a breach.

        Without a ledger the number of records proves it; with a ledger, a unique record.
        """
        return not self.ledger or any(self.is_unique(self.target[place]) for place in places)


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    invariant: str
    apply: Callable[[Copy, Random], list[Dumped] | None]

    def __str__(self) -> str:
        return f"{self.invariant} {self.name}"


def written(records: Iterable[Dumped], target: Sequence[Dumped]) -> list[Dumped]:
    """Return the records with the offsets they would have if written in this order; the copy's own holes stay."""
    gap_after = {(one.offset, other.offset) for one, other in pairwise(target)}
    placed: list[Dumped] = []
    before: Dumped | None = None
    for record in records:
        if before is None:
            offset = target[0].offset
        elif (before.offset, record.offset) in gap_after:
            offset = placed[-1].offset + record.offset - before.offset
        else:
            offset = placed[-1].offset + 1
        placed.append(record._replace(offset=offset))
        before = record
    return placed


# I1: losses


Places = set[int]
Chooser = Callable[[Copy, Random], Places]


def _cut(name: str, choose: Chooser) -> Mutant:
    """Return a mutant without the chosen places of the target."""

    def apply(copy: Copy, random: Random) -> list[Dumped] | None:
        places = choose(copy, random) & set(range(len(copy.target)))
        if not places or not copy.breaks(places):
            return None
        return written((r for place, r in enumerate(copy.target) if place not in places), copy.target)

    return Mutant(name, "I1", apply)


def _unique_places(copy: Copy) -> list[int]:
    return [place for place, record in enumerate(copy.target) if copy.is_unique(record)]


def _one(copy: Copy, random: Random) -> Places:
    places = _unique_places(copy)
    return {random.choice(places)} if places else set()


def _one_where(wanted: Callable[[Dumped], bool]) -> Chooser:
    def choose(copy: Copy, random: Random) -> Places:
        places = [place for place in _unique_places(copy) if wanted(copy.target[place])]
        return {random.choice(places)} if places else set()

    return choose


def _all_of_a_key(copy: Copy, random: Random) -> Places:
    keys = sorted({copy.target[place].key or b"" for place in _unique_places(copy)})
    if not keys:
        return set()
    key = random.choice(keys)
    return {place for place, record in enumerate(copy.target) if record.key == key}


def _lose_one_repeat_its_neighbour(copy: Copy, random: Random) -> list[Dumped] | None:
    places = [place for place in _unique_places(copy) if place > 0]
    if not places:
        return None
    place = random.choice(places)
    return written([*copy.target[:place], copy.target[place - 1], *copy.target[place + 1 :]], copy.target)


CUTS = [
    _cut("the first record is lost", lambda copy, _: {0}),
    _cut("the last record is lost", lambda copy, _: {len(copy.target) - 1}),
    _cut("the middle record is lost", lambda copy, _: {len(copy.target) // 2}),
    _cut("any one record is lost", _one),
    _cut("two neighbours are lost", lambda copy, random: {place + n for place in _one(copy, random) for n in (0, 1)}),
    _cut("two records far apart are lost", lambda copy, random: _one(copy, random) | _one(copy, random)),
    _cut("a batch is lost", lambda copy, random: {place + n for place in _one(copy, random) for n in range(BATCH)}),
    _cut("the last of each batch is lost", lambda copy, _: set(range(BATCH - 1, len(copy.target), BATCH))),
    _cut("the first of each batch is lost", lambda copy, _: set(range(0, len(copy.target), BATCH))),
    _cut("every other record is lost", lambda copy, _: set(range(1, len(copy.target), 2))),
    _cut("all records of a key are lost", _all_of_a_key),
    _cut("a tombstone is lost", _one_where(lambda record: record.key is not None and record.value is None)),
    _cut("a record without a key is lost", _one_where(lambda record: record.key is None)),
    _cut("a record with headers is lost", _one_where(lambda record: bool(record.headers))),
    _cut("the copy stops half way", lambda copy, _: set(range(len(copy.target) // 2, len(copy.target)))),
    _cut("the copy starts half way", lambda copy, _: set(range(len(copy.target) // 2))),
    _cut("nothing was copied", lambda copy, _: set(range(len(copy.target)))),
    Mutant("one is lost, its neighbour stands there twice", "I1", _lose_one_repeat_its_neighbour),
]


# I2: another order


def _reorder(name: str, order: Callable[[list[int], Random], list[int]]) -> Mutant:
    """Return a mutant of the same records, in the order that ``order`` returns."""

    def apply(copy: Copy, random: Random) -> list[Dumped] | None:
        places = order(list(range(len(copy.target))), random)
        if all(copy.target[a].content == b.content for a, b in zip(places, copy.target, strict=True)):
            return None
        return written((copy.target[place] for place in places), copy.target)

    return Mutant(name, "I2", apply)


def _swapped(places: list[int], one: int, other: int) -> list[int]:
    if 0 <= one < len(places) and 0 <= other < len(places):
        places[one], places[other] = places[other], places[one]
    return places


def _moved(places: list[int], start: int, count: int, by: int) -> list[int]:
    """Return the places with ``count`` of them, from ``start`` on, moved ``by`` places further on."""
    taken = places[start : start + count]
    rest = places[:start] + places[start + count :]
    at = max(0, min(len(rest), start + by))
    return rest[:at] + taken + rest[at:]


def _any(places: list[int], random: Random, *, spare: int = 1) -> int:
    return random.randrange(max(1, len(places) - spare))


def _swap_any(places: list[int], random: Random) -> list[int]:
    at = _any(places, random)
    return _swapped(places, at, at + 1)


def _reversed_batch(places: list[int], random: Random) -> list[int]:
    at = _any(places, random)
    return places[:at] + places[at : at + BATCH][::-1] + places[at + BATCH :]


def _shuffled_window(places: list[int], random: Random) -> list[int]:
    at = _any(places, random)
    window = places[at : at + 3 * BATCH]
    random.shuffle(window)
    return places[:at] + window + places[at + 3 * BATCH :]


def _interleaved(places: list[int], _: Random) -> list[int]:
    half = len(places) // 2
    return [place for pair in zip(places[half : 2 * half], places[:half], strict=True) for place in pair] + places[
        2 * half :
    ]


REORDERINGS = [
    _reorder("the first two are swapped", lambda places, _: _swapped(places, 0, 1)),
    _reorder("the last two are swapped", lambda places, _: _swapped(places, len(places) - 2, len(places) - 1)),
    _reorder("any two neighbours are swapped", _swap_any),
    _reorder("the ends are swapped", lambda places, _: _swapped(places, 0, len(places) - 1)),
    _reorder("every pair is swapped", lambda places, _: [p ^ 1 if p ^ 1 < len(places) else p for p in places]),
    _reorder("a batch is reversed", _reversed_batch),
    _reorder("all is reversed", lambda places, _: places[::-1]),
    _reorder("the last record comes first", lambda places, _: places[-1:] + places[:-1]),
    _reorder("the first record comes last", lambda places, _: places[1:] + places[:1]),
    _reorder("the second half comes first", lambda places, _: places[len(places) // 2 :] + places[: len(places) // 2]),
    _reorder("a record comes ten late", lambda places, random: _moved(places, _any(places, random), 1, 10)),
    _reorder("a record comes ten early", lambda places, random: _moved(places, _any(places, random) + 1, 1, -10)),
    _reorder("a batch is overtaken", lambda places, random: _moved(places, _any(places, random), BATCH, BATCH)),
    _reorder("a batch is overtaken by a record", lambda places, random: _moved(places, _any(places, random), BATCH, 1)),
    _reorder("a window is shuffled", _shuffled_window),
    _reorder("two halves are interleaved", _interleaved),
]


# I3: repeats


Runs = list[tuple[int, int]]


def runs_of(name: str, copy: Copy, random: Random) -> Runs:
    """Return the runs (first place, end place) of the target in the I3 mutant of this name."""
    return [run for run in _RUNS[name](len(copy.target), random) if run[0] < run[1]]


def _again(name: str) -> Mutant:
    def apply(copy: Copy, random: Random) -> list[Dumped] | None:
        runs = runs_of(name, copy, random)
        times = Counter(place for run in runs for place in range(*run))
        if len(runs) < 2 or not copy.breaks(place for place in times if times[place] > 1):
            return None
        return written((copy.target[place] for run in runs for place in range(*run)), copy.target)

    return Mutant(name, "I3", apply)


def _lone(length: int, at: int, which: int) -> Runs:
    """Return all places, with the record at ``which`` repeated after the first ``at``."""
    return [(0, at), (which, which + 1), (at, length)]


def _back(length: int, at: int, by: int) -> Runs:
    """Return all places, with a rewind by ``by`` records after the first ``at``."""
    return [(0, at), (max(0, at - by), length)]


_RUNS: dict[str, Callable[[int, Random], Runs]] = {
    "the last record stands twice": lambda n, _: [(0, n), (n - 1, n)],
    "the first record stands twice": lambda n, _: [(0, 1), (0, n)],
    "any record stands twice": lambda n, random: _back(n, random.randint(1, n), 1),
    "a batch stands twice": lambda n, random: _back(n, random.randint(min(BATCH, n), n), BATCH),
    "a batch stands three times": lambda n, _: [(0, n), (max(0, n - BATCH), n), (max(0, n - BATCH), n)],
    "the whole stands twice": lambda n, _: [(0, n), (0, n)],
    "the first half stands twice": lambda n, _: [(0, n // 2), (0, n)],
    "the second half stands twice": lambda n, _: [(0, n), (n // 2, n)],
    "the first record comes again at the end": lambda n, _: [(0, n), (0, 1)],
    "the first record comes again half way": lambda n, _: _lone(n, n // 2, 0),
    "any record comes again later": lambda n, random: _lone(n, n - 1, random.randrange(max(1, n - 2))),
    "a stretch comes again at the end, but stops short": lambda n, _: [(0, n), (n // 3, n // 2)],
    "every other record of the second half comes again": lambda n, _: (
        [(0, n)] + [(p, p + 1) for p in range(n // 2, n, 2)]
    ),
    "the second half comes again backwards": lambda n, _: [(0, n)] + [(p, p + 1) for p in range(n - 1, n // 2, -1)],
    "each record stands twice": lambda n, _: [(0, 1)] + [(p, p + 2) for p in range(n - 1)] + [(n - 1, n)],
    "two copiers take turns": lambda n, _: (
        [(0, n // 2 + 1)] + [run for p in range(n // 2 + 1, n) for run in ((p - 2, p - 1), (p, p + 1))]
    ),
}
AGAIN = [_again(name) for name in _RUNS]


# I5: changed bytes


Change = Callable[[Dumped, Random], Dumped | None]


def _change(name: str, change: Change) -> Mutant:
    """Return a mutant with one record changed, so that it equals no record that was sent."""

    def apply(copy: Copy, random: Random) -> list[Dumped] | None:
        for place in random.sample(range(len(copy.target)), len(copy.target)):
            changed = change(copy.target[place], random)
            if changed is not None and digest(changed) not in copy.known:
                return [*copy.target[:place], changed, *copy.target[place + 1 :]]
        return None

    return Mutant(name, "I5", apply)


def _change_all(name: str, change: Change) -> Mutant:
    """Return a mutant with all records changed that ``change`` can change."""

    def apply(copy: Copy, random: Random) -> list[Dumped] | None:
        changed = [change(record, random) or record for record in copy.target]
        return changed if any(digest(record) not in copy.known for record in changed) else None

    return Mutant(name, "I5", apply)


def _flipped(part: bytes | None, random: Random) -> bytes | None:
    if not part:
        return None
    at = random.randrange(len(part))
    return part[:at] + bytes([part[at] ^ (1 << random.randrange(8))]) + part[at + 1 :]


def _flip_key(record: Dumped, random: Random) -> Dumped | None:
    return record._replace(key=_flipped(record.key, random)) if record.key else None


def _flip_value(record: Dumped, random: Random) -> Dumped | None:
    return record._replace(value=_flipped(record.value, random)) if record.value else None


def _header(
    change: Callable[[str, bytes | None, Random], tuple[str, bytes | None] | None],
) -> Change:
    """Return a change of the first header that ``change`` can change."""

    def apply(record: Dumped, random: Random) -> Dumped | None:
        for index, (name, value) in enumerate(record.headers):
            if (changed := change(name, value, random)) is not None:
                return record._replace(headers=(*record.headers[:index], changed, *record.headers[index + 1 :]))
        return None

    return apply


def _without_repeats(record: Dumped, _: Random) -> Dumped | None:
    merged = tuple(dict(record.headers).items())
    return record._replace(headers=merged) if len(merged) < len(record.headers) else None


def _as_text(record: Dumped, _: Random) -> Dumped | None:
    return record._replace(value=record.value.decode(errors="replace").encode()) if record.value else None


def _neighbours_value(copy: Copy, random: Random) -> list[Dumped] | None:
    for place in random.sample(range(len(copy.target) - 1), max(0, len(copy.target) - 1)):
        changed = copy.target[place]._replace(value=copy.target[place + 1].value)
        if digest(changed) not in copy.known:
            return [*copy.target[:place], changed, *copy.target[place + 1 :]]
    return None


def _foreign(copy: Copy, random: Random) -> Dumped | None:
    strangers = [record for record in copy.elsewhere if digest(record) not in copy.known]
    return random.choice(strangers) if strangers else None


def _foreign_inserted(copy: Copy, random: Random) -> list[Dumped] | None:
    foreign = _foreign(copy, random)
    if foreign is None:
        return None
    at = random.randint(1, len(copy.target))
    return written([*copy.target[:at], foreign._replace(offset=-2), *copy.target[at:]], copy.target)


def _foreign_instead(copy: Copy, random: Random) -> list[Dumped] | None:
    foreign = _foreign(copy, random)
    if foreign is None:
        return None
    at = random.randrange(len(copy.target))
    return [*copy.target[:at], foreign._replace(offset=copy.target[at].offset), *copy.target[at + 1 :]]


CHANGES = [
    _change("a bit of a key is flipped", _flip_key),
    _change("a bit of a value is flipped", _flip_value),
    _change(
        "a bit of a header value is flipped",
        _header(lambda name, value, random: (name, _flipped(value, random)) if value else None),
    ),
    _change("a header key is changed", _header(lambda name, value, _: (name + "x", value))),
    _change("a header key changes case", _header(lambda n, v, _: (n.swapcase(), v) if n.swapcase() != n else None)),
    _change(
        "a header value is null, was empty", _header(lambda name, value, _: (name, None) if value == b"" else None)
    ),
    _change(
        "a header value is empty, was null", _header(lambda name, value, _: (name, b"") if value is None else None)
    ),
    _change("the last header is dropped", lambda r, _: r._replace(headers=r.headers[:-1]) if r.headers else None),
    _change("all headers are dropped", lambda r, _: r._replace(headers=()) if r.headers else None),
    _change("a header is added", lambda r, _: r._replace(headers=(*r.headers, ("mirrored", b"1")))),
    _change("headers are in another order", lambda r, _: r._replace(headers=r.headers[::-1])),
    _change("a repeated header stands once", _without_repeats),
    _change("a null key is empty", lambda r, _: r._replace(key=b"") if r.key is None else None),
    _change("an empty key is null", lambda r, _: r._replace(key=None) if r.key == b"" else None),
    _change("a tombstone has an empty value", lambda r, _: r._replace(value=b"") if r.value is None else None),
    _change("an empty value is a tombstone", lambda r, _: r._replace(value=None) if r.value == b"" else None),
    _change("a value is a tombstone", lambda r, _: r._replace(value=None)),
    _change("a value is cut short", lambda r, _: r._replace(value=r.value[:-1]) if r.value else None),
    _change("a value is longer", lambda r, _: r._replace(value=(r.value or b"") + b"\0")),
    _change("a value passed through text", _as_text),
    _change("a key is cut short", lambda r, _: r._replace(key=r.key[:-1]) if r.key else None),
    _change("key and value changed places", lambda r, _: r._replace(key=r.value, value=r.key)),
    Mutant("a value is its neighbour's", "I5", _neighbours_value),
    _change("a timestamp is 1 ms late", lambda r, _: r._replace(timestamp_ms=r.timestamp_ms + 1)),
    _change("a timestamp is lost", lambda r, _: r._replace(timestamp_ms=-1, timestamp_type=0)),
    _change_all("timestamps are whole seconds", lambda r, _: r._replace(timestamp_ms=r.timestamp_ms // 1000 * 1000)),
    _change_all("timestamps are those of the copying", lambda r, _: r._replace(timestamp_ms=r.timestamp_ms + 60_000)),
    Mutant("a record of another partition, or an aborted one, is among them", "I5", _foreign_inserted),
    Mutant("a record of another partition, or an aborted one, stands for one of ours", "I5", _foreign_instead),
]

MUTANTS = [*CUTS, *REORDERINGS, *AGAIN, *CHANGES]
