"""Asks both clusters of a flow what ``readiness.py`` judges. It asks no worker, and writes nothing.

If the source is lost, the target alone tells what a failover would lose.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from mm2py.checks.results import CheckResult
from mm2py.checks.run import run_checks
from mm2py.clock import Clock
from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import Configuration
from mm2py.copying.reading.internal_table import DamagedTopic
from mm2py.dr.cutover.pair import RENAMES_REMEDY, renames_told
from mm2py.dr.fence.fence_log import read_fences
from mm2py.dr.fence.record import FenceRecord, fences_up
from mm2py.dr.journal import JournalEntry, JournalsDisagree, JournalUnreadable, agreed
from mm2py.dr.journal_topic import read_journal
from mm2py.dr.journal_writer import KeptJournal
from mm2py.dr.readiness import ReadinessFacts, WayBackState
from mm2py.errors import ConfigError, FirstErrorGroup, Mm2Error
from mm2py.flow import ClusterAlias, Flow, parse_flow
from mm2py.kafka.errors import KafkaError
from mm2py.status.cluster_inquiry import GroupInquiry, InquirySide
from mm2py.status.consumer_groups import ConsumerGroupReport
from mm2py.status.facts import GroupFacts
from mm2py.status.flow_report import FlowReport
from mm2py.status.report import is_running

ANSWER_MOST_S: Final = 30.0
"""How long one question may take."""
LATE: Final = f"not answered within {ANSWER_MOST_S:g} s"


class WayBackInFile(NamedTuple):
    """What the file says of the flow that leads back."""

    state: WayBackState
    refused: str
    configuration: Configuration | None
    """The file with this flow alone; None: it does not run it."""


class JournalsRead(NamedTuple):
    """What the journals say together, or why they cannot be used."""

    entries: Sequence[JournalEntry]
    wrong: str = ""
    is_unread: bool = False
    """``wrong`` says why a cluster does not tell its journal: what stands there is not known."""


@dataclass(frozen=True, slots=True)
class LookedAt:
    """What others have asked already."""

    at_ms: int
    source_away: str
    target_away: str
    flow: FlowReport
    groups: Sequence[ConsumerGroupReport] | None
    groups_unread: str


def way_back_of(file: SettingsFile, flow: Flow) -> WayBackInFile:
    """Return what a file says of the flow that leads back. Raises: ConfigError, the file is wrong."""
    back, whole = Flow(flow.target, flow.source), replace(file, selected=())
    configuration = whole.configuration()
    if (error := configuration.refused.get(back)) is not None:
        return WayBackInFile(WayBackState.REFUSED, str(error), None)
    if all(settings.flow != back for settings in configuration.flows):
        return WayBackInFile(WayBackState.MISSING, "", None)
    if why := renames_told(one for one in configuration.flows if one.flow in (flow, back)):
        return WayBackInFile(WayBackState.REFUSED, f"{why}. {RENAMES_REMEDY}", None)
    try:
        return WayBackInFile(WayBackState.THERE, "", whole.alone(back).configuration())
    except ConfigError as error:
        return WayBackInFile(WayBackState.REFUSED, str(error), None)


async def ask_readiness(
    file: SettingsFile,
    looked: LookedAt,
    source: InquirySide,
    target: InquirySide,
    *,
    clock: Clock,
    rng: random.Random,
) -> ReadinessFacts:
    """Return what both answers follow from.

    Args:
        looked: what ``mm2py status`` and ``mm2py groups`` tell, asked just before.
        source: with the rights of the flow; it was probed.
    Raises:
        ConfigError: the file is wrong.
    """
    flow = looked.flow.flow
    back = way_back_of(file, flow)
    is_source_there = not looked.source_away
    async with FirstErrorGroup() as tasks:
        reading = tasks.create_task(_journals(flow, [one for one in (source, target) if not one.away]))
        checking = tasks.create_task(_checks(back if is_source_there else None, clock, rng))
        serving = tasks.create_task(_worker_at(source if is_source_there else None, back, flow, clock, rng))
        fencing = tasks.create_task(_fences(target))
    journals, (serves, why), (fences, fences_unread) = reading.result(), serving.result(), fencing.result()
    return ReadinessFacts(
        flow=flow,
        at_ms=looked.at_ms,
        source_away=looked.source_away,
        target_away=looked.target_away,
        verdict=looked.flow.verdict,
        lag=looked.flow.lag,
        is_lag_partial=looked.flow.lag_is_partial,
        groups=looked.groups,
        groups_unread=looked.groups_unread,
        fences_there=fences,
        fences_unread=fences_unread,
        way_back=back.state,
        way_back_refused=back.refused,
        way_back_checks=checking.result(),
        worker_at_source=serves,
        worker_at_source_why=why,
        journal=journals.entries,
        journal_wrong=journals.wrong,
        is_journal_unread=journals.is_unread,
    )


async def _checks(back: WayBackInFile | None, clock: Clock, rng: random.Random) -> list[CheckResult]:
    if back is None or back.configuration is None:
        return []
    return await run_checks(back.configuration, before_first_start=True, clock=clock, rng=rng)


async def _fences(target: InquirySide) -> tuple[Sequence[FenceRecord], str]:
    """Return the fences of the target's own producers that are up, or why they are not known."""
    if target.away:
        return (), target.away
    try:
        async with asyncio.timeout(ANSWER_MOST_S):
            return fences_of_producers(target.alias, await read_fences(target.alias, target.brokers)), ""
    except TimeoutError:
        return (), LATE
    except Mm2Error as error:
        return (), str(error)


def fences_of_producers(cluster: ClusterAlias, records: Collection[FenceRecord]) -> list[FenceRecord]:
    """Return the fences that stop producers of a cluster. It keeps those of the flows that lead there as well, whose
    producers are elsewhere. Pure."""
    return [one for one in fences_up(records) if parse_flow(one.flow).source == cluster]


async def _worker_at(
    source: InquirySide | None, back: WayBackInFile, flow: Flow, clock: Clock, rng: random.Random
) -> tuple[bool | None, str]:
    """Return whether a live worker at the source runs the flow back, and what is known of that."""
    if source is None or back.configuration is None:
        return None, ""
    group = back.configuration.groups[ClusterAlias(source.alias)]
    inquiry = GroupInquiry(group, source, clock=clock, rng=rng)
    try:
        async with asyncio.timeout(ANSWER_MOST_S):
            facts = await inquiry.look()
    except TimeoutError:
        return None, LATE
    return serves(facts, Flow(flow.target, flow.source), clock.wall_ms())


def serves(facts: GroupFacts, back: Flow, now_ms: int) -> tuple[bool | None, str]:
    """Return whether a live worker of a group runs the flow back, and why not. Pure."""
    if facts.unread or facts.state is None:
        return (None, facts.unread) if facts.unread else (False, f"none has joined group {facts.name} there")
    if not is_running(facts, now_ms):
        return False, f"none has joined group {facts.name} there, or the last one has stopped"
    if not any(back in one.joined.flows for one in facts.state.members.values() if not one.expired):
        return False, f"those of group {facts.name} there were started with a file that has no {back}"
    return True, ""


async def _journals(flow: Flow, sides: Sequence[InquirySide]) -> JournalsRead:
    """Read the journals of the clusters that answer."""
    found: dict[ClusterAlias, KeptJournal] = {}
    try:
        for side in sides:
            async with asyncio.timeout(ANSWER_MOST_S):
                found[side.alias] = await read_journal(side.alias, side.brokers, flow)
        told = agreed(
            {alias: one.entries for alias, one in found.items()}, {alias: one.topic_id for alias, one in found.items()}
        )
    except (JournalsDisagree, JournalUnreadable, DamagedTopic) as error:
        return JournalsRead((), str(error))
    except KafkaError as error:
        return JournalsRead((), str(error), is_unread=True)
    except TimeoutError:
        return JournalsRead((), f"The recovery journal was {LATE}.", is_unread=True)
    return JournalsRead(told.entries)
