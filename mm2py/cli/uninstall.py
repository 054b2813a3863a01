"""``mm2py uninstall FILE A->B``: removes what a flow that is gone has left on its clusters.

It removes the flow's own internal topics and the ACLs of exactly these, and no remote topic that is not named. Before
that it exports positions and ledger. MirrorMaker 2 has no such command.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mm2py.cli.command import CommandFailed, CommandParser, within_deadline
from mm2py.cli.dr_calls import may_change, say_lines
from mm2py.cli.flow_sides import settings_of_workers
from mm2py.clock import SystemClock
from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.dr.fence.choosing import settings_of_flow
from mm2py.flow import ClusterAlias
from mm2py.flow_sides import sides_of
from mm2py.kafka.port import Brokers
from mm2py.output import write_out
from mm2py.secret import printable
from mm2py.status.exit_codes import EXIT_CHANGES, EXIT_DONE, EXIT_FAILED
from mm2py.uninstall.asking import AskedRemains, ask_remains
from mm2py.uninstall.exporting import export
from mm2py.uninstall.planned import UninstallPlan, plan_uninstall
from mm2py.uninstall.printout import lines_of
from mm2py.uninstall.removing import remove

FORMAT: Final = 1
"""The version of the object for programs. Within one version fields may be added; none changes its meaning."""
DEADLINE_S: Final = 120.0
"""How long reading, exporting or removing may take: a group that was killed is watched for its session time-out."""


class UninstallArguments(argparse.Namespace):
    """What follows ``uninstall`` on the command line."""

    file: Path
    flow: str
    remote_topic: list[str]
    export: Path | None
    target_only: bool
    plan: bool
    yes: bool
    json: bool


def parse_arguments(arguments: Sequence[str]) -> UninstallArguments:
    """Read what follows ``uninstall`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "uninstall",
        "Removes what a flow that is gone has left behind: its own internal topics, and the ACLs of exactly these. It "
        "first exports positions and ledger. Remote topics stay unless they are named. It is refused while a worker, "
        "MirrorMaker 2, a backfill or a recovery uses the flow, or another flow uses one of the topics. Exit codes: 0 "
        "removed, or nothing is there; 1 a cluster did not answer, or it is refused; 2 wrong file or arguments, or "
        "neither a terminal to ask on nor --yes; 3 with --plan: something would be removed.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow ran")
    parser.add_argument("flow", metavar="A->B", help="the flow")
    parser.add_argument(
        "--remote-topic",
        nargs="+",
        action="extend",
        default=[],
        metavar="T",
        help="delete this copy on the target too, with its records",
    )
    parser.add_argument("--export", metavar="DIR", type=Path, help="an empty or new folder for positions and ledger")
    parser.add_argument("--target-only", action="store_true", help="the source is gone: do not ask it")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--plan", action="store_true", help="only print what would be removed")
    how.add_argument("--yes", action="store_true", help="do not ask; needed where there is no terminal")
    parser.add_argument("--json", action="store_true", help="one JSON object; takes --plan or --yes")
    found = parser.parse_args(arguments, namespace=UninstallArguments())
    if found.json and not (found.plan or found.yes):
        parser.error("--json asks nothing: it takes --plan or --yes")
    return found


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``; a cluster does not answer, or refuses.
    """
    options = parse_arguments(arguments)
    file = read_settings_file(options.file, None)
    return asyncio.run(_uninstall(options, file, settings_of_flow(file, options.flow)))


async def _uninstall(options: UninstallArguments, file: SettingsFile, settings: FlowSettings) -> int:
    def say(lines: Sequence[str]) -> None:
        if not options.json:
            say_lines(lines)

    async with sides_of("uninstall", settings) as sides:
        wanted = (sides.target,) if options.target_only else sides
        for side in wanted:
            if side.away:
                gone = "" if side is sides.target else "If it is gone for good, add --target-only."
                raise CommandFailed(side.away, remedy=gone)
        settings, _ = await settings_of_workers(file, settings, sides.target)
        clusters = {ClusterAlias(side.alias): side.brokers for side in wanted}
        asked = await _ask(file, settings, clusters)
        plan = plan_uninstall(asked.remains, options.remote_topic)
        folder = options.export or Path(_folder_of(settings))
        say(lines_of(plan, str(folder)))
        code = _code_of(plan, options, say)
        removed: list[str] = []
        if code is None:
            again = await _ask(file, settings, clusters)
            if plan_uninstall(again.remains, options.remote_topic) != plan:
                raise CommandFailed("It has changed meanwhile: nothing was removed.", remedy="Call the command again.")
            await _carry_out(plan, settings, clusters, again, folder, removed, say)
            code = EXIT_DONE
    if options.json:
        write_out(json.dumps(_body(plan, code, removed, folder), indent=2) + "\n")
    return code


def _folder_of(settings: FlowSettings) -> str:
    flow = settings.flow
    return f"mm2py-uninstall-{flow.source}-{flow.target}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


async def _ask(file: SettingsFile, settings: FlowSettings, clusters: dict[ClusterAlias, Brokers]) -> AskedRemains:
    rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
    asking = ask_remains(file, settings, clusters, clock=SystemClock(), rng=rng)
    return await within_deadline(settings.flow.target, asking, "asking what the flow has left", deadline_s=DEADLINE_S)


def _code_of(plan: UninstallPlan, options: UninstallArguments, say: Callable[[Sequence[str]], None]) -> int | None:
    """Return the exit code if nothing is to be removed; None if it is."""
    if plan.refusals:
        return EXIT_FAILED
    if not plan.removes_anything:
        return EXIT_DONE
    if options.plan:
        return EXIT_CHANGES
    return may_change(lambda line: say([line]), f"Remove this of {plan.flow}?", yes=options.yes)


async def _carry_out(
    plan: UninstallPlan,
    settings: FlowSettings,
    clusters: dict[ClusterAlias, Brokers],
    asked: AskedRemains,
    folder: Path,
    removed: list[str],
    say: Callable[[Sequence[str]], None],
) -> None:
    def told(line: str) -> None:
        removed.append(line)
        say([line])

    target = settings.flow.target
    exporting = export(settings, clusters[target], asked.target, folder)
    counts = await within_deadline(target, exporting, "exporting positions and ledger", deadline_s=DEADLINE_S)
    say([f"Exported into {folder}: {', '.join(f'{count} lines in {name}' for name, count in counts.items())}."])
    await within_deadline(target, remove(plan, clusters, told), "removing", deadline_s=DEADLINE_S)


def _body(plan: UninstallPlan, code: int, removed: Sequence[str], folder: Path) -> dict[str, object]:
    return {
        "format": FORMAT,
        "exit_code": code,
        "flow": str(plan.flow),
        "refused": list(plan.refusals),
        "remote_topics": [place._asdict() for place in plan.remote_topics],
        "topics": [place._asdict() for place in plan.topics],
        "acls": [{"cluster": cluster, "acl": printable(str(acl))} for cluster, acl in plan.acls],
        "kept": [one._asdict() for one in plan.kept],
        "notes": list(plan.notes),
        "removed": list(removed),
        "export": str(folder) if removed else "",
    }
