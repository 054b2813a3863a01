"""The alignment: which source record each target record is a copy of, by content alone.

A legal copy C of B splits into runs. A run is a contiguous stretch of B; it starts at or before the *frontier*, the
first record of B that C has not shown yet. Content need not be unique: a topic may have a million equal records. So the
alignment follows every explanation that may still be the one with the fewest runs, as a small set of states (runs
begun, frontier, places). Each place is an index in B: the last target record may be the copy of the record there.
A dropped state can never win:

* A state with more runs needs a greater frontier than every state with fewer. Otherwise the better state may at any
  moment start a run where the worse one continues. It then has as many runs, and its frontier is not behind.
* At the frontier, a state that continues there beats all states with as many runs or more, for the same reason.

Hence the greatest frontier is always kept, and a record is unexplained only if no split into runs explains it. With
unique content there is one state with one place, and a step costs one comparison and one digest.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from tests.checker.dumped import Dumped, digest
from tests.checker.verdict import Rewind

LOOKAHEAD = 100_000
"""The number of source records searched for a record that came early. They are in memory, but only after a breach."""
MAX_PLACES = 1_024
MAX_STATES = 64
"""If there are more, explanations are dropped: then more rewinds may be counted than the fewest possible, never fewer.
"""


class _Pending:
    """The source records that the target has not reached. Only the first is in memory; more after a lookahead."""

    def __init__(self, source: Iterable[Dumped]) -> None:
        self._source = iter(source)
        self._records: deque[Dumped] = deque()
        self._indexes: dict[bytes, deque[int]] = {}
        self._popped = 0
        self._indexed = 0
        self.read = 0
        self.head: Dumped | None = self._pull()
        self._head_digest: bytes | None = None

    def _pull(self) -> Dumped | None:
        record = next(self._source, None)
        self.read += record is not None
        return record

    def pop(self) -> None:
        """Skip the first record."""
        self._popped += 1
        self._head_digest = None
        self.head = self._records.popleft() if self._records else self._pull()

    def head_digest(self) -> bytes | None:
        if self._head_digest is None and self.head is not None:
            self._head_digest = digest(self.head)
        return self._head_digest

    def distance(self, wanted: bytes) -> int | None:
        """Return how many records are before the next one of this digest; None: there is none in the lookahead."""
        if self.head is None:
            return None
        while len(self._records) < LOOKAHEAD and (record := self._pull()) is not None:
            self._records.append(record)
        for index in range(max(self._indexed, self._popped), self._popped + 1 + len(self._records)):
            behind = index - self._popped
            record = self._records[behind - 1] if behind else self.head
            self._indexes.setdefault(digest(record), deque()).append(index)
            self._indexed = index + 1
        indexes = self._indexes.get(wanted, deque())
        while indexes and indexes[0] < self._popped:
            indexes.popleft()
        return indexes[0] - self._popped if indexes else None


class _Trail(NamedTuple):
    rewind: Rewind
    before: _Trail | None


class _State(NamedTuple):
    runs: int
    frontier: int
    places: list[int]
    begun: int
    """The target record with which the present run started."""
    frontier_then: int
    trail: _Trail | None
    """The rewinds before the present run."""


class Alignment:
    """Takes the target records one by one. Explains each as the next of a run, or reports that this is impossible."""

    def __init__(self, source: Iterable[Dumped]) -> None:
        self.pending = _Pending(source)
        self._history: list[bytes] = []
        self._source_offsets = array("q")
        self._target_offsets = array("q")
        self._places_of: dict[bytes, list[int]] | None = None
        self._states = [_State(0, 0, [-1], 0, 0, None)]
        self._shown = 0

    @property
    def repeated(self) -> int:
        """The number of target records that repeat earlier ones: the same in every explanation."""
        return len(self._target_offsets) - self._shown

    @property
    def frontier(self) -> int:
        """The number of source records that the target has shown or skipped."""
        return len(self._history)

    def accepts(self, record: Dumped) -> bool:
        """Take the next target record. Returns False, with nothing changed, if no split into runs explains it."""
        state, head = self._states[0], self.pending.head
        at_frontier = len(self._states) == 1 and len(state.places) == 1 and state.places[0] == self.frontier - 1
        if at_frontier and head is not None and head.content == record.content:
            self._states[0] = state._replace(frontier=self.frontier + 1, places=[self.frontier])
            self._reach(head)
        else:
            states = self._after(digest(record))
            if not states:
                return False
            self._states = states
            if states[0].frontier > self.frontier:
                assert head is not None
                self._reach(head)
        self._target_offsets.append(record.offset)
        return True

    def go_past_head(self, *, target_offset: int | None) -> None:
        """Skip the source's next record; ``target_offset``: of a changed record in its place, if there is one."""
        assert self.pending.head is not None
        best = self._best()
        if self.frontier - 1 not in best.places:
            best = self._new_run(best, [self.frontier], at_frontier=True)
        self._states = [best._replace(frontier=self.frontier + 1, places=[self.frontier])]
        self._reach(self.pending.head)
        if target_offset is None:
            self._shown -= 1
        else:
            self._target_offsets.append(target_offset)

    def rewinds(self) -> list[Rewind]:
        """Return the rewinds of the explanation with the fewest runs, in the order of the target."""
        trail = self._closed(self._best())
        found: list[Rewind] = []
        while trail is not None:
            found.append(trail.rewind)
            trail = trail.before
        return found[::-1]

    def _best(self) -> _State:
        return min(self._states, key=lambda state: (-state.frontier, state.runs))

    def _reach(self, head: Dumped) -> None:
        reached = self.pending.head_digest()
        assert reached is not None
        if self._places_of is not None:
            self._places_of.setdefault(reached, []).append(self.frontier)
        self._shown += 1
        self._history.append(reached)
        self._source_offsets.append(head.offset)
        self.pending.pop()

    def _after(self, wanted: bytes) -> list[_State]:
        """Return the states after one more target record of this digest, the greatest frontier first."""
        head_digest = self.pending.head_digest()
        found: list[_State] = []
        may_advance: list[bool] = []
        for state in self._states:
            going_on = [
                place + 1 for place in state.places if place + 1 < state.frontier and self._history[place + 1] == wanted
            ]
            if going_on:
                found.append(state._replace(places=going_on))
            next_digest = self._history[state.frontier] if state.frontier < self.frontier else head_digest
            may_advance.append(next_digest == wanted)
            if may_advance[-1] and state.frontier - 1 in state.places:
                found.append(state._replace(frontier=state.frontier + 1, places=[state.frontier]))
        for state, advances in zip(self._states, may_advance, strict=True):
            if advances and state.frontier - 1 not in state.places:
                found.append(self._new_run(state, [state.frontier], at_frontier=True))
            beaten = any(other.runs <= state.runs and other.frontier >= state.frontier for other in found)
            if not beaten and (places := self._seen_at(wanted, before=state.frontier)):
                found.append(self._new_run(state, places, at_frontier=False))
        return _worth_keeping(found)

    def _new_run(self, state: _State, places: list[int], *, at_frontier: bool) -> _State:
        return _State(
            runs=state.runs + 1,
            frontier=state.frontier + at_frontier,
            places=places,
            begun=len(self._target_offsets),
            frontier_then=state.frontier,
            trail=self._closed(state),
        )

    def _closed(self, state: _State) -> _Trail | None:
        """Return the trail with the present run, which starts at the latest of its possible places."""
        if state.runs == 0:
            return None
        length = len(self._target_offsets) - state.begun
        start = max(state.places) - length + 1
        # A run with a changed record in it has no place for that record; then its start is only approximate.
        start = min(max(start, 0), state.frontier_then)
        rewind = Rewind(self._source_offsets[start], self._target_offsets[state.begun], state.frontier_then - start)
        return _Trail(rewind, state.trail)

    def _seen_at(self, wanted: bytes, *, before: int) -> list[int]:
        """Return the places of a digest before an index, ascending. If there are too many: a sample, and the latest."""
        if self._places_of is None:
            self._places_of = {}
            for index, seen in enumerate(self._history):
                self._places_of.setdefault(seen, []).append(index)
        places = self._places_of.get(wanted, [])
        end = bisect_left(places, before)
        if end <= MAX_PLACES:
            return places[:end]
        early = end - MAX_PLACES // 2
        return places[: early : early // (MAX_PLACES // 2) + 1] + places[early:end]


def _worth_keeping(states: list[_State]) -> list[_State]:
    kept: list[_State] = []
    taken: dict[tuple[int, int], set[int]] = {}
    greatest = -1
    of_fewer_runs = -1
    runs = -1
    for state in sorted(states, key=lambda state: (state.runs, -state.frontier)):
        if state.runs > runs:
            runs, of_fewer_runs = state.runs, greatest
        if state.frontier <= of_fewer_runs:
            continue
        greatest = max(greatest, state.frontier)
        known = taken.setdefault((state.runs, state.frontier), set())
        places = [place for place in state.places if place not in known]
        if places:
            known.update(places)
            kept.append(state._replace(places=places))
    kept.sort(key=lambda state: (-state.frontier, state.runs))
    return kept[:MAX_STATES]
