"""What a member decides: to claim leadership; as leader to evict, fence, assign and write snapshots. Pure.

A decision is only written to the control log. The rules of ``membership.py`` say whether it counts at the offset that
it gets there.

Counterpart: what the leader of Connect's group does (performTaskAssignment).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mm2py.flow import Flow, Kind
from mm2py.group.assignor import Piece, assign, steady_load
from mm2py.group.election.backend import CandidateState
from mm2py.group.membership import GroupState
from mm2py.group.state_snapshot import snapshot_text
from mm2py.records.control_codec import encode
from mm2py.records.control_record import (
    UNASSIGNED,
    Assigned,
    Claim,
    ControlRecord,
    Evicted,
    Joined,
    MemberId,
    Resigned,
    Snapshot,
    TaskName,
    Writer,
)

SNAPSHOT_EVERY_MS: Final = 60_000
BALANCE_EVERY_MS: Final = 60_000
"""How often measured loads may move tasks between members that were there before. Both times are in log time."""
PART_BYTES_MOST: Final = 512 * 1024
"""The size of one record at most. A topic's ``max.message.bytes`` is 1 MiB unless an operator lowered it."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What the leader's last assignment was made from. The leader loop keeps it; another leader does not need it."""

    leader_epoch: int
    changes: int
    """``GroupState.plan_changes`` at that time."""
    generation: int
    """The generation that the view reaches if the assignment counted."""
    members: frozenset[MemberId]
    """The members that got tasks in it."""
    balanced_ms: int
    """When ``loads`` were taken."""
    keeps: bool = False
    """Nothing has been balanced by ``loads`` yet: until then only tasks without an owner are assigned."""
    loads: Mapping[TaskName, float] = field(default_factory=dict, repr=False)
    """By bundle; see ``steady_load``."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What a member knows in addition to the log."""

    joined: Joined
    """The description of the member that the group is to have."""
    random_id: str
    """A new one each time, for a claim or a snapshot."""
    candidate: CandidateState = CandidateState.MAY_LEAD
    """What the election backend lets it do now."""
    evidence: str = ""
    """Why it may lead."""
    fencing: frozenset[MemberId] = frozenset()
    """Members that it is fencing already."""
    plan: Planned | None = None
    """The last one that ``decide`` returned."""
    bundle_of: Callable[[TaskName], TaskName] = lambda task: task
    """Returns one task that represents all tasks with a common owner: those that are copied to one remote partition."""


@dataclass(frozen=True, slots=True)
class Append:
    """Write this to the control log."""

    record: ControlRecord


@dataclass(frozen=True, slots=True)
class FenceMember:
    """Fence a member in the internal topics of its flows, and append ``Fenced`` when that is proven."""

    member: MemberId
    writers: Mapping[int, Writer]


Action = Append | FenceMember | Planned


def decide(view: GroupState, me: MemberId, now: Situation) -> list[Action]:
    """Return what to do, in this order; nothing if this worker is no member.

    Ask again when the returned records have been read back, or could not be appended: until then the answer is the
    same. An assignment of 50,000 tasks takes up to a second.
    """
    member = view.members.get(me)
    if member is None:
        return []
    actions: list[Action] = []
    if member.joined != now.joined:
        # The description has changed, or a late duplicate of an older one has been read.
        actions.append(Append(now.joined))
    if view.leader != me:
        if now.candidate is CandidateState.MAY_LEAD and view.can_be_claimed():
            actions.append(Append(Claim(me, view.leader_epoch + 1, now.random_id, now.evidence)))
    elif now.candidate is CandidateState.LOST:
        actions.append(Append(Resigned(me, view.leader_epoch)))
    elif now.candidate is CandidateState.MAY_LEAD:
        actions += _lead(view, me, now)
    return actions


def _lead(view: GroupState, me: MemberId, now: Situation) -> list[Action]:
    actions: list[Action] = [
        FenceMember(dead, writers) for dead, writers in view.to_fence.items() if dead not in now.fencing
    ]
    if expired := [name for name in view.members if name != me and view.is_expired(name)]:
        # Their tasks are assigned once they are evicted: a moment later.
        return [*actions, *(Append(Evicted(me, view.leader_epoch, name)) for name in expired)]
    if _is_plan_due(view, now.plan):
        actions += _plan(view, me, now)
    if view.snapshot_ms is None or view.log_time_ms - view.snapshot_ms >= SNAPSHOT_EVERY_MS:
        actions += map(Append, _snapshot(view, me, now.random_id))
    return actions


def _is_plan_due(view: GroupState, last: Planned | None) -> bool:
    return (
        last is None
        or last.leader_epoch != view.leader_epoch
        or last.changes != view.plan_changes
        or last.generation > view.generation  # the last assignment did not count
        or _is_balance_due(view, last)
    )


def _is_balance_due(view: GroupState, last: Planned) -> bool:
    """Whether to assign by the loads measured now: because a member joined, or it is time.

    The story: w1, w2 and w3 start with equal numbers of tasks, and measure loads for some seconds. w3 is killed. If its
    tasks were assigned by the new loads, other tasks would move between w1 and w2 in the same moment, and pause.
    """
    return not view.members.keys() <= last.members or view.log_time_ms - last.balanced_ms >= BALANCE_EVERY_MS


def _plan(view: GroupState, me: MemberId, now: Situation) -> list[Action]:
    """Return the tasks that change their owner, and what the next plan needs of this one."""
    bundles: defaultdict[TaskName, list[TaskName]] = defaultdict(list)
    for task in view.tasks():
        bundles[now.bundle_of(task)].append(task)
    last = now.plan if now.plan is not None and now.plan.leader_epoch == view.leader_epoch else None
    balances = last is None or _is_balance_due(view, last)
    # A previous leader has balanced, by loads that this leader does not know.
    keeps = bool(view.owners) if last is None else last.keeps and not balances
    loads = {}
    for bundle, tasks in bundles.items():
        measured = float(sum(view.loads.get(task, 0) for task in tasks))
        before = measured if last is None else last.loads.get(bundle, measured)
        loads[bundle] = steady_load(before, measured) if balances else before
    owners = _assign(view, bundles, loads, keeps=keeps)
    moves = {task: UNASSIGNED for task, owned in view.owners.items() if owned.member and not view.is_wanted(task)}
    for bundle, tasks in bundles.items():
        to = owners.get(bundle, UNASSIGNED)
        moves.update({task: to for task in tasks if (view.owner(task) or UNASSIGNED) != to})
    published = _in_parts(view, me, moves) if moves else []
    plan = Planned(
        view.leader_epoch,
        view.plan_changes,
        view.generation + bool(moves),
        frozenset(name for name in view.members if not keeps or view.owned_by(name)),
        view.log_time_ms if balances or last is None else last.balanced_ms,
        keeps,
        loads,
    )
    return [*map(Append, published), plan]


def _assign(
    view: GroupState, bundles: Mapping[TaskName, list[TaskName]], loads: Mapping[TaskName, float], *, keeps: bool
) -> dict[TaskName, MemberId]:
    """Return the owner of each bundle. Undivided tasks are assigned separately, and each kind by the number of tasks:
    they copy no records, and heartbeats are emitted also by workers that do not copy the flow."""
    tasks_max: dict[Flow, int] = {}
    for member in view.members.values():
        for flow, most in member.joined.tasks_max.items():
            tasks_max[flow] = min(most, tasks_max.get(flow, most))  # where files differ, the strictest one
    current: dict[TaskName, MemberId] = {}
    pieces: defaultdict[Kind, list[Piece[TaskName]]] = defaultdict(list)
    for bundle, tasks in bundles.items():
        homes = [home for task in tasks if (home := view.owner(task)) is not None]
        if homes:
            current[bundle] = homes[0]
        flows = frozenset(task.flow for task in tasks)
        pieces[bundle.kind].append(Piece(bundle, loads[bundle], flows))
    copying = {name: frozenset(member.joined.flows) for name, member in view.members.items()}
    owners = assign(pieces.pop(Kind.SOURCE, ()), copying, current, tasks_max, keeps=keeps)
    for kind, undivided in pieces.items():
        running = {name: frozenset(member.joined.undivided[kind]) for name, member in view.members.items()}
        owners |= assign(undivided, running, current, {}, keeps=keeps)
    return owners


def _in_parts(view: GroupState, me: MemberId, moves: Mapping[TaskName, MemberId]) -> list[Assigned]:
    """Return records that are small enough. Tasks are sorted, so that a topic's name is in few of the records."""
    generation = view.generation + 1
    whole = Assigned(me, view.leader_epoch, generation, moves)
    count = -(-len(encode(whole)) // PART_BYTES_MOST)
    while True:
        tasks = sorted(moves)
        size = -(-len(tasks) // count)
        chunks = [tasks[at : at + size] for at in range(0, len(tasks), size)]
        parts = [
            Assigned(me, view.leader_epoch, generation, {task: moves[task] for task in chunk}, part, len(chunks))
            for part, chunk in enumerate(chunks)
        ]
        if len(chunks) == len(tasks) or all(len(encode(part)) <= PART_BYTES_MOST for part in parts):
            return parts
        count *= 2


def _snapshot(view: GroupState, me: MemberId, snapshot_id: str) -> list[Snapshot]:
    state = snapshot_text(view)
    size = PART_BYTES_MOST // 2 - 512  # within the record each quote takes two bytes
    texts = [state[at : at + size] for at in range(0, len(state), size)]
    return [
        Snapshot(me, view.leader_epoch, view.next_offset, snapshot_id, text, part, len(texts))
        for part, text in enumerate(texts)
    ]
