"""What ``mm2py apply`` and ``mm2py plan`` find out about the settings of a flow: the difference, and who forbids it.

It reads the target of the flow, and changes nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from mm2py.clock import Clock
from mm2py.config.configuration import SettingsFile
from mm2py.config.flow_properties import is_enabled
from mm2py.config.settings import FlowSettings
from mm2py.flow import Flow
from mm2py.kafka.cluster import until_answered
from mm2py.kafka.port import Brokers
from mm2py.moments import time_text
from mm2py.records.connector_config import DecidedBy, FlowConfig
from mm2py.records.owner_record import Owner
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.shared_settings.flow_config import Difference, changed, difference, swapped
from mm2py.shared_settings.flow_owner import refuse_another_group
from mm2py.shared_settings.follow import merged
from mm2py.shared_settings.running_mm2 import look_for_mm2


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


async def plan_settings(
    file: SettingsFile,
    settings: FlowSettings,
    brokers: Brokers,
    clock: Clock,
    rng: random.Random,
    *,
    is_previous: bool = False,
    for_start: bool = False,
    looks_for_mm2: bool = True,
) -> ApplyPlan:
    """Return what is to be stored for a flow, if anything. Nothing is changed.

    Args:
        settings: of the flow, by the file.
        brokers: of its target.
        is_previous: the last change is to be taken back.
        for_start: find out who forbids it also where there is nothing to store.
        looks_for_mm2: find out whether a MirrorMaker 2 runs the flow. The first such question to a cluster makes its
            brokers create ``__consumer_offsets``.
    Raises:
        Mm2IsRunning, FlowOfAnotherGroup: nothing of the flow may be stored.
        KafkaError: the target does not answer, or refuses.
        Mm2Error: what is stored cannot be used.
    """
    flow = settings.flow
    table = ConfigTable(brokers, settings.configs_topic)
    await table.read_patiently(rng)
    stored = table.config
    if is_previous:
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
    is_stored = stored is not None and not found and stored.by is not DecidedBy.MM2
    if is_stored and not for_start:
        return ApplyPlan(settings, stored, None, (), "nothing to do")
    unknown = await refuse_mm2(settings, brokers, rng) if looks_for_mm2 else ""
    owner = await refuse_another_group(settings, table, brokers, clock=clock, rng=rng)
    if is_stored:
        return ApplyPlan(settings, stored, None, (), "nothing to do", unknown=unknown, dead_owner=owner)
    return ApplyPlan(settings, stored, wanted, found, unknown=unknown, dead_owner=owner)


async def refuse_mm2(settings: FlowSettings, brokers: Brokers, rng: random.Random) -> str:
    """Return why it is not known whether a MirrorMaker 2 runs the flow. Raises: Mm2IsRunning."""
    found = await until_answered(lambda: look_for_mm2(settings, brokers), rng=rng)
    return f"{found.unknown} {found.remedy}" if found.unknown else ""


def version_text(stored: FlowConfig | None) -> str:
    """Return which settings are stored, in brackets; empty if none are."""
    if stored is None:
        return ""
    if stored.by is DecidedBy.MM2:
        return " (written by MirrorMaker 2)"
    return f" (version {stored.version}, by {stored.who_and_why}, {time_text(stored.at_ms)})"
