"""Which worker runs which task: spreads measured bytes/s over the live workers, and moves little. Pure.

Workers are *in balance* when none carries more than the mean plus the heaviest item; then nothing moves. The least
loaded worker is never above the mean, so it can take any item and stay in balance. By this rule alone a worker that
joins would often stay idle, because it lowers the mean by less than the heaviest item. So it gets items until it
carries the mean less the heaviest item, and at least one.

A bounded flow (``tasks_max``) is first divided, by the same rule, into as many tasks as it may have. Each task then
moves as a whole. So no move can make the flow run on too many workers.

Counterpart: Connect's ``IncrementalCooperativeAssignor``, which counts tasks.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from mm2py.flow import Flow


class Ordered(Protocol):
    """What keys and workers must be: hashable, and comparable among themselves."""

    def __hash__(self) -> int: ...
    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=Ordered)


NOWHERE: Final = -1


@dataclass(slots=True, eq=False)
class MovableItem(Generic[K]):
    """What moves as a whole: a piece, or a task of a bounded flow."""

    weight: int
    keys: list[K]
    home: int  # the place it is at now, if it may stay there; else NOWHERE
    at: int = NOWHERE  # the place where it is to be
    family: int | None = None  # tasks of one bounded flow: no two on one worker


def _weight(item: MovableItem[K]) -> int:
    return item.weight


@dataclass(slots=True, eq=False)
class Pool(Generic[K]):
    """Items that may be in the same places."""

    places: tuple[int, ...]
    items: list[MovableItem[K]]
    heaviest: int = 0
    held: defaultdict[int, list[MovableItem[K]]] = field(
        default_factory=lambda: defaultdict(list)
    )  # by place, lightest first


class Balance(Generic[K]):
    """Pools of items over places; ``run`` decides ``at`` of every item."""

    def __init__(self, places: int, pools: Sequence[Pool[K]]) -> None:
        self._pools = pools
        self._loads = [0] * places
        self._counts = [0] * places
        self._families: list[set[int | None]] = [set() for _ in range(places)]
        for pool in pools:
            pool.items.sort(key=_weight, reverse=True)  # stable: equals stay in the order of the caller
            pool.heaviest = pool.items[0].weight
            within = frozenset(pool.places)
            for item in pool.items:
                if item.home in within:
                    self._put(item, item.home)
                else:
                    item.home = NOWHERE
        self._joined = [place for place in range(places) if not self._counts[place]]

    def run(self, *, keeps: bool = False) -> None:
        """Decide. ``keeps``: items that have a home stay there, whatever the load of that place is."""
        for pool in self._pools:
            self._place_the_homeless(pool)
        if keeps:
            return
        for pool in self._pools:
            for item in reversed(pool.items):
                pool.held[item.at].append(item)
        to_fill = list(self._joined)
        # Ends: every move makes the sum of squared loads smaller, and no place is filled twice.
        while sum(self._relieve(pool) for pool in self._pools) or to_fill:
            if to_fill:
                self._fill(to_fill.pop(0))
        for pool in self._pools:
            self._bring_back(pool)

    def _place_the_homeless(self, pool: Pool[K]) -> None:
        """Put each item without a home on the least loaded place, the heaviest first."""
        heap = [(self._loads[place], place) for place in pool.places]
        heapq.heapify(heap)
        for item in pool.items:
            if item.home == NOWHERE:
                siblings = []
                while item.family in self._families[heap[0][1]]:
                    siblings.append(heapq.heappop(heap))
                place = heap[0][1]
                self._put(item, place)
                heapq.heapreplace(heap, (self._loads[place], place))
                for entry in siblings:
                    heapq.heappush(heap, entry)

    def _relieve(self, pool: Pool[K]) -> bool:
        """Move items from every place above the mean plus the heaviest; return whether any did."""
        moved = False
        _, most = self._band(pool)
        for donor in pool.places:
            while self._loads[donor] > most and (
                self._move_one(pool, donor, min(pool.places, key=self._loads.__getitem__))
                or any(self._move_one(pool, donor, place) for place in sorted(pool.places, key=self._loads.__getitem__))
            ):
                moved = True
        return moved

    def _fill(self, joined: int) -> None:
        """Move items to a place that had none, until it carries the mean less the heaviest item, and at least one."""
        for pool in self._pools:
            if joined in pool.places:
                least, _ = self._band(pool)
                while self._loads[joined] < max(least, 1):
                    donors = [place for place in pool.places if pool.held[place] and self._counts[place] > 1]
                    donor = max(donors, key=self._loads.__getitem__, default=joined)
                    if not self._move_one(pool, donor, joined):
                        break

    def _bring_back(self, pool: Pool[K]) -> None:
        """Undo every move that turned out needless, the lightest first. Skip a pool that shares places with another."""
        places = set(pool.places)
        if any(not places.isdisjoint(other.places) for other in self._pools if other is not pool):
            return
        least, most = self._band(pool)
        moved = [item for item in reversed(pool.items) if item.home not in (NOWHERE, item.at)]
        while needless := next((item for item in moved if self._is_needless(item, least, most)), None):
            moved.remove(needless)
            self._take(needless)
            self._put(needless, needless.home)

    def _is_needless(self, item: MovableItem[K], least: int, most: int) -> bool:
        left = self._loads[item.at] - item.weight
        return self._loads[item.home] + item.weight <= most and (item.at not in self._joined or left >= max(least, 1))

    def _band(self, pool: Pool[K]) -> tuple[int, int]:
        """Return the smallest and the largest whole load that differ from the mean by the heaviest item at most."""
        total, count = sum(self._loads[place] for place in pool.places), len(pool.places)
        return -(-total // count) - pool.heaviest, total // count + pool.heaviest

    def _move_one(self, pool: Pool[K], donor: int, receiver: int) -> bool:
        """Move the item that leaves the two loads most alike; return False if no item makes the heavier one lighter.

        No other choice needs fewer moves. The gap between the two is larger than the heaviest item and the load that
        must be moved together. So an item that is enough alone is nearer to half of the gap than one that is not.
        """
        held, siblings = pool.held[donor], self._families[receiver]
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
        insort(pool.held[receiver], item, key=_weight)
        return True

    def _put(self, item: MovableItem[K], place: int) -> None:
        item.at = place
        self._loads[place] += item.weight
        self._counts[place] += 1
        if item.family is not None:
            self._families[place].add(item.family)

    def _take(self, item: MovableItem[K]) -> None:
        self._loads[item.at] -= item.weight
        self._counts[item.at] -= 1
        self._families[item.at].discard(item.family)


IDLE_BYTES_PER_S: Final = 1024
"""The least weight of a piece: idle partitions cost fetches and positions too, so they are spread by their number."""
TOLERATED_CHANGE: Final = 1.25
"""A measured load counts as unchanged until it is this many times larger or smaller."""


W = TypeVar("W", bound=Ordered)


@dataclass(frozen=True, slots=True)
class Piece(Generic[K]):
    """What one worker runs, such as a target partition; of several flows where sources are merged into one."""

    key: K
    bytes_per_s: float
    flows: frozenset[Flow]

    @property
    def weight(self) -> int:
        """The load in the planner's sums: whole bytes/s, so that no sum depends on its order."""
        return max(IDLE_BYTES_PER_S, round(self.bytes_per_s))


def steady_load(planned_bytes_per_s: float, measured_bytes_per_s: float) -> float:
    """Return the load to plan with: the previous one, until the measured one differs clearly.

    Many small pieces leave a band of a few thousandths of the mean, and measurements wobble by more than that.
    """
    low, high = sorted(max(IDLE_BYTES_PER_S, load) for load in (planned_bytes_per_s, measured_bytes_per_s))
    return measured_bytes_per_s if high > low * TOLERATED_CHANGE else planned_bytes_per_s


def assign(
    pieces: Iterable[Piece[K]],
    workers: Mapping[W, frozenset[Flow]],
    current: Mapping[K, W],
    tasks_max: Mapping[Flow, int],
    *,
    keeps: bool = False,
) -> dict[K, W]:
    """Return which worker runs which piece; the same for the same values, in whatever order they come.

    Args:
        pieces: all work there is, each key once, each load finite and >= 0.
        workers: each live worker with the flows it may run.
        current: where pieces are now; workers that are gone and keys that are unknown do not matter.
        tasks_max: on how many workers a flow's pieces may be, >= 1; unbounded where absent. Bounded flows that are
            merged into one piece share the smallest of their bounds.
        keeps: assign only pieces without an owner; move the others only where these rules demand it, not for balance.
    Returns:
        A worker for every piece that some worker may run. A bound can be exceeded only if no single worker may run all
        flows that are merged with the bounded one: records that are not copied are worse than one task too many.
    """
    names = sorted(workers)
    ranks = {name: rank for rank, name in enumerate(names)}
    by_flows: defaultdict[frozenset[Flow], list[MovableItem[K]]] = defaultdict(list)
    for piece in sorted(pieces, key=lambda piece: piece.key):
        home = ranks.get(current[piece.key], NOWHERE) if piece.key in current else NOWHERE
        by_flows[piece.flows].append(MovableItem(piece.weight, [piece.key], home))

    places = {flows: tuple(ranks[name] for name in names if flows <= workers[name]) for flows in by_flows}
    runnable = sorted((flows for flows in by_flows if places[flows]), key=sorted)
    running = {flow: sum(flow in may_run for may_run in workers.values()) for flows in runnable for flow in flows}
    bounds = {flow: tasks_max[flow] for flow in running if flow in tasks_max and tasks_max[flow] < running[flow]}

    pools: dict[tuple[tuple[int, ...], bool], list[MovableItem[K]]] = defaultdict(list)
    for flows in runnable:
        if bounds.keys().isdisjoint(flows):
            pools[places[flows], False].extend(by_flows[flows])
    for family, (members, common, bound) in enumerate(_bounded_together(runnable, places, bounds)):
        items = [item for flows in members for item in by_flows[flows]]
        pools[common, True].extend(_tasks(items, common, bound, family, keeps=keeps))
    ordered = [Pool(common, items) for (common, _), items in sorted(pools.items(), key=_stiffness)]
    Balance(len(names), ordered).run(keeps=keeps)
    return {key: names[item.at] for items in pools.values() for item in items for key in item.keys}


def _stiffness(pool: tuple[tuple[tuple[int, ...], bool], list[MovableItem[K]]]) -> tuple[bool, int, tuple[int, ...]]:
    """Sort key: pools of whole tasks, and pools with few places, are placed first; the others fill up around them."""
    (places, whole_tasks), _ = pool
    return not whole_tasks, len(places), places


def _bounded_together(
    runnable: Sequence[frozenset[Flow]], places: Mapping[frozenset[Flow], tuple[int, ...]], bounds: Mapping[Flow, int]
) -> list[tuple[list[frozenset[Flow]], tuple[int, ...], int]]:
    """Return the kinds of pieces that share a bound: these kinds, the workers that may run them all, the bound."""
    merged: list[set[Flow]] = []
    for flows in runnable:
        if bounded := flows & bounds.keys():
            touched = [others for others in merged if others & bounded]
            merged = [others for others in merged if not others & bounded] + [set(bounded).union(*touched)]
    together = []
    for flows_merged in merged:
        bound = min(bounds[flow] for flow in flows_merged)
        kinds = [flows for flows in runnable if flows & flows_merged]
        while kinds:  # once, unless no worker may run all of them
            widest = max(sorted(places[kinds[0]]), key=lambda place: sum(place in places[flows] for flows in kinds))
            chosen = [flows for flows in kinds if widest in places[flows]]
            kinds = [flows for flows in kinds if widest not in places[flows]]
            common = tuple(sorted(set.intersection(*(set(places[flows]) for flows in chosen))))
            together.append((chosen, common, max(1, bound - len(kinds))))
            bound -= together[-1][2]
    return together


def _tasks(
    items: list[MovableItem[K]], places: tuple[int, ...], bound: int, family: int, *, keeps: bool
) -> list[MovableItem[K]]:
    """Divide a bounded flow's pieces into its tasks. A task is what one worker runs of the flow now, or a new one."""
    held: defaultdict[int, int] = defaultdict(int)
    for item in items:
        if item.home in places:
            held[item.home] += item.weight
    holders = sorted(held, key=lambda place: (-held[place], place))
    homes = (holders + [NOWHERE] * bound)[: min(bound, len(places))]
    numbers = {home: number for number, home in enumerate(homes) if home != NOWHERE}
    for item in items:
        item.home = numbers.get(item.home, NOWHERE)
    Balance(len(homes), [Pool(tuple(range(len(homes))), items)]).run(keeps=keeps)
    tasks = [MovableItem[K](0, [], home, family=family) for home in homes]
    for item in items:
        tasks[item.at].weight += item.weight
        tasks[item.at].keys += item.keys
    return [task for task in tasks if task.keys]
