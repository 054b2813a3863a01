"""Which internal topics a flow needs, on which cluster, and with which settings. Pure.

The same as what the parts of a worker create when they start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mm2py.config.settings import FlowSettings, GroupSettings, HeartbeatSettings
from mm2py.flow import Flow, TopicName
from mm2py.topics.names import HEARTBEATS, InternalTopic, control_log, flight_topic, ledger_topic, quarantine

CLEANUP: Final = ("cleanup.policy",)
CONTROL_LOG: Final = ("cleanup.policy", "message.timestamp.type")
QUARANTINE: Final = ("cleanup.policy", "retention.ms", "retention.bytes")


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """One internal topic that a flow needs."""

    topic: InternalTopic
    on_source: bool
    keeps: str
    """What it keeps, in a few words."""
    replication_factor: int
    setting: str
    """The setting of the replication factor."""
    must_be: tuple[str, ...] = CLEANUP
    """The settings without which the topic loses what it keeps."""
    is_refused: bool = True
    """mm2py does not run the flow with other values of these settings."""
    has_one_partition: bool = False
    """mm2py refuses it with more."""

    @property
    def name(self) -> str:
        """The name of the topic."""
        return str(self.topic.name)


def wanted_topics(
    settings: FlowSettings,
    group: GroupSettings | None,
    heartbeats: Sequence[HeartbeatSettings],
    group_there: GroupSettings | None = None,
) -> list[WantedTopic]:
    """Return the internal topics of a flow, in the order in which a worker makes them.

    Args:
        group: of the flow's target; None: no worker shares it.
        heartbeats: all of the file.
        group_there: of the flow's source, if heartbeats are written there.
    """
    alias, offsets_factor = settings.flow.source, settings.offsets_topic_replication_factor
    offsets, storage = settings.offsets_topic_partitions, "offset.storage.replication.factor"
    found = [
        WantedTopic(
            InternalTopic(TopicName(settings.configs_topic), 1),
            False,
            "shared settings",
            settings.configs_topic_replication_factor,
            "config.storage.replication.factor",
        ),
        WantedTopic(
            InternalTopic(TopicName(settings.offsets_topic), offsets), False, "positions", offsets_factor, storage
        ),
        WantedTopic(
            InternalTopic(ledger_topic(alias), offsets), False, "the ledger of offsets", offsets_factor, storage
        ),
        WantedTopic(
            InternalTopic(TopicName(settings.status_topic), settings.status_topic_partitions),
            False,
            "gaps and decisions about them",
            settings.status_topic_replication_factor,
            "status.storage.replication.factor",
        ),
    ]
    found.append(
        WantedTopic(
            flight_topic(alias),
            False,
            "the flight recorder",
            settings.status_topic_replication_factor,
            "status.storage.replication.factor",
            is_refused=False,
        )
    )
    if group is not None:
        found.append(_control_log(group, on_source=False))
    if settings.offset_syncs is not None:
        found.append(
            WantedTopic(
                InternalTopic(TopicName(settings.offset_syncs.topic), 1),
                settings.offset_syncs.on_source,
                "offset syncs",
                settings.offset_syncs.replication_factor,
                "offset-syncs.topic.replication.factor",
                is_refused=False,
            )
        )
    if settings.checkpoints is not None:
        found.append(
            WantedTopic(
                InternalTopic(TopicName(settings.checkpoints.topic), 1),
                False,
                "checkpoints",
                settings.checkpoints.replication_factor,
                "checkpoints.topic.replication.factor",
                is_refused=False,
            )
        )
    own, there = own_heartbeats(settings.flow, heartbeats), heartbeats_on_source(settings.flow, heartbeats)
    if own is not None:
        found.append(_heartbeats(own, on_source=False))
    if there is not None:
        found.append(_heartbeats(there, on_source=True))
        if group_there is not None:
            found.append(_control_log(group_there, on_source=True))
    if settings.quarantines:
        found.append(WantedTopic(quarantine(alias), False, "quarantined records", offsets_factor, storage, QUARANTINE))
    return found


def _control_log(group: GroupSettings, *, on_source: bool) -> WantedTopic:
    return WantedTopic(
        control_log(group.name, producer_expiry_ms=0),
        on_source,
        "the control log of the workers",
        group.replication_factor,
        "internal.topics.replication.factor",
        CONTROL_LOG,
        has_one_partition=True,
    )


def _heartbeats(settings: HeartbeatSettings, *, on_source: bool) -> WantedTopic:
    return WantedTopic(
        InternalTopic(HEARTBEATS, 1),
        on_source,
        "heartbeats",
        settings.replication_factor,
        "heartbeats.topic.replication.factor",
        is_refused=False,
    )


def own_heartbeats(flow: Flow, heartbeats: Sequence[HeartbeatSettings]) -> HeartbeatSettings | None:
    """Return how the flow's own pair writes heartbeats to its target; None: it writes none."""
    return next((one for one in heartbeats if one.flow == flow and one.interval_s is not None), None)


def heartbeats_on_source(flow: Flow, heartbeats: Sequence[HeartbeatSettings]) -> HeartbeatSettings | None:
    """Return how heartbeats are written to the flow's source by this file; None: they are not."""
    return own_heartbeats(Flow(flow.target, flow.source), heartbeats)
