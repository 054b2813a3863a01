"""Asks the clusters what only ``mm2py why`` needs to know of one topic, or of one group. It writes nothing."""

from __future__ import annotations

from collections import Counter

from mm2py.config.settings import FlowSettings
from mm2py.copying.replay import ReplaySelection, survey
from mm2py.kafka.cluster import hidden_among
from mm2py.kafka.consumer_groups import committed_offsets, list_groups
from mm2py.kafka.errors import BrokerRefused
from mm2py.status.cluster_inquiry import InquirySide
from mm2py.status.not_copied import Reason
from mm2py.status.why import NO_DETAILS, Explanation, Replicated, TopicDetails
from mm2py.status.why_group import GroupOnSource
from mm2py.topics.names import quarantine


async def details_of(
    topic: str, found: Explanation, settings: FlowSettings, source: InquirySide, target: InquirySide
) -> TopicDetails:
    """Return what else has to be known of a topic, by what was found out without it.

    Args:
        found: the answer without it.
    """
    if found.replicated is not Replicated.YES:
        return await hidden_details(topic, found, source)
    kept: list[Counter[int]] = []
    name = str(quarantine(settings.flow.source).name)

    async def read() -> None:
        seen = await survey(target.brokers, name, ReplaySelection(topic), settings.remote_topic(topic))
        kept.append(Counter(one.partition for one in seen.origins - seen.appended))

    unread = await target.why_not(f"reading {name}", read)
    return TopicDetails(quarantined=kept[-1] if kept else {}, quarantine_unread=unread)


async def hidden_details(topic: str, found: Explanation, source: InquirySide) -> TopicDetails:
    """Return whether a topic that the source does not show may not be described. Arguments: see ``details_of``."""
    if found.reason not in {Reason.MISSING, Reason.GONE}:
        return NO_DETAILS
    hidden: list[set[str]] = []

    async def ask() -> None:
        hidden.append(await hidden_among(source.brokers, [topic]))

    await source.why_not(f"asking for {topic}", ask)
    return TopicDetails(is_hidden=bool(hidden and hidden[-1]))


async def group_on_source(group: str, source: InquirySide) -> GroupOnSource | None:
    """Return what the source says of a group; None: it does not answer."""
    found: list[GroupOnSource] = []

    async def ask() -> None:
        listed = (await list_groups(source.brokers)).get(group)
        commits = {} if listed is None else (await committed_offsets(source.brokers, [group]))[group]
        if isinstance(commits, BrokerRefused):
            found.append(GroupOnSource(listed, refused=str(commits)))
        else:
            found.append(GroupOnSource(listed, frozenset(topic for topic, _ in commits)))

    await source.why_not(f"asking for group {group}", ask)
    return found[-1] if found else None
