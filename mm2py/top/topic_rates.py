"""How many records of each topic are copied in a second, by the positions that two looks have found. Pure.

Positions are stored about once a second, so looks are compared that are some seconds apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from mm2py.flow import Flow
from mm2py.kafka.port import TopicPartition
from mm2py.status.facts import Facts

APART_S: Final = 4.0
"""Looks that are nearer to each other tell no rate."""
KEPT_EVERY_S: Final = 8.0


class FlowTopic(NamedTuple):
    """A topic of a flow."""

    flow: Flow
    topic: str


class _PositionsSeen(NamedTuple):
    at_ms: int
    positions: Mapping[Flow, Mapping[TopicPartition, int]]


class TopicRates:
    """The rates of all topics, from look to look."""

    def __init__(self) -> None:
        self._kept: list[_PositionsSeen] = []
        """Two earlier looks at most, the older one first."""

    def look(self, facts: Facts) -> Mapping[FlowTopic, float]:
        """Return records per second of each topic of which this is known, by what a new look has found."""
        now = _PositionsSeen(
            facts.at_ms,
            {
                one.settings.flow: {key: at.next_source for key, at in one.positions.items()}
                for one in facts.flows
                if not one.positions_unread
            },
        )
        if self._kept and now.at_ms < self._kept[-1].at_ms:
            self._kept.clear()  # the clock was set back
        found = _rates(now, self._kept[0]) if self._kept else {}
        if not self._kept or now.at_ms - self._kept[-1].at_ms >= KEPT_EVERY_S * 1000:
            self._kept = [*self._kept[-1:], now]
        return found


def _rates(now: _PositionsSeen, before: _PositionsSeen) -> Mapping[FlowTopic, float]:
    passed_s = (now.at_ms - before.at_ms) / 1000
    if passed_s < APART_S:
        return {}
    found: dict[FlowTopic, float] = {}
    for flow, positions in now.positions.items():
        then = before.positions.get(flow, {})
        for key, at in positions.items():
            if key in then and at >= then[key]:  # else it is new, or copying has begun again
                topic = FlowTopic(flow, key[0])
                found[topic] = found.get(topic, 0.0) + (at - then[key]) / passed_s
    return found
