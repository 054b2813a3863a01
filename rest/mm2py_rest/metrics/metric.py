"""One metric of the page: its name, its meaning, and the function that reads its series. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from mm2py_rest.metrics.values import FlowValues, PartitionValues, Values

Series = tuple[Sequence[str], float | None]
"""Values of the labels, and the number; None: unknown, so there is no such series."""


class Sums(NamedTuple):
    """One series of a summary."""

    labels: Sequence[str]
    values: int
    """How many values were summed."""
    total: float


@dataclass(frozen=True, slots=True)
class Metric:
    """A gauge or a counter. The name of a counter ends in ``_total``."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    labels: tuple[str, ...]
    read: Callable[[Values], Iterable[Series]]


@dataclass(frozen=True, slots=True)
class Summary:
    """Two counters, ``<name>_count`` and ``<name>_sum``. Their rates, divided, are an average over any time."""

    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[Values], Iterable[Sums]]
    kind: Literal["summary"] = "summary"


AnyMetric = Metric | Summary


def of_partitions(
    labels: Callable[[PartitionValues], Sequence[str]], read: Callable[[PartitionValues], float | None]
) -> Callable[[Values], Iterable[Series]]:
    """Return a function that reads one series from each partition of a page."""
    return lambda values: ((labels(one), read(one)) for one in values.partitions)


def of_flows(
    labels: Callable[[FlowValues], Sequence[str]], read: Callable[[FlowValues], float | None]
) -> Callable[[Values], Iterable[Series]]:
    """Return a function that reads one series from each flow of a page."""
    return lambda values: ((labels(one), read(one)) for one in values.flows)


def of_worker(read: Callable[[Values], float | None]) -> Callable[[Values], Iterable[Series]]:
    """Return a function that reads the only series of a metric without labels."""
    return lambda values: [((), read(values))]
