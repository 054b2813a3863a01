"""``mm2py why FILE A->B``: is a topic, a partition or a group replicated, and what decides that?

It asks both clusters and no worker, and writes nothing. MirrorMaker 2 has no such command.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from mm2py.cli.command import CommandParser
from mm2py.cli.flow_sides import settings_of_workers
from mm2py.clock import SystemClock
from mm2py.command_lines import with_file
from mm2py.config.configuration import SettingsFile, as_argument, flow_of, read_settings_file
from mm2py.config.flow_properties import ENABLED
from mm2py.config.origins import origin_of
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError
from mm2py.flight.inquiry import explain_at
from mm2py.flight.why_then import PastExplanation, lines_of
from mm2py.flow import PARTITION_MOST, Flow, parse_flow
from mm2py.flow_clusters import connect
from mm2py.flow_sides import sides_of
from mm2py.logs import make_logger
from mm2py.moments import MOMENTS, moment_ms, time_text
from mm2py.output import write_out
from mm2py.secret import printable
from mm2py.status.bodies import WhyBody, json_of
from mm2py.status.cluster_inquiry import InquirySide, patience_of_commands
from mm2py.status.exit_codes import exit_of_explanation
from mm2py.status.flow_look import look_at_flow
from mm2py.status.target_alone import GroupsQuestion
from mm2py.status.why import OTHERS_MOST, Explanation, Replicated, asked_about, explain_switched_off, explain_topic
from mm2py.status.why_group import asked_about_group, explain_group
from mm2py.status.why_inquiry import details_of, group_on_source


class WhyArguments(argparse.Namespace):
    """What follows ``why`` on the command line."""

    file: Path
    flow: str
    topic: str | None
    partition: tuple[str, int] | None
    group: str | None
    at: int | None
    """In epoch milliseconds."""
    json: bool


def parse_arguments(arguments: Sequence[str], *, now_ms: int) -> WhyArguments:
    """Read what follows ``why`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "why",
        "Says in a sentence whether a topic, one partition of it, or a consumer group is replicated, which rule or "
        "setting decides that and where it is written, since when, and what would change it. No worker is asked, and "
        "none has to run; it may take five seconds. Exit codes: 0 it is replicated (a group: it can continue on the "
        "target); 1 a cluster did not answer, so it is not known; 2 wrong file or arguments; 3 it is not, or not all "
        "of it.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("flow", metavar="A->B", help="the flow")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--topic", metavar="T", help="a topic, as the source names it")
    asked.add_argument("--partition", metavar="T/N", type=_partition, help="one partition of it, as orders/3")
    asked.add_argument("--group", metavar="G", help="a consumer group")
    parser.add_argument("--at", metavar="TIME", help=f"how it was at this time of the last 24 hours: {MOMENTS}")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    found = parser.parse_args(arguments, namespace=WhyArguments())
    if found.at is not None:
        text = str(found.at)
        found.at = moment_ms(text, now_ms)
        if found.at is None or found.at > now_ms:
            what = "no time" if found.at is None else "in the future"
            raise ConfigError(f"--at {text!r} is {what}.", remedy=f"Write {MOMENTS}.")
        if found.group is not None:
            raise ConfigError(
                "--at cannot be combined with --group: the commits of groups are not recorded.",
                remedy="Ask for a topic or a partition, or leave out --at.",
            )
    return found


def _partition(text: str) -> tuple[str, int]:
    topic, _, number = text.rpartition("/")
    if not topic or not (number.isascii() and number.isdecimal()) or int(number) > PARTITION_MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is no partition; write it as orders/3")
    return topic, int(number)


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``load_configuration``; or a cluster does not answer.
    """
    options = parse_arguments(arguments, now_ms=SystemClock().wall_ms())
    file = read_settings_file(options.file, None)
    flow = parse_flow(options.flow)
    off = next((one for one in file.flows_switched_off() if one.flow == flow), None)
    if off is not None and options.at is None:
        return _show(options, flow, asyncio.run(_explain_switched_off(options, file, off)))
    settings = flow_of(file, options.flow)
    if options.at is not None:
        return _show_past(options, settings, options.at)
    explain = _explain_topic if options.group is None else _explain_group
    return _show(options, flow, asyncio.run(explain(options, settings)))


def _show(options: WhyArguments, flow: Flow, found: Explanation) -> int:
    code = exit_of_explanation(found)
    if options.json:
        write_out(json_of(WhyBody.of(flow, found, exit_code=code)))
    else:
        write_out(text_of(flow, found, as_argument(options.file)))
    return code


def text_of(flow: Flow, found: Explanation, file: str) -> str:
    """Return what people read. ``file``: as a command line takes it; it is put into the commands that are named."""
    lines = [f"{flow}, {found.asked}: {found.text}"]
    lines += [f"  also: {one.reason}: {one.text}" for one in found.others[:OTHERS_MOST]]
    if len(found.others) > OTHERS_MOST:
        lines.append(f"  and {len(found.others) - OTHERS_MOST} more")
    return "".join(f"{printable(with_file(line, file))}\n" for line in lines)


def _show_past(options: WhyArguments, settings: FlowSettings, at_ms: int) -> int:
    then = asyncio.run(_explain_past(options, settings, at_ms))
    code = exit_of_explanation(then.found)
    if options.json:
        write_out(json_of(WhyBody.of_past(settings.flow, then, exit_code=code)))
        return code
    lines = [f"{settings.flow}, {then.found.asked}, at {time_text(at_ms)}: {then.found.text}"]
    lines += [f"  also: {one.reason}: {one.text}" for one in then.found.others[:OTHERS_MOST]]
    lines += [f"  {line}" for line in lines_of(then)]
    file = as_argument(options.file)
    write_out("".join(f"{printable(with_file(line, file))}\n" for line in lines))
    return code


async def _explain_past(options: WhyArguments, settings: FlowSettings, at_ms: int) -> PastExplanation:
    file = read_settings_file(options.file, [settings.flow.target])
    clock = SystemClock()
    rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
    brokers = connect("why", settings.flow, settings.target, timeout_s=settings.target_request_timeout_s, rng=rng)
    side = InquirySide(settings.flow.target, brokers, patience_of_commands(clock))
    try:
        await side.probe()
        asked = options.partition or (options.topic or "", None)
        return await explain_at(file, settings, side, asked, at_ms, clock=clock, rng=rng)
    finally:
        await side.close()
        await brokers.close()


async def _explain_topic(options: WhyArguments, settings: FlowSettings) -> Explanation:
    seen = await look_at_flow("why", options.file, settings, settles=True)
    names = {member.member: member.name for group in seen.report.groups for member in group.members}
    topic, partition = options.partition or (options.topic or "", None)
    found = explain_topic(seen.facts, seen.flow, topic, partition, names)
    if found.replicated is Replicated.UNKNOWN:
        return found
    async with sides_of("why", settings) as (source, target):
        details = await details_of(topic, found, seen.facts.settings, source, target)
    return explain_topic(seen.facts, seen.flow, topic, partition, names, details)


async def _explain_group(options: WhyArguments, settings: FlowSettings) -> Explanation:
    assert options.group is not None  # noqa: S101
    seen = await look_at_flow("why", options.file, settings, settles=False)
    if seen.facts.settings.checkpoints is None:
        return explain_group(seen.facts, seen.flow, options.group, None, None, "")
    async with sides_of("why", settings) as (source, target):
        log = make_logger("warning", "text")
        told = await GroupsQuestion(seen.facts.settings, source, target, SystemClock(), log).ask()
        found = next((one for one in told.reports if one.group == options.group), None)
        on_source = await group_on_source(options.group, source) if found is None else None
    return explain_group(seen.facts, seen.flow, options.group, found, on_source, told.unread)


async def _explain_switched_off(options: WhyArguments, file: SettingsFile, settings: FlowSettings) -> Explanation:
    topic, partition = options.partition or (options.topic or "", None)
    asked = asked_about(topic, partition) if options.group is None else asked_about_group(options.group)
    async with sides_of("why", settings) as (_, target):
        _, stored = await settings_of_workers(file.switching_on(settings.flow), settings, target)
    return explain_switched_off(asked, origin_of(file, settings.flow, ENABLED), stored)
