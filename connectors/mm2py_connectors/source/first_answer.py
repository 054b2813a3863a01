"""Waits for the first answer of a flow's clusters, before any part of the flow runs, and reports the wait.

A MirrorSourceConnector of MirrorMaker 2 that does not reach its source ends its start with an exception, or waits
without a report. Here the worker tells the group that a source has not answered (``Beat.not_started``): no part that
could store the reason in the status topic runs yet.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.connector import Side
from mm2py.errors import FirstErrorGroup
from mm2py.flow import Flow
from mm2py.group.ownership import OwnershipView
from mm2py.kafka.cluster import WAITING_REPORT_S, reach
from mm2py.kafka.errors import KafkaError
from mm2py.records.control_record import NotStarted
from mm2py.status.not_copied import Reason, source_remedy
from mm2py_connectors.source.refusals import FlowRefused

NO_ANSWER = f"no answer within {WAITING_REPORT_S:g} s"


class FirstAnswers:
    """Waits for the clusters of one flow."""

    def __init__(
        self,
        flow: Flow,
        ownership: OwnershipView | None,
        show: Callable[[str], None],
        *,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """``show`` gets a sentence on what the flow waits for; ``ownership`` is None if the group must not know."""
        self._flow = flow
        self._ownership = ownership
        self._show = show
        self._clock = clock
        self._rng = rng
        self._log = log
        self._failure = ""
        """Why the last attempt to reach the source failed."""

    async def of_both(self, source: Side, target: Side) -> tuple[str | None, str | None]:
        """Return the ids of both clusters when they have answered. Cancelling loses nothing.

        Raises: FlowRefused, after an error that no retry mends.
        """
        async with FirstErrorGroup() as tasks:
            source_id = tasks.create_task(self._of_source(source), name=f"{self._flow} source")
            target_id = tasks.create_task(self._of(target, "target", self._show), name=f"{self._flow} target")
        return source_id.result(), target_id.result()

    async def _of_source(self, source: Side) -> str | None:
        """Return the source's id. Report to operators and the group while there is no answer, not only after a failure:
        a cluster that accepts connections may stay silent for as long as a request may take."""
        begun_ms, is_logged = self._clock.wall_ms(), False
        asking = asyncio.create_task(self._of(source, "source", self._note), name=f"{self._flow} asks its source")
        try:
            while not (await asyncio.wait([asking], timeout=WAITING_REPORT_S))[0]:
                why = self._failure or NO_ANSWER
                self._show(why)
                self._tell_group(NotStarted(begun_ms, Reason.SOURCE_SILENT, why))
                if not is_logged:
                    is_logged = True
                    self._log.warning(
                        "flow.waiting",
                        doing=f"waiting for the first answer of {source.alias}",
                        reason=str(Reason.SOURCE_SILENT),
                        why=why,
                        remedy=source_remedy(self._flow),
                    )
            return await asking
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            self._tell_group(None)

    def _tell_group(self, why: NotStarted | None) -> None:
        """Tell the group why the source does not answer; None: it does, and a reason of another kind stays."""
        if self._ownership is None:
            return
        told = self._ownership.not_started
        if why is not None or (told is not None and told.reason == Reason.SOURCE_SILENT):
            self._ownership.cannot_start(why)

    def _note(self, why: str) -> None:
        self._failure = why
        self._show(why)

    async def _of(self, side: Side, role: str, show: Callable[[str], None]) -> str | None:
        """Return the id of a cluster; log every few seconds that it does not answer."""
        log = self._log.bind(cluster=side.alias, role=role)
        try:
            return await reach(
                side.identify, log, clock=self._clock, rng=self._rng, on_error=lambda error: show(str(error))
            )
        except KafkaError as error:
            raise FlowRefused(error.what, remedy=error.remedy) from error
