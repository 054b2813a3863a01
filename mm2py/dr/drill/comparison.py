"""Compares the copies of a flow with their source for a drill, as ``mm2py verify --local`` does it."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.backfill.verifying.local.local_job import LocalJob
from mm2py.backfill.verifying.progress import ProgressSink
from mm2py.backfill.verifying.reading import open_sides
from mm2py.backfill.verifying.results import Verification
from mm2py.backfill.verifying.verification import Verifier, WantedRanges
from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings

BYTES_PER_SECOND: Final = 100_000_000
"""Of both clusters together."""


async def compare_copies(
    settings: FlowSettings,
    topics: Collection[str],
    last_records: int | None,
    *,
    clock: Clock,
    rng: random.Random,
    log: FilteringBoundLogger,
    say: Callable[[str], None],
) -> Verification:
    """Compare the last records of each partition, with connections of its own.

    Args:
        topics: as the source names them; empty: all that the flow copies.
        last_records: how many offsets at the end of each source partition; None: all.
    Raises: as ``Verifier.verify``.
    """
    async with open_sides(settings, rng) as sides:
        job = LocalJob(
            sides, bytes_per_second=BYTES_PER_SECOND, clock=clock, rng=rng, tell=say, shown=lambda _: "comparing"
        )
        verifier = Verifier(settings, sides, clock=clock, rng=rng, log=log)
        asked = {} if last_records is None else {"last_records": last_records}
        wanted = WantedRanges(topics, bytes_per_second=BYTES_PER_SECOND, asked=asked, last_records=last_records)
        return await verifier.verify(wanted, job, ProgressSink(say, lambda _: None))
