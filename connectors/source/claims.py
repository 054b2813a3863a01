"""Which flows lead into which remote topics of one target cluster, so that two do not mix their records unasked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.flow import Flow, TopicName
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.selection import should_replicate

SETTLE_S: Final = 0.5
"""How long a topic waits for the first round of another flow that may lead into the same remote topic. A dead, slow or
throttled source must not hold it for longer: whoever is not heard by then is a newcomer there. What it copied before is
safe also then, see ``must_wait``."""

SettingsOf = Callable[[Flow], FlowSettings | None]


@dataclass(slots=True)
class RemoteTopicClaims:
    """Shared by all flows into one target. A flow that already copies a topic keeps it; newcomers are refused."""

    flows: frozenset[Flow]
    settings_of: SettingsOf
    """By what a flow runs on this worker just now; None: it is switched off or refused, and claims nothing."""
    clock: Clock
    _claims: dict[str, dict[Flow, bool]] = field(default_factory=dict)
    _first_s: dict[Flow, float] = field(default_factory=dict)
    """When each flow claimed first."""

    def claim(self, flow: Flow, remote_topics: Iterable[str], *, held: frozenset[str]) -> None:
        """Say which remote topics a flow leads into; ``held`` are those it has stored positions for."""
        for claimants in self._claims.values():
            claimants.pop(flow, None)
        for remote in remote_topics:
            self._claims.setdefault(remote, {})[flow] = remote in held
        self._first_s.setdefault(flow, self.clock.monotonic())

    def hold(self, flow: Flow, remote_topics: Iterable[str]) -> None:
        """Say what a flow has begun to copy into: whoever comes after it is a newcomer there."""
        for remote in remote_topics:
            self._claims.setdefault(remote, {})[flow] = True

    def must_wait(self, flow: Flow, remote_topic: str) -> bool:
        """Whether ``flow``, which has claimed a topic, must not begin it yet: it may turn out to be another flow's.

        The story: A->B and C->B keep the names of topics, and C->B has copied ``orders`` for months. A is the faster
        one to answer after a restart, and has a topic ``orders`` as well. Does C take longer, A->B is still kept from
        it: a remote topic that is not empty is not begun without a position of one's own. By the names of MirrorMaker
        2's default policy no two sources can meet, so nobody waits there, whatever becomes of the other sources.
        """
        if self.clock.monotonic() - self._first_s[flow] >= SETTLE_S:
            return False
        return any(self._may_lead_to(other, remote_topic) for other in self.flows - self._first_s.keys())

    def others(self, flow: Flow, remote_topic: str) -> frozenset[Flow]:
        """Return the flows because of which ``flow`` must not copy into ``remote_topic``: none if it alone holds it."""
        known = self._claims.get(remote_topic, {})
        claimants = {
            other: held for other, held in known.items() if other == flow or self.settings_of(other) is not None
        }
        holders = [other for other, held in claimants.items() if held]
        if holders == [flow]:
            return frozenset()
        return frozenset(claimants) - {flow}

    def _may_lead_to(self, flow: Flow, remote_topic: str) -> bool:
        settings = self.settings_of(flow)
        if settings is None:
            return False
        upstream = settings.policy.upstream_topic(TopicName(remote_topic))
        if upstream is None or settings.policy.format_remote_topic(flow.source, upstream) != remote_topic:
            return False
        try:
            return should_replicate(
                upstream,
                policy=settings.policy,
                topic_filter=settings.topic_filter,
                heartbeats_replication=settings.heartbeats_replication,
                target_alias=flow.target,
            ).replicate
        except PatternTooSlow:
            return True
