"""What was read of one partition becomes a plan of what to send."""

from __future__ import annotations

from collections.abc import Sequence

from mm2py.kafka.port import FetchedPartition
from mm2py.replication.copying.copied_partition import CopiedPartition
from mm2py.replication.planning.planner import plan
from mm2py.replication.planning.steps import (
    MIDDLE_BYTES,
    PASS_REFUSED,
    Outgoing,
    Plan,
    Step,
    before_seam,
    bytes_of_one,
    merge_rule,
)
from mm2py.replication.reading.read_settings import ReadSettings


def plan_read(
    part: CopiedPartition, offset: int, fetched: FetchedPartition, settings: ReadSettings, *, is_stripe: bool
) -> tuple[Plan, int]:
    """Plan what was read from an offset on, and note at the partition what it says of the next reads.

    Args:
        is_stripe: it may begin with batches that an earlier read has brought.
    Returns:
        The plan, and up to which offset the partition may be read now: by isolation level, and by its seam.
    """
    records, part.merging = fetched.records, PASS_REFUSED
    if part.seam is not None and fetched.high_watermark > part.seam:
        records, part.ends_at = before_seam(records, part.seam, offset)
    if offset >= part.copier.search.pass_until:
        part.merging = merge_rule(
            settings.copy_modes.of(part.source_topic),
            read_bytes=len(fetched.records),
            target_is_behind=is_stripe or part.copier.in_flight.target_is_behind,  # a stripe has others behind it
        )
    planned = plan(
        records,
        wanted_offset=offset,
        read_committed=settings.read_committed,
        aborted=fetched.aborted,
        rules=part.rules,
        merging=part.merging,
        sent_before=part.copier.in_flight.sent_before,
        cut_until=part.copier.search.cut_until,
    )
    if is_stripe:
        while planned.steps and planned.steps[0].next_offset <= offset:
            del planned.steps[0]
    if planned.next_offset > offset:
        part.bytes_per_offset = len(records) / (planned.next_offset - offset)
        part.merged_read_bytes = _merged_bytes(planned.steps, part)
    # A damaged length may claim gigabytes, so the size grows step by step.
    asked = max(settings.partition_max_bytes, part.fetch_bytes)
    part.fetch_bytes = min(planned.cut_batch_bytes, 2 * max(asked, len(fetched.records)))
    part.transactional_seen |= planned.transactional
    part.log_end = fetched.high_watermark
    end = fetched.last_stable_offset if settings.read_committed else fetched.high_watermark
    return planned, end if part.seam is None else min(end, part.seam)


def _merged_bytes(steps: Sequence[Step], part: CopiedPartition) -> int | None:
    """Return how many bytes became one merged batch; None if they did not, or batches are too large to be read twice
    where a read cuts them."""
    first = steps[0] if steps else None
    if not isinstance(first, Outgoing) or first.reason != "repack" or part.merging.plain_max_bytes > MIDDLE_BYTES:
        return None
    is_last = len(steps) == 1  # then nothing says whether more would have fitted in
    first_bytes = 0 if is_last else round((first.next_offset - first.first_offset) * part.bytes_per_offset)
    return bytes_of_one(part.rules, part.bytes_per_offset, first_bytes)
