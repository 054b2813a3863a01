"""``mm2py apply FILE``: makes the workers of all flows run by a file, and first shows what that changes.

The settings of a flow that its workers share are stored on its target (``mm2-configs.A.internal``); workers notice a
change within two seconds. Addresses and credentials are not shared: each worker has them in its own file.
``--previous`` takes the last change back; a second ``--previous`` undoes the first.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mm2py.cli.command import CommandFailed, CommandParser, within_deadline
from mm2py.clock import Clock, SystemClock
from mm2py.command_lines import with_file
from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.config.flow_properties import is_enabled
from mm2py.config.settings import FlowSettings
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.flow_clusters import Connected, target_of
from mm2py.kafka.cluster import until_answered
from mm2py.kafka.port import Brokers
from mm2py.kafka.write_gate import gated_alone
from mm2py.login import author_here
from mm2py.moments import time_text
from mm2py.output import Write, confirm, say, write_out
from mm2py.records.author import REASON_MOST, Author, checked_reason
from mm2py.records.connector_config import APPLY_COMMAND, DecidedBy, FlowConfig
from mm2py.records.owner_record import Owner
from mm2py.secret import printable, shown_value
from mm2py.shared_settings.config_log import ConfigLog, ConfigTable, Lost
from mm2py.shared_settings.flow_config import Difference, changed, difference, reach, swapped
from mm2py.shared_settings.flow_owner import refuse_another_group
from mm2py.shared_settings.follow import merged
from mm2py.shared_settings.running_mm2 import look_for_mm2
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, exit_of_plan


class ApplyArguments(argparse.Namespace):
    """What follows ``apply`` on the command line."""

    file: Path
    clusters: list[str] | None
    previous: bool
    yes: bool
    dry_run: bool
    reason: str


def parse_arguments(arguments: Sequence[str]) -> ApplyArguments:
    """Read what follows ``apply`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "apply",
        "Makes all workers run their flows by this file; prints first what changes. Exit codes: 0 it is "
        "stored, there was nothing to do, or the answer was N; 1 a cluster did not answer, a flow is refused (as where "
        "a MirrorMaker 2 or another group runs it), or another writer changed it meanwhile; 2 wrong file or arguments, "
        "or there was something to store, and neither a terminal to ask on nor --yes; 3 with --dry-run: something "
        "would change.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="a properties file as MirrorMaker 2 reads it")
    parser.add_argument("--clusters", nargs="+", metavar="A", help="only flows into these clusters")
    parser.add_argument(
        "--previous", action="store_true", help="take the last change back; FILE only says how to reach the clusters"
    )
    parser.add_argument(
        "--reason",
        default="",
        metavar="TEXT",
        help=f"why, for those who read mm2py history and mm2py status: one line of at most {REASON_MOST} characters",
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--yes", action="store_true", help="do not ask; needed where there is no terminal")
    way.add_argument(
        "--dry-run", action="store_true", help="only print what would change (exit code 3: something would)"
    )
    found = parser.parse_args(arguments, namespace=ApplyArguments())
    found.reason = checked_reason(found.reason)
    return found


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """What is to be stored for one flow, if anything."""

    settings: FlowSettings
    stored: FlowConfig | None
    wanted: FlowConfig | None
    difference: Difference
    note: str = ""
    unknown: str = ""
    """Why it is not known whether a MirrorMaker 2 runs the flow."""
    dead_owner: Owner | None = None
    """The other group that ran the flow; none of its workers lives."""

    @property
    def flow(self) -> Flow:
        return self.settings.flow


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``load_configuration``.
    """
    options = parse_arguments(arguments)
    file = read_settings_file(options.file, options.clusters)
    configuration = file.configuration()
    flows = [*configuration.flows, *file.flows_switched_off()]
    for warning in configuration.warnings:
        say(f"note: {warning}")
    for error in configuration.refused.values():
        say(str(error))
    ask = confirm if sys.stdin.isatty() else None
    code = asyncio.run(
        apply(options, file, flows, write_out, say, connect=connect_target, clock=SystemClock(), confirm=ask)
    )
    return EXIT_FAILED if configuration.refused and code != EXIT_USAGE else code


async def apply(
    options: ApplyArguments,
    file: SettingsFile,
    flows: Sequence[FlowSettings],
    write: Write,
    warn: Write,
    *,
    connect: Callable[[FlowSettings, random.Random], Connected],
    clock: Clock,
    confirm: Callable[[str], bool] | None,
) -> int:
    """Show for each flow what changes, then store it; returns the exit code.

    A cluster that does not answer does not stop the others.

    Args:
        confirm: asks the operator; None: there is no terminal, so nothing is stored without ``--yes``. Otherwise a
            script that only wants to show the difference would store it.
    """
    rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
    plans: list[ApplyPlan] = []
    code = EXIT_DONE
    opened: dict[Flow, Connected] = {}
    try:
        for settings in flows:
            brokers = opened[settings.flow] = connect(settings, rng)
            try:
                plan = await within_deadline(
                    settings.flow.target,
                    _plan(options, file, settings, brokers, clock, rng),
                    f"reading {settings.configs_topic}",
                )
            except Mm2Error as error:
                warn(with_file(f"{settings.flow}: {error}", file.argument))
                code = EXIT_FAILED
                continue
            write(plan_text(plan))
            if plan.unknown:
                warn(f"{settings.flow}: {plan.unknown}")
            plans.append(plan)
        waiting = [plan for plan in plans if plan.wanted is not None]
        if options.dry_run:
            return exit_of_plan(failed=code == EXIT_FAILED, changes=bool(waiting))
        if not waiting:
            return code
        if not options.yes and confirm is None:
            write("Nothing was stored: without a terminal --yes is needed.\n")
            return EXIT_USAGE
        if not options.yes and confirm is not None and not confirm("Store this?"):
            write("Nothing was stored.\n")
            return code
        for plan in waiting:
            work = _store(plan, opened[plan.flow], author_here(options.reason), clock, rng)
            try:
                write(await within_deadline(plan.flow.target, work, f"writing {plan.settings.configs_topic}"))
            except Mm2Error as error:
                warn(f"{plan.flow}: {error}")
                code = EXIT_FAILED
        return code
    finally:
        for brokers in opened.values():
            await brokers.close()


async def _plan(
    options: ApplyArguments,
    file: SettingsFile,
    settings: FlowSettings,
    brokers: Brokers,
    clock: Clock,
    rng: random.Random,
) -> ApplyPlan:
    flow = settings.flow
    table = ConfigTable(brokers, settings.configs_topic)
    await table.read_patiently(rng)
    stored = table.config
    if options.previous:
        wanted = swapped(stored)
        if wanted is None:
            return ApplyPlan(settings, stored, None, (), "there is no configuration before this one")
        if is_enabled(wanted.properties):
            merged(file.switching_on(flow), flow, wanted)
    else:
        properties = file.shared(flow)
        if stored is None and not is_enabled(properties):
            return ApplyPlan(settings, stored, None, (), "it is switched off, and no worker runs it")
        wanted = changed(stored, properties, DecidedBy.APPLY)
    found = difference({} if stored is None else stored.properties, wanted.properties)
    if stored is not None and not found and stored.by is not DecidedBy.MM2:
        return ApplyPlan(settings, stored, None, (), "nothing to do")
    unknown = await _refuse_mm2(settings, brokers, rng)
    owner = await refuse_another_group(settings, table, brokers, clock=clock, rng=rng)
    return ApplyPlan(settings, stored, wanted, found, unknown=unknown, dead_owner=owner)


async def _refuse_mm2(settings: FlowSettings, brokers: Brokers, rng: random.Random) -> str:
    """Return why it is not known whether a MirrorMaker 2 runs the flow. Raises: Mm2IsRunning."""
    found = await until_answered(lambda: look_for_mm2(settings, brokers), rng=rng)
    return f"{found.unknown} {found.remedy}" if found.unknown else ""


async def _store(plan: ApplyPlan, brokers: Brokers, author: Author, clock: Clock, rng: random.Random) -> str:
    assert plan.wanted is not None  # noqa: S101
    await _refuse_mm2(plan.settings, brokers, rng)  # one may have started while the operator was asked
    log = ConfigLog(gated_alone(brokers, clock), plan.settings, worker=APPLY_COMMAND, clock=clock, rng=rng)
    await log.read_patiently(rng)
    await refuse_another_group(plan.settings, log, brokers, clock=clock, rng=rng)
    outcome = await log.write(replace(plan.wanted, author=author), instead_of=plan.stored)
    if isinstance(outcome, Lost):
        raise CommandFailed(
            "Another writer has changed it meanwhile.", remedy="Look at the difference, and apply again."
        )
    return f"{plan.flow}: version {outcome.config.version} is stored.\n"


def plan_text(plan: ApplyPlan) -> str:
    """Return what an operator should see before anything is stored."""
    if plan.wanted is None:
        return f"{plan.flow}: {plan.note}{_version(plan.stored)}.\n"
    if plan.stored is None:
        lines = [f"{plan.flow} is new:"]
        lines += [f"  {name} = {shown_value(name, value, most=None)}" for name, value in plan.wanted.properties.items()]
    else:
        lines = [f"{plan.flow}{_version(plan.stored)}:"]
        lines += [f"  {change}" for change in plan.difference]
        if not plan.difference:
            lines.append("  the same settings; from now on they are mm2py's")
        parts = reach(change.name for change in plan.difference)
        if any(not part.is_in_place for part in parts):
            lines.append("  The flow is drained and restarted for this; nothing is copied twice.")
    if plan.dead_owner is not None:
        lines.append(f"  Group {plan.dead_owner.group} ran this flow until now; it has no live worker of it.")
    return "".join(f"{printable(line)}\n" for line in lines)


def _version(stored: FlowConfig | None) -> str:
    if stored is None:
        return ""
    if stored.by is DecidedBy.MM2:
        return " (written by MirrorMaker 2)"
    return f" (version {stored.version}, by {stored.who_and_why}, {time_text(stored.at_ms)})"


def connect_target(settings: FlowSettings, rng: random.Random) -> Connected:
    """Return connections to the target of a flow."""
    return target_of("apply", settings, rng)
