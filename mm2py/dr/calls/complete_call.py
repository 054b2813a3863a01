"""One call of ``dr complete``: it ends a cutover, once everything that was switched is shown to be in the copies.

The comparison reads both clusters up to the ends at which the run's fence was verified, and may take long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mm2py.backfill.verifying.local.forecast import progress_line
from mm2py.backfill.verifying.local.local_job import LocalJob
from mm2py.backfill.verifying.progress import ProgressSink
from mm2py.backfill.verifying.reading import Sides
from mm2py.backfill.verifying.results import Verification, table
from mm2py.backfill.verifying.verification import WantedRanges
from mm2py.backfill.verifying.verify_flow import verify_flow
from mm2py.config.configuration import SettingsFile, flow_of
from mm2py.config.settings import FlowSettings
from mm2py.dr.calls.asking import RecoveryRefused
from mm2py.dr.calls.run_call import RunCall
from mm2py.dr.credentials import as_recovery
from mm2py.dr.cutover.switched import SwitchedRanges, not_clean, switched_ranges
from mm2py.dr.journal import JournalEntry
from mm2py.flow import Flow


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteCall(RunCall):
    """One call, which compares by itself when it was decided."""

    bytes_per_second: int | None
    """What is read of both clusters together; None: nothing is compared."""

    async def _before_it_goes(self, flow: Flow, entries: Sequence[JournalEntry]) -> None:
        """Compare. Raises: RecoveryRefused, it is not clean; Mm2Error, a cluster does not answer, or refuses."""
        switched, asked = switched_ranges(entries, flow), self.asked
        if self.bytes_per_second is None or switched is None:
            return
        limit, settings = self.bytes_per_second, compared_as(asked.file, flow)

        def job_of(sides: Sides) -> LocalJob:
            return LocalJob(
                sides, bytes_per_second=limit, clock=asked.clock, rng=asked.rng, tell=asked.say, shown=progress_line
            )

        try:
            sink = ProgressSink(asked.say, asked.progress)
            found = await verify_flow(asked.file, settings, wanted_of(switched, limit), job_of, sink, asked.say)
        finally:
            asked.progress("")
        for line in table(found).splitlines():
            asked.say(line)
        refuse_unclean(found, switched, flow)


def compared_as(file: SettingsFile, flow: Flow) -> FlowSettings:
    """Return the settings by which both clusters are read, with the credentials of recoveries."""
    return as_recovery(file, flow_of(file, str(flow)))


def wanted_of(switched: SwitchedRanges, bytes_per_second: int) -> WantedRanges:
    """Return what has to be compared."""
    return WantedRanges(switched.topics, bytes_per_second=bytes_per_second, ends=switched.ends)


def refuse_unclean(found: Verification, switched: SwitchedRanges, flow: Flow) -> None:
    """Raises: RecoveryRefused, the comparison does not show that everything that was switched is in the copies."""
    if wrong := not_clean(found, switched.ends):
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise RecoveryRefused(
            f"It is not completed: what was switched is not shown to be in the copies: {wrong[0]}{more}.",
            remedy=f"See mm2py verify FILE '{flow}' --local. --unverified completes it all the same.",
        )
