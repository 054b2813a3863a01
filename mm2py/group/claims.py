"""Which flows lead into which remote topics: who was listed first has one, unless all are to be mixed there. Pure.

MirrorMaker 2 mixes them unasked: under the identity policy a topic that two sources have becomes one.

Which member owns which share, and whether it must still wait for the previous owner. Pure.

Connect revokes tasks in one rebalance and assigns them in the next. Here a share is assigned at once, and its new owner
waits until the previous one has drained it (``Released``) or can append nothing more (``Fenced``).
Invariant: at most one member may run a share. It is the owner, or the previous owner until it has released the share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from mm2py.connector import Flow
from mm2py.records.control_record import MemberId, TaskName, TopicClaim, pack, unpack


class TopicClaims:
    """Of all flows of a group, as their heads have listed them."""

    def __init__(self) -> None:
        self.by_flow: dict[Flow, dict[str, TopicClaim]] = {}
        """By source topic."""
        self._into: dict[str, tuple[tuple[Flow, bool], ...]] = {}
        """By remote topic: the flows that lead there, and whether they mix."""

    def conflicting_flows(self, flow: Flow, topic: str, claim: TopicClaim) -> frozenset[Flow]:
        """Return the flows because of which ``flow`` must not copy a topic there."""
        known = self._into.get(claim.prefix + topic, ())
        return frozenset(other for other, mixes in known if other != flow and not (mixes and claim.mixes))

    def take(self, flow: Flow, topic: str, claim: TopicClaim) -> bool:
        """Let a flow lead there, and nowhere else with this topic. Returns False, and it claims nowhere, if others are
        in the way."""
        if self.by_flow.get(flow, {}).get(topic) == claim:
            return True
        self.drop(flow, topic)
        if self.conflicting_flows(flow, topic, claim):
            return False
        self.by_flow.setdefault(flow, {})[topic] = claim
        remote = claim.prefix + topic
        self._into[remote] = (*self._into.get(remote, ()), (flow, claim.mixes))
        return True

    def drop(self, flow: Flow, topic: str) -> None:
        """A flow does not copy a topic any more."""
        claim = self.by_flow.get(flow, {}).pop(topic, None)
        if claim is None:
            return
        remote = claim.prefix + topic
        left = list(self._into[remote])
        left.remove((flow, claim.mixes))
        if left:
            self._into[remote] = tuple(left)
        else:
            del self._into[remote]

    def keep(self, flows: Collection[Flow]) -> None:
        """Drop all others."""
        for flow in self.by_flow.keys() - flows:
            for topic in list(self.by_flow[flow]):
                self.drop(flow, topic)
            del self.by_flow[flow]

    @classmethod
    def of(cls, by_flow: Mapping[Flow, Mapping[str, TopicClaim]]) -> TopicClaims:
        """Return what these flows lead into."""
        found = cls()
        for flow, claims in by_flow.items():
            for topic, claim in claims.items():
                found.take(flow, topic, claim)
        return found


class Owned(NamedTuple):
    """The owner of one share. A share with neither an owner nor a previous one to wait for is not kept."""

    member: MemberId | None
    waits_for: MemberId | None
    generation: int
    """In which the waiting began; without waiting, in which it got this owner."""


class Revocations:
    """The owners of all shares of a group. Everything is found by member as well: there may be 50,000."""

    def __init__(self) -> None:
        self.owners: dict[TaskName, Owned] = {}
        self.changes = 0
        """Grows with every share that changes."""
        self.flow_changes: dict[Flow, int] = {}
        """As ``changes``, for each flow."""
        self._owned: dict[MemberId, dict[TaskName, None]] = {}
        self._awaited: dict[MemberId, dict[TaskName, None]] = {}

    def owned_by(self, member: MemberId) -> Collection[TaskName]:
        """What a member is to run, whether it must still wait or not. Not to be kept: it changes."""
        return self._owned.get(member, {}).keys()

    def awaited_of(self, member: MemberId) -> Collection[TaskName]:
        """What a member must drain and release. Not to be kept: it changes."""
        return self._awaited.get(member, {}).keys()

    def give(self, share: TaskName, to: MemberId | None, generation: int) -> None:
        """Move a share. Its new owner waits for the member that may run it; owners in between have not begun.

        The story of the share that came back: w1's goes to w2, and before w1 has drained it to w1 again. w1 still
        waits for itself: it may have stopped copying already, and has to say so before it begins anew.
        """
        old = self.owners.get(share)
        if old is None:
            if to is not None:
                self._set(share, _NOBODY, Owned(to, None, generation))
        elif old.member != to:
            since = generation if old.waits_for is None else old.generation
            self._set(share, old, Owned(to, old.waits_for or old.member, since))

    def release(self, member: MemberId, shares: Iterable[TaskName], generation: int) -> None:
        """A member has drained shares, as of a generation.

        The story of the late duplicate: w1 releases a share in generation 2 and gets it back in 3; in 4 it goes to w2
        again. Now the release of 2 is appended once more, by a retry that hung on the way. It says nothing about 4.
        """
        for share in shares:
            old = self.owners.get(share)
            if old is not None and old.waits_for == member and old.generation <= generation:
                self._set(share, old, old._replace(waits_for=None))

    def evict(self, dead: MemberId, generation: int) -> None:
        """A member may still run what it owns, and will not say when it has stopped."""
        for share in list(self.owned_by(dead)):
            self.give(share, None, generation)

    def forget(self, ended: MemberId) -> None:
        """A member runs nothing any more: all that it wrote under was fenced, or it left drained."""
        for share in list(self.owned_by(ended)):
            old = self.owners[share]
            self._set(share, old, old._replace(member=None))
        for share in list(self.awaited_of(ended)):
            old = self.owners[share]
            self._set(share, old, old._replace(waits_for=None))
        self._owned.pop(ended, None)
        self._awaited.pop(ended, None)

    def to_json(self) -> Any:
        kinds = {owned: number for number, owned in enumerate(sorted(set(self.owners.values()), key=repr))}
        return {"kinds": list(kinds), "shares": pack({share: kinds[owned] for share, owned in self.owners.items()})}

    @classmethod
    def from_json(cls, fields: Any) -> Revocations:
        found = cls()
        kinds = [Owned(*kind) for kind in fields["kinds"]]
        for share, number in unpack(fields["shares"]).items():
            found._set(share, _NOBODY, kinds[number])
        return found

    def _set(self, share: TaskName, old: Owned, new: Owned) -> None:
        # Each look into a dict hashes the share anew, and an assignment of 50,000 must not hold up the beats.
        if new.member != old.member:
            if old.member is not None:
                del self._owned[old.member][share]
            if new.member is not None:
                self._owned.setdefault(new.member, {})[share] = None
        if new.waits_for != old.waits_for:
            if old.waits_for is not None:
                del self._awaited[old.waits_for][share]
            if new.waits_for is not None:
                self._awaited.setdefault(new.waits_for, {})[share] = None
        if new.member is None and new.waits_for is None:
            del self.owners[share]
        else:
            self.owners[share] = new
        self.changes += 1
        self.flow_changes[share.flow] = self.flow_changes.get(share.flow, 0) + 1


_NOBODY = Owned(None, None, 0)
