"""Gives remote topics the looser timestamp limits of their upstream topics, so that they accept the same records.

MM2's MirrorSourceConnector copies both limits. mm2py compares the limits when it creates a remote topic, in each round
of the configuration sync, and, here, when the target refuses a timestamp.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mm2py.kafka import admin
from mm2py.kafka.admin import ConfigEntry
from mm2py.kafka.errors import BrokerRefused, Reaction
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.topic_configs import (
    CONFIG_PROPERTIES_EXCLUDE_KEY,
    ConfigChange,
    ConfigPropertyFilter,
    TopicConfigEntry,
    limits_timestamps,
    looser_timestamp_limits,
)
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.notices import Notices

TAKES_EFFECT_S: Final = 3.0
"""How long a broker may still apply an old limit after a new one was set."""
_NOTHING_EXCLUDED: Final = ConfigPropertyFilter(exclude=())


class TimestampLimits:
    """Raises limits of one flow's remote topics when the target refuses a timestamp."""

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._notices = Notices(context.log)
        self._fit_since_s: dict[str, tuple[Mapping[str, str | None], float]] = {}
        """The limits of remote topics whose limits fit, and when they were first seen."""

    async def fit(self, topic: str, remote: str) -> bool:
        """Let a remote topic accept the timestamps that its upstream topic accepts.

        Returns:
            True: try again. The limits fit now, but the target may have refused by older ones. False: the limits have
            not changed for a while. If the upstream topic's are looser, that is logged once, with the remedies.
        Raises: as ``Brokers.send``. BrokerRefused: the target cannot change them now.
        """
        source, target = self._context.source.brokers, self._context.target.brokers
        ours = _entries((await admin.describe_topic_configs(source, [topic])).get(topic))
        theirs = _entries((await admin.describe_topic_configs(target, [remote])).get(remote))
        limits = {one.name: one.value for one in theirs if limits_timestamps(one.name)}
        wanted = looser_timestamp_limits(ours, theirs, _NOTHING_EXCLUDED)
        if wanted:
            is_excluded = looser_limits_if_decided(ours, theirs, self._context.settings.config_filter) != wanted
            if not await self._set(topic, remote, wanted, is_excluded=is_excluded):
                return False
            limits |= _values(wanted)
        self._notices.is_over(remote)
        now_s = self._context.clock.monotonic()
        before, since_s = self._fit_since_s.get(remote, ({}, now_s))
        self._fit_since_s[remote] = limits, (since_s if before == limits else now_s)
        return now_s - self._fit_since_s[remote][1] < TAKES_EFFECT_S

    async def _set(self, topic: str, remote: str, wanted: Sequence[ConfigChange], *, is_excluded: bool) -> bool:
        """Return whether limits were raised. Raises: as ``fit``."""
        context = self._context
        obstacle = self._obstacle(is_excluded=is_excluded)
        if obstacle is None:
            refusal = (await admin.alter_topic_configs(context.target.brokers, {remote: _values(wanted)})).get(remote)
            if refusal is None:
                context.log.info("topic_configs.changed", topic=remote, settings="; ".join(map(str, wanted)))
                return True
            if refusal.retriable:
                raise refusal
            is_denied = refusal.reaction is Reaction.DENIED
            obstacle = str(refusal), f"grant mm2py ALTER_CONFIGS on {remote}" if is_denied else "remove the cause"
        why, way_out = obstacle
        text = " and ".join(f"{change.name}={change.new}" for change in wanted)
        if self._notices.is_new(remote, f"{text} {why}"):
            context.log.error(
                "topic_configs.too_strict",
                topic=remote,
                settings="; ".join(map(str, wanted)),
                why=f"{topic} on {context.flow.source} takes timestamps that {remote} refuses. mm2py may not raise the"
                f" limit: {why}",
                remedy=f"Set {text} on {remote} on {context.flow.target} by hand, or {way_out}. Or set"
                " on.poison.record=quarantine.",
            )
        return False

    def _obstacle(self, *, is_excluded: bool) -> tuple[str, str] | None:
        """Return the setting that forbids to raise limits, with the remedy; None if they may be raised."""
        settings = self._context.settings
        if settings.sync_topic_configs_interval_s is None:
            return "sync.topic.configs.enabled=false", "set it to true"
        if settings.sync_topic_configs_dry_run:
            return "sync.topic.configs.dry.run=true", "set it to false"
        if is_excluded:
            return f"{CONFIG_PROPERTIES_EXCLUDE_KEY} names it", "take it out of that list"
        return None


def entries_of(found: Iterable[ConfigEntry]) -> list[TopicConfigEntry]:
    """Convert the settings in a broker's answer to the form that the rules of topic settings take."""
    return [TopicConfigEntry(one.name, one.value, one.source, one.read_only, one.sensitive) for one in found]


def looser_limits_if_decided(
    upstream: Sequence[TopicConfigEntry], remote: Sequence[TopicConfigEntry], config_filter: ConfigPropertyFilter
) -> list[ConfigChange]:
    """Return the same as ``looser_timestamp_limits``; none if the filter finds no answer in time, which the
    configuration sync logs."""
    try:
        return looser_timestamp_limits(upstream, remote, config_filter)
    except PatternTooSlow:
        return []


def _entries(found: Sequence[ConfigEntry] | BrokerRefused | None) -> list[TopicConfigEntry]:
    return [] if found is None or isinstance(found, BrokerRefused) else entries_of(found)


def _values(changes: Sequence[ConfigChange]) -> dict[str, str | None]:
    return {change.name: change.new for change in changes}
