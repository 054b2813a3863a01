"""Asks the target of a flow what was true at a moment of the last day. It asks no worker, and not the source.

Three topics tell it: the control log (who lived, and who owned what), the configs topic (settings and pauses, with the
history of both), and the flight recorder (what was not copied, and why). Nothing is written.
"""

from __future__ import annotations

import io
import random
from dataclasses import replace
from typing import Final

from mm2py.clock import Clock
from mm2py.config.configuration import SettingsFile
from mm2py.config.flow_properties import StoredConfigUnusable
from mm2py.config.origins import origins_of_filters
from mm2py.config.settings import FlowSettings
from mm2py.copying.reading.internal_table import each_placed_record
from mm2py.errors import Mm2Error
from mm2py.flight.past import AROUND_MS, READ_BEFORE_MS, PastFacts, past_of
from mm2py.flight.why_then import PastExplanation, config_then, explain_then, held_then
from mm2py.group.control_log import ControlLog
from mm2py.group.control_topic import ControlLogMissing
from mm2py.group.membership import GroupState
from mm2py.group.state_snapshot import read_snapshot
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.list_offsets import EARLIEST, LATEST, Leaders, find_offsets
from mm2py.kafka.port import Brokers
from mm2py.logs import make_logger
from mm2py.records.flight_record import FlightEvent, MalformedFlightRecord, decode_flight
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.shared_settings.follow import merged_or_file
from mm2py.status.cluster_inquiry import InquirySide
from mm2py.status.facts import UNDECIDED, Facts, FlowFacts, GroupFacts, LeftOut
from mm2py.status.report import report_of
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.names import control_log, flight_topic

LATE_MS: Final = 30 * 60_000
"""A record that is appended so much later than it happened is not read: its worker could not write."""


class PastUnread(Mm2Error):
    """The target does not say what was true then."""

    def __init__(self, why: str) -> None:
        super().__init__(why, remedy="")


async def explain_at(
    file: SettingsFile,
    settings: FlowSettings,
    target: InquirySide,
    asked: tuple[str, int | None],
    at_ms: int,
    *,
    clock: Clock,
    rng: random.Random,
) -> PastExplanation:
    """Return whether a topic, or one partition of it, was replicated at a moment, and what decided that.

    Args:
        settings: the flow's, by the file.
        asked: the topic, and the partition or None.
        at_ms: by the clocks of the target's brokers and of the workers.
    Raises:
        PastUnread: the target does not answer, or refuses.
    """
    table = ConfigTable(target.brokers, settings.configs_topic)
    states: list[GroupState | None] = []
    found: list[PastFacts] = []
    unreadable: list[int] = []

    async def read_settings() -> None:
        await table.read()

    async def read_group() -> None:
        states.append(await _group_at(settings.group, target.brokers, at_ms, clock=clock, rng=rng))

    async def read_recorder() -> None:
        events, count = await _events(target.brokers, str(flight_topic(settings.flow.source).name), at_ms)
        unreadable.append(count)
        found.append(past_of(events, at_ms, asked[0]))

    group_topic = str(control_log(settings.group, producer_expiry_ms=0).name)
    for what, read in (
        (settings.configs_topic, read_settings),
        (group_topic, read_group),
        (str(flight_topic(settings.flow.source).name), read_recorder),
    ):
        if why := await target.why_not(f"reading {what}", read):
            raise PastUnread(why)
    state, past = states[-1], replace(found[-1], unreadable=unreadable[-1])
    group = GroupFacts(settings.flow.target, settings.group, group_topic, state)
    facts = _facts_at(file, settings, table, state, past, asked[0], at_ms)
    report = report_of(Facts(at_ms, {}, [group], [facts], {}))
    names = {member.member: member.name for one in report.groups for member in one.members}
    return explain_then(facts, group, report.flows[0], asked, names, past, at_ms)


def _facts_at(
    file: SettingsFile,
    by_file: FlowSettings,
    table: ConfigTable,
    state: GroupState | None,
    past: PastFacts,
    topic: str,
    at_ms: int,
) -> FlowFacts:
    flow, stored, unusable = by_file.flow, config_then(table.config, at_ms), ""
    try:
        settings = merged_or_file(file, by_file, stored)
    except StoredConfigUnusable as error:
        settings, stored, unusable = by_file, None, str(error)
    left_out: dict[str, LeftOut] = {}
    try:
        if (rule := settings.decision(topic).why_not) is not None:
            left_out[topic] = rule
    except PatternTooSlow:
        left_out[topic] = UNDECIDED
    listed = {} if state is None else dict(state.topics.get(flow, {}))
    return FlowFacts(
        settings,
        selected={name: count for name, count in listed.items() if name not in left_out},
        left_out=left_out,
        stored=stored,
        held=held_then(flow, table.records.entries(), at_ms),
        origins=origins_of_filters(file, flow, stored),
        standstills=past.standstills,
        config_unusable=unusable,
        owner_group=settings.group,
    )


async def _group_at(name: str, brokers: Brokers, at_ms: int, *, clock: Clock, rng: random.Random) -> GroupState | None:
    """Return the state of a group at a moment; None: its control log does not go back so far, or is missing."""
    log = ControlLog(
        brokers,
        control_log(name, producer_expiry_ms=0),
        poll_s=0.0,
        append_timeout_s=1.0,
        replication_factor=None,
        clock=clock,
        rng=rng,
        log=make_logger("error", "text", io.StringIO()),
    )
    try:
        opening = await log.open_at(at_ms)
    except ControlLogMissing:
        return None
    if opening.state is None and (opening.log_start_offset > 0 or not opening.entries):
        return None
    state = GroupState() if opening.state is None else read_snapshot(opening.state, where=log.topic)
    for entry in opening.entries:
        state.take(entry)
    return state


async def _events(brokers: Brokers, topic: str, at_ms: int) -> tuple[list[FlightEvent], int]:
    """Return the recorder's events around a moment, in the order of the log, and how many records cannot be read."""
    found = (await fetch_metadata(brokers, [topic])).topics.get(topic)
    if found is None or found.error_code == UNKNOWN_TOPIC_OR_PARTITION:
        return [], 0
    if found.error_code:
        raise BrokerRefused(f"Reading {topic}", found.error_code, remedy=f"mm2py needs DESCRIBE and READ on {topic}.")
    leaders: Leaders = {(topic, number): part.leader for number, part in found.partitions.items()}
    starts = await find_offsets(brokers, leaders, EARLIEST)
    froms = await find_offsets(brokers, leaders, max(0, at_ms - READ_BEFORE_MS))
    ends = await find_offsets(brokers, leaders, LATEST)
    late = await find_offsets(brokers, leaders, at_ms + AROUND_MS + LATE_MS)
    read_to = {
        number: max(starts.get((topic, number), 0), froms.get((topic, number), -1))
        if froms.get((topic, number), -1) >= 0
        else ends.get((topic, number), 0)
        for number in found.partitions
    }
    events: list[FlightEvent] = []
    unreadable = 0
    async for number, record in each_placed_record(brokers, found, read_to):
        if 0 <= late.get((topic, number), -1) <= record.offset:
            break  # it has one partition
        try:
            event = decode_flight(record.value)
        except MalformedFlightRecord:
            unreadable += 1
            continue
        if event is not None and event.at_ms <= at_ms + AROUND_MS:
            events.append(event)
    return events, unreadable
