"""Calls of a recovery's verbs over REST: planned, compared with what was confirmed, and carried out in the background.

What a job has done stands in the journals of both clusters, and in the record of a fence. If this process ends, the job
ends with it, and the same call goes on, at any worker. One job at a time works on a pair of clusters here; of jobs in
several processes the journal lets one go on.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock, SystemClock
from mm2py.config.configuration import SettingsFile
from mm2py.config.properties import Properties
from mm2py.config.recovery import recovery_hooks, recovery_security
from mm2py.dr.calls.asking import Decide, RecoveryAsked, RecoveryPlan, RecoveryRefused
from mm2py.dr.calls.verbs import Carry, VerbOptions, VerbRow
from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow import ClusterAlias, Flow
from mm2py.logs import make_logger
from mm2py.records.author import Author
from mm2py.status.exit_codes import EXIT_CHANGES, EXIT_FAILED

LINES_KEPT: Final = 500
ENDED_KEPT: Final = 10
"""How many jobs of a pair of clusters are kept behind their ends."""
PLAN_MOST_S: Final = 120.0

Pair = frozenset[ClusterAlias]


class JobRuns(Mm2Error):
    """Another job works on the same clusters."""


class PlanChanged(Mm2Error):
    """What would be done is not what was confirmed."""


@dataclass(slots=True)
class RecoveryJob:
    """One call that is carried out."""

    verb: str
    flow: Flow
    author: Author
    begun_at_ms: int
    is_begun: bool = False
    """It was decided; before that it only plans."""
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES_KEPT))
    """What was told, the newest at the end."""
    now: str = ""
    """What is waited for at the moment."""
    ended_at_ms: int | None = None
    exit_code: int | None = None
    """Of the same command; None while it runs."""
    text: str = ""
    """What came of it, if that is not in the last line."""


@dataclass(frozen=True, slots=True)
class BegunRecovery:
    """What a call has come to."""

    plan: RecoveryPlan
    job: RecoveryJob | None
    """None: there was nothing to do."""


class RecoveryJobs:
    """All jobs of a process. Call ``close`` at its end."""

    def __init__(
        self, file: SettingsFile | None = None, clock: Clock | None = None, log: FilteringBoundLogger | None = None
    ) -> None:
        """``file``: the worker's, as it was read at the start."""
        whole = file or SettingsFile(Path(), Properties({}), ())
        self._file = replace(whole, selected=())  # a recovery is about both directions, whichever this worker runs
        self._clock = clock or SystemClock()
        self._log = log or make_logger("error", "text")
        self._running: dict[Pair, RecoveryJob] = {}
        self._ended: dict[Pair, deque[RecoveryJob]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def hooks(self) -> Mapping[str, tuple[str, ...]]:
        """The commands that the file names, by name."""
        return recovery_hooks(self._file.properties.entries)

    def why_not(self, flow: Flow) -> str:
        """Return why no verb may be called here for a flow; empty: they may."""
        entries = self._file.properties.entries
        try:
            missing = [alias for alias in (flow.source, flow.target) if recovery_security(entries, flow, alias) is None]
        except ConfigError as error:
            return str(error)
        if not missing:
            return ""
        lines = " and ".join(f"{alias}.dr.*" for alias in missing)
        return (
            f"The file of this worker has no {lines}, the credentials of recoveries there. Add them and restart the"
            " worker, or use the commands mm2py dr."
        )

    def of(self, flow: Flow) -> RecoveryJob | None:
        """Return the job that works on the clusters of a flow, else the last one that did; None: there was none."""
        pair = _pair_of(flow)
        running, ended = self._running.get(pair), self._ended.get(pair)
        if running is not None and running.is_begun:
            return running
        return ended[-1] if ended else None

    async def plan(self, row: VerbRow, flow: Flow, options: VerbOptions, author: Author) -> RecoveryPlan:
        """Return what a call would do. It changes nothing.

        Raises:
            RecoveryRefused: it cannot be called here.
            TimeoutError: the clusters take too long.
            Mm2Error: as the verb.
        """
        found: list[RecoveryPlan] = []

        async def decide(plan: RecoveryPlan) -> int | None:
            found.append(plan)
            return EXIT_CHANGES

        call = row.call(self._asked(row, flow, author, None), options, self.hooks)
        async with asyncio.timeout(PLAN_MOST_S):
            await call(decide)
        return found[-1]

    async def begin(
        self, row: VerbRow, flow: Flow, options: VerbOptions, author: Author, confirmed: str
    ) -> BegunRecovery:
        """Carry out what was confirmed, in the background. Returns when it has begun.

        Args:
            confirmed: ``RecoveryPlan.hash`` of the plan that was shown.
        Raises:
            JobRuns, PlanChanged, RecoveryRefused: nothing was begun.
            Mm2Error: as the verb, before it has begun.
        Cancelling the caller does not end the job.
        """
        pair = _pair_of(flow)
        if (running := self._running.get(pair)) is not None:
            raise JobRuns(
                f"The {running.verb} of {running.flow} runs here, job {running.id} of {running.author.user}.",
                remedy="Wait until it has ended, or call mm2py dr in a shell: that shuts the job out.",
            )
        job = RecoveryJob(row.name, flow, author, self._clock.wall_ms())
        call = row.call(self._asked(row, flow, author, job), options, self.hooks)
        decision: asyncio.Future[BegunRecovery] = asyncio.get_running_loop().create_future()

        async def decide(plan: RecoveryPlan) -> int | None:
            if plan.code is not None:
                decision.set_result(BegunRecovery(plan, None))
                return plan.code
            if why := _why_not_begun(plan, confirmed):
                decision.set_exception(why)
                return EXIT_FAILED
            job.is_begun = True
            job.lines.extend(plan.lines)
            self._log.info("recovery.begun", **_told(job))
            decision.set_result(BegunRecovery(plan, job))
            return None

        self._running[pair] = job
        task = asyncio.create_task(self._carry_out(call, decide, job, decision), name=f"{row.name} of {flow}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait([decision], timeout=PLAN_MOST_S)
        if not decision.done():
            task.cancel()
            raise TimeoutError
        return decision.result()

    async def close(self) -> None:
        """End all jobs where they are: each goes on when it is called again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _carry_out(
        self, call: Carry, decide: Decide, job: RecoveryJob, decision: asyncio.Future[BegunRecovery]
    ) -> None:
        try:
            outcome = await call(decide)
            job.exit_code, job.text = outcome.code, outcome.text
        except asyncio.CancelledError:
            job.text = "The worker's REST ended in the middle: the same call goes on."
            raise
        except Exception as error:
            if not decision.done():
                decision.set_exception(error)
                return
            job.exit_code, job.text = EXIT_FAILED, str(error)
            if not isinstance(error, Mm2Error):
                self._log.error("recovery.broken", exc_info=error, **_told(job))
                job.text = "An error of mm2py: the log of this worker has it as recovery.broken."
        finally:
            decision.cancel()  # nobody waits for it any more, or it is done
            job.ended_at_ms, job.now = self._clock.wall_ms(), ""
            pair = _pair_of(job.flow)
            del self._running[pair]
            if job.is_begun:
                self._ended.setdefault(pair, deque(maxlen=ENDED_KEPT)).append(job)
                self._log.info("recovery.ended", exit_code=job.exit_code, text=job.text, **_told(job))

    def _asked(self, row: VerbRow, flow: Flow, author: Author, job: RecoveryJob | None) -> RecoveryAsked:
        def say(line: str) -> None:
            if job is not None:
                job.lines.append(line)

        def progress(text: str) -> None:
            if job is not None:
                job.now = text

        if why := self.why_not(flow):
            raise RecoveryRefused(why, remedy="")
        return RecoveryAsked(
            file=self._file,
            flow=str(flow),
            author=author,
            command=f"dr {row.name} over REST",
            say=say,
            progress=progress,
            clock=self._clock,
            rng=random.Random(),  # noqa: S311  (spreads retries; nothing secret)
        )


def _pair_of(flow: Flow) -> Pair:
    return frozenset((flow.source, flow.target))


def _why_not_begun(plan: RecoveryPlan, confirmed: str) -> Mm2Error | None:
    if plan.blocked:
        return RecoveryRefused(plan.blocked, remedy="")
    if plan.goes_on or plan.hash == confirmed:
        return None
    return PlanChanged(
        "What would be done is not what was confirmed.", remedy="Ask for the plan again, and look at it."
    )


def _told(job: RecoveryJob) -> dict[str, str]:
    author = job.author
    return {"job": job.id, "verb": job.verb, "flow": str(job.flow), "user": author.user, "reason": author.reason}
