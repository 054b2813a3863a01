"""Which parts of a running flow a changed setting concerns. Pure.

A part that may change in place uses the new settings from its next round or request on, and nothing stops. The other
parts are drained and restart.
"""

from __future__ import annotations

from enum import Enum


class FlowPart(Enum):
    """A part of a running flow."""

    TOPICS = "which topics are copied, how they are looked for and made: the next round of discovery"
    TOPIC_CONFIGS = "the schedule that carries settings of topics over"
    TOPIC_ACLS = "the schedule that carries ACLs over"
    RATE = "the limit of bytes per second"
    READING = "how much is read at once, and how batches are made: the next request of a lane"
    GAPS = "what follows when records are missing: the next gap"
    SPREAD = "on how many workers its partitions are spread: the next plan of the group's leader"
    POISON = "what becomes of a record that the target refuses: the next try of a partition"
    POSITIONS = "how often positions are stored: the next round"
    OWN_TOPICS = "topics of mm2py's own that have to be made; those that are there stay as they are"
    STALLS = "after how long a silent partition is named"
    OFFSET_SYNCS = "where offset syncs are written, and how often: the next look at what was stored"
    CHECKPOINTS = "the checkpoint connector: it restarts by itself"
    HEARTBEATS = "the heartbeat connector of the pair, and how its path is judged"
    TASKS = "all of the flow: its tasks are drained, and restart"
    ON_OFF = "whether the flow copies at all: it is drained, or starts"

    @property
    def is_in_place(self) -> bool:
        """Whether copying continues during the change."""
        return self not in {FlowPart.TASKS, FlowPart.ON_OFF}
