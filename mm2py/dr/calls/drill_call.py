"""One call of ``dr drill``: what a failover at this instant would do, proven by the records, and nothing is moved.

It reads both clusters. On the target it commits for groups of its own, and deletes them again; on both clusters it
keeps a record of the drill. Real groups, producers, settings and flows are not touched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.backfill.verifying.results import Verification
from mm2py.config.configuration import flow_of
from mm2py.config.settings import FlowSettings
from mm2py.dr.calls.asking import CallOutcome, Decide, RecoveryAsked, RecoveryPlan, RecoveryRefused, decided_on
from mm2py.dr.credentials import as_recovery, recovery_users, users_plain
from mm2py.dr.drill.comparison import compare_copies
from mm2py.dr.drill.drill_log import keep_drill
from mm2py.dr.drill.group_drill import GroupDriller
from mm2py.dr.drill.positions import DrillPlan, DrillPositions
from mm2py.dr.drill.printout import heading, plan_lines, report_lines
from mm2py.dr.drill.report import FORMAT, DrillReport, report_body
from mm2py.dr.drill.shadow_groups import delete_left, new_run
from mm2py.dr.failover.placing import LATEST, SAFE
from mm2py.dr.flow_readiness import ask_flow_readiness
from mm2py.dr.readiness import RecoveryReadiness
from mm2py.errors import ConfigError
from mm2py.flow_sides import FlowSides, require, settings_of_workers, sides_of
from mm2py.kafka.cluster import until_answered
from mm2py.logs import make_logger
from mm2py.moments import age_or_iso_ms
from mm2py.status.exit_codes import EXIT_DONE

VERIFY_RECORDS: Final = 100_000
RECORDS_MOST: Final = 10**12


@dataclass(frozen=True, slots=True)
class DrillOptions:
    """What is asked for, beside the flow."""

    topics: tuple[str, ...] = ()
    """Only these, as the source names them."""
    groups: tuple[str, ...] = ()
    """Only these."""
    to: str = LATEST
    """``latest``, ``safe``, or a time: see ``mm2py dr failover``."""
    compared: int | None = VERIFY_RECORDS
    """How many offsets at the end of each partition are compared with their copies; 0: none, None: all."""


def lines_of_report(report: DrillReport) -> Sequence[str]:
    """Return what people read of a drill."""
    return [heading(report), "", *report_lines(report)]


@dataclass(frozen=True, slots=True)
class DrillCall:
    """One call. ``shown`` returns what people read of its report."""

    asked: RecoveryAsked
    options: DrillOptions
    shown: Callable[[DrillReport], Sequence[str]] = lines_of_report

    async def run(self, decide: Decide) -> CallOutcome:
        """Do it, if that is decided.

        Raises:
            RecoveryRefused: the safe time is asked for, and is not known.
            ConfigError: the time is none.
            Mm2Error: a cluster does not answer, or refuses.
        After an error, or cancelled, it may leave groups of its own on the target; the next drill deletes them.
        """
        try:
            return await self._run(decide)
        finally:
            self.asked.progress("")

    async def _run(self, decide: Decide) -> CallOutcome:
        asked, options, log = self.asked, self.options, make_logger("warning", "text")
        by_file = flow_of(asked.file, asked.flow)
        async with sides_of("dr", as_recovery(asked.file, by_file)) as sides:
            require(sides)
            settings, _ = await settings_of_workers(asked.file, by_file, sides.target, asked.say)
            begun_ms = asked.clock.wall_ms()
            run = new_run(begun_ms, asked.rng)
            asked.progress("asking both clusters whether the flow is ready")
            readiness = await ask_flow_readiness(asked.file, by_file, asked.say)
            to_ms = moment_of(options.to, readiness, begun_ms)
            source, target = sides.source.brokers, sides.target.brokers
            driller = GroupDriller(settings, source, target, run, asked.clock, log)
            positions = DrillPositions(settings, source, target, log, to_ms=to_ms)
            with driller.timed("positions"):
                found = await until_answered(lambda: positions.plan(options.groups, options.topics), rng=asked.rng)
            plan = await self._plan(found, by_file)
            code = await decided_on(plan, decide)
            if code is not None:
                return CallOutcome(code, {**plan.body, "exit_code": code})
            removed, kept = await delete_left(target, settings.flow.source)
            driller.left_behind |= {name: str(why) for name, why in kept.items()}
            await driller.drill(found, asked.progress)
            verification = await self._compared(settings, log)
            report = DrillReport(
                run=run,
                flow=str(settings.flow),
                source=str(settings.flow.source),
                target=str(settings.flow.target),
                begun_ms=begun_ms,
                ended_ms=asked.clock.wall_ms(),
                author=asked.author,
                to=options.to,
                to_ms=to_ms,
                readiness=readiness,
                groups=driller.groups,
                steps=driller.steps,
                verification=verification,
                left_behind=driller.left_behind,
                removed=removed,
            )
            return await self._ended(report, settings, sides)

    async def _plan(self, found: DrillPlan, settings: FlowSettings) -> RecoveryPlan:
        asked, options, flow = self.asked, self.options, str(settings.flow)
        users = await asyncio.to_thread(recovery_users, asked.file, settings)
        places = [
            {
                "group": group.group,
                "topic": place.key[0],
                "partition": place.key[1],
                "other_topic": place.other[0],
                "committed": place.committed,
                "position": place.position,
                "why": place.why,
            }
            for group in found.groups
            for place in group.places
        ]
        body = {"format": FORMAT, "exit_code": EXIT_DONE, "flow": flow, "partitions": places}
        decided = {
            "flow": flow,
            "groups": sorted(one.group for one in found.groups),
            "options": [options.topics, options.groups, options.to, options.compared],
        }
        lines = [*plan_lines(found, flow), *(one.text for one in users)]
        return RecoveryPlan(lines, {**body, "connects_as": users_plain(users)}, decided, "Drill?")

    async def _compared(self, settings: FlowSettings, log: FilteringBoundLogger) -> Verification | None:
        asked, options = self.asked, self.options
        if options.compared == 0:
            return None
        asked.progress("comparing copies with their source")
        own = as_recovery(asked.file, settings)
        return await compare_copies(
            own, options.topics, options.compared, clock=asked.clock, rng=asked.rng, log=log, say=asked.progress
        )

    async def _ended(self, report: DrillReport, settings: FlowSettings, sides: FlowSides) -> CallOutcome:
        """Store the drill on both clusters, and tell its report."""
        asked, clusters = self.asked, {side.alias: side.brokers for side in sides}
        asked.progress("")
        for alias, why in (await keep_drill(report, settings.flow, clusters, asked.rng)).items():
            asked.say(f"The drill is not kept on {alias}: {why}")
        for line in self.shown(report):
            asked.say(line)
        return CallOutcome(report.exit_code, report_body(report))


def moment_of(to: str, readiness: RecoveryReadiness, now_ms: int) -> int | None:
    """Return the time to which the failover would lead; None: to the latest.

    Raises:
        ConfigError: it is no time.
        RecoveryRefused: the safe time is not known.
    """
    if to == LATEST:
        return None
    if to == SAFE:
        if readiness.safe_at_ms is None:
            raise RecoveryRefused(
                f"The safe time of {readiness.flow} is not known.",
                remedy=f"See mm2py dr check FILE '{readiness.flow}', or use --to latest.",
            )
        return readiness.safe_at_ms
    found = age_or_iso_ms(to, now_ms)
    if found is None:
        raise ConfigError(f"--to {to!r} is no time.", remedy="Write latest, safe, 10m, or 2026-11-29T07:30.")
    return found
