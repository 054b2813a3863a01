"""Which internal topics of a flow are checked, on which cluster, and which of their settings matter. Pure.

``mm2py/config/internal_topics.py`` says what the parts of a worker create when they start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mm2py.config import keys
from mm2py.config.internal_topics import (
    WantedTopic,
    checkpoints_topic,
    gaps_topic,
    heartbeats_topic,
    ledgers_topic,
    positions_topic,
    recorder_topic,
    settings_topic,
    syncs_topic,
)
from mm2py.config.settings import FlowSettings, GroupSettings, HeartbeatSettings
from mm2py.flow import Flow
from mm2py.topics.names import InternalTopic, control_log, quarantine

CLEANUP: Final = ("cleanup.policy",)
CONTROL_LOG: Final = ("cleanup.policy", "message.timestamp.type")
QUARANTINE: Final = ("cleanup.policy", "retention.ms", "retention.bytes")


@dataclass(frozen=True, slots=True)
class CheckedTopic:
    """One internal topic that a flow needs."""

    wanted: WantedTopic
    on_source: bool
    keeps: str
    """What it keeps, in a few words."""
    must_be: tuple[str, ...] = CLEANUP
    """The settings without which the topic loses what it keeps."""
    is_refused: bool = True
    """mm2py does not run the flow with other values of these settings."""
    has_one_partition: bool = False
    """mm2py refuses it with more."""

    @property
    def name(self) -> str:
        """The name of the topic."""
        return str(self.wanted.topic.name)

    @property
    def topic(self) -> InternalTopic:
        """How it is created."""
        return self.wanted.topic

    @property
    def replication_factor(self) -> int:
        """See ``WantedTopic``."""
        return self.wanted.replication_factor

    @property
    def setting(self) -> str:
        """The setting of the replication factor."""
        return self.wanted.setting


def checked_topics(
    settings: FlowSettings,
    group: GroupSettings | None,
    heartbeats: Sequence[HeartbeatSettings],
    group_there: GroupSettings | None = None,
) -> list[CheckedTopic]:
    """Return the internal topics of a flow, in the order in which a worker makes them.

    Args:
        group: of the flow's target; None: no worker shares it.
        heartbeats: all of the file.
        group_there: of the flow's source, if heartbeats are written there.
    """
    found = [
        CheckedTopic(settings_topic(settings), False, "shared settings"),
        CheckedTopic(positions_topic(settings), False, "positions"),
        CheckedTopic(ledgers_topic(settings), False, "the ledger of offsets"),
        CheckedTopic(gaps_topic(settings), False, "gaps and decisions about them"),
        CheckedTopic(recorder_topic(settings), False, "the flight recorder", is_refused=False),
    ]
    if group is not None:
        found.append(_control_log(group, on_source=False))
    if settings.offset_syncs is not None:
        wanted = syncs_topic(settings.offset_syncs)
        found.append(CheckedTopic(wanted, wanted.on_source, "offset syncs", is_refused=False))
    if settings.checkpoints is not None:
        found.append(CheckedTopic(checkpoints_topic(settings.checkpoints), False, "checkpoints", is_refused=False))
    own, there = own_heartbeats(settings.flow, heartbeats), heartbeats_on_source(settings.flow, heartbeats)
    if own is not None:
        found.append(CheckedTopic(heartbeats_topic(own), False, "heartbeats", is_refused=False))
    if there is not None:
        found.append(CheckedTopic(heartbeats_topic(there), True, "heartbeats", is_refused=False))
        if group_there is not None:
            found.append(_control_log(group_there, on_source=True))
    if settings.quarantines:
        factor, setting = settings.offsets_topic_replication_factor, keys.OFFSETS_REPLICATION_FACTOR.name
        wanted = WantedTopic(quarantine(settings.flow.source), factor, setting)
        found.append(CheckedTopic(wanted, False, "quarantined records", QUARANTINE))
    return found


def _control_log(group: GroupSettings, *, on_source: bool) -> CheckedTopic:
    wanted = WantedTopic(
        control_log(group.name, producer_expiry_ms=0), group.replication_factor, "internal.topics.replication.factor"
    )
    return CheckedTopic(
        wanted, on_source, "the control log of the workers", must_be=CONTROL_LOG, has_one_partition=True
    )


def own_heartbeats(flow: Flow, heartbeats: Sequence[HeartbeatSettings]) -> HeartbeatSettings | None:
    """Return how the flow's own pair writes heartbeats to its target; None: it writes none."""
    return next((one for one in heartbeats if one.flow == flow and one.interval_s is not None), None)


def heartbeats_on_source(flow: Flow, heartbeats: Sequence[HeartbeatSettings]) -> HeartbeatSettings | None:
    """Return how heartbeats are written to the flow's source by this file; None: they are not."""
    return own_heartbeats(Flow(flow.target, flow.source), heartbeats)
