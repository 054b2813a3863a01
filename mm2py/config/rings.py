"""Rings: flows that would carry a record back to the topic it came from, again and again.

The default policy sees a ring in the topic's name. The identity policy cannot, as MirrorMaker 2's own documentation
admits; with two such flows between two clusters every record would be copied for ever. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from mm2py.flow import ClusterAlias, Flow

_LITERAL = re.compile(r"(?:[A-Za-z0-9_-]|\\[.])*")
_MAKES_OPTIONAL = "*?{"
_REACHES_ON = ("(?", "\\Q")
"""A list is one pattern, joined by ``|``: such a part of one entry may change what the next entries mean."""


def endless_flows(identity: Mapping[Flow, Sequence[str]], others: Collection[Flow]) -> dict[Flow, list[ClusterAlias]]:
    """Return the identity flows whose topics may come back to where they start.

    Args:
        identity: flows under the identity policy, each with its ``topics`` list.
        others: flows under a policy that changes names; they do not stop a ring with an identity flow in it.
    Returns:
        For each such flow the clusters of one way back, from its target to its source. A flow is left out if its
        ``topics`` cannot name a topic that the flows of the way back take, too.
    """
    found = {}
    for flow, topics in identity.items():
        steps: defaultdict[ClusterAlias, list[ClusterAlias]] = defaultdict(list)
        for other in others:
            steps[other.source].append(other.target)
        for other, other_topics in identity.items():
            if other != flow and not _disjoint(topics, other_topics):
                steps[other.source].append(other.target)
        way_back = _shortest_way(steps, flow.target, flow.source)
        if way_back is not None:
            found[flow] = way_back
    return found


def _shortest_way(
    steps: Mapping[ClusterAlias, Sequence[ClusterAlias]], start: ClusterAlias, end: ClusterAlias
) -> list[ClusterAlias] | None:
    ways = [[start]]
    seen = {start}
    for way in ways:
        if way[-1] == end:
            return way
        for step in steps.get(way[-1], ()):
            if step not in seen:
                seen.add(step)
                ways.append([*way, step])
    return None


def _disjoint(some: Sequence[str], others: Sequence[str]) -> bool:
    """True only if it is certain that no name matches a pattern of both lists."""
    if any(mark in pattern for pattern in (*some, *others) for mark in _REACHES_ON):
        return False
    return not any(_may_meet(one, other) for one in some for other in others)


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
