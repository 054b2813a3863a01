"""Rings: flows that would bring a record back to its own topic, or give a topic a longer name in every round.

The default policy sees in a topic's name which clusters its records have been on, and cuts the ring. The identity
policy cannot. Two flows with different separators cannot read each other's names. MM2 copies in such rings for ever.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mm2py.flow import ClusterAlias, Flow
from mm2py.topics.replication_policy import IdentityReplicationPolicy, ReplicationPolicy

_LITERAL = re.compile(r"(?:[A-Za-z0-9_-]|\\[.])*")
_MAKES_OPTIONAL = "*?{"
_BEYOND_ITS_ENTRY = "(?"
"""A list is one pattern, joined by ``|``: ``(?i)`` in the first entry changes what the other entries mean."""


def rings(
    policies: Mapping[Flow, ReplicationPolicy], topics: Mapping[Flow, Sequence[str]]
) -> dict[Flow, list[ClusterAlias]]:
    """Return the flows that are part of a ring.

    A ring is cut at a cluster that it enters and leaves under the default policy with one separator: the second flow
    sees in the name where the topic has been. It is also cut between two identity flows whose ``topics`` have no name
    in common. ``topics.exclude`` does not count.

    Args:
        policies: the policy of each enabled flow.
        topics: the ``topics`` list of each.
    Returns:
        For each such flow the clusters of one way back, from its target to its source.
    """
    following = {
        flow: [
            after
            for after in policies
            if flow.target == after.source
            and not _sees_hops(policies[flow], policies[after])
            and not _have_no_topic_in_common(flow, after, policies, topics)
        ]
        for flow in policies
    }
    ways = {flow: _shortest_way_back(flow, following) for flow in policies}
    return {flow: way for flow, way in sorted(ways.items()) if way}


def _shortest_way_back(start: Flow, following: Mapping[Flow, Sequence[Flow]]) -> list[ClusterAlias]:
    """Return the clusters from the target of a flow back to its source; nothing if there is no way."""
    ways = [[start]]
    seen: set[Flow] = set()
    for way in ways:
        for after in following[way[-1]]:
            if after == start:
                return [flow.target for flow in way]
            if after not in seen:
                seen.add(after)
                ways.append([*way, after])
    return []


def _sees_hops(entering: ReplicationPolicy, leaving: ReplicationPolicy) -> bool:
    keeps_names = isinstance(entering, IdentityReplicationPolicy) or isinstance(leaving, IdentityReplicationPolicy)
    return not keeps_names and entering.separator == leaving.separator


def _have_no_topic_in_common(
    flow: Flow, after: Flow, policies: Mapping[Flow, ReplicationPolicy], topics: Mapping[Flow, Sequence[str]]
) -> bool:
    """Return True only if both keep names and it is certain that no name matches a pattern of both."""
    if not all(isinstance(policies[each], IdentityReplicationPolicy) for each in (flow, after)):
        return False
    if any(_BEYOND_ITS_ENTRY in pattern for pattern in (*topics[flow], *topics[after])):
        return False
    return not any(_may_meet(one, other) for one in topics[flow] for other in topics[after])


def _may_meet(one: str, other: str) -> bool:
    (prefix, exact), (other_prefix, other_exact) = _literal_beginning(one), _literal_beginning(other)
    if exact and other_exact:
        return prefix == other_prefix
    if exact:
        return prefix.startswith(other_prefix)
    if other_exact:
        return other_prefix.startswith(prefix)
    return prefix.startswith(other_prefix) or other_prefix.startswith(prefix)


def _literal_beginning(pattern: str) -> tuple[str, bool]:
    """Return what every match begins with, and whether that is all; in doubt less."""
    if "|" in pattern:
        return "", False
    match = _LITERAL.match(pattern)
    literal = match.group() if match is not None else ""
    exact = len(literal) == len(pattern)
    text = literal.replace("\\.", ".")
    if not exact and pattern[len(literal)] in _MAKES_OPTIONAL:
        text = text[:-1]
    return text, exact
