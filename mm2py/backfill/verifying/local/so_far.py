"""What a local verification had compared when it was interrupted. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mm2py.backfill.verifying.planning import PartitionPlan
from mm2py.backfill.verifying.results import PartitionResult, RangeResult, stretches
from mm2py.moments import duration_text

SHOWN_MOST: Final = 40


def lines_so_far(
    flow: tuple[str, str], plans: Sequence[PartitionPlan], results: Mapping[int, RangeResult], seconds: float
) -> list[str]:
    """Return one line with numbers, then one for each stretch that was compared; differences come first.

    Args:
        flow: the aliases of source and target.
        results: of the ranges that were read, by number.
        seconds: since the command was started.
    """
    lines: list[str] = []
    differing: list[str] = []
    waiting = 0
    for plan in plans:
        facts = plan.facts
        if facts.is_compacted:
            waiting += bool(plan.ranges)
            continue
        ranges = [one for one in plan.ranges if one.number in results]
        read = PartitionResult(PartitionPlan(facts, ranges), [results[one.number] for one in ranges])
        for one in stretches(read):
            text = f"{flow[0]}/{one.topic}/{one.partition} [{one.source[0]}, {one.source[1]}) {one.result}"
            (lines if one.result == "equal" else differing).append(text)
    records = sum(one.records for one in results.values())
    count = sum(len(plan.ranges) for plan in plans)
    first = f"interrupted after {duration_text(seconds)}: "
    if count:
        first += f"compared {len(results):,} of {count:,} ranges, {records:,} records. There is no certificate."
    else:
        first += "nothing was compared yet."
    shown = [*differing, *lines]
    more = len(shown) - SHOWN_MOST
    return [
        first,
        *shown[:SHOWN_MOST],
        *([f"and {more:,} more stretches"] if more > 0 else []),
        *([f"{waiting:,} compacted partition(s) are judged only at the end, so not yet."] if waiting else []),
    ]
