"""What fetch lanes and produce lanes share: the partition being copied, and what is wrong with a broker.

A *lane* is the asyncio shell around copiers on the side of one broker. It decides nothing: events go to the copiers
through ``handle``.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mm2py.kafka.port import BrokerId
from mm2py.replication.copying.copier import Copier
from mm2py.replication.copying.events import Event
from mm2py.replication.copying.states import Storing
from mm2py.replication.planning.repack import PASS_ALL, MergeRule
from mm2py.replication.planning.steps import TargetRules


@dataclass(slots=True, eq=False)
class CopiedPartition:
    """A partition being copied: its copier, and where both ends are found just now."""

    source_topic: str
    target_topic: str
    partition: int
    copier: Copier
    rules: TargetRules
    source_topic_id: uuid.UUID | None = None
    target_topic_id: uuid.UUID | None = None
    source_leader: BrokerId | None = None
    source_leader_epoch: int = -1
    target_leader: BrokerId | None = None
    reading: object | None = None
    """The read that is under way for it; None: it may be read."""
    fetch_bytes: int = 0
    """More than the setting where a batch turned out larger; 0: the setting will do."""
    log_end: int = 0
    """Where the source log ended at the last read, for readers of committed records as well: beyond what they can read
    an open transaction hides the rest from them."""
    active_at_s: float = -math.inf
    """When it last had something to read."""
    merging: MergeRule = PASS_ALL
    """Which batches were made one with their neighbours in the last read."""
    transactional_seen: bool = False
    stalled: str = ""
    """Why records wait here and none is acknowledged, once that has lasted; empty while it has not."""
    position_problem: str = ""
    """Why its position cannot be stored, once that has lasted; empty while it can."""
    read_at_s: float = -math.inf
    """When a read of it was last answered."""
    asked_end: int = 0
    """Where the source log ended when that was asked for, as nobody read it; 0 while somebody does."""
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)
    """What a younger version keeps in this partition's position; written back as it was."""

    @property
    def lacks_leader(self) -> str | None:
        """Why nothing can be copied just now although nothing has failed; None if that is not so."""
        if self.source_leader is None:
            return "the source partition has no leader"
        return "the remote partition has no leader" if self.target_leader is None else None

    @property
    def waits_for_position(self) -> bool:
        """It may send nothing before its position is stored, and that cannot be done just now."""
        return isinstance(self.copier.state, Storing) and bool(self.position_problem)

    @property
    def key(self) -> tuple[str, int]:
        return self.source_topic, self.partition


Handler = Callable[[CopiedPartition, Event], None]


@dataclass(slots=True)
class LaneProblem:
    """Why a broker does not serve us, and since when it is known; None while it does."""

    text: str | None = None
    report: Callable[[str | None], None] = field(default=lambda _: None)

    def set(self, text: str | None) -> None:
        if text != self.text:
            self.text = text
            self.report(text)
