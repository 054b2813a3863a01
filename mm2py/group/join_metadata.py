"""On what terms a worker takes part in a group: what it says of itself when it joins, and whom it cannot join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mm2py import __version__
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.records.control_record import Joined, MemberId


@dataclass(frozen=True, slots=True)
class Terms:
    """The same for all lives of a worker process in one group. Fields as in ``Joined``."""

    group: str
    target: str
    """The alias of the target cluster."""
    name: str
    url: str
    flows: tuple[Flow, ...]
    heartbeats: tuple[Flow, ...]
    cluster_id: str | None
    session_timeout_s: float
    heartbeat_interval_s: float
    producer_expiry_ms: int
    """The target's ``producer.id.expiration.ms``."""
    election: str = "log"
    tasks_max: Mapping[Flow, int] = field(default_factory=dict)
    checkpoints: tuple[Flow, ...] = ()

    def joined(self, member: MemberId) -> Joined:
        return Joined(
            member,
            name=self.name,
            version=__version__,
            url=self.url,
            flows=self.flows,
            heartbeats=self.heartbeats,
            tasks_max=self.tasks_max,
            cluster_id=self.cluster_id,
            election=self.election,
            session_timeout_ms=int(self.session_timeout_s * 1000),
            checkpoints=self.checkpoints,
        )


class GroupRefused(Mm2Error):
    """This worker and the members of the group contradict each other: it takes no part."""


def refusal(terms: Terms, other: Joined) -> GroupRefused | None:
    """Return why a worker may not take part beside another one; None if it may. An unknown cluster id fits all."""
    if None not in {terms.cluster_id, other.cluster_id} and terms.cluster_id != other.cluster_id:
        return GroupRefused(
            f"{terms.target} is cluster {terms.cluster_id} here, and cluster {other.cluster_id} for worker {other.name}"
            f" of group {terms.group}.",
            remedy=f"Let {terms.target}.bootstrap.servers name the same cluster for all workers of a group, or give"
            f" this worker a group of its own ({terms.target}.mm2py.group).",
        )
    if terms.election != other.election:
        return GroupRefused(
            f"leader.election is {terms.election} here, and {other.election} for worker {other.name} of group"
            f" {terms.group}: there might be two leaders.",
            remedy="Set the same for all workers of a group; to change it, stop all of them first.",
        )
    return None
