"""``mm2py apply FILE``: makes the workers of all flows run by a file, and first shows what that changes.

``FILE`` may be a plan that ``mm2py plan -o`` has saved: it is made again, and refused if it has become stale.

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
from dataclasses import replace
from pathlib import Path

from mm2py.cli.command import CommandFailed, CommandParser, within_deadline
from mm2py.cli.plan import plan_again, read_saved_plan
from mm2py.cli.settings_plan import ApplyPlan, plan_settings, refuse_mm2, version_text
from mm2py.clock import Clock, SystemClock
from mm2py.command_lines import with_file
from mm2py.config.configuration import SettingsFile, as_argument, read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow import Flow
from mm2py.flow_clusters import Connected, target_of
from mm2py.kafka.port import Brokers
from mm2py.kafka.write_gate import gated_alone
from mm2py.login import author_here
from mm2py.output import Write, confirm, say, write_out
from mm2py.records.author import REASON_MOST, Author, checked_reason
from mm2py.records.connector_config import APPLY_COMMAND
from mm2py.secret import printable, shown_value
from mm2py.shared_settings.config_log import ConfigLog, Lost
from mm2py.shared_settings.flow_config import reach
from mm2py.shared_settings.flow_owner import refuse_another_group
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
        "Makes all workers run their flows by this file; prints first what changes. A plan that mm2py plan -o has "
        "saved is applied only while it is not stale. Exit codes: 0 it is stored, there was nothing to do, or the "
        "answer was N; 1 a cluster did not answer, the plan is stale, a flow is refused (as where a MirrorMaker 2 or "
        "another group runs it), or another writer changed it meanwhile; 2 wrong file or arguments, or there was "
        "something to store, and neither a terminal to ask on nor --yes; 3 with --dry-run: something would change.",
    )
    parser.add_argument(
        "file", metavar="FILE", type=Path, help="a properties file as MirrorMaker 2 reads it, or a saved plan"
    )
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


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``load_configuration``.
    """
    options = parse_arguments(arguments)
    saved = read_saved_plan(options.file)
    if saved is None:
        file = read_settings_file(options.file, options.clusters)
    else:
        if options.previous or options.clusters:
            raise ConfigError(
                f"{options.file} is a plan: it says itself what is applied.",
                remedy="Leave out --previous and --clusters.",
            )
        file, unknown, stale = plan_again(saved)
        if unknown or stale:
            _say_not_applied(options.file, file, unknown, stale)
            return EXIT_FAILED
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


def _say_not_applied(plan: Path, file: SettingsFile, unknown: Sequence[str], stale: Sequence[str]) -> None:
    """Say why a saved plan is not applied: something is not known now, or the plan is stale."""
    if unknown:
        say(f"Nothing was stored: it is not known whether {plan} is stale.")
    else:
        say(
            f"Nothing was stored: {plan} is stale (- was planned, + would be done now). Make it again: mm2py plan"
            f" {file.argument} -o {as_argument(plan)}"
        )
    write_out("".join(f"{printable(with_file(line, file.argument))}\n" for line in (*unknown, *stale)))


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
                    plan_settings(file, settings, brokers, clock, rng, is_previous=options.previous),
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


async def _store(plan: ApplyPlan, brokers: Brokers, author: Author, clock: Clock, rng: random.Random) -> str:
    assert plan.wanted is not None  # noqa: S101
    await refuse_mm2(plan.settings, brokers, rng)  # one may have started while the operator was asked
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
        return f"{plan.flow}: {plan.note}{version_text(plan.stored)}.\n"
    if plan.stored is None:
        lines = [f"{plan.flow} is new:"]
        lines += [f"  {name} = {shown_value(name, value, most=None)}" for name, value in plan.wanted.properties.items()]
    else:
        lines = [f"{plan.flow}{version_text(plan.stored)}:"]
        lines += [f"  {change}" for change in plan.difference]
        if not plan.difference:
            lines.append("  the same settings; from now on they are mm2py's")
        parts = reach(change.name for change in plan.difference)
        if any(not part.is_in_place for part in parts):
            lines.append("  The flow is drained and restarted for this; nothing is copied twice.")
    if plan.dead_owner is not None:
        lines.append(f"  Group {plan.dead_owner.group} ran this flow until now; it has no live worker of it.")
    return "".join(f"{printable(line)}\n" for line in lines)


def connect_target(settings: FlowSettings, rng: random.Random) -> Connected:
    """Return connections to the target of a flow."""
    return target_of("apply", settings, rng)
