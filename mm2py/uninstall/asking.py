"""Asks both clusters what a flow has left behind, and who uses it. It changes nothing.

MirrorMaker 2 has no counterpart.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mm2py.clock import Clock
from mm2py.config.configuration import SettingsFile
from mm2py.config.internal_topics import numbers_topic, settings_topic, topics_of_flow
from mm2py.config.settings import FlowSettings
from mm2py.copying.positions import PositionTable
from mm2py.dr.fence.fence_log import read_fences
from mm2py.dr.fence.record import fences_up
from mm2py.dr.journal import standing_entry
from mm2py.dr.journal_topic import read_agreed
from mm2py.dr.states import ENDED, RecoveryState
from mm2py.flow import ClusterAlias
from mm2py.group.group_look import GroupLooks
from mm2py.kafka.admin import describe_topic_acls
from mm2py.kafka.cluster import ClusterMetadata, fetch_metadata
from mm2py.kafka.error_codes import SECURITY_DISABLED
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers
from mm2py.logs import make_logger
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.shared_settings.flow_owner import other_groups
from mm2py.shared_settings.running_mm2 import Mm2IsRunning, look_for_mm2
from mm2py.topics.acls import TopicAcl
from mm2py.topics.names import (
    HEARTBEATS,
    control_log,
    dr_fences_topic,
    fence_topic,
    quarantine,
    recovery_topic,
    spark_writes_topic,
)
from mm2py.uninstall.planned import FlowRemains, LeftTopic


@dataclass(frozen=True, slots=True)
class AskedRemains:
    """The answers, and the metadata that the export goes by."""

    remains: FlowRemains
    target: ClusterMetadata


def own_topics(settings: FlowSettings) -> list[LeftTopic]:
    """Return the topics that a flow makes for itself, by its settings; the topic of its settings is the last."""
    flow, last = settings.flow, settings_topic(settings).topic.name
    found = [
        LeftTopic(flow.source if one.on_source else flow.target, str(one.topic.name))
        for one in (*topics_of_flow(settings), numbers_topic(settings))
        if one.topic.name != last
    ]
    return [*found, LeftTopic(flow.target, str(quarantine(flow.source).name)), LeftTopic(flow.target, str(last))]


def common_topics(settings: FlowSettings, group: str) -> list[LeftTopic]:
    """Return the topics of mm2py that this flow has used together with others."""
    flow = settings.flow
    on_both = [str(dr_fences_topic().name), str(recovery_topic(flow).name), str(HEARTBEATS)]
    on_both += [str(spark_writes_topic().name)]
    on_both += [
        str(control_log(one, producer_expiry_ms=0).name) for one in dict.fromkeys((settings.group, group)) if one
    ]
    found = [LeftTopic(alias, name) for alias in (flow.source, flow.target) for name in on_both]
    return [*found, LeftTopic(flow.target, str(fence_topic().name))]


def sharers_of(settings: FlowSettings, others: Iterable[FlowSettings]) -> dict[LeftTopic, str]:
    """Return which of the other flows of a file use topics of this one."""
    addresses = _addresses(settings)
    own = {(addresses[place.cluster], place.name): place for place in own_topics(settings)}
    found: dict[LeftTopic, str] = {}
    for other in others:
        if other.flow != settings.flow:
            there = _addresses(other)
            for place in own_topics(other):
                shared = own.get((there[place.cluster], place.name))
                if shared is not None:
                    found[shared] = str(other.flow)
    return found


def _addresses(settings: FlowSettings) -> dict[ClusterAlias, str]:
    flow = settings.flow
    sides = {flow.source: settings.source, flow.target: settings.target}
    return {alias: str(side.bootstrap_servers) for alias, side in sides.items()}


async def ask_remains(
    file: SettingsFile,
    settings: FlowSettings,
    clusters: Mapping[ClusterAlias, Brokers],
    *,
    clock: Clock,
    rng: random.Random,
) -> AskedRemains:
    """Return what the clusters tell.

    Args:
        settings: as workers run the flow.
        clusters: those that are asked; the target is among them.
    Raises:
        Mm2Error: something that must be known cannot be read.
    """
    flow = settings.flow
    target = clusters[flow.target]
    metadata = {alias: await fetch_metadata(brokers, None) for alias, brokers in clusters.items()}
    there = {alias: frozenset(found.topics) for alias, found in metadata.items()}
    table = ConfigTable(target, settings.configs_topic)
    await table.read()
    owner = table.records.owner.current
    positions = PositionTable(flow.source)
    if (topic := metadata[flow.target].topics.get(settings.offsets_topic)) is not None:
        await positions.read(target, topic)
    acls, acls_unread = await _acls(clusters)
    group = "" if owner is None else owner.group
    users = [
        *await _mm2(settings, target),
        *await workers_of_flow(settings, group, there[flow.target], target, clock, rng),
        *(f"Backfill {one.id} of {flow} is not over." for one in table.records.backfills.values() if one.holds),
        *await _recoveries(settings, clusters),
    ]
    named = {
        settings.old_remote(topic, at) or settings.remote_topic(topic) for (topic, _), at in positions.positions.items()
    }
    copies = named & there[flow.target]
    return AskedRemains(
        FlowRemains(
            flow,
            own_topics(settings),
            common_topics(settings, group),
            there,
            is_recorded=owner is not None
            or table.config is not None
            or any(not one.is_of_mm2 for one in positions.positions.values()),
            copies=copies,
            acls=acls,
            acls_unread=acls_unread,
            users=users,
            sharers=sharers_of(settings, file.configuration().flows),
        ),
        metadata[flow.target],
    )


async def _acls(
    clusters: Mapping[ClusterAlias, Brokers],
) -> tuple[dict[ClusterAlias, list[TopicAcl]], dict[ClusterAlias, str]]:
    found: dict[ClusterAlias, list[TopicAcl]] = {}
    unread: dict[ClusterAlias, str] = {}
    for alias, brokers in clusters.items():
        try:
            found[alias] = await describe_topic_acls(brokers)
        except BrokerRefused as error:
            if error.code != SECURITY_DISABLED:
                unread[alias] = error.what
    return found, unread


async def _mm2(settings: FlowSettings, target: Brokers) -> list[str]:
    try:
        look = await look_for_mm2(settings, target)
    except Mm2IsRunning as error:
        return [f"MirrorMaker 2 runs {settings.flow}: group {error.group} has {error.members} member(s)."]
    return [f"It is not known whether MirrorMaker 2 runs {settings.flow}. {look.remedy}"] if look.unknown else []


async def workers_of_flow(
    settings: FlowSettings, owner: str, topics: Iterable[str], target: Brokers, clock: Clock, rng: random.Random
) -> list[str]:
    """Return which groups have live members that run the flow; of its own group it must be known."""
    found: list[str] = []
    for group in other_groups(list(topics), ""):
        is_own = group in {owner, settings.group}
        log = make_logger("error", "text", io.StringIO())
        looks = GroupLooks(group, settings.flow, target, is_owner=is_own, clock=clock, rng=rng, log=log)
        look = await looks.look()
        if look.running:
            found.append(f"Workers of group {group} run {settings.flow}: {', '.join(look.running[:3])}. Stop them.")
        elif look.unread and is_own:
            found.append(f"It is not known whether group {group} runs {settings.flow}: {look.unread} {look.remedy}")
    return found


async def _recoveries(settings: FlowSettings, clusters: Mapping[ClusterAlias, Brokers]) -> list[str]:
    """Return what ``mm2py dr`` has open between the two clusters. Raises: Mm2Error, it cannot be read."""
    flow = settings.flow
    found: Sequence[str] = []
    entry = standing_entry((await read_agreed(flow, clusters)).entries)
    if entry is not None and entry.state not in ENDED and entry.state is not RecoveryState.READY:
        found = [f"A recovery is open: {entry.verb} of {entry.flow} is {entry.state} (mm2py dr history)."]
    fences = {
        one.flow: f"A fence of producers of {one.flow} stands: lift it with mm2py dr unfence."
        for alias, brokers in clusters.items()
        for one in fences_up(await read_fences(alias, brokers))
        if one.flow in {str(flow), f"{flow.target}->{flow.source}"}
    }
    return [*found, *fences.values()]
