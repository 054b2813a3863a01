"""What a flow's copying looks like from outside."""

from __future__ import annotations

from collections.abc import Sequence

from mm2py.connector import TopicStatus
from mm2py.replication.copying.copied_partition import CopiedPartition
from mm2py.replication.copying.stalls import NOT_STORED
from mm2py.replication.copying.states import Reconciling, Stalled, Waiting


def topic_status(name: str, parts: Sequence[CopiedPartition], now_ms: int) -> TopicStatus:
    """Return one topic's state, summed over its partitions (at least one); ``now_ms`` in epoch milliseconds."""
    rebuilt: dict[str, int] = {}
    dropped: dict[str, int] = {}
    lags = [part.copier.lag() for part in parts]
    known = [lag for lag in lags if lag is not None]
    behind = [
        part.copier.tally.last_timestamp_ms
        for part, lag in zip(parts, lags, strict=True)
        if lag and part.copier.tally.last_timestamp_ms >= 0
    ]
    untold = any(lag and part.copier.tally.last_timestamp_ms < 0 for part, lag in zip(parts, lags, strict=True))
    for part in parts:
        for reason, count in part.copier.tally.rebuilt.items():
            rebuilt[reason] = rebuilt.get(reason, 0) + count
        for reason, count in part.copier.tally.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    return TopicStatus(
        topic=name,
        remote_topic=parts[0].target_topic,
        partitions=len(parts),
        records=sum(part.copier.tally.records for part in parts),
        bytes=sum(part.copier.tally.bytes for part in parts),
        passed=sum(part.copier.tally.passed for part in parts),
        rebuilt=rebuilt,
        dropped=dropped,
        lag_records=sum(known) if known else None,
        lag_s=_lag_s(behind, now_ms) if known and not untold else None,
        problems=tuple(sorted(_problems(parts))),
        copy_modes=_copy_modes(parts),
    )


def _problems(parts: Sequence[CopiedPartition]) -> set[str]:
    waiting = (Reconciling, Waiting, Stalled)
    reasons = {part.copier.reason for part in parts if isinstance(part.copier.state, waiting)}
    reasons |= {f"{NOT_STORED}: {part.position_problem}" for part in parts if part.waits_for_position}
    return reasons | {f"stalled: {part.stalled}" for part in parts if part.stalled}


def _copy_modes(parts: Sequence[CopiedPartition]) -> tuple[str, ...]:
    """Return how batches of these partitions travel, with the reason; nothing for those not read yet."""
    return tuple(sorted({part.merging.why for part in parts if part.copier.end_offset is not None}))


def _lag_s(behind: Sequence[int], now_ms: int) -> float:
    """Return the age of the last record copied where the copy is furthest behind; 0 where nothing is."""
    return max(0.0, (now_ms - min(behind)) / 1000) if behind else 0.0
