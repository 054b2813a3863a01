"""Which topics a fence is about, and which principals on the source are mm2py's own. Pure but for key stores."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from mm2py.checks.principal import principal_of
from mm2py.checks.rights import PLACEHOLDER
from mm2py.config.configuration import SettingsFile, flow_of, with_flow
from mm2py.config.recovery import recovery_security
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias, TopicName, parse_flow
from mm2py.topics.filters import PatternTooSlow


def settings_of_flow(file: SettingsFile, name: str) -> FlowSettings:
    """Return the settings of a flow, also if the file does not enable it, or refuses it as part of a ring.

    Raises: ConfigError, the file is wrong.
    """
    wanted = parse_flow(name)
    if wanted in file.configuration().refused:
        return flow_of(file.alone(wanted), name)
    return flow_of(with_flow(file, name), name)


def own_principals(file: SettingsFile, alias: ClusterAlias, named: Sequence[str] = ()) -> frozenset[str]:
    """Return under which names a cluster knows mm2py, by the credentials of every flow of the file that concerns it,
    and by those of recoveries.

    ``PLACEHOLDER`` is among them if the file does not tell one of them, and none is ``named`` by the operator instead.
    Blocks while key stores are read.
    """
    configuration = file.configuration()
    flows = [*configuration.flows, *file.flows_switched_off()]
    flows += [settings_of_flow(file, str(flow)) for flow in configuration.refused]
    clusters = [one for settings in flows for one in (settings.source, settings.target) if one.alias == alias]
    told = {principal_of(one.security)[0] for one in clusters}
    concerned = [one.flow for one in flows if alias in (one.flow.source, one.flow.target)]
    of_recoveries = [recovery_security(file.properties.entries, flow, alias) for flow in concerned]
    told |= {principal_of(security)[0] for security in of_recoveries if security is not None}
    return frozenset((told - {PLACEHOLDER} if named else told) | set(named))


def chosen_topics(settings: FlowSettings, there: Collection[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the topics to fence: those that are wanted, or all that the flow copies from their producers.

    Left out by themselves are heartbeats, and topics that are copies of another cluster's: a flow writes them.

    Args:
        there: the topics of the source.
        wanted: topics by name; none: all.
    Raises:
        ConfigError: one of them is not there, or the flow does not copy it; or there is none at all.
    """
    for topic in wanted:
        if topic not in there:
            remedy = "Name topics as the source does, and see that mm2py has DESCRIBE on them."
            raise ConfigError(f"{settings.flow.source} has no topic {topic}.", remedy=remedy)
        if not settings.replicates(topic) or _is_no_producers(settings, topic):
            raise ConfigError(
                f"{settings.flow} does not copy {topic} from producers of {settings.flow.source}.",
                remedy="Name topics that applications write to there, and that the flow copies.",
            )
    found = wanted or [topic for topic in there if _is_copied(settings, topic)]
    if not found:
        raise ConfigError(f"{settings.flow} copies no topic.", remedy="Name the topics to fence: --topics.")
    return tuple(sorted(set(found)))


def _is_copied(settings: FlowSettings, topic: str) -> bool:
    try:
        return settings.replicates(topic) and not _is_no_producers(settings, topic)
    except PatternTooSlow:
        return False  # the worker says so in its log, and copies none of it


def _is_no_producers(settings: FlowSettings, topic: str) -> bool:
    policy, name = settings.policy, TopicName(topic)
    if policy.is_heartbeats_topic(name):
        return True
    return not policy.keeps_names and policy.topic_source(name) in settings.aliases


def named_principals(texts: Iterable[str]) -> tuple[str, ...]:
    """Return principals that an operator names. Raises: ConfigError, one has no type in front, as ``User:``."""
    found = tuple(dict.fromkeys(texts))
    for one in found:
        kind, colon, name = one.partition(":")
        if not (kind and colon and name):
            raise ConfigError(f"{one!r} is no principal.", remedy="Write it as User:NAME, as kafka-acls.sh does.")
    return found
