"""What of a flow that is gone may be removed, and what stays. Pure.

Ours are the topics that the flow makes for itself, by their exact names, if something in them shows that mm2py has run
the flow: MirrorMaker 2 keeps positions and settings under the same names. Who has granted an ACL is recorded nowhere,
so ACLs count by the exact names of these topics. A remote topic is removed only if it is named, and a stored position
shows that the flow has written it. What other flows may use stays. MirrorMaker 2 has no counterpart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mm2py.flow import ClusterAlias, Flow
from mm2py.topics.acls import Pattern, TopicAcl


class LeftTopic(NamedTuple):
    """A topic on one of the two clusters."""

    cluster: ClusterAlias
    name: str


class KeptThing(NamedTuple):
    """What stays, and why."""

    cluster: ClusterAlias
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class FlowRemains:
    """What both clusters tell of a flow."""

    flow: Flow
    own: Sequence[LeftTopic]
    """The topics that the flow makes for itself, whether they exist or not. The last one holds its settings: as long as
    it exists, the removal can be begun again."""
    common: Sequence[LeftTopic]
    """Topics of mm2py that all flows of a cluster, a group or a pair share."""
    there: Mapping[ClusterAlias, Collection[str]]
    """The topics that exist, by cluster. A cluster that is left out is not asked."""
    is_recorded: bool
    """Whether the stored settings or positions show that mm2py has run the flow."""
    copies: Collection[str] = ()
    """The remote topics that exist and of which a position is stored."""
    acls: Mapping[ClusterAlias, Sequence[TopicAcl]] = field(default_factory=dict)
    acls_unread: Mapping[ClusterAlias, str] = field(default_factory=dict)
    """Why the ACLs of a cluster are not known."""
    users: Sequence[str] = ()
    """Sentences on who uses the flow, or may use it."""
    sharers: Mapping[LeftTopic, str] = field(default_factory=dict)
    """Which other flow uses one of ``own``."""


@dataclass(frozen=True, slots=True)
class UninstallPlan:
    """What would be removed, in this order, and what stays."""

    flow: Flow
    remote_topics: tuple[LeftTopic, ...] = ()
    topics: tuple[LeftTopic, ...] = ()
    acls: tuple[tuple[ClusterAlias, TopicAcl], ...] = ()
    kept: tuple[KeptThing, ...] = ()
    refusals: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def removes_anything(self) -> bool:
        return bool(self.remote_topics or self.topics or self.acls)


def plan_uninstall(remains: FlowRemains, remote_topics: Collection[str] = ()) -> UninstallPlan:
    """Return what would be removed.

    Args:
        remote_topics: the remote topics that the operator has named.
    """
    flow = remains.flow
    topics = tuple(place for place in remains.own if _is_there(remains, place))
    named = tuple(
        LeftTopic(flow.target, name) for name in sorted(set(remote_topics)) if name in remains.there[flow.target]
    )
    names = {place: None for place in remains.own if place.cluster in remains.there}
    acls = tuple(
        (cluster, acl)
        for cluster, found in remains.acls.items()
        for acl in found
        if acl.pattern == Pattern.LITERAL and LeftTopic(cluster, acl.name) in names
    )
    return UninstallPlan(
        flow,
        named,
        topics,
        acls,
        tuple(_kept(remains, {place.name for place in named})),
        tuple(_refusals(remains, topics, named)),
        tuple(_notes(remains, topics, sorted(set(remote_topics)))),
    )


def _is_there(remains: FlowRemains, place: LeftTopic) -> bool:
    return place.name in remains.there.get(place.cluster, ())


def _refusals(remains: FlowRemains, topics: Sequence[LeftTopic], named: Sequence[LeftTopic]) -> list[str]:
    flow, found = remains.flow, list(remains.users)
    found += [
        f"{place.cluster}: topic {place.name} is also used by {other}."
        for place, other in remains.sharers.items()
        if place in topics
    ]
    if topics and not remains.is_recorded:
        found.append(
            f"Nothing on {flow.target} records that mm2py has run {flow}: these topics may be MirrorMaker 2's."
            " Delete by hand what is not needed."
        )
    found += [
        f"{place.name} is no copy that {flow} has a position of: delete it by hand if it is not needed."
        for place in named
        if place.name not in remains.copies
    ]
    return found


def _kept(remains: FlowRemains, named: Collection[str]) -> list[KeptThing]:
    target = remains.flow.target
    found = [
        KeptThing(place.cluster, place.name, "other flows of this cluster, pair or group may use it")
        for place in remains.common
        if _is_there(remains, place)
    ]
    left = sorted(set(remains.copies) - {*named})
    found += [KeptThing(target, name, "it was not named with --remote-topic") for name in left]
    literal = [acl for acl in remains.acls.get(target, ()) if acl.pattern == Pattern.LITERAL]
    granted = [acl for acl in literal if acl.name in remains.copies]
    if granted:
        what = f"{len(granted)} ACL{'' if len(granted) == 1 else 's'} of remote topics"
        found.append(KeptThing(target, what, "nothing records who has granted them"))
    found += [KeptThing(cluster, "ACLs", f"they are not known: {why}") for cluster, why in remains.acls_unread.items()]
    return found


def _notes(remains: FlowRemains, topics: Sequence[LeftTopic], named: Sequence[str]) -> list[str]:
    flow, found = remains.flow, list[str]()
    left = sorted(set(remains.copies) - set(named))
    missing = [name for name in named if name not in remains.there[flow.target]]
    if topics and left:
        shown = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
        found.append(
            f"If {flow} is started again, it refuses {shown}: they are not empty, and it has no positions of them."
            " Before that, delete them, or set positions from the export (docs/uninstall.md)."
        )
    found += [f"{name} is not on {flow.target}." for name in missing]
    away = sorted({place.cluster for place in remains.own} - set(remains.there))
    found += [f"{cluster} is not asked: what the flow has there stays." for cluster in away]
    return found
