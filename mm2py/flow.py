"""A flow: one direction of replication, written ``A->B``; and the names of its connectors. Pure.

Every setting and task belongs to one flow. MirrorMaker 2 has the same three connectors for each pair of clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NewType

from mm2py.errors import ConfigError

ClusterAlias = NewType("ClusterAlias", str)


TopicName = NewType("TopicName", str)


ARROW = "->"


PARTITION_MOST: Final = (1 << 31) - 1
"""The highest number that a partition can have."""


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """One source cluster, one target cluster; they are never the same."""

    source: ClusterAlias
    target: ClusterAlias

    def __str__(self) -> str:
        return f"{self.source}{ARROW}{self.target}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Let pydantic, which is not imported here, write a flow as its name."""
        return {"type": "is-instance", "cls": cls, "serialization": {"type": "to-string"}}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
        return {"type": "string", "examples": [f"A{ARROW}B"]}


def check_quoted(text: str) -> None:
    """Check whether a command's argument may be the beginning of a flow that was not quoted.

    Raises:
        ConfigError: it ends where the shell would have taken ``>`` for a redirection.
    """
    if ARROW not in text and text.endswith("-"):
        raise ConfigError(
            f"{text!r} is not a flow.",
            remedy="Put the flow in quotes, as in 'A->B'. Without them the shell takes > for a redirection, and writes"
            " the output into a file.",
        )


def parse_flow(text: str) -> Flow:
    """Return the flow that ``A->B`` names.

    Raises:
        ConfigError: there is not exactly one arrow, an alias is empty or padded, or both are the same.
    """
    check_quoted(text)
    parts = text.split(ARROW)
    if len(parts) != 2 or not all(parts) or any(part != part.strip() for part in parts):
        raise ConfigError(f"{text!r} is not a flow.", remedy="Write it as A->B, without spaces, with two aliases.")
    if parts[0] == parts[1]:
        raise ConfigError(f"Flow {text} leads from a cluster to itself.", remedy="Name two different clusters.")
    return Flow(ClusterAlias(parts[0]), ClusterAlias(parts[1]))


class Kind(StrEnum):
    """The kinds of work of a flow, named as MM2 names its connectors."""

    SOURCE = "MirrorSourceConnector"
    CHECKPOINT = "MirrorCheckpointConnector"
    HEARTBEAT = "MirrorHeartbeatConnector"
    PATH = "path"
    """Reads heartbeats back; MM2 has none of this kind."""
    OFF = "off"
    """Switches the flow off for all its workers, once; MM2 has none of this kind."""


@dataclass(frozen=True, slots=True, order=True)
class ConnectorName:
    """Names one connector of a worker, as ``A->B.MirrorSourceConnector``."""

    flow: Flow
    kind: Kind

    def __str__(self) -> str:
        return f"{self.flow}.{self.kind}"
