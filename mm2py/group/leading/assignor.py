"""Who runs what: spreads pieces of work over the live workers, and moves few of them. Pure.

In MirrorMaker 2 this is Connect's ``IncrementalCooperativeAssignor``; it counts tasks, here measured bytes/s weigh.
When a worker carries too much or too little, and which piece then moves, says ``worker/balance.py``.

A bounded flow (``tasks_max``) is first dealt, by the same rule, into as many tasks as it may have; these then take part
as wholes. So a flow of one task moves whole, and no move can open a worker too many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from mm2py.flow import Flow
from mm2py.group.leading.balance import NOWHERE, Balance, Group, Item

IDLE_BYTES_PER_S: Final = 1024
"""What any piece weighs at least: idle partitions cost fetches and positions too, and so spread by count."""
TOLERATED_CHANGE: Final = 1.25
"""A measured load counts as unchanged until it is this many times larger or smaller."""


class Ordered(Protocol):
    """What keys and workers must be: hashable, and comparable among themselves."""

    def __hash__(self) -> int: ...
    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=Ordered)
W = TypeVar("W", bound=Ordered)


@dataclass(frozen=True, slots=True)
class Piece(Generic[K]):
    """What one worker runs alone, such as a target partition; several flows where sources are merged into one."""

    key: K
    bytes_per_s: float
    flows: frozenset[Flow]

    @property
    def weight(self) -> int:
        """What the planner reckons with: whole bytes/s, so that no sum depends on its order."""
        return max(IDLE_BYTES_PER_S, round(self.bytes_per_s))


def steady_load(planned_bytes_per_s: float, measured_bytes_per_s: float) -> float:
    """Return the load to plan with: the one planned with before, until the measured one is clearly another.

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
        tasks_max: on how many workers a flow's pieces may sit, >= 1; unbounded where absent. Bounded flows that are
            merged into one piece share the smallest of their bounds.
        keeps: give away only what nobody runs, and move the rest only where these rules want it, not for balance.
    Returns:
        A worker for every piece that some worker may run. Only where no single worker may run all flows that are
        merged with a bounded one can its bound be exceeded: records not copied are worse than a task too many.
    """
    names = sorted(workers)
    ranks = {name: rank for rank, name in enumerate(names)}
    by_flows: defaultdict[frozenset[Flow], list[Item[K]]] = defaultdict(list)
    for piece in sorted(pieces, key=lambda piece: piece.key):
        home = ranks.get(current[piece.key], NOWHERE) if piece.key in current else NOWHERE
        by_flows[piece.flows].append(Item(piece.weight, [piece.key], home))

    places = {flows: tuple(ranks[name] for name in names if flows <= workers[name]) for flows in by_flows}
    runnable = sorted((flows for flows in by_flows if places[flows]), key=sorted)
    running = {flow: sum(flow in may_run for may_run in workers.values()) for flows in runnable for flow in flows}
    bounds = {flow: tasks_max[flow] for flow in running if flow in tasks_max and tasks_max[flow] < running[flow]}

    groups: dict[tuple[tuple[int, ...], bool], list[Item[K]]] = defaultdict(list)
    for flows in runnable:
        if bounds.keys().isdisjoint(flows):
            groups[places[flows], False].extend(by_flows[flows])
    for family, (members, common, bound) in enumerate(_bounded_together(runnable, places, bounds)):
        items = [item for flows in members for item in by_flows[flows]]
        groups[common, True].extend(_tasks(items, common, bound, family, keeps=keeps))
    ordered = [Group(common, items) for (common, _), items in sorted(groups.items(), key=_stiffness)]
    Balance(len(names), ordered).run(keeps=keeps)
    return {key: names[item.at] for items in groups.values() for item in items for key in item.keys}


def _stiffness(group: tuple[tuple[tuple[int, ...], bool], list[Item[K]]]) -> tuple[bool, int, tuple[int, ...]]:
    """Orders groups: what is coarse or has little choice is placed first, the rest then fills up around it."""
    (places, whole_tasks), _ = group
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


def _tasks(items: list[Item[K]], places: tuple[int, ...], bound: int, family: int, *, keeps: bool) -> list[Item[K]]:
    """Deal a bounded flow's pieces into its tasks; a task is what one worker runs of it now, or new."""
    held: defaultdict[int, int] = defaultdict(int)
    for item in items:
        if item.home in places:
            held[item.home] += item.weight
    holders = sorted(held, key=lambda place: (-held[place], place))
    homes = (holders + [NOWHERE] * bound)[: min(bound, len(places))]
    numbers = {home: number for number, home in enumerate(homes) if home != NOWHERE}
    for item in items:
        item.home = numbers.get(item.home, NOWHERE)
    Balance(len(homes), [Group(tuple(range(len(homes))), items)]).run(keeps=keeps)
    tasks = [Item[K](0, [], home, family=family) for home in homes]
    for item in items:
        tasks[item.at].weight += item.weight
        tasks[item.at].keys += item.keys
    return [task for task in tasks if task.keys]
