"""Meetings: where what one flow writes gets in the way of another flow, or of itself.

MM2 has no counterpart; there two flows into one remote topic mix in silence, and identity both ways never ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from mm2py.flow import ClusterAlias, Flow, TopicName
from mm2py.topics.replication_policy import IdentityReplicationPolicy, ReplicationPolicy


@dataclass(frozen=True, slots=True, order=True)
class RemotePlace:
    """A remote topic on one target cluster."""

    target: ClusterAlias
    remote_topic: TopicName


def meeting_topics(
    remote_names: Mapping[Flow, Mapping[TopicName, TopicName]],
) -> dict[RemotePlace, list[tuple[Flow, TopicName]]]:
    """Return the remote topics that more than one flow writes to, with the flows and upstream topics that meet there.

    Args:
        remote_names: of each flow, what it copies and under which name.
    """
    places: defaultdict[RemotePlace, list[tuple[Flow, TopicName]]] = defaultdict(list)
    for flow, topics in sorted(remote_names.items()):
        for topic, remote_topic in sorted(topics.items()):
            places[RemotePlace(flow.target, remote_topic)].append((flow, topic))
    return {place: meeting for place, meeting in sorted(places.items()) if len(meeting) > 1}


def endless_flows(policies: Mapping[Flow, ReplicationPolicy]) -> list[Flow]:
    """Return the flows on which a record would go round for ever, because no name tells that it has been there before.

    A->B and B->A under the identity policy are such a pair; so is one of them under identity beside the other under the
    default policy, where each round adds a hop to the name. A ring is cut where a cluster is both entered and left
    under the default policy, with one separator: the name it is left with then keeps everyone from bringing it back.
    Filters are not looked at: where no topic passes all those of a ring, nothing goes round.
    """
    next_flows = {
        flow: [
            after for after in policies if flow.target == after.source and not _cuts(policies[flow], policies[after])
        ]
        for flow in policies
    }
    return sorted(flow for flow in policies if flow in _reachable(flow, next_flows))


def _reachable(start: Flow, next_flows: Mapping[Flow, list[Flow]]) -> set[Flow]:
    found: set[Flow] = set()
    waiting = [start]
    while waiting:
        new = set(next_flows[waiting.pop()]) - found
        found |= new
        waiting.extend(new)
    return found


def _cuts(entering: ReplicationPolicy, leaving: ReplicationPolicy) -> bool:
    """Return whether a topic that came in by one flow and leaves by another cannot come in by the first again."""
    keeps_names = isinstance(entering, IdentityReplicationPolicy), isinstance(leaving, IdentityReplicationPolicy)
    return not any(keeps_names) and entering.separator == leaving.separator
