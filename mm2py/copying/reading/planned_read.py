"""Turns what was read of one partition into a plan of what to send."""

from __future__ import annotations

from collections.abc import Sequence

from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.planning.planner import plan
from mm2py.copying.planning.steps import (
    MIDDLE_BYTES,
    PASS_REFUSED,
    Outgoing,
    Plan,
    Step,
    before_seam,
    bytes_of_one,
    merge_rule,
)
from mm2py.copying.reading.read_settings import ReadSettings
from mm2py.kafka.port import FetchedPartition


class UnplannedRead:
    """What was read of one partition, with all that its plan depends on."""

    def __init__(
        self, part: CopiedPartition, offset: int, fetched: FetchedPartition, settings: ReadSettings, *, is_stripe: bool
    ) -> None:
        """Take over what was read from an offset on.

        Args:
            is_stripe: it may begin with batches that an earlier read has brought.
        """
        self._part = part
        self.offset = offset
        self._fetched = fetched
        self._settings = settings
        self._is_stripe = is_stripe
        self._records, part.reading.merging = fetched.records, PASS_REFUSED
        if part.seam is not None and fetched.high_watermark > part.seam:
            self._records, part.reading.ends_at = before_seam(self._records, part.seam, offset)
        if offset >= part.copier.search.pass_until:
            part.reading.merging = merge_rule(
                settings.copy_modes.of(part.source_topic),
                read_bytes=len(fetched.records),
                target_is_behind=is_stripe or part.copier.in_flight.target_is_behind,  # more stripes follow a stripe
            )
        self._merging, self._rules = part.reading.merging, part.rules
        self._sent_before, self._cut_until = part.copier.in_flight.sent_before, part.copier.search.cut_until

    @property
    def is_stale(self) -> bool:
        """The copier now wants another offset, or another way of planning."""
        copier = self._part.copier
        now = (copier.fetch_offset, self._part.rules, copier.in_flight.sent_before, copier.search.cut_until)
        return now != (self.offset, self._rules, self._sent_before, self._cut_until)

    def plan(self, *, light: bool) -> Plan:
        """Plan it, on the event loop if ``light``. Nothing of the partition is changed."""
        return plan(
            self._records,
            wanted_offset=self.offset,
            read_committed=self._settings.read_committed,
            aborted=self._fetched.aborted,
            rules=self._rules,
            merging=self._merging,
            sent_before=self._sent_before,
            cut_until=self._cut_until,
            transforms=self._part.transforms,
            light=light,
        )

    def note(self, planned: Plan) -> int:
        """Store in the partition what the plan shows for its next reads.

        Returns:
            The offset up to which the partition may be read now, by isolation level and by its seam.
        """
        part, offset, fetched, settings = self._part, self.offset, self._fetched, self._settings
        if self._is_stripe:
            while planned.steps and planned.steps[0].next_offset <= offset:
                del planned.steps[0]
        if planned.next_offset > offset:
            part.reading.bytes_per_offset = len(self._records) / (planned.next_offset - offset)
            part.reading.merged_bytes = _merged_bytes(planned.steps, part)
        # A damaged length may claim gigabytes, so the size grows step by step.
        asked = max(settings.partition_max_bytes, part.reading.fetch_bytes)
        part.reading.fetch_bytes = min(planned.cut_batch_bytes, 2 * max(asked, len(fetched.records)))
        part.reading.transactional_seen |= planned.transactional
        part.reading.is_heavy = planned.is_heavy
        part.reading.log_end = fetched.high_watermark
        end = fetched.last_stable_offset if settings.read_committed else fetched.high_watermark
        return end if part.seam is None else min(end, part.seam)


def _merged_bytes(steps: Sequence[Step], part: CopiedPartition) -> int | None:
    """Return how many bytes became one merged batch; None if nothing was merged, or if the source's batches are so
    large that reading one twice, where a read cuts it, costs too much."""
    first = steps[0] if steps else None
    if (
        not isinstance(first, Outgoing)
        or first.reason != "repack"
        or part.reading.merging.plain_max_bytes > MIDDLE_BYTES
    ):
        return None
    is_last = len(steps) == 1  # then nothing says whether more would have fitted in
    first_bytes = 0 if is_last else round((first.next_offset - first.first_offset) * part.reading.bytes_per_offset)
    return bytes_of_one(part.rules, part.reading.bytes_per_offset, first_bytes)
