"""Which member owns a task, and which one has not released it yet. Pure.

Invariant: at most one member may run a task. It is the owner, or the previous owner until it has released the task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from mm2py.flow import Flow
from mm2py.records.control_record import MemberId, TaskName, pack, unpack


class Owned(NamedTuple):
    """The owner of one task. A task with neither an owner nor a previous owner is not kept."""

    member: MemberId | None
    waits_for: MemberId | None
    generation: int
    """The one in which the task was revoked; if it waits for no previous owner, the one in which it got its owner."""


class Revocations:
    """The owners of all tasks of a group, and previous owners that have not released them. There may be 50,000 tasks,
    so they are found by member as well."""

    def __init__(self) -> None:
        self.owners: dict[TaskName, Owned] = {}
        self.changes = 0
        """Grows with every task that changes."""
        self.flow_changes: dict[Flow, int] = {}
        """As ``changes``, for each flow."""
        self._owned: dict[MemberId, dict[TaskName, None]] = {}
        self._awaited: dict[MemberId, dict[TaskName, None]] = {}

    def owned_by(self, member: MemberId) -> Collection[TaskName]:
        """The tasks that a member is to run, also those for which it must still wait. Do not keep this: it changes."""
        return self._owned.get(member, {}).keys()

    def awaited_of(self, member: MemberId) -> Collection[TaskName]:
        """The tasks that a member must drain and release. Do not keep this: it changes."""
        return self._awaited.get(member, {}).keys()

    def give(self, task: TaskName, to: MemberId | None, generation: int) -> None:
        """Move a task. Its new owner waits for the member that may run it; owners in between have not started.

        The story of the task that came back: a task of w1 goes to w2, and back to w1 before w1 has drained it. w1 waits
        for itself: it may have stopped copying already, and has to release the task before it starts again.
        """
        old = self.owners.get(task)
        if old is None:
            if to is not None:
                self._set(task, _NOBODY, Owned(to, None, generation))
        elif old.member != to:
            since = generation if old.waits_for is None else old.generation
            self._set(task, old, Owned(to, old.waits_for or old.member, since))

    def release(self, member: MemberId, tasks: Iterable[TaskName], generation: int) -> None:
        """Note that a member had drained tasks in a generation.

        The story of the late duplicate: w1 releases a task in generation 2 and gets it back in 3; in 4 it goes to w2
        again. Now a retry that was delayed on the way appends the release of 2 once more. It says nothing about 4.
        """
        for task in tasks:
            old = self.owners.get(task)
            if old is not None and old.waits_for == member and old.generation <= generation:
                self._set(task, old, old._replace(waits_for=None))

    def evict(self, dead: MemberId, generation: int) -> None:
        """Revoke the tasks of an evicted member: it may still run them, and will not say when it has stopped."""
        for task in list(self.owned_by(dead)):
            self.give(task, None, generation)

    def forget(self, ended: MemberId) -> None:
        """Remove a member that runs nothing any more: all its producers were fenced, or it left drained."""
        for task in list(self.owned_by(ended)):
            old = self.owners[task]
            self._set(task, old, old._replace(member=None))
        for task in list(self.awaited_of(ended)):
            old = self.owners[task]
            self._set(task, old, old._replace(waits_for=None))
        self._owned.pop(ended, None)
        self._awaited.pop(ended, None)

    def to_json(self) -> Any:
        kinds = {owned: number for number, owned in enumerate(sorted(set(self.owners.values()), key=repr))}
        return {"kinds": list(kinds), "tasks": pack({task: kinds[owned] for task, owned in self.owners.items()})}

    @classmethod
    def from_json(cls, fields: Any) -> Revocations:
        found = cls()
        kinds = [Owned(*kind) for kind in fields["kinds"]]
        for task, number in unpack(fields["tasks"]).items():
            found._set(task, _NOBODY, kinds[number])
        return found

    def _set(self, task: TaskName, old: Owned, new: Owned) -> None:
        # Each lookup in a dict hashes the task, and an assignment of 50,000 must not delay the heartbeats.
        if new.member != old.member:
            if old.member is not None:
                del self._owned[old.member][task]
            if new.member is not None:
                self._owned.setdefault(new.member, {})[task] = None
        if new.waits_for != old.waits_for:
            if old.waits_for is not None:
                del self._awaited[old.waits_for][task]
            if new.waits_for is not None:
                self._awaited.setdefault(new.waits_for, {})[task] = None
        if new.member is None and new.waits_for is None:
            del self.owners[task]
        else:
            self.owners[task] = new
        self.changes += 1
        self.flow_changes[task.flow] = self.flow_changes.get(task.flow, 0) + 1


_NOBODY = Owned(None, None, 0)
