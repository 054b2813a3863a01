"""Plans what the source connector of a flow would create, change and refuse. Nothing is changed.

It takes the steps of a first round of discovery, of the configuration sync and of the ACL sync, by the same functions,
on brokers that only try (``TrialBrokers``). So rights, policies and numbers of brokers count as they do for a worker.

MirrorMaker 2 has no plan.
"""

from __future__ import annotations

import io
import random
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mm2py.clock import Clock
from mm2py.config.internal_topics import WantedTopic
from mm2py.config.settings import FlowSettings
from mm2py.connector import Side
from mm2py.copying.gaps import decide
from mm2py.dr.fence.held_back import acls_held_back, without_fences
from mm2py.errors import Mm2Error
from mm2py.flow import Flow, TopicName
from mm2py.flow_plan.planned import (
    PlannedConfig,
    PlannedFlow,
    PlannedInternal,
    PlannedPartitions,
    PlannedRefusal,
    PlannedTopic,
    digest_of,
)
from mm2py.group.topic_claims import TopicClaims
from mm2py.kafka import admin, internal_topic
from mm2py.kafka.admin import NewTopic
from mm2py.kafka.cluster import ClusterMetadata, TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import SECURITY_DISABLED, UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused, Reaction
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.kafka.trial_brokers import TrialBrokers, configs_of
from mm2py.logs import make_logger
from mm2py.records.backfill_record import Holds
from mm2py.records.control_record import TopicClaim
from mm2py.records.gap_record import Done
from mm2py.records.source_offset import StoredPosition
from mm2py.status.not_copied import Reason
from mm2py.topics.acls import TopicAcl
from mm2py.topics.replicas import replicas_on
from mm2py.topics.unmatched import unmatched
from mm2py_connectors.source.acl_sync import acls_to_create, wanted_acls
from mm2py_connectors.source.context import AttemptState, FlowView
from mm2py_connectors.source.discovery import remote_topics
from mm2py_connectors.source.discovery.discovery import Selection, check_names, names_changed, select
from mm2py_connectors.source.discovery.remote_topics import RemoteTopics
from mm2py_connectors.source.discovery.rings import Rings
from mm2py_connectors.source.discovery.starting_offsets import find_filled, stale_positions
from mm2py_connectors.source.notices import RefusedConfigs
from mm2py_connectors.source.refusals import (
    NoPosition,
    Recreated,
    SeveralFlows,
    SeveralTopics,
    TargetNotEmpty,
    TopicRefused,
    refuse_wrong_source,
)
from mm2py_connectors.source.topic_sync import CHUNK, TopicConfigSync, alter_configs

NEW_TOPIC_ID: Final = uuid.UUID(int=1)
"""Stands for the id of a topic that would be created: no other topic has it."""
NAMED_MOST: Final = 5
"""How many topics a note names."""


@dataclass(frozen=True, slots=True)
class PlanningFacts:
    """What the target knows of a flow, read before."""

    positions: Mapping[TopicPartition, StoredPosition]
    holds: Holds
    listed: Collection[str]
    """The topics that workers copy now."""
    before: FlowSettings | None
    """The settings by which the workers run, or ran; None: none are stored."""
    claims: TopicClaims
    """Who copies into which remote topic; the planned flow's claims are added."""
    source_of_group: str | None
    """The id of the source cluster of the workers that run; None: none run, or it is not known."""


@dataclass(slots=True)
class _Found:
    """What the steps have found so far."""

    refused: dict[str, TopicRefused] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    begins: list[str] = field(default_factory=list)
    configs: list[PlannedConfig] = field(default_factory=list)
    acls: list[str] = field(default_factory=list)
    copied: dict[str, str] = field(default_factory=dict)
    """The remote topic of each topic that would be copied and has one already."""


class FlowPlanner:
    """Plans one flow."""

    def __init__(
        self,
        settings: FlowSettings,
        source: Brokers,
        target: Brokers,
        facts: PlanningFacts,
        *,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._settings = settings
        self._flow = settings.flow
        self._source, self._target = TrialBrokers(source), TrialBrokers(target)
        self._facts = facts
        self._found = _Found()
        self._view = FlowView(
            AttemptState(settings, facts.holds),
            Side(self._flow.source, self._source, lambda: cluster_id(self._source)),
            Side(self._flow.target, self._target, lambda: cluster_id(self._target)),
            clock,
            rng,
            make_logger("error", "text", io.StringIO()),
        )

    async def plan(self, known: PlannedFlow) -> PlannedFlow:
        """Return ``known`` with what would become of topics, their settings and their ACLs.

        Raises:
            FlowRefused: the source is the target, or is not the one of the workers that run.
            KafkaError: a cluster does not answer; ask again if it is ``retriable``.
        """
        facts, found = self._facts, self._found
        metadata = await fetch_metadata(self._source, None)
        target_id = await cluster_id(self._target)
        refuse_wrong_source(
            self._flow, self._settings.group, metadata.cluster_id, target_id, there=facts.source_of_group
        )
        selected = select(self._settings, metadata, facts.holds.topics)
        found.refused |= selected.undecided
        left_out = Counter(str(why) for why in selected.left_out.values())
        left_out["internal"] += sum(topic.is_internal for topic in metadata.topics.values())
        left_out[str(Reason.RING)] += await self._leave_out_rings(metadata, target_id, selected.wanted)
        wanted = selected.wanted
        copied = {name for name, _ in self._facts.positions}
        checked = check_names(self._settings, wanted, self._taken, found.refused, copied)
        changed = names_changed(self._settings, self._facts.positions)
        for name in changed.keys() & checked.keys():
            found.refused[name] = changed[name]
            del checked[name]
        made = await self._remote_topics(checked)
        await self._start(metadata.cluster_id, wanted, made)
        await self._sync_configs()
        await self._sync_acls([name for name in checked if name not in found.refused])
        self._note_held(selected)
        self._note_unmatched(metadata)
        return replace(
            known,
            topics=sum(name not in found.refused for name in wanted),
            begins=tuple(sorted(found.begins)),
            stops=tuple(sorted(self._stops(metadata, selected))),
            creates=tuple(self._creates(checked, made)),
            widens=tuple(self._widens(checked, made)),
            configs=tuple(sorted(found.configs, key=lambda one: (one.remote, one.setting))),
            configs_only_logged=self._settings.sync_topic_configs_dry_run,
            acls=tuple(found.acls),
            acls_only_logged=self._settings.sync_topic_acls_dry_run,
            refusals=(*known.refusals, *_refusals(self._flow, {**made.too_narrow, **found.refused})),
            left_out={why: count for why, count in sorted(left_out.items()) if count},
            notes=(*known.notes, *found.notes),
            unread=(*known.unread, *found.unread),
            seen={**known.seen, **self._seen(metadata, target_id, wanted, made)},
        )

    # Discovery

    async def _leave_out_rings(
        self, metadata: ClusterMetadata, target_id: str | None, wanted: dict[str, TopicMetadata]
    ) -> int:
        rings = Rings(
            self._view,
            target_id,
            self._facts.positions,
            listed=lambda: self._facts.listed,
            is_coordinator=lambda: False,
        )
        await rings.look(metadata, wanted, again=True)
        for name in {*rings.copies, *rings.refused} & wanted.keys():
            del wanted[name]
        self._found.refused |= rings.refused
        return len(rings.copies)

    def _taken(self, topic: str) -> TopicRefused | None:
        """Return why another flow, or another topic, has the remote topic. Flows that are planned later meet the claim
        of this one."""
        remote = self._settings.remote_topic(topic)
        claim = TopicClaim.of(topic, remote, mixes=self._settings.many_to_one)
        if self._facts.claims.take(self._flow, topic, claim):
            return None
        if others := self._facts.claims.conflicting_flows(self._flow, topic, claim):
            return SeveralFlows(self._flow, topic, remote, others)
        other = self._facts.claims.conflicting_topic(self._flow, topic, claim)
        return None if other is None else SeveralTopics(self._flow, topic, remote, other)

    async def _remote_topics(self, checked: Mapping[str, tuple[str, TopicMetadata]]) -> RemoteTopics:
        others = {key for key in self._facts.positions if key[0] not in checked}
        made = await remote_topics.ensure(
            self._settings, self._source, self._target, checked, known={}, partitions_elsewhere=len(others)
        )
        self._found.refused |= made.refused
        waiting = [
            name
            for name, (remote, _) in checked.items()
            if name not in made.refused and name not in made.ready and remote not in self._target.created
        ]
        narrow = [
            remote
            for name, (remote, upstream) in checked.items()
            if name in made.ready
            and len(made.ready[name].partitions) < len(upstream.partitions)
            and name not in made.too_narrow
            and remote not in self._target.widened
        ]
        for names, doing in ((waiting, "create the remote topics of"), (narrow, "add partitions to")):
            if names:
                self._found.unread.append(
                    f"Whether {self._flow.target} would {doing} {_named(names)}: it did not say, for example because of"
                    " a quota."
                )
        return made

    async def _start(self, source_id: str | None, wanted: Mapping[str, TopicMetadata], made: RemoteTopics) -> None:
        """Find out which topics could not start in the remote topics that are there."""
        settings, refused = self._settings, self._found.refused
        stored: dict[str, dict[int, StoredPosition]] = {}
        for (name, number), position in self._facts.positions.items():
            stored.setdefault(name, {})[number] = position
        asked: dict[TopicPartition, tuple[str, TopicMetadata]] = {}
        created = {
            name: TopicMetadata(settings.remote_topic(name), NEW_TOPIC_ID, 0, is_internal=False, partitions={})
            for name in wanted
            if settings.remote_topic(name) in self._target.created
        }
        for name, remote in {**created, **made.ready}.items():
            stale = stale_positions(self._flow, wanted[name], remote, stored.get(name, {}), source_id)
            for number, (kind, what) in stale.items():
                done = decide(kind, on_source_gap=settings.on_source_gap, on_target_loss=settings.on_target_loss)
                if done is Done.STOPPED:
                    refused.setdefault(name, Recreated(self._flow, name, remote.name, what, partition=number))
            if stale and name not in refused:
                self._found.notes.append(
                    f"{name}: it would be copied once more from its start, because a policy says so."
                )
            if not stale and not settings.many_to_one:
                new = [number for number in wanted[name].partitions if number not in stored.get(name, {})]
                asked |= {(remote.name, number): (name, remote) for number in new if number in remote.partitions}
        if (group := settings.starting_offsets_group) and (begun := {name for name, _ in asked.values()}):
            # Finding the coordinator of a group would make a cluster create the topic of commits.
            self._found.notes.append(
                f"{_named(sorted(begun))}: starts where group {group} has committed on {self._flow.source}; a plan does"
                " not ask for these commits."
            )
            asked = {}
        filled, undecided = await find_filled(self._target, asked)
        for name, ends in filled.items():
            refused[name] = TargetNotEmpty(self._flow, name, settings.remote_topic(name), ends)
        if undecided:
            names = sorted({name for name, _ in undecided})
            self._found.unread.append(f"{_named(names)}: partitions of the remote topic have no leader; workers wait.")
        if settings.auto_offset_reset == "none":
            without = [name for name in wanted if name not in stored and name not in refused and not group]
            refused |= {name: NoPosition(self._flow, name) for name in without}
        self._found.copied = {name: remote.name for name, remote in made.ready.items() if name not in refused}
        self._found.begins = [
            name for name in self._found.copied if name not in stored and name not in self._facts.listed
        ]

    def _stops(self, metadata: ClusterMetadata, selected: Selection) -> Iterable[str]:
        """Yield the topics that the settings leave out from now on."""
        copied, before = {name for name, _ in self._facts.positions} | set(self._facts.listed), self._facts.before
        for name in copied & selected.left_out.keys() & metadata.topics.keys():
            if name in self._facts.listed or (before is not None and select(before, _only(metadata, name), {}).wanted):
                yield name

    def _note_held(self, selected: Selection) -> None:
        if selected.held:
            self._found.notes.append(f"{_named(sorted(selected.held))}: a backfill copies it; workers wait with it.")

    def _note_unmatched(self, metadata: ClusterMetadata) -> None:
        names = {name for name, topic in metadata.topics.items() if not topic.error_code}

        def copy_of(name: str) -> str:
            return self._settings.policy.format_remote_topic(self._flow.target, TopicName(name))

        source = self._flow.source
        for one in unmatched(self._settings.topic_filter.included, names, copy_of=copy_of):
            self._found.notes.append(
                f"topics names {one.entry}, and {source} does not show it: it does not exist, or mm2py may not describe"
                " it."
                if one.is_name
                else f"Pattern {one.entry} of topics matches no topic that {source} shows."
            )

    def _creates(self, checked: Mapping[str, tuple[str, TopicMetadata]], made: RemoteTopics) -> Iterable[PlannedTopic]:
        for name, (remote, _) in sorted(checked.items()):
            topic = self._target.created.get(remote)
            if topic is not None:
                left_out = tuple(
                    f"{one.setting}={one.value}: {one.why}" for one in made.left_out if one.remote == remote
                )
                yield PlannedTopic(
                    name,
                    remote,
                    int(topic.num_partitions),
                    int(topic.replication_factor),
                    dict(sorted(configs_of(topic).items())),
                    left_out,
                )

    def _widens(
        self, checked: Mapping[str, tuple[str, TopicMetadata]], made: RemoteTopics
    ) -> Iterable[PlannedPartitions]:
        for name, (remote, _) in sorted(checked.items()):
            if remote in self._target.widened and name in made.ready:
                has, wants = len(made.ready[name].partitions), self._target.widened[remote]
                yield PlannedPartitions(name, remote, has, wants)

    # Settings and ACLs

    async def _sync_configs(self) -> None:
        if self._settings.sync_topic_configs_interval_s is None:
            return
        topics, names = self._found.copied, sorted(self._found.copied)
        sync = TopicConfigSync(
            self._view, topics=lambda: topics, refused=RefusedConfigs(self._view), changed=_nothing_to_tell
        )
        for at in range(0, len(names), CHUNK):
            page = {name: topics[name] for name in names[at : at + CHUNK]}
            wanted = await sync.wanted(page)
            unread = [remote for remote in page.values() if remote not in wanted]
            if unread:
                self._found.notes.append(
                    f"{_named(unread)}: its settings, or those of its upstream topic, cannot be read, and would not"
                    " follow; mm2py needs DESCRIBE_CONFIGS on both."
                )
            tried, denied = await alter_configs(self._target, wanted)
            for remote, changes in tried.done.items():
                self._found.configs += [PlannedConfig(remote, one.name, one.old, one.new) for one in changes]
            self._found.notes += [
                f"{remote}: {self._flow.target} refuses {change}, because: {why}"
                for remote, refused in tried.refused.items()
                for change, why in refused
            ]
            for remote, error in denied.items():
                told = self._found.unread if error.retriable else self._found.notes
                told.append(f"{remote}: its settings would not follow. {error}")

    async def _sync_acls(self, topics: Sequence[str]) -> None:
        settings = self._settings
        if settings.sync_topic_acls_interval_s is None:
            return
        kept = {name for name, _ in self._facts.positions}
        before = await acls_held_back(self._flow.source, self._source)
        everything = await self._acls(self._source, self._flow.source, "DESCRIBE")
        if everything is None:
            return
        after = await acls_held_back(self._flow.source, self._source)
        found, held = without_fences(everything, before, after)
        if held:
            why = before.unknown or after.unknown or "a fence of producers stands there"
            self._found.notes.append(f"{len(held)} ACL(s) of {self._flow.source} are held back: {why}")
        plan = wanted_acls(settings, found, topics, kept)
        for why, count in Counter(why for _, why in plan.left_out).items():
            self._found.notes.append(f"{count} ACL(s) of {self._flow.source} are not carried over: {why}.")
        if not plan.wanted:
            return
        there = await self._acls(self._target, self._flow.target, "ALTER")
        if there is None:
            return
        missing = acls_to_create(settings, plan, there, topics, kept)
        self._found.acls = [str(acl) for acl in (*missing.denials, *missing.grants)]
        if missing.beyond:
            self._found.notes.append(
                f"{len(missing.beyond)} ACL(s) would be left out, because of remote.acls.max"
                f" ({settings.remote_acls_max}); the first is: {missing.beyond[0]}"
            )

    async def _acls(self, brokers: Brokers, alias: str, right: str) -> list[TopicAcl] | None:
        """Return a cluster's ACLs of topics; None without an authorizer, or the right to ask, which is noted."""
        try:
            return await admin.describe_topic_acls(brokers)
        except BrokerRefused as error:
            if error.code == SECURITY_DISABLED:
                return None
            if error.reaction is not Reaction.DENIED:
                raise
            self._found.notes.append(
                f"ACLs would not be carried over. {error} Grant {right} on the cluster resource of {alias}, or set"
                " sync.topic.acls.enabled=false."
            )
            return None

    # What the plan rests on

    def _seen(
        self,
        metadata: ClusterMetadata,
        target_id: str | None,
        wanted: Mapping[str, TopicMetadata],
        made: RemoteTopics,
    ) -> dict[str, str]:
        topics = {name: [str(topic.topic_id), len(topic.partitions)] for name, topic in wanted.items()}
        remotes = {name: [topic.name, str(topic.topic_id), len(topic.partitions)] for name, topic in made.ready.items()}
        return {
            "clusters": digest_of([metadata.cluster_id, target_id]),
            "topics of the source": digest_of(topics),
            "remote topics": digest_of(remotes),
            "topics with positions": digest_of(sorted({name for name, _ in self._facts.positions})),
        }


async def plan_internal(
    wanted: Sequence[WantedTopic], source: Side, target: Side
) -> tuple[list[PlannedInternal], list[PlannedRefusal]]:
    """Return which topics of mm2py's own would be created, and which cannot be, or would lose what they keep.

    Raises: as ``Brokers.send``.
    """
    created: list[PlannedInternal] = []
    refused: list[PlannedRefusal] = []
    for side in (source, target):
        ours = {str(one.topic.name): one for one in wanted if one.on_source is (side is source)}
        if not ours:
            continue
        trial = TrialBrokers(side.brokers)
        metadata = await fetch_metadata(trial, list(ours))
        for name, one in ours.items():
            topic = metadata.topics.get(name)
            try:
                if topic is not None and topic.error_code != UNKNOWN_TOPIC_OR_PARTITION:
                    if one.is_table:
                        await internal_topic.read_settings(trial, one.topic)
                    continue
                factor = replicas_on(len(metadata.brokers), one.replication_factor)
                new = NewTopic(name, one.topic.partitions, factor, one.topic.configs)
                refusal = (await admin.create_topics(trial, [new]))[name]
                if refusal is not None:
                    raise internal_topic.TopicNotMade(one.topic, f"{one.setting} ({factor})", refusal)
                created.append(PlannedInternal(side.alias, name, new.partitions, factor, dict(new.configs)))
            except (internal_topic.TopicNotMade, internal_topic.TopicUnsuitable) as error:
                refused.append(PlannedRefusal(name, f"{error.what} (on {side.alias})", error.remedy))
    return created, refused


async def cluster_id(brokers: Brokers) -> str | None:
    """Return the id of a cluster. Raises: as ``Brokers.send``."""
    return (await fetch_metadata(brokers, [])).cluster_id


async def _nothing_to_tell(settings_of: Mapping[str, Mapping[str, str]]) -> None:
    """Nothing copies here."""


def _only(metadata: ClusterMetadata, name: str) -> ClusterMetadata:
    return replace(metadata, topics={name: metadata.topics[name]})


def _refusals(flow: Flow, refused: Mapping[str, Mm2Error]) -> list[PlannedRefusal]:
    return [
        PlannedRefusal(name, error.what.removeprefix(f"Topic {name} of {flow} is refused: "), error.remedy)
        for name, error in sorted(refused.items())
    ]


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED_MOST])
    return shown if len(names) <= NAMED_MOST else f"{shown} and {len(names) - NAMED_MOST} more"
