"""Which candidate's znode is first, and for how long that is valid. Pure.

Every candidate has one ephemeral, sequential znode whose name begins with the id of its session, so a node that an
earlier session left is never taken for ours. The lowest sequence may claim leadership. ZooKeeper deletes the nodes of a
session from which it has received nothing for the session time-out. So what it confirmed is valid for that time,
counted from the moment of the request. A leader stops acting after two thirds of that: if w1 is cut off, it stops at
least a third of the time-out before w2 is elected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mm2py.group.election.backend import CandidateState

_NAME: Final = re.compile(r"([0-9a-f]{16})-(\d{10})")
SUSPENDED_AFTER: Final = 2 / 3
"""Of the session time-out."""


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """One candidate's znode: ZooKeeper numbers them in the order in which they were created."""

    sequence: int
    session: int

    @property
    def name(self) -> str:
        return f"{name_prefix(self.session)}{self.sequence:010d}"


def name_prefix(session: int) -> str:
    """Return how the names of a session's nodes begin; ZooKeeper appends the sequence."""
    return f"{session & (2**64 - 1):016x}-"


def candidates(names: Iterable[str]) -> tuple[Node, ...]:
    """Return the candidates among the children of the election's node, in their order; other nodes are ignored."""
    found = (_NAME.fullmatch(name) for name in names)
    return tuple(sorted(Node(int(match[2]), int(match[1], 16)) for match in found if match is not None))


def own_node(session: int, nodes: Iterable[Node]) -> Node | None:
    """Return a session's node; the lowest if there are two."""
    return min((node for node in nodes if node.session == session), default=None)


@dataclass(frozen=True, slots=True)
class Confirmation:
    """ZooKeeper has accepted a write to our node, which is the first."""

    node: Node
    asked_at_s: float
    """When the write was sent (``clock.boottime``); it was accepted some time later."""
    is_connected: bool = True
    """The connection has not broken since."""

    @property
    def evidence(self) -> str:
        return f"zookeeper session 0x{self.node.session:016x} sequence {self.node.sequence:010d}"

    def state(self, at_s: float, timeout_s: float) -> CandidateState:
        """Return what the worker may do at a time; ``timeout_s`` is the session's."""
        age_s = at_s - self.asked_at_s
        if age_s >= timeout_s:
            # w1 stalls for longer than its session, and w2 is elected. w1 wakes and finds an answer waiting.
            return CandidateState.LOST
        if not self.is_connected or age_s >= timeout_s * SUSPENDED_AFTER:
            return CandidateState.SUSPENDED
        return CandidateState.MAY_LEAD

    def falls_at_s(self, at_s: float, timeout_s: float) -> float | None:
        """Return when the state falls if nothing happens before; None if it can fall no lower."""
        due_s = (self.asked_at_s + timeout_s * SUSPENDED_AFTER, self.asked_at_s + timeout_s)
        return next((one_s for one_s in due_s if one_s > at_s), None)
