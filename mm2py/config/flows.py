"""The settings of all flows and heartbeats of one file, each from its own layers, and the warnings about them.

``configuration.py`` reads the file as a whole, and says which flows there are.

Counterpart: MirrorSourceConfig and MirrorHeartbeatConfig of MM2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, TypeVar

from mm2py.config import keys, tables
from mm2py.config.flow_properties import (
    FlowProperties,
    factor_that_counts,
    own_layer,
    own_with_stored,
    with_stored,
)
from mm2py.config.groups import GroupsReading
from mm2py.config.inventory import FileItem, may_mean_enabled, warnings_of
from mm2py.config.kinds import BadValue, java_trim
from mm2py.config.layers import (
    FlowLayers,
    Layer,
    Unusable,
    add_problem,
    bad_value,
    connector_config,
    flow_layers,
    line_of,
    listed_flows,
    origin,
)
from mm2py.config.properties import PropertyEntry
from mm2py.config.rest import read_rest
from mm2py.config.row import Key, Reader, Status
from mm2py.config.security.keys import SECURITY
from mm2py.config.security.sasl import SidesReading, read_security, read_sides
from mm2py.config.settings import (
    CheckpointSettings,
    ClusterSettings,
    Configuration,
    FlowBack,
    FlowSettings,
    GroupSyncSettings,
    HeartbeatSettings,
    OffsetSyncSettings,
)
from mm2py.config.transform_keys import chain_in
from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.security.settings import Security
from mm2py.secret import shown_key
from mm2py.topics.filters import CopyMode, CopyModes, GroupFilter, TopicFilter
from mm2py.topics.names import ReplicationPolicy, make_policy, pairs_in_turns, rings
from mm2py.topics.renaming import with_rules
from mm2py.topics.topic_configs import ConfigPropertyFilter

T = TypeVar("T")

PARTITION_BYTES: Final = 1 << 20
"""What an answer brings of a partition if ``max.partition.fetch.bytes`` is not set, as with Kafka's consumers."""
ALONE_BYTES: Final = 4 << 20
"""The same for a partition that is read alone: a quarter of the requests, which takes a tenth less CPU."""
POSITION_INTERVAL_MAX_S: Final = 1.0
"""Positions are stored at least this often, even if MirrorMaker 2 would do so less often; storing costs little."""


class FlowUnsupported(Mm2Error):
    """A flow is not started, because mm2py cannot yet make the copy that its settings ask for."""


class FlowsReading:
    """One pass over the flows of a file; collects problems and refusals."""

    def __init__(
        self,
        file: Layer,
        items: Sequence[FileItem],
        *,
        enabled: Sequence[Flow],
        pairs: Sequence[Flow],
        selected: Sequence[str],
        problems: list[str],
        stored: Mapping[Flow, FlowProperties],
    ) -> None:
        """``stored`` has the settings that the workers of a flow share; they override those of the file."""
        self.selected_pairs = [pair for pair in pairs if not selected or pair.target in selected]
        self._file = file
        self._items = items
        self._enabled = enabled
        self._flows = [flow for flow in enabled if flow in self.selected_pairs]
        self._pairs = pairs
        self._problems = problems
        self._stored = stored
        self._in_turns: Mapping[Flow, Flow] = {}
        """Flows of which only one of two is on at any time, each with the flow back."""

    def configuration(self, file_warnings: Sequence[str], clusters: Sequence[str]) -> Configuration:
        flows: dict[Flow, FlowSettings] = {}
        refused: dict[Flow, Mm2Error] = {}
        # A ring may include flows that other processes run, so all enabled flows are checked.
        layers = {flow: self._layers(flow) for flow in self._enabled}
        in_rings = self._rings(layers)
        sides = {flow: self._sides_of(flow, layers[flow]) for flow in self._flows}
        for flow in self._flows:
            reasons = [*refusal_reasons(flow, layers[flow]), *in_rings.get(flow, []), *sides[flow].reasons]
            if reasons:
                self._check_numbers(flow, layers[flow])
                refused[flow] = FlowUnsupported(f"Flow {flow} is not started: {'; '.join(reasons)}.", remedy="")
            elif (settings := self._flow_settings(flow, layers[flow], sides[flow])) is not None:
                flows[flow] = replace(settings, flow_back=self._flow_back(flow, layers))
        heartbeats, heartbeats_told = self._heartbeats(layers, refused)
        reading = GroupsReading(self._file, self._value, self._problems)
        groups = reading.groups([pair.target for pair in self.selected_pairs])
        memory_max_bytes = self._value(self._file, keys.MEMORY_MAX_BYTES)
        rest_told: list[str] = []
        rest = read_rest(self._file, self._problems, rest_told)
        metrics_partitions_max = self._value(self._file, keys.METRICS_PARTITIONS_MAX)
        if self._problems:
            raise Unusable
        warnings = [
            *file_warnings,
            *reading.warnings,
            *rest_told,
            *self._only_heartbeats_told(),
            *self._both_standby_told(),
            *heartbeats_told,
            *(warning for flow in flows for warning in sides[flow].warnings),
            *warnings_of(self._telling_items(), clusters),
        ]
        return Configuration(
            tuple(flows.values()),
            MappingProxyType(refused),
            heartbeats,
            MappingProxyType(groups),
            memory_max_bytes,
            metrics_partitions_max,
            tuple(sorted(dict.fromkeys(warnings), key=line_of)),
            rest,
        )

    def _layers(self, flow: Flow) -> FlowLayers:
        layers = flow_layers(self._file, flow)
        return with_stored(layers, flow, self._stored[flow]) if flow in self._stored else layers

    def _rings(self, layers: Mapping[Flow, FlowLayers]) -> dict[Flow, list[str]]:
        """Return for each flow that is part of a ring why it is refused."""
        names = {
            flow: self._names(flow, of_flow.connector, self._own_layer(flow, flow.target))
            for flow, of_flow in layers.items()
        }
        policies = {flow: found[0] for flow, found in names.items() if found is not None}
        topics = {flow: self._value(layers[flow].connector, keys.TOPICS) for flow in policies}
        self._in_turns = pairs_in_turns(policies, topics, [flow for flow in policies if self._is_standby(flow)])
        return {
            flow: [
                f"its topics would come back by {' -> '.join(way)} and be copied without end (under the identity policy"
                " give the flows topics that begin differently, or set standby = true for one of two that lead back"
                " and forth and rename nothing; otherwise give all the same replication.policy.separator)"
            ]
            for flow, way in rings(policies, topics, self._in_turns).items()
        }

    def _is_standby(self, flow: Flow) -> bool:
        return self._value(self._own_layer(flow, flow.target), keys.STANDBY)

    def _flow_back(self, flow: Flow, layers: Mapping[Flow, FlowLayers]) -> FlowBack | None:
        back = self._in_turns.get(flow)
        if back is None:
            return None
        return FlowBack(back, self._value(layers[back].worker, keys.CONFIGS_TOPIC), self._is_standby(back))

    def _both_standby_told(self) -> list[str]:
        """Name pairs of flows of which none is on by the file."""
        return [
            f"{flow} and {back} are both standby: neither copies until one is turned on: mm2py dr turn FILE '{flow}'"
            for flow, back in self._in_turns.items()
            if str(flow) < str(back) and self._is_standby(flow) and self._is_standby(back)
        ]

    def _heartbeats(
        self, layers: Mapping[Flow, FlowLayers], refused: Mapping[Flow, Mm2Error]
    ) -> tuple[tuple[HeartbeatSettings, ...], list[str]]:
        """Return the heartbeats of all selected pairs, and warnings, mainly about pairs that cannot have any."""
        found: list[HeartbeatSettings] = []
        told: list[str] = []
        silent: dict[str, list[Flow]] = {}
        for pair in self.selected_pairs:
            of_pair = layers.get(pair) or self._layers(pair)
            reading = read_security(of_pair.producer, self._own_layer(pair, pair.target))
            reasons = [*refusal_reasons(pair, replace(of_pair, consumer={}, source_admin={})), *reading.reasons]
            if not reasons:
                found.append(self._heartbeat_settings(pair, of_pair, reading.security))
                told += reading.warnings
            elif pair not in refused:
                silent.setdefault("; ".join(reasons), []).append(pair)
        told += [f"heartbeats of {listed_flows(pairs)} are not emitted: {why}" for why, pairs in silent.items()]
        return tuple(found), told

    def _heartbeat_settings(self, pair: Flow, layers: FlowLayers, security: Security) -> HeartbeatSettings:
        value, producer = self._value, layers.producer
        if value(layers.connector, keys.EMIT_HEARTBEATS_INTERVAL) == 0:
            entry = layers.connector[keys.EMIT_HEARTBEATS_INTERVAL.name]
            self._problem(entry, "0; write at least 1, or a negative number to stop it")
        if keys.BOOTSTRAP_SERVERS.name not in producer and pair not in self._enabled:
            add_problem(
                self._problems,
                f"{pair.target}.bootstrap.servers is missing, heartbeats of {pair} are emitted there"
                f" (or write {pair}.emit.heartbeats.enabled = false)",
            )
        compression = value(producer, keys.COMPRESSION)
        return HeartbeatSettings(
            flow=pair,
            target=self._cluster(pair.target, producer, layers.target_admin, security),
            request_timeout_s=value(producer, keys.REQUEST_TIMEOUT) / 1000,
            interval_s=self._interval_s(layers.connector, keys.EMIT_HEARTBEATS_ENABLED, keys.EMIT_HEARTBEATS_INTERVAL),
            replication_factor=self._internal_factor(
                layers.connector, keys.HEARTBEATS_REPLICATION_FACTOR, self._own_layer(pair, pair.target)
            ),
            compression=None if compression == "producer" else compression,
        )

    def _cluster(self, alias: ClusterAlias, client: Layer, admin: Layer, security: Security) -> ClusterSettings:
        """Return one side: ``client`` is the layer of the client that reads or writes its records."""
        return ClusterSettings(
            alias,
            self._value(client, keys.BOOTSTRAP_SERVERS),
            self._value(admin, keys.REQUEST_TIMEOUT) / 1000,
            self._value(client, keys.CLIENT_ID) or None,
            security,
        )

    def _heartbeats_interval_s(self, cluster: ClusterAlias) -> float | None:
        """Return the longest interval at which heartbeats are emitted into a cluster, by this file; None: none are."""
        intervals = [
            self._interval_s(
                self._layers(pair).connector if pair in self._stored else connector_config(self._file, pair),
                keys.EMIT_HEARTBEATS_ENABLED,
                keys.EMIT_HEARTBEATS_INTERVAL,
            )
            for pair in self._pairs
            if pair.target == cluster
        ]
        return max((interval_s for interval_s in intervals if interval_s is not None), default=None)

    def _telling_items(self) -> list[FileItem]:
        """Return the entries to warn about. For a flow that is not enabled these are only its switch and the heartbeats
        of its pair."""
        return [
            item
            for item in self._items
            if item.flow is None
            or item.flow in self._enabled
            or (item.flow in self._pairs and "heartbeat" in item.name)
            or may_mean_enabled(item)
        ]

    def _only_heartbeats_told(self) -> list[str]:
        if self._flows:
            return []
        pairs = listed_flows(self.selected_pairs)
        if not self._enabled:
            return [
                f"no flow is enabled: nothing is copied, only heartbeats are emitted, of {pairs}; enable a flow with"
                " A->B.enabled = true"
            ]
        return [
            f"no enabled flow leads into what --clusters names: only heartbeats are emitted, of {pairs}; enabled are"
            f" {listed_flows(self._enabled)}"
        ]

    def _check_numbers(self, flow: Flow, layers: FlowLayers) -> None:
        """Report intervals of 0, and numbers that are legal alone and wrong together."""
        connector, consumer = layers.connector, layers.consumer
        for interval in (
            keys.REFRESH_TOPICS_INTERVAL,
            keys.SYNC_CONFIGS_INTERVAL,
            keys.SYNC_ACLS_INTERVAL,
            keys.EMIT_CHECKPOINTS_INTERVAL,
            keys.SYNC_GROUPS_INTERVAL,
        ):
            if self._value(connector, interval) == 0:
                self._problem(connector[interval.name], "0; write at least 1, or a negative number to stop it")
        if self._value(consumer, keys.FETCH_MAX_WAIT) >= self._value(consumer, keys.REQUEST_TIMEOUT):
            entry = consumer.get(keys.FETCH_MAX_WAIT.name) or consumer[keys.REQUEST_TIMEOUT.name]
            self._problem(
                entry, f"wrong for flow {flow}: fetch.max.wait.ms has to be below the consumer's request.timeout.ms"
            )

    def _names(
        self, flow: Flow, connector: Layer, own: Layer
    ) -> tuple[ReplicationPolicy, TopicFilter, ConfigPropertyFilter] | None:
        """Return the policy and the filters of a flow; None if there is a problem with one of them."""
        separator = connector.get(keys.POLICY_SEPARATOR.name)
        topics = self._value(connector, keys.TOPICS)
        topics_exclude = self._value(connector, keys.TOPICS_EXCLUDE)
        configs_exclude = self._value(connector, keys.CONFIG_PROPERTIES_EXCLUDE)
        use_defaults_from = self._value(connector, keys.USE_DEFAULTS_FROM)
        policy_class = self._value(connector, keys.POLICY_CLASS)
        internal_separator_enabled = self._value(connector, keys.POLICY_INTERNAL_SEPARATOR)
        rules, aliases = self._value(own, keys.TOPICS_RENAME), self._value(self._file, keys.CLUSTERS)
        plain = self._made(
            flow,
            connector,
            lambda: make_policy(
                policy_class,
                source_alias=flow.source,
                separator=None if separator is None else separator.value,
                internal_separator_enabled=internal_separator_enabled,
            ),
        )
        policy = (
            None if plain is None else self._made(flow, own, lambda: with_rules(plain, flow.source, rules, aliases))
        )
        topic_filter = self._made(flow, connector, lambda: TopicFilter(topics, topics_exclude))
        config_filter = self._made(flow, connector, lambda: ConfigPropertyFilter(configs_exclude, use_defaults_from))
        if policy is None or topic_filter is None or config_filter is None:
            return None
        return policy, topic_filter, config_filter

    def _copy_modes(self, flow: Flow, own: Layer) -> CopyModes | None:
        mode = CopyMode(self._value(own, keys.COPY_MODE))
        pass_topics = self._value(own, keys.COPY_MODE_PASS_TOPICS)
        repack_topics = self._value(own, keys.COPY_MODE_REPACK_TOPICS)
        return self._made(flow, own, lambda: CopyModes(mode, pass_topics, repack_topics))

    def _made(self, flow: Flow, connector: Layer, make: Callable[[], T]) -> T | None:
        """Return what ``make`` returns. If it finds the settings wrong, note the problem with its line; return None."""
        try:
            return make()
        except ConfigError as error:
            name, colon, rest = f"{error.what} {error.remedy}".strip().rstrip(".").partition(": ")
            entry = connector.get(name)
            if colon and entry is not None and entry.line is not None:
                add_problem(self._problems, f"line {entry.line}: {shown_key(entry.key)}: {rest}")
            else:
                add_problem(self._problems, f"flow {flow}: {name}{colon}{rest}")
            return None

    def _sides_of(self, flow: Flow, layers: FlowLayers) -> SidesReading:
        return read_sides(flow, layers, self._own_layer(flow, flow.source), self._own_layer(flow, flow.target))

    def _flow_settings(self, flow: Flow, layers: FlowLayers, sides: SidesReading) -> FlowSettings | None:
        """Return the settings of one flow, None if there is a problem with them."""
        value = self._value
        connector, worker, consumer, producer = layers.connector, layers.worker, layers.consumer, layers.producer
        own = self._own_layer(flow, flow.target)
        partition_bytes = value(consumer, keys.FETCH_PARTITION_MAX_BYTES)
        self._check_numbers(flow, layers)
        for alias, side, layer in ((flow.source, "source", consumer), (flow.target, "target", producer)):
            if keys.BOOTSTRAP_SERVERS.name not in layer:
                add_problem(self._problems, f"{alias}.bootstrap.servers is missing, flow {flow} needs it as its {side}")
        names = self._names(flow, connector, own)
        copy_modes = self._copy_modes(flow, own)
        if names is None or copy_modes is None:
            return None
        policy, topic_filter, config_filter = names
        offset_syncs = self._offset_syncs(flow, connector, policy)
        checkpoints = self._checkpoints(flow, connector, own, policy)
        interval_s = value(connector, keys.REFRESH_TOPICS_INTERVAL)
        compression = value(producer, keys.COMPRESSION)
        exactly_once = value(worker, keys.EXACTLY_ONCE)
        if exactly_once == "enabled" and value(own, keys.MANY_TO_ONE):
            add_problem(
                self._problems,
                f"flow {flow}: many.to.one=true cannot be kept exactly once; set it to false, or"
                f" {flow.target}.exactly.once.source.support to disabled",
            )
        return FlowSettings(
            flow=flow,
            source=self._cluster(flow.source, consumer, layers.source_admin, sides.source),
            target=self._cluster(flow.target, producer, layers.target_admin, sides.target),
            policy=policy,
            topic_filter=topic_filter,
            config_filter=config_filter,
            heartbeats_interval_s=self._heartbeats_interval_s(flow.source),
            refresh_topics_interval_s=(
                float(interval_s) if value(connector, keys.REFRESH_TOPICS_ENABLED) and interval_s > 0 else None
            ),
            sync_topic_configs_interval_s=self._interval_s(
                connector, keys.SYNC_CONFIGS_ENABLED, keys.SYNC_CONFIGS_INTERVAL
            ),
            sync_topic_acls_interval_s=self._interval_s(connector, keys.SYNC_ACLS_ENABLED, keys.SYNC_ACLS_INTERVAL),
            read_committed=exactly_once == "enabled" or value(consumer, keys.ISOLATION_LEVEL) == "read_committed",
            fetch_partition_max_bytes=PARTITION_BYTES if partition_bytes is None else partition_bytes,
            fetch_alone_max_bytes=ALONE_BYTES if partition_bytes is None else partition_bytes,
            source_request_timeout_s=value(consumer, keys.REQUEST_TIMEOUT) / 1000,
            target_request_timeout_s=value(producer, keys.REQUEST_TIMEOUT) / 1000,
            compression=None if compression == "producer" else compression,
            offsets_topic_replication_factor=self._internal_factor(worker, keys.OFFSETS_REPLICATION_FACTOR, own),
            position_interval_s=min(POSITION_INTERVAL_MAX_S, value(worker, keys.OFFSET_FLUSH_INTERVAL) / 1000),
            status_topic_replication_factor=self._internal_factor(worker, keys.STATUS_REPLICATION_FACTOR, own),
            copy_modes=copy_modes,
            quarantines=value(own, keys.ON_POISON_RECORD) == "quarantine",
            configs_topic_replication_factor=self._internal_factor(worker, keys.CONFIGS_REPLICATION_FACTOR, own),
            offset_syncs=offset_syncs,
            checkpoints=checkpoints,
            aliases=tuple(ClusterAlias(alias) for alias in self._value(self._file, keys.CLUSTERS)),
            transforms=chain_in(connector)[0],
            **self._fields(layers, own),
        )

    def _fields(self, layers: FlowLayers, own: Layer) -> dict[str, Any]:
        """Return the fields of ``FlowSettings`` that are one setting each, by the table."""
        layer_of = {
            Reader.CONNECTOR: layers.connector,
            Reader.WORKER: layers.worker,
            Reader.CONSUMER: layers.consumer,
            Reader.PRODUCER: layers.producer,
            Reader.OWN_CLUSTER: own,
            Reader.OWN_FLOW: own,
        }
        return {key.field: key.typed(self._value(layer_of[key.readers[-1]], key)) for key in tables.FIELDS}

    def _offset_syncs(self, flow: Flow, connector: Layer, policy: ReplicationPolicy) -> OffsetSyncSettings | None:
        if not self._value(connector, keys.EMIT_OFFSET_SYNCS):
            return None
        on_source = self._value(connector, keys.OFFSET_SYNCS_LOCATION) == "source"
        return OffsetSyncSettings(
            topic=policy.offset_syncs_topic(flow.target if on_source else flow.source),
            on_source=on_source,
            replication_factor=self._internal_factor(
                connector,
                keys.OFFSET_SYNCS_REPLICATION_FACTOR,
                self._own_layer(flow, flow.source if on_source else flow.target),
            ),
            lag_max_records=max(0, self._value(connector, keys.OFFSET_LAG_MAX)),
        )

    def _checkpoints(
        self, flow: Flow, connector: Layer, own: Layer, policy: ReplicationPolicy
    ) -> CheckpointSettings | None:
        interval_s = self._interval_s(connector, keys.EMIT_CHECKPOINTS_ENABLED, keys.EMIT_CHECKPOINTS_INTERVAL)
        groups, excluded = self._value(connector, keys.GROUPS), self._value(connector, keys.GROUPS_EXCLUDE)
        group_filter = self._made(flow, connector, lambda: GroupFilter(groups, excluded))
        if interval_s is None or group_filter is None:
            return None
        sync_s = self._interval_s(connector, keys.SYNC_GROUPS_ENABLED, keys.SYNC_GROUPS_INTERVAL)
        refreshes = self._interval_s(connector, keys.REFRESH_GROUPS_ENABLED, keys.REFRESH_GROUPS_INTERVAL)
        return CheckpointSettings(
            topic=policy.checkpoints_topic(flow.source),
            replication_factor=self._internal_factor(connector, keys.CHECKPOINTS_REPLICATION_FACTOR, own),
            interval_s=interval_s,
            group_filter=group_filter,
            refreshes_groups=refreshes is not None,
            group_sync=None if sync_s is None else GroupSyncSettings(sync_s, self._value(own, keys.SYNC_GROUPS_REWIND)),
        )

    def _internal_factor(self, layer: Layer, key: Key[int], own: Layer) -> int:
        """Return the replication factor of an internal topic: by its own setting, else by the one for all of them."""
        counts_in, counting = factor_that_counts(layer, key, own)
        factor: int = self._value(counts_in, counting)
        return factor

    def _interval_s(self, connector: Layer, enabled: Key[bool], interval: Key[int]) -> float | None:
        """Return the interval of a schedule; None for one that is switched off, by its switch or a negative number."""
        interval_s = self._value(connector, interval)
        return float(interval_s) if self._value(connector, enabled) and interval_s > 0 else None

    def _own_layer(self, flow: Flow, cluster: ClusterAlias) -> dict[str, PropertyEntry]:
        """Return mm2py's own settings: the flow's override the cluster's, and these the top of the file."""
        layer = own_layer(self._file, flow, cluster)
        return own_with_stored(layer, self._stored[flow]) if flow in self._stored else layer

    def _value(self, layer: Layer, key: Key[T]) -> T:
        entry = layer.get(key.name)
        if entry is None:
            return key.default
        if key.refuses(entry.value):
            return key.default
        try:
            return key.kind(entry.value)
        except BadValue as bad:
            if entry.line is None:  # a default that an alias made unusable, as in mm2-offsets.<alias>.internal
                add_problem(
                    self._problems,
                    f"{entry.key} would be {entry.value!r}, which is {bad}; set it or rename the cluster",
                )
            else:
                add_problem(self._problems, bad_value(entry, bad))
            return key.default

    def _problem(self, entry: PropertyEntry, text: str) -> None:
        add_problem(self._problems, bad_value(entry, BadValue(text)))


def refusal_reasons(flow: Flow, layers: FlowLayers) -> list[str]:
    """Return why the settings of a flow forbid to run it, a clause for each reason; empty if it may run."""
    reasons: list[str] = []
    for layer, table in (
        (layers.connector, {**tables.CONNECTOR, **tables.FLOW_ONLY}),
        (layers.worker, tables.WORKER),
        (layers.consumer, tables.CONSUMER),
        (layers.producer, tables.PRODUCER),
        (layers.source_admin, tables.ADMIN),
        (layers.target_admin, tables.ADMIN),
    ):
        for name, entry in layer.items():
            key = table.get(name)
            if key is None or entry.line is None or name in SECURITY:  # judged in security/
                continue
            alias = {"source.cluster.alias": flow.source, "target.cluster.alias": flow.target}.get(name)
            refused = key.status is Status.REFUSED and not key.agrees(entry.value)
            if (refused and java_trim(entry.value) != alias) or key.refuses(entry.value):
                reasons.append(f"{origin(entry)} does not work yet ({key.note})")
    reasons += chain_in(layers.connector)[1]
    reasons += _exactly_once_reasons(flow, layers)
    return list(dict.fromkeys(reasons))


def _exactly_once_reasons(flow: Flow, layers: FlowLayers) -> list[str]:
    """Return contradictions about exactly-once: it is required but not enabled, or enabled but undone elsewhere."""
    support, required = layers.worker.get(keys.EXACTLY_ONCE.name), layers.connector.get(keys.EXACTLY_ONCE_SUPPORT.name)
    isolation = layers.consumer.get(keys.ISOLATION_LEVEL.name)
    enabled = support is not None and java_trim(support.value).lower() == "enabled"
    reasons = []
    if required is not None and java_trim(required.value).lower() == "required" and not enabled:
        way_out = f"set {flow.target}.exactly.once.source.support=enabled"
        reasons.append(f"{origin(required)} asks for what is not enabled ({way_out})")
    if enabled and isolation is not None and java_trim(isolation.value) == "read_uncommitted" and isolation.line:
        reasons.append(
            f"{origin(isolation)} contradicts exactly.once.source.support=enabled, which copies committed records"
            " only (remove one of them)"
        )
    return reasons
