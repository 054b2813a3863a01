"""The topics that the events of a flow's history come from."""

from __future__ import annotations

import random
from collections.abc import Sequence

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings, GroupSettings
from mm2py_rest.events.configs import ConfigsSource
from mm2py_rest.events.feed import Source
from mm2py_rest.events.sources import FlightSource, GapsSource, GroupSource, QuarantineSource, ToBrokers


def history_sources(
    settings: FlowSettings, group: GroupSettings, target: ToBrokers, since_ms: int, *, clock: Clock, rng: random.Random
) -> Sequence[Source]:
    """Return the sources of a flow's events.

    Args:
        group: the group of the flow's target.
        since_ms: where reading begins of topics that hold more than is wanted.
    """
    found: list[Source] = [
        ConfigsSource(settings, target),
        GapsSource(settings, target),
        FlightSource(settings, target, begin_at=since_ms),
        GroupSource(group, target, clock=clock, rng=rng, begin_ms=since_ms),
    ]
    if settings.quarantines:
        found.append(QuarantineSource(settings, target, begin_at=since_ms))
    return found
