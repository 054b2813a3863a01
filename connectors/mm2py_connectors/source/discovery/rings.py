"""Finds flows from this flow's target back into its source, reports them, and does not copy their topics back.

Such a reverse flow stores records on its own target, which is this flow's source: its owner with the id of its source
cluster, its settings, and its positions. ``mm2py/topics/reverse_flows.py`` has the rule. A look reads little, as it
starts where the last one ended. It happens when topics have come or gone, and from time to time. MirrorMaker 2 finds a
ring only by names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from mm2py.config import keys
from mm2py.config.flow_properties import FlowProperties, is_enabled
from mm2py.config.kinds import BadValue
from mm2py.config.row import Key
from mm2py.copying.positions import PositionTable
from mm2py.errors import ConfigError, Mm2Error, for_each
from mm2py.flow import ClusterAlias, Flow, TopicName
from mm2py.group.group_look import GroupLooks
from mm2py.kafka.cluster import ClusterMetadata, TopicMetadata
from mm2py.kafka.errors import BrokerRefused, KafkaError, Reaction
from mm2py.kafka.port import TopicPartition
from mm2py.records.author import plain
from mm2py.records.connector_config import CONNECTORS
from mm2py.records.source_offset import BY_OPERATOR, StoredPosition
from mm2py.records.standstill import Cause
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.shared_settings.direction import Seen
from mm2py.status.not_copied import Reason
from mm2py.topics.filters import TopicFilter
from mm2py.topics.names import (
    DefaultReplicationPolicy,
    ReplicationPolicy,
    make_policy,
    sees_hops,
)
from mm2py.topics.renaming import with_rules
from mm2py.topics.reverse_flows import (
    NOT_KNOWN,
    NameOrigin,
    ReverseFlow,
    Verdict,
    configs_topic,
    offsets_topic,
    origin_of,
    sources_of,
    verdict_on,
)
from mm2py_connectors.source.context import FlowView
from mm2py_connectors.source.refusals import TopicRefused, WouldComeBack

READS_AT_ONCE: Final = 16
PATIENCE_S: Final = 15.0
"""How long new topics wait for records that cannot be read now. After that they are copied, and that is logged."""
ALIAS_SHOWN: Final = 100
TOPICS_AT_ONCE: Final = 1000
"""How many topics are judged before other tasks, such as heartbeats, run."""
STRETCH_S: Final = 0.05
"""Other tasks also run after this time: the stored patterns of others may take 0.1 s for each name."""
LOOK_MOST_S: Final = 30.0
"""How long it may take to find out whether a group that does not answer has ended."""


@dataclass(slots=True)
class _Records:
    """What a flow into the source stores there."""

    configs: ConfigTable
    positions: PositionTable
    reverse: ReverseFlow | None = None
    """None: it comes from another cluster than the target, or that is not known."""
    meets: bool = False
    """It selects a topic that this flow selects, and keeps names."""
    origins: frozenset[str] | None = None
    """The topics that it has copied from the target; None: it copies from nowhere else."""
    is_read: bool = False
    failing_since_s: float | None = None
    unread: Mm2Error | None = None
    """Why it is not known whether it leads back."""


@dataclass(slots=True)
class Rings:
    """The reverse flows of one flow: those that lead from its target back into its source."""

    context: FlowView
    target_id: str | None
    """The id of the target cluster; without it no reverse flow can be recognised."""
    positions: Mapping[TopicPartition, StoredPosition]
    """The stored positions of this flow."""
    listed: Callable[[], Collection[str]]
    """Returns the topics that this flow has listed."""
    is_coordinator: Callable[[], bool]
    """Whether this worker logs what is found."""
    copies: dict[str, ReverseFlow] = field(default_factory=dict)
    """Selected topics that a reverse flow has made, as their names show."""
    refused: dict[str, TopicRefused] = field(default_factory=dict)
    """Selected topics that a reverse flow has made, or may have made, under the names of their originals."""
    _records: dict[ClusterAlias, _Records] = field(default_factory=dict)
    _seen: object = None
    _behind: dict[str, ReverseFlow] = field(default_factory=dict)
    """Topics that this flow copies from after the last record that the reverse flow brought, because that flow had
    ended. It does not begin again, by the same rule."""
    _since_ms: dict[str, int] = field(default_factory=dict)
    """Since when each logged reason has been true."""

    async def look(self, metadata: ClusterMetadata, wanted: Mapping[str, TopicMetadata], *, again: bool) -> None:
        """Find out which of the selected topics must not be copied.

        Args:
            metadata: of all topics of the source.
            again: look also if the topics are the same as in the last look.
        Raises: KafkaError, the source does not answer now.
        """
        aliases = sources_of(metadata.topics)
        seen = (frozenset(wanted), tuple(aliases))
        if self.target_id is None or (seen == self._seen and not again):
            return
        self._records = {alias: self._records.get(alias) or self._of(alias) for alias in aliases}

        async def read(alias: ClusterAlias) -> None:
            await self._read(alias, metadata)

        await for_each(aliases, read, at_once=READS_AT_ONCE, name=f"{self.context.flow}: flows that lead back")
        copies: dict[str, ReverseFlow] = {}
        refused: dict[str, TopicRefused] = {}
        for one in self._records.values():
            if one.reverse is not None:
                await self._judge(one, one.reverse, wanted, copies, refused)
        self.copies, self.refused, self._seen = copies, refused, seen  # together: others read them meanwhile
        self._say()

    def causes(self) -> Iterator[tuple[str, Cause]]:
        """Yield what is stored for status and REST, by topic; the empty name means the flow."""
        for why, remedy, _ in self._told():
            yield "", Cause(Reason.RING, why, remedy, self._since_ms.get(why, 0))
        for topic, reverse in self.copies.items():
            why = f"Flow {reverse} has made it from a topic of {self.context.flow.target}."
            yield topic, Cause(Reason.RING, why, "", self._since_ms.get(self._why(reverse), 0))

    # Read

    def _of(self, alias: ClusterAlias) -> _Records:
        return _Records(ConfigTable(self.context.source.brokers, configs_topic(alias)), PositionTable(alias))

    async def _read(self, alias: ClusterAlias, metadata: ClusterMetadata) -> None:
        """Read new records, and find out whether the flow leads back. After a failure the previous result counts."""
        found = self._records[alias]
        try:
            await self._read_on(alias, found, metadata)
        except Mm2Error as error:
            now_s = self.context.clock.monotonic()
            found.failing_since_s = now_s if found.failing_since_s is None else found.failing_since_s
            if isinstance(error, KafkaError) and error.retriable:
                if found.is_read:
                    return
                if now_s - found.failing_since_s < PATIENCE_S:
                    raise
            found.unread = error.with_traceback(None)  # it is kept; its traceback holds all metadata
        else:
            found.is_read, found.failing_since_s, found.unread = True, None, None

    async def _read_on(self, alias: ClusterAlias, found: _Records, metadata: ClusterMetadata) -> None:
        await found.configs.read()
        owner = found.configs.records.owner.current
        source_id = "" if owner is None else owner.source_cluster
        if source_id not in ("", self.target_id):
            found.reverse, found.origins = None, None
            return
        offsets = metadata.topics.get(offsets_topic(alias))
        origins: frozenset[str] | None = None
        if not source_id:  # an earlier version stored none. Its positions do: another cluster may have had the alias
            if offsets is not None:
                await found.positions.read(self.context.source.brokers, offsets)
            stored = found.positions.positions.items()
            origins = frozenset(name for (name, _), at in stored if at.source_cluster == self.target_id)
            if not origins:
                found.reverse, found.origins = None, origins
                return
        # any client that may create topics here may have written it, and its patterns may take seconds to compile
        reverse = await asyncio.to_thread(self._reverse, alias, found.configs)
        if source_id and offsets is not None and reverse.policy.keeps_names:
            await found.positions.read(self.context.source.brokers, offsets)
        found.reverse, found.origins = reverse, origins

    def _reverse(self, alias: ClusterAlias, configs: ConfigTable) -> ReverseFlow:
        owner, config = configs.records.owner.current, configs.config
        properties = {} if config is None else config.properties
        of_connector = configs.records.connectors.get(CONNECTORS[0], {})
        target = plain(of_connector.get("target.cluster.alias", NOT_KNOWN), ALIAS_SHOWN)
        group = "" if owner is None else owner.group
        policy, topic_filter = _names(alias, properties, self.context.settings.aliases)
        flow, back = Flow(alias, ClusterAlias(target)), self.context.settings.flow_back
        is_standby = back is not None and back.flow == flow and back.standby
        is_on = Seen(configs.records.direction.current, is_standby).is_on
        return ReverseFlow(flow, group, policy, topic_filter if is_on else None)

    # Judge

    async def _judge(
        self,
        found: _Records,
        reverse: ReverseFlow,
        wanted: Mapping[str, TopicMetadata],
        copies: dict[str, ReverseFlow],
        refused: dict[str, TopicRefused],
    ) -> None:
        """Add to ``copies`` and ``refused`` what must not be copied because of one flow that leads back."""
        behind: list[str] = []
        found.meets = False
        clock = self.context.clock
        ends_at_s = clock.monotonic() + STRETCH_S
        origins = reverse.origins({name for name, _ in found.positions.positions}) if reverse.policy.renames else {}
        for number, (name, topic) in enumerate(wanted.items(), 1):
            if number % TOPICS_AT_ONCE == 0 or clock.monotonic() >= ends_at_s:  # a name may take 0.1 s of each list
                await asyncio.sleep(0)
                ends_at_s = clock.monotonic() + STRETCH_S
            origin = origin_of(name, reverse)
            if origins.get(name, name) != name and self._brought(found, reverse, topic, origins[name]):
                copies[name] = reverse
                continue
            found.meets = found.meets or (origin is NameOrigin.UNKNOWN and reverse.selects(name))
            if origin is NameOrigin.COPY:
                upstream = origins.get(name, reverse.policy.upstream_topic(TopicName(name)))
                if found.origins is None or upstream in found.origins:
                    copies[name] = reverse
            elif origin is NameOrigin.UNKNOWN and self._behind.get(name) != reverse:
                match self._verdict(found, reverse, topic):
                    case Verdict.COPY_BEHIND:
                        behind.append(name)
                    case Verdict.BACK:
                        refused[name] = self._would_come_back(name, reverse)
                    case Verdict.BOTH:
                        refused[name] = self._would_come_back(name, reverse, has_begun=False)
                    case Verdict.COPY:
                        pass
        if not behind:
            return
        why, remedy = await self._why_not_ended(reverse)
        for name in behind:
            if why:
                refused[name] = self._would_come_back(name, reverse, why=why, remedy=remedy)
            else:
                self._behind[name] = reverse

    def _brought(
        self, found: _Records, reverse: ReverseFlow, topic: TopicMetadata, origin: str
    ) -> dict[int, int | None]:
        """Return by partition up to where a reverse flow has filled a topic, by its positions of ``origin``."""
        theirs = {number: found.positions.positions.get((origin, number)) for number in range(len(topic.partitions))}
        return {
            number: at.next_target if not self._has_brought_nothing(reverse, at) else 0
            for number, at in theirs.items()
            if at is not None and at.source_cluster == self.target_id and at.target_topic_id in {None, topic.topic_id}
        }

    def _verdict(self, found: _Records, reverse: ReverseFlow, topic: TopicMetadata) -> Verdict:
        numbers = range(len(topic.partitions))
        is_own_name = reverse.policy.format_remote_topic(reverse.flow.source, TopicName(topic.name)) == topic.name
        brought_to = self._brought(found, reverse, topic, topic.name) if is_own_name else {}
        ours = {number: self.positions.get((topic.name, number)) for number in numbers}
        starts = {number: at.next_source for number, at in ours.items() if at is not None}
        return verdict_on(
            brought_to,
            starts,
            is_selected=reverse.selects(topic.name),
            has_begun=bool(starts) or topic.name in self.listed(),
        )

    def _has_brought_nothing(self, reverse: ReverseFlow, at: StoredPosition) -> bool:
        """Whether a flow that takes turns with this one was turned on and off again before it copied a record: where
        this flow begins was stored after that."""
        return self._is_in_turns(reverse) and at.by == BY_OPERATOR and at.next_target is None

    def _is_in_turns(self, reverse: ReverseFlow) -> bool:
        """Whether this flow and that one take turns, so that this one was turned on when that one had ended."""
        back = self.context.settings.flow_back
        return back is not None and reverse.flow == back.flow and reverse.topic_filter is None

    async def _why_not_ended(self, reverse: ReverseFlow) -> tuple[str, str]:
        """Return why a flow that leads back may still write, and what to do; empty if it has ended."""
        if self._is_in_turns(reverse):
            return "", ""
        if not reverse.group or reverse.flow.target == NOT_KNOWN:
            return "it is not known which group runs it", "Start its workers with this version of mm2py once."
        context = self.context
        looks = GroupLooks(
            reverse.group,
            reverse.flow,
            context.source.brokers,
            is_owner=True,
            clock=context.clock,
            rng=context.rng,
            log=context.log.bind(group=reverse.group),
        )
        try:
            async with asyncio.timeout(LOOK_MOST_S):
                look = await looks.look()
        except TimeoutError:
            return "its control log does not answer", f"Look whether {context.flow.source} runs."
        if look.unread:
            return f"its control log cannot be read: {look.unread.rstrip('.')}", look.remedy
        if look.running:
            return f"its workers run ({', '.join(look.running[:3])})", "Stop them; it is looked at again."
        return "", ""

    def _would_come_back(
        self, topic: str, reverse: ReverseFlow, *, why: str = "", remedy: str = "", has_begun: bool = True
    ) -> WouldComeBack:
        return WouldComeBack(self.context.flow, topic, reverse.flow, reverse.group, why, remedy, has_begun=has_begun)

    # Say

    def _told(self) -> Iterator[tuple[str, str, bool]]:
        """Yield what an operator should know of the flow as a whole: why, remedy, and whether a ring is known."""
        flow = self.context.flow
        for alias, one in self._records.items():
            if one.unread is not None:
                what = f"It is not known whether the flow from {alias} into {flow.source} leads back: {one.unread.what}"
                yield what, self._remedy(alias, one.unread), False
            elif one.reverse is not None and (one.meets or self._shows(one, one.reverse)):
                yield self._why(one.reverse), "", True

    def _shows(self, found: _Records, reverse: ReverseFlow) -> bool:
        """Return whether a reverse flow renames its copies, and their names alone do not show that they are copies."""
        if reverse.policy.keeps_names:
            return False
        if found.origins is not None and reverse not in self.copies.values():
            return False
        settings = self.context.settings
        return reverse.flow.source != settings.flow.target or not sees_hops(reverse.policy, settings.policy)

    def _remedy(self, alias: ClusterAlias, error: Mm2Error) -> str:
        if not isinstance(error, BrokerRefused) or error.reaction is not Reaction.DENIED:
            return error.remedy
        topic = configs_topic(alias) if configs_topic(alias) in error.what else offsets_topic(alias)
        return f"Grant DESCRIBE and READ on {topic} on {self.context.flow.source}."

    def _why(self, reverse: ReverseFlow) -> str:
        flow = self.context.flow
        return f"Flow {reverse} leads back, from {flow.target} into {flow.source}: the two are a ring."

    def _say(self) -> None:
        """Log what is new, and keep since when it is true. Only the flow coordinator does so."""
        if not self.is_coordinator():
            return
        known, self._since_ms = self._since_ms, {}
        for why, remedy, is_ring in self._told():
            self._since_ms[why] = known.get(why, self.context.clock.wall_ms())
            if why in known:
                continue
            if is_ring:
                effect = "what came from there is not copied back"
                self.context.log.warning("ring.found", reason=str(Reason.RING), why=why, effect=effect)
            else:
                effect = "its topics are copied like others"
                self.context.log.warning("ring.unknown", why=why, effect=effect, remedy=remedy)


def _names(
    alias: ClusterAlias, properties: FlowProperties, aliases: Collection[ClusterAlias]
) -> tuple[ReplicationPolicy, TopicFilter | None]:
    """Return what decides on names in a flow, from its stored settings; the default if no worker can run them."""
    try:
        plain = make_policy(
            properties.get(keys.POLICY_CLASS.name, keys.POLICY_CLASS.default),
            source_alias=alias,
            separator=properties.get(keys.POLICY_SEPARATOR.name),
            internal_separator_enabled=None,
        )
        policy = with_rules(plain, alias, _texts(keys.TOPICS_RENAME, properties), aliases)
        if not policy.keeps_names or not is_enabled(properties):
            return policy, None
        return policy, TopicFilter(_texts(keys.TOPICS, properties), _texts(keys.TOPICS_EXCLUDE, properties))
    except (ConfigError, BadValue):
        return DefaultReplicationPolicy(), None


def _texts(key: Key[tuple[str, ...]], properties: FlowProperties) -> tuple[str, ...]:
    """Return a setting that is a list from stored settings. Raises: BadValue."""
    return key.kind(properties[key.name]) if key.name in properties else key.default
