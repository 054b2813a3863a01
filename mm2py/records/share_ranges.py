"""Many shares as little JSON: ranges of partitions by flow, kind and topic, each with a number. Pure.

``{"A->B": {"MirrorSourceConnector": {"orders": "0-11,12=1", "": "*=1"}}}`` gives the partitions 0 to 11 of ``orders``
the number 0, which is not written; partition 12 and the flow's head have the number 1. 50,000 shares of one owner each
take some 10 bytes, or nothing where neighbours have the same number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from mm2py.connector import Kind
from mm2py.flow import Flow, parse_flow
from mm2py.records.control_record import NOT_A_PARTITION, Share

MOST_SHARES: Final = 1_000_000
"""In one text: a range that somebody else made up must not fill the memory."""
_WHOLE: Final = "*"

Ranges = dict[str, dict[str, dict[str, str]]]


def pack(numbers: Mapping[Share, int]) -> Ranges:
    """Return shares and their numbers (>= 0), the same for the same in whatever order they come."""
    topics: defaultdict[tuple[Flow, Kind, str], list[tuple[int, int]]] = defaultdict(list)
    for (flow, kind, topic, partition), number in numbers.items():
        topics[flow, kind, topic].append((partition, number))
    packed: Ranges = {}
    for (flow, kind, topic), partitions in sorted(topics.items()):
        packed.setdefault(str(flow), {}).setdefault(kind.value, {})[topic] = _text(sorted(partitions))
    return packed


def unpack(packed: Any) -> dict[Share, int]:
    """Return what was packed.

    Raises:
        ValueError, TypeError, AttributeError, ConfigError: it is not what ``pack`` makes.
    """
    numbers: dict[Share, int] = {}
    for flow_name, kinds in packed.items():
        flow = parse_flow(flow_name)
        for kind_name, topics in kinds.items():
            kind = Kind(kind_name)
            for topic, text in topics.items():
                for token in text.split(","):
                    span, _, digits = token.partition("=")
                    if (number := int(digits or 0)) < 0:
                        raise ValueError(f"{token[:40]!r} has a number below 0")
                    for partition in _partitions(span, MOST_SHARES - len(numbers)):
                        numbers[Share(flow, kind, topic, partition)] = number
    return numbers


def _text(partitions: list[tuple[int, int]]) -> str:
    runs: list[list[int]] = []
    for partition, number in partitions:
        if runs and partition == runs[-1][1] + 1 and number == runs[-1][2] and runs[-1][0] != NOT_A_PARTITION:
            runs[-1][1] = partition
        else:
            runs.append([partition, partition, number])
    return ",".join(_span(first, last) + (f"={number}" if number else "") for first, last, number in runs)


def _span(first: int, last: int) -> str:
    if first == NOT_A_PARTITION:
        return _WHOLE
    return str(first) if first == last else f"{first}-{last}"


def _partitions(span: str, most: int) -> range:
    if span == _WHOLE:
        return range(NOT_A_PARTITION, NOT_A_PARTITION + 1)
    first, _, last = span.partition("-")
    partitions = range(int(first), int(last or first) + 1)
    if partitions.start < 0 or not 0 < len(partitions) <= most:
        raise ValueError(f"{span[:40]!r} is no range of partitions")
    return partitions
