"""What REST tells of recoveries: how they stand, the job that runs, the last runs, and what a call has come to."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from pydantic import Field

from mm2py.dr.calls.asking import RecoveryPlan
from mm2py.dr.calls.verbs import VERBS, VerbOptions, VerbRow
from mm2py.dr.journal import JournalEntry, standing_entry
from mm2py.dr.journal_report import report_plain
from mm2py.dr.readiness import NO_STANDING, RecoveryStanding
from mm2py.flow import Flow
from mm2py.status.bodies import JsonBody
from mm2py_rest.recovery.jobs import RecoveryJob

RUNS_MOST: Final = 10


class RecoveryJobBody(JsonBody):
    """A call that this worker carries out, or has carried out."""

    id: str = Field(examples=["5f0c9ad1e2b3"])
    """By which the log names it."""
    verb: str = Field(examples=["cutover"])
    """What was asked for."""
    flow: str = Field(examples=["A->B"])
    """Of which flow."""
    user: str
    """Who asked."""
    reason: str
    """Why."""
    begun_at_ms: int
    """When it was asked for."""
    ended_at_ms: int | None
    """When it ended; null: it runs."""
    exit_code: int | None
    """The exit code of the same command; null: it runs."""
    lines: tuple[str, ...]
    """What it has told, the newest at the end."""
    now: str
    """What it waits for at the moment."""
    text: str
    """What came of it, where the last line does not say it."""

    @classmethod
    def of(cls, job: RecoveryJob) -> Self:
        """Return the object for a job."""
        return cls(
            id=job.id,
            verb=job.verb,
            flow=str(job.flow),
            user=job.author.user,
            reason=job.author.reason,
            begun_at_ms=job.begun_at_ms,
            ended_at_ms=job.ended_at_ms,
            exit_code=job.exit_code,
            lines=tuple(job.lines),
            now=job.now,
            text=job.text,
        )


class RecoveryVerbBody(JsonBody):
    """A verb that may be called."""

    verb: str = Field(examples=["cutover"])
    """Its name in the path."""
    text: str
    """What it does."""
    options: tuple[str, ...] = Field(examples=[["hook_switch", "timeout"]])
    """The names of its options."""


class RecoveriesBody(JsonBody):
    """The recoveries of a pair of clusters."""

    flow: str = Field(examples=["A->B"])
    """The flow that was asked for."""
    standing: RecoveryStanding
    """How far the last recovery has come, by the journals."""
    problem: str
    """Why the journals do not tell all; empty: they do."""
    why_not: str
    """Why no verb can be called at this worker; empty: they can."""
    verbs: tuple[RecoveryVerbBody, ...]
    """Those that REST has."""
    hooks: tuple[str, ...]
    """The names of the commands in the worker's file."""
    job: RecoveryJobBody | None
    """What this worker carries out now, or has carried out last; null: nothing."""
    runs: tuple[Mapping[str, Any], ...]
    """The last runs with all steps, the newest at the end, as `mm2py dr history --json` has them."""

    @classmethod
    def of(
        cls,
        flow: Flow,
        entries: Sequence[JournalEntry],
        problem: str,
        why_not: str,
        hooks: Sequence[str],
        job: RecoveryJob | None,
    ) -> Self:
        """Return the object for what is known."""
        last = standing_entry(entries)
        return cls(
            flow=str(flow),
            standing=NO_STANDING
            if last is None
            else RecoveryStanding(last.run, str(last.verb), str(last.flow), str(last.state), last.at_ms),
            problem=problem,
            why_not=why_not,
            verbs=tuple(
                RecoveryVerbBody(verb=row.name, text=row.text, options=tuple(row.options.model_fields))
                for row in VERBS.values()
            ),
            hooks=tuple(sorted(hooks)),
            job=None if job is None else RecoveryJobBody.of(job),
            runs=tuple(report_plain(entries)[-RUNS_MOST:]),
        )


class RecoveryPlanBody(JsonBody):
    """What a call would do."""

    hash: str = Field(examples=["0f3a9c1d2e4b5a67"])
    """What `confirm` has to be, to carry it out."""
    lines: tuple[str, ...]
    """For people."""
    may_begin: bool
    """It would be carried out."""
    why_not: str
    """Why it would not be; empty: it would, or there is nothing to do."""
    goes_on: bool
    """It goes on with a run that was begun."""
    command: str = Field(examples=["mm2py dr cutover FILE 'A->B' --hook-switch dns"])
    """The same as a command."""
    plan: Mapping[str, Any]
    """For programs, as `--plan --json` prints it."""

    @classmethod
    def of(cls, row: VerbRow, flow: Flow, options: VerbOptions, plan: RecoveryPlan) -> Self:
        """Return the object for a plan."""
        refused = "" if not plan.code else " ".join(one for one in plan.lines if one.startswith("refused: "))
        return cls(
            hash=plan.hash,
            lines=tuple(plan.lines),
            may_begin=plan.code is None and not plan.blocked,
            why_not=plan.blocked or refused,
            goes_on=plan.goes_on,
            command=shlex.join(["mm2py", "dr", row.name, "FILE", str(flow), *options.words()]),
            plan=dict(plan.body),
        )


class RecoveryCalledBody(JsonBody):
    """What a call of a verb has come to."""

    plan: RecoveryPlanBody
    """What it does, or would do."""
    job: RecoveryJobBody | None
    """Who carries it out; null: only the plan was asked for, or there is nothing to do."""
