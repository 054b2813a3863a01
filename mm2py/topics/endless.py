"""Endless flows: rings whose records, or whose topic names, would never come to rest.

MM2 has no counterpart; there a ring under the identity policy never ends, nor does one with different separators.
"""

from __future__ import annotations

from collections.abc import Mapping

from mm2py.flow import Flow
from mm2py.topics.replication_policy import IdentityReplicationPolicy, ReplicationPolicy


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
