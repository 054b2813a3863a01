"""Which flow of a group may copy which topic into which remote topic. Pure.

MirrorMaker 2 lets several flows write to one remote topic: under the identity policy a topic that two sources have
becomes one. Here the flow that was listed first gets the remote topic, unless all flows into it want to be mixed. And
of one flow's topics the first gets it: rules of ``topics.rename`` may give two of them one name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mm2py.flow import Flow
from mm2py.records.control_record import TopicClaim


class TopicClaims:
    """The claims of a group's flows on remote topics, as their coordinators have listed them."""

    def __init__(self) -> None:
        self.by_flow: dict[Flow, dict[str, TopicClaim]] = {}
        """By source topic."""
        self._into: dict[str, tuple[tuple[Flow, bool, str], ...]] = {}
        """By remote topic: the flows that copy into it, whether they may be mixed, and their topics."""

    def conflicting_flows(self, flow: Flow, topic: str, claim: TopicClaim) -> frozenset[Flow]:
        """Return the flows because of which ``flow`` must not copy a topic into the remote topic of ``claim``."""
        known = self._into.get(claim.remote_topic(topic), ())
        return frozenset(other for other, mixes, _ in known if other != flow and not (mixes and claim.mixes))

    def conflicting_topic(self, flow: Flow, topic: str, claim: TopicClaim) -> str | None:
        """Return the topic that ``flow`` copies into the remote topic of ``claim`` already; None: there is none."""
        known = self._into.get(claim.remote_topic(topic), ())
        return next((name for other, _, name in known if other == flow and name != topic), None)

    def take(self, flow: Flow, topic: str, claim: TopicClaim) -> bool:
        """Claim a remote topic for a flow's topic; its earlier claim ends. Returns False if another claim conflicts."""
        if self.by_flow.get(flow, {}).get(topic) == claim:
            return True
        self.drop(flow, topic)
        if self.conflicting_flows(flow, topic, claim) or self.conflicting_topic(flow, topic, claim) is not None:
            return False
        self.by_flow.setdefault(flow, {})[topic] = claim
        remote = claim.remote_topic(topic)
        self._into[remote] = (*self._into.get(remote, ()), (flow, claim.mixes, topic))
        return True

    def drop(self, flow: Flow, topic: str) -> None:
        """Remove a flow's claim for a topic that it does not copy any more."""
        claim = self.by_flow.get(flow, {}).pop(topic, None)
        if claim is None:
            return
        remote = claim.remote_topic(topic)
        left = list(self._into[remote])
        left.remove((flow, claim.mixes, topic))
        if left:
            self._into[remote] = tuple(left)
        else:
            del self._into[remote]

    def keep(self, flows: Collection[Flow]) -> None:
        """Drop the claims of all other flows."""
        for flow in self.by_flow.keys() - flows:
            for topic in list(self.by_flow[flow]):
                self.drop(flow, topic)
            del self.by_flow[flow]

    @classmethod
    def of(cls, by_flow: Mapping[Flow, Mapping[str, TopicClaim]]) -> TopicClaims:
        """Return the claims of these flows."""
        found = cls()
        for flow, claims in by_flow.items():
            for topic, claim in claims.items():
                found.take(flow, topic, claim)
        return found
