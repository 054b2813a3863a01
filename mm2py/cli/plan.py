"""``mm2py plan FILE``: what would start, be created, changed or refused on both clusters, before anything runs.

It asks both clusters of each flow as the user of the file, and changes nothing. MirrorMaker 2 has no such command.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mm2py.cli.command import CommandParser
from mm2py.cli.settings_plan import ApplyPlan, plan_settings, version_text
from mm2py.clock import Clock, SystemClock
from mm2py.command_lines import with_file
from mm2py.config.configuration import SettingsFile, as_argument, read_settings_file
from mm2py.config.flow_properties import is_enabled
from mm2py.config.internal_topics import WantedTopic, heartbeats_topic, topics_of_flow
from mm2py.config.settings import ClusterSettings, Configuration, FlowSettings, GroupSettings, HeartbeatSettings
from mm2py.connector import Side
from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow import ClusterAlias, Flow, Kind
from mm2py.flow_clusters import Connected, connect
from mm2py.flow_plan.plan_file import SavedPlan, differences, is_plan, read_plan, text_of_plan
from mm2py.flow_plan.plan_text import lines_of
from mm2py.flow_plan.planned import (
    PlannedFlow,
    PlannedRefusal,
    PlannedSetting,
    changes_anything,
    digest_of,
    is_complete,
)
from mm2py.group.control_topic import with_min_in_sync
from mm2py.group.topic_claims import TopicClaims
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.port import Brokers
from mm2py.kafka.producer.fencing import find_producer_expiry_ms
from mm2py.logs import make_logger
from mm2py.output import say, write_out
from mm2py.records.backfill_record import Holds
from mm2py.records.operator_request import OF_DIRECTION
from mm2py.secret import printable
from mm2py.shared_settings.flow_config import digest
from mm2py.shared_settings.follow import merged_or_file
from mm2py.status.bodies import PlanBody, json_of
from mm2py.status.cluster_inquiry import GroupInquiry, InquirySide, patience_of_commands, why_not_both
from mm2py.status.exit_codes import exit_of_plan
from mm2py.status.facts import GroupFacts
from mm2py.status.flow_report import ON_ALL, unstarted_of
from mm2py.status.inquiry import StoredInquiry, TargetInquiry
from mm2py.status.report import is_running
from mm2py.topics.names import control_log
from mm2py.topics.replicas import replicas_on
from mm2py_connectors.source.flow_planner import FlowPlanner, PlanningFacts, cluster_id, plan_internal

HEAD_BYTES: Final = 200
"""How much of a file shows whether it is a plan."""
GROUPS_TOPIC: Final = "__consumer_offsets"
"""Brokers create it at the first question about a consumer group. Without it there are no groups."""

ConnectCluster = Callable[[Flow, ClusterSettings, float, random.Random], Connected]
"""Connects a flow to one of its clusters. The number is how long reading records may take, in s."""


class PlanArguments(argparse.Namespace):
    """What follows ``plan`` on the command line."""

    file: Path
    clusters: list[str] | None
    output: Path | None
    allow_changes: bool
    json: bool


def parse_arguments(arguments: Sequence[str]) -> PlanArguments:
    """Read what follows ``plan`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "plan",
        "Says what would start, be created, changed or refused if workers ran by this file. It asks both clusters of "
        "each flow, and changes nothing. Exit codes: 0 nothing to do; 1 a cluster did not answer, or a flow is "
        "refused; 2 wrong file or arguments; 3 something would start or change, or a topic is refused.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="a properties file as MirrorMaker 2 reads it")
    parser.add_argument("--clusters", nargs="+", metavar="A", help="only flows into these clusters")
    parser.add_argument("-o", dest="output", metavar="P", type=Path, help="save the plan, for mm2py apply P")
    parser.add_argument(
        "--allow-changes",
        action="store_true",
        help="end with 0 also if something would start or change: for a job that stops an upgrade which cannot work",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    return parser.parse_args(arguments, namespace=PlanArguments())


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``load_configuration``; or the plan cannot be saved.
    """
    options = parse_arguments(arguments)
    file = read_settings_file(options.file, options.clusters)
    configuration = file.configuration()
    flows = asyncio.run(plan_of_file(file, connect_for_plan, SystemClock()))
    changes = changes_anything(flows) and not options.allow_changes
    code = exit_of_plan(failed=not is_complete(flows), changes=changes)
    if options.json:
        body = PlanBody(
            exit_code=code,
            file=str(options.file),
            changes=changes_anything(flows),
            flows=tuple(flows),
            notes=configuration.warnings,
        )
        write_out(json_of(body))
    else:
        for warning in configuration.warnings:
            say(f"note: {warning}")
        write_out(text_of(flows, as_argument(options.file)))
    if options.output is not None:
        if is_complete(flows):
            _save(options.output, saved_plan(file, flows))
        else:
            say(f"The plan is not saved as {options.output}: it is not complete.")
    return code


def text_of(flows: Sequence[PlannedFlow], file: str) -> str:
    """Return what people read. ``file``: as a command line takes it; it is put into the commands that are named."""
    lines = [line for flow in flows for line in (*lines_of(flow), "")]
    return "".join(f"{printable(with_file(line, file))}\n" for line in lines[:-1])


def saved_plan(file: SettingsFile, flows: Sequence[PlannedFlow]) -> SavedPlan:
    """Return a plan in the form in which it is saved."""
    configuration = file.configuration()
    return SavedPlan(
        file=str(file.path.absolute()),
        clusters=file.selected,
        settings={str(one.flow): digest(file.shared(one.flow)) for one in configuration.flows},
        flows=tuple(flows),
    )


def _save(path: Path, plan: SavedPlan) -> None:
    try:
        path.write_text(text_of_plan(plan))
    except OSError as error:
        raise ConfigError(f"Cannot write {path}: {error.strerror}.", remedy="Name another file after -o.") from error
    say(f"The plan is saved; mm2py apply {as_argument(path)} stores its settings while it is not stale.")


def read_saved_plan(path: Path) -> SavedPlan | None:
    """Return the plan that a file holds; None: it is no plan, or cannot be read.

    Raises:
        ConfigError: it is damaged, or another version of mm2py has made it.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode) or not is_plan(
            path.read_bytes()[:HEAD_BYTES].decode(errors="replace")
        ):
            return None
        return read_plan(path.read_text(), name=str(path))
    except (OSError, ValueError):
        return None


def plan_again(saved: SavedPlan) -> tuple[SettingsFile, list[str], list[str]]:
    """Make a saved plan again.

    Returns:
        Its settings file as it is now; why it is not known whether the plan is stale, and why it is stale, in lines.
    Raises: ConfigError, the settings file cannot be used any more.
    """
    file = read_settings_file(Path(saved.file), saved.clusters)
    flows = asyncio.run(plan_of_file(file, connect_for_plan, SystemClock()))
    unknown = [f"{one.flow}: {why}" for one in flows for why in (*one.unread, *filter(None, [one.refused]))]
    return file, unknown, [] if unknown else differences(saved, saved_plan(file, flows))


def connect_for_plan(flow: Flow, cluster: ClusterSettings, timeout_s: float, rng: random.Random) -> Connected:
    """Return connections to one cluster of a flow."""
    return connect("plan", flow, cluster, timeout_s=timeout_s, rng=rng)


async def plan_of_file(file: SettingsFile, connect: ConnectCluster, clock: Clock) -> list[PlannedFlow]:
    """Plan all flows of a file, in its order. A cluster that does not answer does not stop the others.

    Raises: ConfigError, as ``SettingsFile.configuration``.
    """
    planning = _Planning(file, connect, clock)
    try:
        return await planning.run()
    finally:
        await planning.close()


class _Planning:
    """One plan of a file. Flows are planned one after the other: those that come first claim their remote topics."""

    def __init__(self, file: SettingsFile, connect: ConnectCluster, clock: Clock) -> None:
        self._file = file
        self._configuration: Configuration = file.configuration()
        self._connect = connect
        self._clock = clock
        self._rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
        self._opened: list[Connected] = []
        self._sides: list[InquirySide] = []
        self._groups: dict[ClusterAlias, GroupFacts] = {}
        self._claims: dict[ClusterAlias, TopicClaims] = {}
        self._planned_logs: set[ClusterAlias] = set()

    async def run(self) -> list[PlannedFlow]:
        configuration = self._configuration
        beating = {one.flow: one for one in configuration.heartbeats}
        found = [PlannedFlow(str(flow), refused=str(error)) for flow, error in configuration.refused.items()]
        for settings in configuration.flows:
            found.append(await self._of_flow(settings, beating.pop(settings.flow, None)))
        for settings in self._file.flows_switched_off():
            if not self._file.selected or settings.flow.target in self._file.selected:
                found += await self._of_flow_switched_off(settings)
        for emitted in beating.values():
            found.append(await self._of_heartbeats(emitted))
        return found

    async def close(self) -> None:
        for side in self._sides:
            await side.close()
        for brokers in self._opened:
            await brokers.close()

    async def _side(self, flow: Flow, cluster: ClusterSettings, timeout_s: float) -> InquirySide:
        brokers = self._connect(flow, cluster, timeout_s, self._rng)
        self._opened.append(brokers)
        side = InquirySide(cluster.alias, brokers, patience_of_commands(self._clock))
        self._sides.append(side)
        await side.probe()
        return side

    async def _of_flow(self, settings: FlowSettings, emitted: HeartbeatSettings | None) -> PlannedFlow:
        flow = settings.flow
        target, source = await asyncio.gather(
            self._side(flow, settings.target, settings.target_request_timeout_s),
            self._side(flow, settings.source, settings.source_request_timeout_s),
        )
        away = tuple(side.away for side in (source, target) if side.away)
        if target.away:
            return PlannedFlow(str(flow), unread=away)
        group = await self._group(flow.target, target)
        planned = await self._settings(settings, target, group, emitted)
        if planned.refused or source.away:
            return replace(planned, unread=(*planned.unread, *away))
        stored, positions = StoredInquiry(settings, target, source), TargetInquiry(settings, target)
        await stored.look()
        await positions.look()
        unread = tuple(filter(None, (stored.unread, positions.positions_unread)))
        planned = replace(planned, unread=(*planned.unread, *unread), held=_held(stored))
        planned = _without_held(planned, stored)
        if unread or group.unread:
            return planned
        before = None
        if stored.config is not None and is_enabled(stored.config.properties):
            before = merged_or_file(self._file, settings, stored.config)
        state = group.state if is_running(group, self._clock.wall_ms()) else None
        facts = PlanningFacts(
            positions.positions,
            Holds.of(stored.backfills),
            listed=frozenset() if state is None else frozenset(state.topics.get(flow, {})),
            before=before,
            claims=self._claims[flow.target],
            source_of_group=None if state is None else state.sources.get(flow),
        )
        found = await self._topics(settings, source, target, facts, planned, emitted)
        return _without_copies(found, stored)

    async def _topics(
        self,
        settings: FlowSettings,
        source: InquirySide,
        target: InquirySide,
        facts: PlanningFacts,
        planned: PlannedFlow,
        emitted: HeartbeatSettings | None,
    ) -> PlannedFlow:
        found = [planned]
        refused: list[str] = []

        async def ask() -> None:
            claims = TopicClaims.of(facts.claims.by_flow)  # of its own: the question may be asked again
            planner = FlowPlanner(
                settings,
                source.brokers,
                target.brokers,
                replace(facts, claims=claims),
                clock=self._clock,
                rng=self._rng,
            )
            try:
                found[:] = [await planner.plan(planned)]
            except KafkaError:
                raise
            except Mm2Error as error:
                refused[:] = [str(error)]
                return
            self._claims[settings.flow.target] = claims

        why = await why_not_both("planning its topics", source, target, ask)
        wanted = topics_of_flow(settings) if emitted is None else [*topics_of_flow(settings), heartbeats_topic(emitted)]
        with_internal = await self._internal(found[0], settings.flow, wanted, source, target)
        return replace(
            with_internal,
            unread=(*with_internal.unread, *([why] if why else [])),
            refused=refused[0] if refused else with_internal.refused,
        )

    async def _internal(
        self,
        planned: PlannedFlow,
        flow: Flow,
        wanted: Sequence[WantedTopic],
        source: InquirySide | None,
        target: InquirySide,
    ) -> PlannedFlow:
        """Add the topics of mm2py's own. The control log of a group is planned with the first flow into its target."""
        found = [planned]
        to = _as_side(target)
        at = to if source is None else _as_side(source)

        async def ask() -> None:
            topics = list(wanted)
            if flow.target not in self._planned_logs:
                topics.append(await self._control_log(self._configuration.groups[flow.target], target.brokers))
            created, refused = await plan_internal(topics, at, to)
            found[:] = [
                replace(
                    planned,
                    internal=(*planned.internal, *created),
                    refusals=(*planned.refusals, *refused),
                )
            ]
            self._planned_logs.add(flow.target)

        why = await target.why_not("looking for topics of mm2py's own", ask)
        return replace(found[0], unread=(*found[0].unread, why)) if why else found[0]

    async def _control_log(self, group: GroupSettings, target: Brokers) -> WantedTopic:
        expiry_ms = await find_producer_expiry_ms(target, make_logger("error", "text"))
        brokers = (await fetch_metadata(target, [])).brokers
        topic = control_log(group.name, producer_expiry_ms=expiry_ms)
        replicas = replicas_on(len(brokers), group.replication_factor)
        setting = "internal.topics.replication.factor"
        return WantedTopic(with_min_in_sync(topic, replicas), group.replication_factor, setting)

    async def _group(self, target: ClusterAlias, side: InquirySide) -> GroupFacts:
        if target not in self._groups:
            inquiry = GroupInquiry(self._configuration.groups[target], side, clock=self._clock, rng=self._rng)
            facts = self._groups[target] = await inquiry.look()
            claims = {} if facts.state is None else facts.state.topic_claims.by_flow
            self._claims[target] = TopicClaims.of(claims)
        return self._groups[target]

    async def _settings(
        self, settings: FlowSettings, target: InquirySide, group: GroupFacts, emitted: HeartbeatSettings | None
    ) -> PlannedFlow:
        """Return which connectors would start, and which settings would change."""
        flow = settings.flow
        wanted = [Kind.SOURCE]
        wanted += [Kind.CHECKPOINT] if settings.checkpoints is not None else []
        wanted += [Kind.HEARTBEAT] if emitted is not None and emitted.interval_s is not None else []
        running = _running(group, flow, self._clock.wall_ms())
        found, refused, why = await self._plan_settings(settings, target)
        if found is None:
            return PlannedFlow(str(flow), refused=refused, unread=(why,) if why else ())
        planned = PlannedFlow(
            str(flow),
            unread=(group.unread,) if group.unread else (),
            seen=self._seen(flow, found),
        )
        planned = of_workers(planned, wanted, group, flow, self._clock.wall_ms())
        return _with_settings(planned, found, is_running=Kind.SOURCE in running)

    async def _plan_settings(self, settings: FlowSettings, target: InquirySide) -> tuple[ApplyPlan | None, str, str]:
        """Return the plan of the settings; else why the flow is refused, or why the target does not say."""
        found: list[ApplyPlan] = []
        refused: list[str] = []

        async def ask() -> None:
            has_groups = await _has_consumer_groups(target.brokers)
            try:
                found[:] = [
                    await plan_settings(
                        self._file,
                        settings,
                        target.brokers,
                        self._clock,
                        self._rng,
                        for_start=True,
                        looks_for_mm2=has_groups,
                    )
                ]
            except KafkaError:
                raise
            except Mm2Error as error:
                refused[:] = [str(error)]

        why = await target.why_not(f"reading {settings.configs_topic}", ask)
        return (found[0] if found else None), "".join(refused), why

    def _seen(self, flow: Flow, found: ApplyPlan) -> Mapping[str, str]:
        stored = None if found.stored is None else [found.stored.version, dict(found.stored.properties)]
        return {"stored settings": digest_of(stored), "settings of the file": digest(self._file.shared(flow))}

    async def _of_flow_switched_off(self, settings: FlowSettings) -> list[PlannedFlow]:
        """Return the plan of a flow that the file switches off; none if it is off already."""
        target = await self._side(settings.flow, settings.target, settings.target_request_timeout_s)
        if target.away:
            return [PlannedFlow(str(settings.flow), unread=(target.away,))]
        found, refused, why = await self._plan_settings(settings, target)
        if found is None:
            return [PlannedFlow(str(settings.flow), refused=refused, unread=(why,) if why else ())]
        if found.wanted is None:
            return []
        group = await self._group(settings.flow.target, target)
        running = _running(group, settings.flow, self._clock.wall_ms())
        planned = PlannedFlow(str(settings.flow), runs=tuple(sorted(running)), seen=self._seen(settings.flow, found))
        return [_with_settings(planned, found, is_running=Kind.SOURCE in running)]

    async def _of_heartbeats(self, emitted: HeartbeatSettings) -> PlannedFlow:
        """Return the plan of a pair of clusters that only has heartbeats."""
        flow = emitted.flow
        target = await self._side(flow, emitted.target, emitted.request_timeout_s)
        if target.away:
            return PlannedFlow(str(flow), unread=(target.away,))
        group = await self._group(flow.target, target)
        is_beating = Kind.HEARTBEAT in _running(group, flow, self._clock.wall_ms())
        emits = emitted.interval_s is not None
        planned = PlannedFlow(
            str(flow),
            unread=(group.unread,) if group.unread else (),
            starts=(Kind.HEARTBEAT,) if emits and not is_beating and not group.unread else (),
            runs=(Kind.HEARTBEAT,) if is_beating else (),
            notes=("The file does not enable the flow: only heartbeats are emitted.",),
        )
        return await self._internal(planned, flow, [heartbeats_topic(emitted)], None, target)


def _with_settings(planned: PlannedFlow, found: ApplyPlan, *, is_running: bool) -> PlannedFlow:
    notes = [f"It is not known whether a MirrorMaker 2 runs it: {found.unknown}"] if found.unknown else []
    if found.dead_owner is not None:
        notes.append(f"Group {found.dead_owner.group} ran this flow until now; it has no live worker of it.")
    stored = found.stored
    if found.wanted is None:
        text = f"those of the file are stored{version_text(stored)}"
    elif stored is None:
        text = "none are stored; the first worker that starts, or mm2py apply FILE, stores those of the file"
    else:
        how = "mm2py apply FILE stores" if is_running else "the first worker that starts, or mm2py apply FILE, stores"
        text = f"others are stored{version_text(stored)}; {how} those of the file"
    return replace(
        planned,
        settings=tuple(PlannedSetting(one.name, str(one)) for one in found.difference),
        settings_stored=None if stored is None else stored.version,
        stores_settings=found.wanted is not None,
        settings_text=text,
        notes=(*planned.notes, *notes),
    )


def _running(group: GroupFacts, flow: Flow, now_ms: int) -> set[str]:
    """Return the connectors of a flow that live workers run, or would run if another one dies, or cannot start."""
    if group.state is None or not is_running(group, now_ms):
        return set()
    joined = [member.joined for member in group.state.members.values() if not member.expired]
    of_kind = {
        Kind.SOURCE: any(flow in one.flows for one in joined),
        Kind.CHECKPOINT: any(flow in one.checkpoints for one in joined),
        Kind.HEARTBEAT: any(flow in one.heartbeats for one in joined),
    }
    return {kind for kind, runs in of_kind.items() if runs}


def of_workers(planned: PlannedFlow, wanted: Sequence[Kind], group: GroupFacts, flow: Flow, now_ms: int) -> PlannedFlow:
    """Add which of the wanted connectors run, which would start, and why workers cannot start the flow."""
    running = _running(group, flow, now_ms)
    unstarted = ON_ALL if group.state is None or not running else unstarted_of(flow, group.state)
    runs = running - {Kind.SOURCE} if unstarted.is_whole else running
    return replace(
        planned,
        starts=() if group.unread else tuple(kind for kind in wanted if kind not in running),
        runs=tuple(kind for kind in wanted if kind in runs),
        refusals=tuple(PlannedRefusal(str(flow), one.why, one.remedy) for one in unstarted.causes.values()),
    )


def _held(stored: StoredInquiry) -> tuple[str, ...]:
    return tuple(f"{kind} is {str(target.state).lower()}" for kind, target in sorted(stored.held.items()))


def _without_held(planned: PlannedFlow, stored: StoredInquiry) -> PlannedFlow:
    """Leave out the connectors that operators hold: they do not start."""
    starts = tuple(kind for kind in planned.starts if kind not in stored.held)
    runs = tuple(kind for kind in planned.runs if kind not in stored.held)
    return replace(planned, starts=starts, runs=runs)


def _without_copies(planned: PlannedFlow, stored: StoredInquiry) -> PlannedFlow:
    """Leave out what a flow that is standby would do with topics: it does nothing, and where it begins, and so whether
    records would come back, is decided when it is turned on."""
    held = stored.held.get(Kind.SOURCE)
    if held is None or held.state not in OF_DIRECTION:
        return planned
    note = f"It is {held.text}: it copies nothing until it is turned on with mm2py dr turn FILE '{planned.flow}'."
    nothing: Mapping[str, Any] = dict.fromkeys(("begins", "creates", "widens", "configs", "acls", "refusals"), ())
    return replace(planned, **nothing, notes=(*planned.notes, note))


def _as_side(side: InquirySide) -> Side:
    return Side(side.alias, side.brokers, lambda: cluster_id(side.brokers))


async def _has_consumer_groups(brokers: Brokers) -> bool:
    """Return whether a cluster may have consumer groups. Raises: as ``Brokers.send``."""
    topic = (await fetch_metadata(brokers, [GROUPS_TOPIC])).topics.get(GROUPS_TOPIC)
    return topic is not None and topic.error_code != UNKNOWN_TOPIC_OR_PARTITION
