"""Which flows lead into which remote topics: who was listed first has one, unless all are to be mixed there. Pure.

MirrorMaker 2 mixes them unasked: under the identity policy a topic that two sources have becomes one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mm2py.flow import Flow
from mm2py.records.control_record import Lead


class Leads:
    """Of all flows of a group, as their heads have listed them."""

    def __init__(self) -> None:
        self.by_flow: dict[Flow, dict[str, Lead]] = {}
        """By source topic."""
        self._into: dict[str, tuple[tuple[Flow, bool], ...]] = {}
        """By remote topic: the flows that lead there, and whether they mix."""

    def in_the_way(self, flow: Flow, topic: str, lead: Lead) -> frozenset[Flow]:
        """Return the flows because of which ``flow`` must not copy a topic there."""
        known = self._into.get(lead.prefix + topic, ())
        return frozenset(other for other, mixes in known if other != flow and not (mixes and lead.mixes))

    def take(self, flow: Flow, topic: str, lead: Lead) -> bool:
        """Let a flow lead there, and nowhere else with this topic. Returns False, and it leads nowhere, if others are
        in the way."""
        if self.by_flow.get(flow, {}).get(topic) == lead:
            return True
        self.drop(flow, topic)
        if self.in_the_way(flow, topic, lead):
            return False
        self.by_flow.setdefault(flow, {})[topic] = lead
        remote = lead.prefix + topic
        self._into[remote] = (*self._into.get(remote, ()), (flow, lead.mixes))
        return True

    def drop(self, flow: Flow, topic: str) -> None:
        """A flow does not copy a topic any more."""
        lead = self.by_flow.get(flow, {}).pop(topic, None)
        if lead is None:
            return
        remote = lead.prefix + topic
        left = list(self._into[remote])
        left.remove((flow, lead.mixes))
        if left:
            self._into[remote] = tuple(left)
        else:
            del self._into[remote]

    def keep(self, flows: Collection[Flow]) -> None:
        """Drop all others."""
        for flow in self.by_flow.keys() - flows:
            for topic in list(self.by_flow[flow]):
                self.drop(flow, topic)
            del self.by_flow[flow]

    @classmethod
    def of(cls, by_flow: Mapping[Flow, Mapping[str, Lead]]) -> Leads:
        """Return what these flows lead into."""
        found = cls()
        for flow, leads in by_flow.items():
            for topic, lead in leads.items():
                found.take(flow, topic, lead)
        return found
