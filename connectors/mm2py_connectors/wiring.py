"""Makes the connectors of a worker's flows, its groups and its herder from a configuration.

Connections, clock and randomness are passed in, so that tests run whole workers between models of clusters.

Counterpart: what MirrorMaker.java does with its herders in dedicated mode.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.configuration import SettingsFile
from mm2py.config.flow_part import FlowPart
from mm2py.config.settings import ClusterSettings, Configuration, FlowSettings, GroupSettings, HeartbeatSettings
from mm2py.connector import Connector, Side
from mm2py.copying.positions import PositionBudget
from mm2py.copying.reading.left_out import without_producers
from mm2py.copying.reading.limits import MemoryBudget
from mm2py.flight.pending import FlightPending
from mm2py.flow import ConnectorName, Flow, Kind
from mm2py.group.control_topic import ControlLogUnusable
from mm2py.group.group import Group
from mm2py.group.member import Member
from mm2py.group.ownership import Ownership
from mm2py.group.refusal import GroupRefused
from mm2py.kafka.port import Brokers
from mm2py.kafka.producer.fencing import TransactionalId
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.kafka.write_gate import gated_alone
from mm2py.login import author_here
from mm2py.logs import RECORDER
from mm2py.metrics.counters import Metrics
from mm2py.records.backfill_record import Holds
from mm2py.records.connector_config import ConfigTooNew
from mm2py.records.control_codec import NewerFormat
from mm2py.records.control_record import TaskName
from mm2py.records.direction_record import DirectionTooNew
from mm2py.records.ledger_record import NewerLedgerFormat
from mm2py.records.operator_request import RestartPartitions
from mm2py.records.owner_record import OwnerTooNew
from mm2py.records.pause_record import Pauses
from mm2py.shared_settings.config_log import ConfigLog
from mm2py.shared_settings.current_settings import CurrentSettings
from mm2py.shared_settings.direction_watch import DirectionWatch
from mm2py.shared_settings.flow_owner import FlowOfAnotherGroup, OwnerWatch, refuse_another_group
from mm2py.shared_settings.follow import ConfigWatch, SwitchingOff
from mm2py.shared_settings.running_mm2 import Mm2IsRunning, refuse_running_mm2
from mm2py.topics.filters import PatternTooSlow
from mm2py.worker.connector_schedule import PathSchedule, SourceSchedule, StartConditions, UndividedSchedule
from mm2py.worker.herder import ConnectorPlan, Herder
from mm2py.worker.vitals import Vitals
from mm2py_connectors.checkpoint.connector import CheckpointConnector
from mm2py_connectors.heartbeat.connector import HeartbeatConnector
from mm2py_connectors.heartbeat.path import PathConnector
from mm2py_connectors.source.connector import SourceConnector
from mm2py_connectors.source.context import AttemptState, FlowContext
from mm2py_connectors.source.first_answer import FirstAnswers
from mm2py_connectors.source.refusals import FlowRefused, refuse_wrong_source

REFUSALS: Final = (
    *(FlowRefused, Mm2IsRunning, FlowOfAnotherGroup, GroupRefused),
    *(ControlLogUnusable, NewerFormat, ConfigTooNew, OwnerTooNew, DirectionTooNew, NewerLedgerFormat),
)
"""Errors after which a connector does not restart."""

Connect = Callable[[Flow, ClusterSettings, float], Side]
"""Opens connections to a cluster, for a flow, with a request time-out in seconds. Each call opens its own connections,
so that a slow answer delays only the part that asked."""


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What the parts of one worker share."""

    connect: Connect
    clock: Clock
    rng: random.Random
    budget: MemoryBudget
    log: FilteringBoundLogger
    name: str
    """The worker's name, for logs and status."""
    metrics: Metrics = field(default_factory=Metrics)
    position_budget: PositionBudget = field(default_factory=PositionBudget)


def make_herder(
    file: SettingsFile, recopies: Mapping[Flow, set[str]], context: WorkerContext, *, apply: bool = False
) -> Herder:
    """Make a worker's herder with all its parts. Workers share a flow's settings; see ``docs/configuration.md``.

    Args:
        recopies: topics that may be copied once more from their start, by flow.
        apply: all workers must use the settings of this file.
    """
    configuration = file.configuration()
    run: list[FlowSettings | HeartbeatSettings] = [*configuration.flows, *configuration.heartbeats]
    wanted = {one.flow.target for one in run}  # no group on a target where all flows are refused
    groups = {at: _group(configuration, of, context) for at, of in configuration.groups.items() if at in wanted}
    beating = {one.flow: one for one in configuration.heartbeats}
    plans: dict[ConnectorName, ConnectorPlan] = {}
    currents = {one.flow: CurrentSettings(one, beating.get(one.flow)) for one in configuration.flows}

    for settings in configuration.flows:
        flow, current = settings.flow, currents[settings.flow]
        group = groups[flow.target]
        to = context.connect(flow, settings.target, settings.target_request_timeout_s)
        gated, log = group.gated(to.brokers), context.log.bind(flow=str(flow))
        config_log = _config_log(settings, gated, context)
        parts: Mapping[str, Any] = {"clock": context.clock, "rng": context.rng, "log": log}
        copying = _Copying(current, to, context, settings=settings, recopies=recopies.get(flow, set()))
        schedule = SourceSchedule(
            group,
            ConfigWatch(
                flow,
                file,
                config_log,
                current,
                owner=OwnerWatch(
                    settings,
                    config_log,
                    to.brokers,
                    gated,
                    source_id=functools.partial(_source_id, group, flow, copying),
                    **parts,
                ),
                apply=apply,
                log=log,
                direction=DirectionWatch(
                    settings,
                    config_log,
                    current,
                    target=gated,
                    source=functools.partial(_source_brokers, settings, context),
                    rng=context.rng,
                    log=log,
                ),
            ),
            copying,
            conditions=StartConditions(
                functools.partial(refuse_running_mm2, settings, to.brokers, log), copying.source_answers, REFUSALS
            ),
            **parts,
        )
        plans[ConnectorName(flow, Kind.SOURCE)] = ConnectorPlan(functools.partial(copying.begin, schedule), schedule)
        plans[ConnectorName(flow, Kind.PATH)] = _path(flow, to, current, context)
        task = TaskName(flow, Kind.CHECKPOINT)
        checkpoint_schedule = UndividedSchedule(group, task, current, functools.partial(checkpoint_parts, current))
        plans[ConnectorName(flow, Kind.CHECKPOINT)] = _checkpoints(current, checkpoint_schedule, context)
    if apply:
        for settings in file.flows_switched_off():
            to = context.connect(settings.flow, settings.target, settings.target_request_timeout_s)
            plans[ConnectorName(settings.flow, Kind.OFF)] = _switching_off(settings, to, context, file)
    for emitted in configuration.heartbeats:
        current = currents.get(emitted.flow) or CurrentSettings(None, emitted)
        at = emitted.flow.target
        schedule_of_task = UndividedSchedule(
            groups[at], TaskName(emitted.flow, Kind.HEARTBEAT), current, functools.partial(_wanted_heartbeats, current)
        )
        plans[ConnectorName(emitted.flow, Kind.HEARTBEAT)] = _heartbeats(emitted, schedule_of_task, context)
    return Herder(
        plans,
        configuration.refused,
        groups=groups,
        is_refusal=lambda error: isinstance(error, REFUSALS),
        rng=context.rng,
        log=context.log,
        vitals=Vitals(context.name, context.clock, context.metrics, context.budget),
    )


def _source_brokers(settings: FlowSettings, context: WorkerContext) -> Brokers:
    return context.connect(settings.flow, settings.source, settings.source_request_timeout_s).brokers


def _source_id(group: Group, flow: Flow, copying: _Copying) -> str | None:
    """Return the id of a flow's source cluster that its group has agreed on, else the one that this worker has seen."""
    member = group.member
    agreed = None if member is None or not member.takes_part else member.ownership(flow).source_cluster
    return agreed or copying.source_id


class _Copying:
    """Makes the source connectors of one flow, attempt after attempt."""

    def __init__(
        self,
        current: CurrentSettings,
        to: Side,
        context: WorkerContext,
        *,
        settings: FlowSettings,
        recopies: set[str],
    ) -> None:
        self._current = current
        self._settings = settings
        self._recopies = frozenset(recopies)
        self._context = context
        self._running: SourceConnector | None = None
        self._runs_for: Member | None = None
        self._ended: set[int] = set()
        self.source_id: str | None = None
        """The id of the source cluster; None until it has answered and was not refused."""
        self._unsettled: Member | None = None
        """The last member under whose name a request was sent that got no answer."""
        self._sources = {settings.source_request_timeout_s: self._connect(settings.source_request_timeout_s, True)}
        self._targets = {settings.target_request_timeout_s: to}

    def begin(self, schedule: SourceSchedule, attempt: int) -> Connector:
        """Return the connector of the given attempt, with the present settings."""
        context, settings, member = self._context, schedule.settings, schedule.member
        self._note_outcome()
        if self._running is not None and not self._running.leaves_outcome_unknown:
            self._ended |= self._running.producer_ids
        self._runs_for = member
        source = self._side(self._sources, settings.source_request_timeout_s, of_source=True)
        target = self._side(self._targets, settings.target_request_timeout_s, of_source=False)
        target = replace(target, brokers=member.gated(target.brokers))
        gated = member.gated(source.brokers)  # offset syncs are written there
        source = replace(source, brokers=without_producers(gated, self._current.leaves_out))
        name = TransactionalId(settings.group, member.id, attempt, str(settings.flow))
        ownership, flight = member.ownership(settings.flow), FlightPending(member.id)

        def record(level: str, fields: Mapping[str, Any]) -> None:
            flight.line(level, fields, context.clock.wall_ms())

        log = context.log.bind(flow=str(settings.flow), **{RECORDER: record})
        incarnation = Incarnation(
            target.brokers,
            name.at,
            clock=context.clock,
            rng=context.rng,
            report=lambda text: log.warning("producer.degraded", why=text),
            waiting=lambda text: flow_context.report_waiting("getting a producer id", text),
            announce=ownership.announce,
        )
        flow_context = FlowContext(
            AttemptState(settings, schedule.holds, pauses=schedule.pauses),
            source,
            target,
            producer_name=name,
            ended=frozenset(self._ended),
            ownership=ownership,
            incarnation=incarnation,
            memory=context.budget,
            position_budget=context.position_budget,
            allow_recopy=self._recopies,
            metrics=context.metrics,
            clock=context.clock,
            rng=context.rng,
            log=log,
            flight=flight,
        )
        self._running = SourceConnector(flow_context)
        return self._running

    async def source_answers(self, ownership: Ownership, show: Callable[[str], None], is_first: bool) -> None:
        """Return when both clusters have answered. ``Preparation`` asks them once more for each attempt.

        Args:
            show: is called with a sentence that says what the flow waits for.
            is_first: no part of the flow runs yet, so the worker tells the group if the source does not answer.
        Raises: FlowRefused, if the source is the target, or is another cluster than the group's other workers see.
        """
        settings, context = self._settings, self._context
        source = self._side(self._sources, settings.source_request_timeout_s, of_source=True)
        target = self._side(self._targets, settings.target_request_timeout_s, of_source=False)
        log = context.log.bind(flow=str(settings.flow))

        told = ownership if is_first else None
        answers = FirstAnswers(settings.flow, told, show, clock=context.clock, rng=context.rng, log=log)
        source_id, target_id = await answers.of_both(source, target)
        refuse_wrong_source(settings.flow, settings.group, source_id, target_id, there=ownership.source_cluster)
        self.source_id = source_id

    def change(self, settings: FlowSettings, parts: Collection[FlowPart]) -> None:
        """Give new settings to parts of the running connector."""
        if self._running is not None:
            self._running.change(settings, parts)

    def asked(self, what: RestartPartitions | Holds | Pauses) -> None:
        """Let the running connector read partitions again from their positions, leave topics to backfills, or pause
        topics and partitions."""
        if self._running is None:
            return
        match what:
            case Holds():
                self._running.hold(what)
            case Pauses():
                self._running.pause(what)
            case _:
                self._running.restart(what.topic, what.partition)

    def leaves_outcome_unknown(self, member: Member) -> bool:
        """Return whether a request sent under a member's name may be stored later. Called while no connector runs."""
        self._note_outcome()
        return self._unsettled is member

    def _note_outcome(self) -> None:
        if self._running is not None and self._running.leaves_outcome_unknown:
            self._unsettled = self._runs_for

    def _side(self, known: dict[float, Side], timeout_s: float, *, of_source: bool) -> Side:
        """Return the connections with this time-out; open them if there are none yet."""
        if timeout_s not in known:
            known[timeout_s] = self._connect(timeout_s, of_source)
        return known[timeout_s]

    def _connect(self, timeout_s: float, of_source: bool) -> Side:
        cluster = self._settings.source if of_source else self._settings.target
        return self._context.connect(self._settings.flow, cluster, timeout_s)


def _switching_off(settings: FlowSettings, to: Side, context: WorkerContext, file: SettingsFile) -> ConnectorPlan:
    flow, log = settings.flow, context.log.bind(flow=str(settings.flow))

    def begin(_: int) -> SwitchingOff:
        config_log = _config_log(settings, gated_alone(to.brokers, context.clock), context)
        refuse = functools.partial(
            refuse_another_group, settings, config_log, to.brokers, clock=context.clock, rng=context.rng, log=log
        )
        return SwitchingOff(config_log, file.shared(flow), log, refuse=refuse)

    return ConnectorPlan(begin)


def _config_log(settings: FlowSettings, brokers: Brokers, context: WorkerContext) -> ConfigLog:
    return ConfigLog(brokers, settings, worker=context.name, clock=context.clock, rng=context.rng, author=author_here())


def checkpoint_parts(current: CurrentSettings) -> tuple[object, ...] | None:
    """Return the settings of a checkpoint connector, None while it must not run. When they change, it restarts."""
    settings = current.settings
    if settings is None or settings.checkpoints is None or not current.is_settled:
        return None
    syncs = settings.offset_syncs
    read_from = None if syncs is None else (syncs.topic, syncs.on_source)
    return settings.checkpoints, read_from, settings.topic_filter, settings.policy


def _checkpoints(
    current: CurrentSettings, schedule: UndividedSchedule[tuple[object, ...]], context: WorkerContext
) -> ConnectorPlan:
    def begin(_: int) -> CheckpointConnector:
        settings = current.settings
        if settings is None:
            raise AssertionError("the flow is switched off")
        source, target = (
            context.connect(settings.flow, cluster, timeout_s).brokers
            for cluster, timeout_s in (
                (settings.source, settings.source_request_timeout_s),
                (settings.target, settings.target_request_timeout_s),
            )
        )
        return CheckpointConnector(
            settings,
            source,
            schedule.member.gated(target),
            clock=context.clock,
            rng=context.rng,
            log=context.log.bind(flow=str(settings.flow)),
        )

    return ConnectorPlan(begin, schedule)


def _wanted_heartbeats(current: CurrentSettings) -> HeartbeatSettings | None:
    return current.heartbeats


def _heartbeats(
    settings: HeartbeatSettings, schedule: UndividedSchedule[HeartbeatSettings], context: WorkerContext
) -> ConnectorPlan:
    brokers = context.connect(settings.flow, settings.target, settings.request_timeout_s).brokers
    log = context.log.bind(flow=str(settings.flow))
    return ConnectorPlan(
        lambda _: HeartbeatConnector(
            schedule.settings, schedule.member.gated(brokers), clock=context.clock, rng=context.rng, log=log
        ),
        schedule,
    )


def _path(flow: Flow, to: Side, current: CurrentSettings, context: WorkerContext) -> ConnectorPlan:
    log = context.log.bind(flow=str(flow))
    schedule = PathSchedule(current, remote_heartbeats)
    return ConnectorPlan(
        lambda _: PathConnector(
            flow,
            schedule.topic,
            to.brokers,
            interval_s=schedule.interval_s,
            clock=context.clock,
            rng=context.rng,
            log=log,
        ),
        schedule,
    )


def _group(configuration: Configuration, settings: GroupSettings, context: WorkerContext) -> Group:
    """Return this worker's part in the group of one target cluster.

    The group has its own connections, so copying never delays a heartbeat. It also has its own client id, the same in
    all workers: otherwise a quota on copying would delay the heartbeats too, and the group would evict healthy workers.
    """
    flows = [one for one in configuration.flows if one.flow.target == settings.target]
    beating = [one for one in configuration.heartbeats if one.flow.target == settings.target]
    first: FlowSettings | HeartbeatSettings = flows[0] if flows else beating[0]
    own = replace(
        first.target,
        # A frozen broker that is asked who leads the control log must not delay heartbeats for longer than a session.
        request_timeout_s=min(first.target.request_timeout_s, settings.session_timeout_s),
        client_id=f"{first.target.client_id or settings.name}|cluster",
    )
    return Group(
        settings,
        context.connect(first.flow, own, settings.session_timeout_s / 2),
        flows,
        {Kind.HEARTBEAT: [one.flow for one in beating], Kind.CHECKPOINT: [one.flow for one in flows]},
        name=context.name,
        clock=context.clock,
        rng=context.rng,
        log=context.log,
    )


def remote_heartbeats(settings: FlowSettings) -> str | None:
    """Return the remote topic of the source's heartbeats; None if the flow does not copy them."""
    topic = settings.policy.heartbeats_topic()
    try:
        return settings.remote_topic(topic) if settings.replicates(topic) else None
    except PatternTooSlow:
        return None
