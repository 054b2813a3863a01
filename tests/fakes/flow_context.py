"""A flow's context for unit tests: parts that a test does not give are simple, or missing."""

from __future__ import annotations

import io
import random
from collections.abc import Mapping
from typing import Any, cast

from mm2py.connector import Side
from mm2py.copying.positions import PositionBudget
from mm2py.copying.reading.limits import MemoryBudget
from mm2py.flow import ClusterAlias
from mm2py.kafka.producer.fencing import TransactionalId
from mm2py.logs import make_logger
from mm2py.metrics.counters import Metrics
from mm2py_connectors.source.context import AttemptState, FlowContext
from tests.fakes.virtual_time import VirtualClock
from tests.scenarios.world import flow_settings


def make_context(
    *, source: object = None, target: object = None, settings: Mapping[str, str] | None = None, **parts: Any
) -> FlowContext:
    """Return the context of flow A->B.

    Args:
        settings: lines of the file that differ from the defaults.
        parts: fields of the context.
    """
    defaults = {
        "producer_name": TransactionalId("mm2py", "a" * 12, 1, "A->B"),
        "ended": frozenset(),
        "ownership": None,
        "incarnation": None,
        "memory": MemoryBudget(1 << 20),
        "position_budget": PositionBudget(),
        "allow_recopy": frozenset(),
        "metrics": Metrics(),
        "clock": VirtualClock(),
        "rng": random.Random(1),
        "log": make_logger("info", "text", io.StringIO()),
    }
    return FlowContext(
        AttemptState(flow_settings(tuple(sorted((settings or {}).items())))),
        _side("A", source),
        _side("B", target),
        **cast("Any", defaults | parts),
    )


def _side(alias: str, brokers: object) -> Side:
    async def identify() -> str | None:
        return alias

    return Side(ClusterAlias(alias), cast("Any", brokers), identify)
