"""How far a changed setting of a flow reaches: which parts of it must hear of it, and which go on undisturbed. Pure.

A part that may change in place takes the new ``FlowSettings`` up at its next round or request; nothing of it ends, and
no partition stops. What is not named here is taken to reach everything: then the flow's tasks are drained and begun
anew, which is safe for any setting, and costs a pause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from mm2py.config.flow_properties import ENABLED, stored_keys
from mm2py.config.kinds import Status


class Part(Enum):
    """What of a running flow is concerned."""

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
    HEARTBEATS = "the heartbeat connector of the pair, and how its path is judged"
    TASKS = "all of the flow: its tasks are drained and begun anew"
    ON_OFF = "whether the flow copies at all: it is drained, or begun"

    @property
    def is_in_place(self) -> bool:
        """Whether copying goes on meanwhile."""
        return self not in {Part.TASKS, Part.ON_OFF}


_NAMES: Final[Mapping[Part, str]] = {
    Part.TOPICS: (
        "topics topics.exclude heartbeats.replication.enabled refresh.topics.enabled refresh.topics.interval.seconds"
        " topics.watch.interval.ms replication.factor remote.partitions.max"
    ),
    Part.TOPIC_CONFIGS: (
        "config.properties.exclude use.defaults.from sync.topic.configs.enabled sync.topic.configs.interval.seconds"
        " sync.topic.configs.dry.run"
    ),
    Part.TOPIC_ACLS: (
        "topics topics.exclude heartbeats.replication.enabled sync.topic.acls.enabled"
        " sync.topic.acls.interval.seconds sync.topic.acls.dry.run remote.acls.max"
    ),
    Part.RATE: "bytes.per.second.max",
    Part.READING: (
        "source.consumer.fetch.max.bytes source.consumer.max.partition.fetch.bytes source.consumer.fetch.min.bytes"
        " source.consumer.fetch.max.wait.ms producer.override.linger.ms copy.mode copy.mode.pass.topics"
        " copy.mode.repack.topics"
    ),
    Part.GAPS: "on.source.gap on.target.loss",
    Part.SPREAD: "tasks.max",
    Part.POISON: "on.poison.record",
    Part.POSITIONS: "offset.flush.interval.ms",
    Part.OWN_TOPICS: (
        "offset.storage.partitions offset.storage.replication.factor status.storage.partitions"
        " status.storage.replication.factor"
    ),
    Part.STALLS: "stall.timeout.ms",
    Part.HEARTBEATS: (
        "emit.heartbeats.enabled emit.heartbeats.interval.seconds heartbeats.topic.replication.factor topics"
        " topics.exclude heartbeats.replication.enabled"
    ),
    Part.ON_OFF: ENABLED,
}
_PARTS: Final = {part: frozenset(names.split()) for part, names in _NAMES.items()}
# New remote topics are made with these, too.
_ALSO_TOPICS: Final = frozenset({"config.properties.exclude", "use.defaults.from", "sync.topic.configs.dry.run"})


def reach(touched: Iterable[str]) -> frozenset[Part]:
    """Return the parts of a flow that changed settings concern; none for settings that do nothing yet."""
    found: set[Part] = set()
    for name in touched:
        parts = {part for part, names in _PARTS.items() if name in names}
        if name in _ALSO_TOPICS:
            parts.add(Part.TOPICS)
        key = stored_keys().get(name)
        if not parts and key is not None and key.status is Status.WORKS:
            parts = {Part.TASKS}
        found |= parts
    return frozenset(found)


def named() -> frozenset[str]:
    """Return the settings that reach something less than everything."""
    return frozenset().union(*_PARTS.values())
