"""Compacted topics: judged against everything that was sent, because both cleaners may have removed records since.

The history is the ledger of acknowledged sends together with the source dump, by source offset. A legal target is then:

* made of records of the history (I5), in its order (I2), except for allowed rewinds (I3);
* complete for each key: the last record of the key on the target is the last one that was sent. If it is a tombstone,
  the key may be absent, but an older value must not have survived its delete (I1);
* complete where nothing was cleaned: a record that the source still has may be missing only at a hole of the target's
  offsets that is wide enough for it. A cleaner leaves holes; a copier that skipped a record leaves none (I1).

No dump can show a record that was superseded, was never copied, and is where the target's cleaner has worked. If
rewinds are allowed, a cleaned target may also hide that superseded records changed places. The last record of each key
is judged in any case.

Equal records of one key are assigned from the end: each target record is the copy of the latest equal record of the
history before the record of the next one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from tests.checker.dumped import Dumped, Sent, digest, sent
from tests.checker.verdict import Rewind, Verdict

LOOKBACK = 1_000
"""How many target records are searched backwards for a unique one."""


def judge_compacted(
    source: Sequence[Dumped],
    target: Sequence[Dumped],
    verdict: Verdict,
    *,
    ledger: Sequence[Sent],
    source_start: int,
    target_end: int | None,
    exact: bool,
) -> None:
    """Judge a compacted partition and add the findings to ``verdict``; the caller judges the number of rewinds.

    Args:
        exact: no rewind is allowed, so compaction cannot excuse a record that comes after its successor.
    """
    verdict.source_records, verdict.target_records = len(source), len(target)
    history = _history(source, ledger, verdict)
    stood_for = assign(target, history)
    for record, place in zip(target, stood_for, strict=True):
        if place is None:
            verdict.add(
                "I5", "no record with these bytes was sent here", source_offset=None, target_offset=record.offset
            )
    copies = [(record, place) for record, place in zip(target, stood_for, strict=True) if place is not None]
    _judge_order(copies, history, verdict, exact=exact)
    in_source = {record.offset for record in source}
    copied = {place for _, place in copies}
    known = [place for place, entry in enumerate(history) if entry.offset in in_source or place in copied]
    _judge_holes(copies, history, known, verdict, target_end=target_end, exact=exact)
    _judge_last_of_each_key(copies, history, verdict, source_start=source_start)


def _history(source: Sequence[Dumped], ledger: Sequence[Sent], verdict: Verdict) -> list[Sent]:
    """Return all sent records, ascending by source offset."""
    history = {entry.offset: entry for entry in ledger}
    for record in source:
        entry = sent(record)
        known = history.setdefault(record.offset, entry)
        if known.digest != entry.digest:
            verdict.add(
                "A",
                "the source holds other bytes than it acknowledged",
                source_offset=record.offset,
                target_offset=None,
            )
            history[record.offset] = entry
    return [history[offset] for offset in sorted(history)]


def assign(target: Sequence[Dumped], history: Sequence[Sent]) -> list[int | None]:
    """Return for each target record its place in the history, None if it has none."""
    places: dict[bytes, list[int]] = {}
    for place, entry in enumerate(history):
        places.setdefault(entry.digest, []).append(place)
    candidates = [places.get(digest(record)) for record in target]
    assigned: list[int | None] = [None] * len(target)
    before = len(history)
    for index in range(len(target) - 1, -1, -1):
        if (here := candidates[index]) is None:
            continue
        lower = bisect_left(here, before)
        before = here[lower - 1] if lower else _end_of_run(candidates, index)
        assigned[index] = before
    return assigned


def _end_of_run(candidates: Sequence[list[int] | None], index: int) -> int:
    """Return the place of the record after which the target goes back: the nearest after the record before it.

    A run may have ended anywhere, so the latest of equal records is no better guess here; it may be beyond the copied
    part.
    """
    here = candidates[index]
    assert here is not None
    first = index
    while first > max(0, index - LOOKBACK) and len(candidates[first] or ()) != 1:
        first -= 1
    place = -1
    for one in candidates[first : index + 1]:
        if one is not None:
            lower = bisect_right(one, place)
            if lower == len(one):
                return here[-1]
            place = one[lower]
    return place


def _judge_order(
    copies: Sequence[tuple[Dumped, int]], history: Sequence[Sent], verdict: Verdict, *, exact: bool
) -> None:
    """Collect the rewinds. In exact mode, a record that goes back and is no repeat is out of order."""
    seen: set[int] = set()
    highest = previous = -1
    for record, place in copies:
        if place in seen:
            verdict.repeated_records += 1
        elif exact and place < highest:
            verdict.add(
                "I2",
                "arrived late: the target showed later source records first",
                source_offset=history[place].offset,
                target_offset=record.offset,
            )
        if place <= previous and (place in seen or not exact):
            verdict.rewinds.append(Rewind(history[place].offset, record.offset, highest + 1 - place))
        seen.add(place)
        highest, previous = max(highest, place), place


def _judge_holes(
    copies: Sequence[tuple[Dumped, int]],
    history: Sequence[Sent],
    known: Sequence[int],
    verdict: Verdict,
    *,
    target_end: int | None,
    exact: bool,
) -> None:
    """Compare the records that the target skips with the room that its cleaner left.

    Args:
        known: the places of the records that the source or the target still has.
        exact: the room for a record must be right where it is skipped. Else a run may start after records whose first
            copies were earlier in the target and were compacted: all room so far counts, but only once.
    """
    copied = {place for _, place in copies}
    seen: set[int] = set()
    shown: set[bytes] = set()
    room = 0
    for (offset, place), (next_offset, next_place) in _neighbours(copies, len(history), target_end):
        room = next_offset - offset - 1 + (0 if exact else room)
        seen.add(place)
        passed = known[bisect_left(known, place + 1) : bisect_left(known, next_place)]
        missing = [place for place in passed if place not in seen]
        if not exact:  # then it is not known which of equal records came first
            shown.update(history[here].digest for here in (place, next_place) if 0 <= here < len(history))
            equals = {history[place].digest: place for place in missing if place in copied}
            missing = [place for place in missing if place not in copied]
            missing += [place for equal, place in equals.items() if equal not in shown]
        seen.update(missing)
        if len(missing) <= room:
            room -= len(missing)
            continue
        lost = [place for place in missing if place not in copied]
        if lost:
            verdict.add(
                "I1",
                f"{len(lost)} records that the source still has are not in the target, and nothing was cleaned there",
                source_offset=history[lost[0]].offset,
                target_offset=next_offset,
                times=len(lost),
            )
        if len(lost) < len(missing):
            late = next(place for place in missing if place in copied)
            verdict.add(
                "I2",
                f"{len(missing) - len(lost)} records were passed over here and came later",
                source_offset=history[late].offset,
                target_offset=next_offset,
                times=len(missing) - len(lost),
            )


def _neighbours(
    copies: Sequence[tuple[Dumped, int]], history_end: int, target_end: int | None
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield (target offset, place) of each copy and of the next one, including both ends of the log."""
    before = (-1, -1)
    for record, place in copies:
        yield before, (record.offset, place)
        before = (record.offset, place)
    yield before, (before[0] + 1 if target_end is None else target_end, history_end)


def _judge_last_of_each_key(
    copies: Sequence[tuple[Dumped, int]], history: Sequence[Sent], verdict: Verdict, *, source_start: int
) -> None:
    """Compare the last record of each key in the target with the last one sent."""
    last_sent = {entry.key: place for place, entry in enumerate(history) if not entry.is_aborted}
    last_shown = {history[place].key: (place, record.offset) for record, place in copies}
    copied = {place for _, place in copies}
    for key, place in last_sent.items():
        entry = history[place]
        shown, target_offset = last_shown.get(key, (None, None))
        if key is None or entry.offset < source_start:
            continue
        if shown is not None and (shown >= place or history[shown].digest == entry.digest):
            continue
        if shown is None and entry.is_tombstone:
            continue  # compacted away on both sides, as it should be in the end
        if place in copied:
            verdict.add(
                "I2",
                "the last record of its key is followed by an older one",
                source_offset=entry.offset,
                target_offset=target_offset,
            )
        else:
            verdict.add(
                "I1",
                "the delete of this key is not in the target, an older value is"
                if entry.is_tombstone
                else "the last record of its key is not in the target",
                source_offset=entry.offset,
                target_offset=target_offset,
            )
