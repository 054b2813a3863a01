"""Spreads weighted items over places, and moves as little as it can. Pure; what is spread it does not know.

Places are *in balance* when none carries more than the mean plus the heaviest item. Then nothing moves: that band is
the hysteresis. The least loaded place is never above the mean, so it can take any item and stay in the band; that is
why one look at every overloaded place is enough, and why no place is relieved into another's overload.

A place that comes with nothing would be left idle by that rule alone (it lowers the mean, often by less than the
heaviest item): it gets items until it carries the mean less the heaviest item, and one in any case.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

K = TypeVar("K")

NOWHERE: Final = -1


@dataclass(slots=True, eq=False)
class Item(Generic[K]):
    """What moves as a whole: a piece, or a task of a bounded flow."""

    weight: int
    keys: list[K]
    home: int  # the place it is at now, if it may stay there; else NOWHERE
    at: int = NOWHERE  # the place it shall be at
    family: int | None = None  # tasks of one bounded flow: no two on one worker


def _weight(item: Item[K]) -> int:
    return item.weight


@dataclass(slots=True, eq=False)
class Group(Generic[K]):
    """Items that may be in the same places."""

    places: tuple[int, ...]
    items: list[Item[K]]
    heaviest: int = 0
    held: defaultdict[int, list[Item[K]]] = field(default_factory=lambda: defaultdict(list))  # by place, lightest first


class Balance(Generic[K]):
    """Groups of items over places; ``run`` decides ``at`` of every item."""

    def __init__(self, places: int, groups: Sequence[Group[K]]) -> None:
        self._groups = groups
        self._loads = [0] * places
        self._counts = [0] * places
        self._families: list[set[int | None]] = [set() for _ in range(places)]
        for group in groups:
            group.items.sort(key=_weight, reverse=True)  # stable: equals stay in the order of the caller
            group.heaviest = group.items[0].weight
            within = frozenset(group.places)
            for item in group.items:
                if item.home in within:
                    self._put(item, item.home)
                else:
                    item.home = NOWHERE
        self._joined = [place for place in range(places) if not self._counts[place]]

    def run(self, *, keeps: bool = False) -> None:
        """Decide. ``keeps``: items that have a home stay there, whatever it carries."""
        for group in self._groups:
            self._place_the_homeless(group)
        if keeps:
            return
        for group in self._groups:
            for item in reversed(group.items):
                group.held[item.at].append(item)
        to_fill = list(self._joined)
        # Ends: every move makes the sum of squared loads smaller, and nobody is filled twice.
        while sum(self._relieve(group) for group in self._groups) or to_fill:
            if to_fill:
                self._fill(to_fill.pop(0))
        for group in self._groups:
            self._bring_back(group)

    def _place_the_homeless(self, group: Group[K]) -> None:
        """Heaviest first, each to the least loaded place."""
        heap = [(self._loads[place], place) for place in group.places]
        heapq.heapify(heap)
        for item in group.items:
            if item.home == NOWHERE:
                siblings = []
                while item.family in self._families[heap[0][1]]:
                    siblings.append(heapq.heappop(heap))
                place = heap[0][1]
                self._put(item, place)
                heapq.heapreplace(heap, (self._loads[place], place))
                for entry in siblings:
                    heapq.heappush(heap, entry)

    def _relieve(self, group: Group[K]) -> bool:
        """Move items from every place above the mean plus the heaviest; return whether any did."""
        moved = False
        _, most = self._band(group)
        for donor in group.places:
            while self._loads[donor] > most and (
                self._move_one(group, donor, min(group.places, key=self._loads.__getitem__))
                or any(
                    self._move_one(group, donor, place) for place in sorted(group.places, key=self._loads.__getitem__)
                )
            ):
                moved = True
        return moved

    def _fill(self, joined: int) -> None:
        """Move items to a place that had nothing until it has the mean less the heaviest, and one in any case."""
        for group in self._groups:
            if joined in group.places:
                least, _ = self._band(group)
                while self._loads[joined] < max(least, 1):
                    donors = [place for place in group.places if group.held[place] and self._counts[place] > 1]
                    donor = max(donors, key=self._loads.__getitem__, default=joined)
                    if not self._move_one(group, donor, joined):
                        break

    def _bring_back(self, group: Group[K]) -> None:
        """Undo every move that turned out needless, the lightest first; where other groups interfere, leave it."""
        places = set(group.places)
        if any(not places.isdisjoint(other.places) for other in self._groups if other is not group):
            return
        least, most = self._band(group)
        moved = [item for item in reversed(group.items) if item.home not in (NOWHERE, item.at)]
        while needless := next((item for item in moved if self._is_needless(item, least, most)), None):
            moved.remove(needless)
            self._take(needless)
            self._put(needless, needless.home)

    def _is_needless(self, item: Item[K], least: int, most: int) -> bool:
        left = self._loads[item.at] - item.weight
        return self._loads[item.home] + item.weight <= most and (item.at not in self._joined or left >= max(least, 1))

    def _band(self, group: Group[K]) -> tuple[int, int]:
        """Return the least whole load and the most that are at most the heaviest item away from the mean."""
        total, count = sum(self._loads[place] for place in group.places), len(group.places)
        return -(-total // count) - group.heaviest, total // count + group.heaviest

    def _move_one(self, group: Group[K], donor: int, receiver: int) -> bool:
        """Move the item that leaves the two most alike; return False if none would make the heavier of them lighter.

        No other choice needs fewer moves: the two are further apart than the heaviest item and what must be moved, so
        an item that is enough alone is nearer to half of the gap than one that is not.
        """
        held, siblings = group.held[donor], self._families[receiver]
        free = [item for item in held if item.family not in siblings] if siblings else held
        gap = self._loads[donor] - self._loads[receiver]
        heaviest = bisect_left(free, gap, key=_weight) - 1
        if heaviest < 0:
            return False
        half = bisect_left(free, gap / 2, hi=heaviest, key=_weight)
        chosen = min(max(0, half - 1), half, key=lambda index: abs(gap - 2 * free[index].weight))
        item = free.pop(chosen)
        if siblings:
            held.remove(item)
        self._take(item)
        self._put(item, receiver)
        insort(group.held[receiver], item, key=_weight)
        return True

    def _put(self, item: Item[K], place: int) -> None:
        item.at = place
        self._loads[place] += item.weight
        self._counts[place] += 1
        if item.family is not None:
            self._families[place].add(item.family)

    def _take(self, item: Item[K]) -> None:
        self._loads[item.at] -= item.weight
        self._counts[item.at] -= 1
        self._families[item.at].discard(item.family)
