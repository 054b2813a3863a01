"""A flow is one direction of replication, written ``A->B``; every setting and task belongs to one flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from mm2py.errors import ConfigError

ClusterAlias = NewType("ClusterAlias", str)
TopicName = NewType("TopicName", str)

ARROW = "->"


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """One source cluster, one target cluster; they are never the same."""

    source: ClusterAlias
    target: ClusterAlias

    def __str__(self) -> str:
        return f"{self.source}{ARROW}{self.target}"


def parse_flow(text: str) -> Flow:
    """Return the flow that ``A->B`` names.

    Raises:
        ConfigError: there is not exactly one arrow, an alias is empty or padded, or both are the same.
    """
    parts = text.split(ARROW)
    if len(parts) != 2 or not all(parts) or any(part != part.strip() for part in parts):
        raise ConfigError(f"{text!r} is not a flow.", remedy="Write it as A->B, without spaces, with two aliases.")
    if parts[0] == parts[1]:
        raise ConfigError(f"Flow {text} leads from a cluster to itself.", remedy="Name two different clusters.")
    return Flow(ClusterAlias(parts[0]), ClusterAlias(parts[1]))
