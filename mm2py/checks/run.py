"""Makes all checks of a file: asks all clusters at the same time, then judges the answers. Nothing is written."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mm2py.checks.asking_cluster import ask_cluster
from mm2py.checks.asking_flow import FlowAsking
from mm2py.checks.checked_topics import CheckedTopic, checked_topics
from mm2py.checks.facts import ClusterAnswers, FlowAnswers
from mm2py.checks.judge_clusters import judge_cluster, judge_link
from mm2py.checks.judge_rights import judge_rights
from mm2py.checks.judge_target import judge_target
from mm2py.checks.judge_topics import claims_of, judge_internal_topics, judge_names, judge_sizes
from mm2py.checks.questions import REQUESTS
from mm2py.checks.results import CheckResult, CheckState, in_order, ok
from mm2py.checks.rights import RightsNeed, rights_needed
from mm2py.clock import Clock
from mm2py.config.settings import ClusterSettings, Configuration, FlowSettings
from mm2py.flow import ClusterAlias, Flow
from mm2py.flow_clusters import connect
from mm2py.kafka.cluster import Cluster
from mm2py.kafka.security.settings import Security
from mm2py.kafka.trial_brokers import TrialBrokers

THE_FILE: Final = "the file"
HEARTBEAT_S: Final = 1.0
"""Between two heartbeats of a worker, where the file names no group."""

WayKey = tuple[ClusterAlias, tuple[tuple[str, int], ...], Security]


@dataclass(frozen=True, slots=True)
class ClusterWay:
    """One way in which flows reach a cluster: the same addresses, and the same user."""

    settings: ClusterSettings
    flow: Flow
    """The first flow that uses it."""
    subject: str
    """How results name it: the alias, and the flow if there is another way to the same cluster."""
    is_read: bool = False
    is_written: bool = False


def ways_of(flows: Iterable[FlowSettings]) -> dict[WayKey, ClusterWay]:
    """Return each way to a cluster once."""
    found: dict[WayKey, ClusterWay] = {}
    for settings in flows:
        for side, is_source in ((settings.source, True), (settings.target, False)):
            key = way_key(side)
            before = found.get(key)
            role = "source" if is_source else "target"
            found[key] = ClusterWay(
                before.settings if before else side,
                before.flow if before else settings.flow,
                before.subject if before else f"{side.alias} ({settings.flow}, {role})",
                is_read=is_source or (before is not None and before.is_read),
                is_written=not is_source or (before is not None and before.is_written),
            )
    aliases = [key[0] for key in found]
    return {
        key: ClusterWay(
            way.settings,
            way.flow,
            str(key[0]) if aliases.count(key[0]) == 1 else way.subject,
            way.is_read,
            way.is_written,
        )
        for key, way in found.items()
    }


def way_key(settings: ClusterSettings) -> WayKey:
    """Return what two sides have in common if they reach a cluster in the same way."""
    return settings.alias, tuple((host, port) for host, port in settings.bootstrap_servers), settings.security


async def run_checks(
    configuration: Configuration, *, before_first_start: bool, clock: Clock, rng: random.Random
) -> list[CheckResult]:
    """Return what all checks found, in the order in which they are shown.

    Args:
        before_first_start: mm2py has never run these flows.
    """
    ways = ways_of(configuration.flows)
    clusters = {
        key: connect("check", way.flow, way.settings, timeout_s=way.settings.request_timeout_s, rng=rng)
        for key, way in ways.items()
    }
    try:
        asked = await asyncio.gather(
            *(ask_cluster(way.subject, way.settings, clusters[key]) for key, way in ways.items())
        )
        reached = dict(zip(ways, asked, strict=True))
        flows = await asyncio.gather(
            *(_ask_flow(configuration, settings, clusters, reached, clock) for settings in configuration.flows)
        )
    finally:
        for cluster in clusters.values():
            await cluster.close()
    found = list(_file(configuration))
    most = max((settings.connections_per_broker_max for settings in configuration.flows), default=1)
    for key, way in ways.items():
        found += judge_cluster(reached[key], requests=REQUESTS, now_ms=clock.wall_ms())
        found += judge_link(reached[key], reads=way.is_read, writes=way.is_written, connections_most=most)
    claims = claims_of(flows)
    for answers in flows:
        found += fell_silent(answers, reached)
        found += _of_flow(configuration, answers, before_first_start=before_first_start)
        found += judge_names(answers, claims.get(str(answers.settings.flow.target), {}))
    return in_order(found)


async def _ask_flow(
    configuration: Configuration,
    settings: FlowSettings,
    clusters: Mapping[WayKey, Cluster],
    reached: Mapping[WayKey, ClusterAnswers],
    clock: Clock,
) -> FlowAnswers:
    source, target = way_key(settings.source), way_key(settings.target)
    group = configuration.groups.get(settings.flow.target)
    questions = FlowAsking(
        settings,
        _wanted(configuration, settings),
        configuration.heartbeats,
        _group_there(configuration, settings),
        HEARTBEAT_S if group is None else group.heartbeat_interval_s,
        TrialBrokers(clusters[source]),
        TrialBrokers(clusters[target]),
        clock,
    )
    return await questions.ask(reached[source], reached[target])


def _wanted(configuration: Configuration, settings: FlowSettings) -> list[CheckedTopic]:
    groups = configuration.groups
    return checked_topics(
        settings, groups.get(settings.flow.target), configuration.heartbeats, groups.get(settings.flow.source)
    )


def _group_there(configuration: Configuration, settings: FlowSettings) -> str:
    """Return the group of workers that writes heartbeats to the flow's source."""
    there = configuration.groups.get(settings.flow.source)
    return settings.group if there is None else there.name


def _needs(configuration: Configuration, answers: FlowAnswers) -> list[RightsNeed]:
    return rights_needed(
        answers.settings,
        configuration.heartbeats,
        topics=answers.selected,
        source_groups=sorted(answers.source_groups),
        worker_group_there=_group_there(configuration, answers.settings),
    )


def _file(configuration: Configuration) -> Iterator[CheckResult]:
    for flow, error in configuration.refused.items():
        yield CheckResult("MM0001", CheckState.FAILED, str(flow), error.what, error.remedy)
    if configuration.flows:
        flows = ", ".join(str(settings.flow) for settings in configuration.flows[:5])
        more = f" and {len(configuration.flows) - 5} more" if len(configuration.flows) > 5 else ""
        yield ok("MM0001", THE_FILE, f"The file enables {flows}{more}")
    for warning in configuration.warnings:
        yield CheckResult("MM0002", CheckState.WARNING, THE_FILE, warning)
    if not configuration.warnings:
        yield ok("MM0002", THE_FILE, "No line of the file is doubtful")


def _of_flow(configuration: Configuration, answers: FlowAnswers, *, before_first_start: bool) -> Iterator[CheckResult]:
    wanted: Sequence[CheckedTopic] = _wanted(configuration, answers.settings)
    yield from two_clusters(answers)
    yield from judge_rights(answers, _needs(configuration, answers))
    yield from judge_internal_topics(answers, wanted, before_first_start=before_first_start)
    yield from judge_sizes(answers)
    yield from judge_target(answers)


def fell_silent(answers: FlowAnswers, reached: Mapping[WayKey, ClusterAnswers]) -> Iterator[CheckResult]:
    """Return a failure for a cluster that answered at first, and then not the questions of this flow."""
    settings = answers.settings
    for side, now in ((settings.source, answers.source), (settings.target, answers.target)):
        if now.silent is not None and reached[way_key(side)].away is None:
            text = f"{side.alias} does not answer any more: {now.silent.what}"
            yield CheckResult("MM0101", CheckState.FAILED, str(settings.flow), text, now.silent.remedy)


def two_clusters(answers: FlowAnswers) -> Iterator[CheckResult]:
    """Return whether source and target are two clusters, if both have told their ids."""
    flow, source, target = answers.settings.flow, answers.source, answers.target
    if source.away or target.away or source.cluster_id is None or target.cluster_id is None:
        return
    if source.cluster_id == target.cluster_id:
        yield CheckResult(
            "MM0105",
            CheckState.FAILED,
            str(flow),
            f"{flow.source} and {flow.target} are the same cluster, {source.cluster_id}",
            f"Correct {flow.source}.bootstrap.servers or {flow.target}.bootstrap.servers.",
        )
    else:
        yield ok("MM0105", str(flow), f"{flow.source} and {flow.target} are two clusters")
