"""One verification of a flow, with connections of its own: by a command, or by the end of a cutover."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from mm2py.backfill.verifying.progress import ProgressSink
from mm2py.backfill.verifying.reading import Sides, open_sides
from mm2py.backfill.verifying.results import Verification
from mm2py.backfill.verifying.verification import CompareJob, Verifier, WantedRanges
from mm2py.clock import SystemClock
from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import FlowSettings
from mm2py.flow_sides import ClusterFailed, as_workers_run_by, in_time
from mm2py.logs import make_logger
from mm2py.status.cluster_inquiry import InquirySide

MB: Final = 1_000_000
MB_PER_SECOND: Final = 100
"""So much is read of both clusters together, unless an operator says otherwise."""


async def verify_flow(
    file: SettingsFile,
    settings: FlowSettings,
    wanted: WantedRanges,
    job_of: Callable[[Sides], CompareJob],
    sink: ProgressSink,
    say: Callable[[str], None],
) -> Verification:
    """Compare the copies of a flow with their source.

    Args:
        settings: by the file; both clusters are reached as they say.
        say: is told if the stored settings cannot be used.
    Raises:
        ClusterFailed: a cluster does not answer.
        Mm2Error: as ``Verifier.verify``.
    """
    rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
    async with open_sides(settings, rng) as sides:
        await _must_answer(settings, sides)
        reading = as_workers_run_by(file, settings, sides.brokers[1], say)
        settings, _ = await in_time(settings.flow.target, reading, "reading settings")
        for topic in wanted.topics:
            settings.source_topic(topic)
        verifier = Verifier(settings, sides, clock=SystemClock(), rng=rng, log=make_logger("warning", "text"))
        return await verifier.verify(wanted, job_of(sides), sink)


async def _must_answer(settings: FlowSettings, sides: Sides) -> None:
    """Ask both clusters whether they answer: what follows would wait for them without end.

    Raises:
        ClusterFailed: one does not.
    """
    flow = settings.flow
    asked = [
        InquirySide(alias, brokers) for alias, brokers in zip((flow.source, flow.target), sides.brokers, strict=True)
    ]
    await asyncio.gather(*(one.probe() for one in asked))
    for one in asked:
        if one.away:
            raise ClusterFailed(one.away, remedy="")
