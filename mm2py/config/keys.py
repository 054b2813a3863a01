"""The settings mm2py knows, and what each of them does here.

MirrorMaker 2's file mixes the settings of three connectors, a Connect worker and three Kafka clients; beside them stand
mm2py's own. Each has one of four standings (``Status``). A default here is the one that counts: ``flows.py`` has no
other, and a test holds ``mm2.properties.example`` to it. ``layers.py`` and ``inventory.py`` know the *level* of a key:
the top of the file, ``X.`` of a cluster, ``A->B.`` of a flow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from mm2py.config import groups, rest
from mm2py.config.kinds import (
    HostPort,
    Key,
    Table,
    addresses,
    auto_offset_reset,
    boolean,
    distinct_strings,
    integer,
    is_blank,
    is_one_of,
    java_trim,
    name,
    never,
    not_yet,
    one_of,
    raw,
    refused,
    string,
    strings,
    superseded,
    table_of,
    topic_name,
)
from mm2py.config.layers import BYTE_ARRAY_CONVERTER, BYTE_ARRAY_SERIALIZER, CONNECTOR_PACKAGE
from mm2py.config.security.keys import OWN as OWN_SECURITY
from mm2py.config.security.keys import SECURITY
from mm2py.topics.filters import DEFAULT_GROUPS, DEFAULT_GROUPS_EXCLUDE, DEFAULT_TOPICS, DEFAULT_TOPICS_EXCLUDE
from mm2py.topics.replicas import AtMost
from mm2py.topics.topic_configs import DEFAULT_CONFIG_PROPERTIES_EXCLUDE

MEMORY_MIN_BYTES = 16 * 1024 * 1024

_LONG = integer(-(2**63), 2**63 - 1)
_COUNT = integer(0)
_POSITIVE = integer(1)


def _replication_factor(name: str, default: int) -> Key[int]:
    return Key(name, groups.REPLICATION_FACTOR, AtMost(default))


# --- what works -------------------------------------------------------------------------------------------------------

CLUSTERS: Key[tuple[str, ...]] = Key("clusters", distinct_strings, ())
ENABLED = Key("enabled", boolean, False)
BOOTSTRAP_SERVERS: Key[tuple[HostPort, ...]] = Key("bootstrap.servers", addresses, ())

TOPICS: Key[tuple[str, ...]] = Key("topics", strings, DEFAULT_TOPICS)
TOPICS_EXCLUDE: Key[tuple[str, ...]] = Key("topics.exclude", strings, DEFAULT_TOPICS_EXCLUDE)
CONFIG_PROPERTIES_EXCLUDE: Key[tuple[str, ...]] = Key(
    "config.properties.exclude", strings, DEFAULT_CONFIG_PROPERTIES_EXCLUDE
)
USE_DEFAULTS_FROM = Key("use.defaults.from", string, "target")
REFRESH_TOPICS_ENABLED = Key("refresh.topics.enabled", boolean, True)
REFRESH_TOPICS_INTERVAL = Key("refresh.topics.interval.seconds", _LONG, 600)
SYNC_CONFIGS_ENABLED = Key("sync.topic.configs.enabled", boolean, True)
SYNC_CONFIGS_INTERVAL = Key("sync.topic.configs.interval.seconds", _LONG, 600)
SYNC_ACLS_ENABLED = Key("sync.topic.acls.enabled", boolean, True)
SYNC_ACLS_INTERVAL = Key("sync.topic.acls.interval.seconds", _LONG, 600)
HEARTBEATS_REPLICATION = Key("heartbeats.replication.enabled", boolean, True)
EMIT_HEARTBEATS_ENABLED = Key("emit.heartbeats.enabled", boolean, True)
EMIT_HEARTBEATS_INTERVAL = Key("emit.heartbeats.interval.seconds", _LONG, 1)
HEARTBEATS_REPLICATION_FACTOR = _replication_factor("heartbeats.topic.replication.factor", 3)
REPLICATION_FACTOR = _replication_factor("replication.factor", 2)
EMIT_OFFSET_SYNCS = Key("emit.offset-syncs.enabled", boolean, True)
OFFSET_LAG_MAX = Key("offset.lag.max", _LONG, 100)
OFFSET_SYNCS_LOCATION = Key("offset-syncs.topic.location", one_of("source", "target"), "source")
OFFSET_SYNCS_REPLICATION_FACTOR = _replication_factor("offset-syncs.topic.replication.factor", 3)
GROUPS: Key[tuple[str, ...]] = Key("groups", strings, DEFAULT_GROUPS)
GROUPS_EXCLUDE: Key[tuple[str, ...]] = Key("groups.exclude", strings, DEFAULT_GROUPS_EXCLUDE)
REFRESH_GROUPS_ENABLED = Key("refresh.groups.enabled", boolean, True)
REFRESH_GROUPS_INTERVAL = Key("refresh.groups.interval.seconds", _LONG, 600)
EMIT_CHECKPOINTS_ENABLED = Key("emit.checkpoints.enabled", boolean, True)
EMIT_CHECKPOINTS_INTERVAL = Key("emit.checkpoints.interval.seconds", _LONG, 60)
SYNC_GROUPS_ENABLED = Key("sync.group.offsets.enabled", boolean, False)
SYNC_GROUPS_INTERVAL = Key("sync.group.offsets.interval.seconds", _LONG, 60)
CHECKPOINTS_REPLICATION_FACTOR = _replication_factor("checkpoints.topic.replication.factor", 3)
POLICY_CLASS = Key("replication.policy.class", name, f"{CONNECTOR_PACKAGE}.DefaultReplicationPolicy")
POLICY_SEPARATOR = Key("replication.policy.separator", raw, ".")
POLICY_INTERNAL_SEPARATOR = Key("replication.policy.internal.topic.separator.enabled", boolean, True)

CLIENT_ID: Key[str | None] = Key("client.id", string, None)
CLIENT_RACK = Key("client.rack", string, "")
REQUEST_TIMEOUT = Key("request.timeout.ms", _POSITIVE, 30_000)
ISOLATION_LEVEL = Key("isolation.level", one_of("read_committed", "read_uncommitted"), "read_uncommitted")
AUTO_OFFSET_RESET: Key[Literal["earliest", "latest", "none"]] = Key(
    "auto.offset.reset",
    auto_offset_reset,
    "earliest",
    note="write earliest, latest or none",
    refuses=lambda value: java_trim(value).startswith("by_duration:"),
)
FETCH_MAX_BYTES = Key("fetch.max.bytes", _COUNT, 50 * 1024 * 1024)
FETCH_PARTITION_MAX_BYTES: Key[int | None] = Key("max.partition.fetch.bytes", _COUNT, None)
FETCH_MIN_BYTES = Key("fetch.min.bytes", _COUNT, 1)
FETCH_MAX_WAIT = Key("fetch.max.wait.ms", _COUNT, 500)
COMPRESSION: Key[str | None] = Key(
    "compression.type", one_of("none", "gzip", "snappy", "lz4", "zstd", "producer"), None
)
LINGER = Key("linger.ms", integer(0, 2**63 - 1), 0)

OFFSETS_TOPIC = Key("offset.storage.topic", topic_name, "")
"""Its default is in the layers: ``mm2-offsets.A.internal``."""
OFFSETS_PARTITIONS = Key("offset.storage.partitions", integer(1, or_minus_one=True), 25)
OFFSETS_REPLICATION_FACTOR = _replication_factor("offset.storage.replication.factor", 3)
OFFSET_FLUSH_INTERVAL = Key("offset.flush.interval.ms", integer(1, 2**63 - 1), 60_000)
STATUS_TOPIC = Key("status.storage.topic", topic_name, "")
"""Its default is in the layers: ``mm2-status.A.internal``."""
STATUS_PARTITIONS = Key("status.storage.partitions", integer(1, or_minus_one=True), 5)
STATUS_REPLICATION_FACTOR = _replication_factor("status.storage.replication.factor", 3)
CONFIGS_TOPIC = Key("config.storage.topic", topic_name, "")
"""Its default is in the layers: ``mm2-configs.A.internal``."""
CONFIGS_REPLICATION_FACTOR = _replication_factor("config.storage.replication.factor", 3)
GROUP_ID = Key("group.id", name, "")
"""Its default is in the layers: ``A-mm2``."""
EXACTLY_ONCE = Key("exactly.once.source.support", one_of("disabled", "preparing", "enabled", any_case=True), "disabled")
EXACTLY_ONCE_SUPPORT = Key("exactly.once.support", one_of("requested", "required", any_case=True), "requested")
"""Of a connector: whether it must not run without."""

TASKS_MAX: Key[int | None] = Key("tasks.max", _POSITIVE, None)
TOPICS_WATCH_INTERVAL = Key("topics.watch.interval.ms", integer(100), 2000)
MEMORY_MAX_BYTES = Key("memory.max.bytes", integer(MEMORY_MIN_BYTES, 2**63 - 1), 96 * 1024 * 1024)
METRICS_PARTITIONS_MAX = Key("metrics.partitions.max", integer(0), 10_000)
BYTES_PER_SECOND_MAX: Key[int | None] = Key("bytes.per.second.max", integer(1, 2**63 - 1), None)
CONNECTIONS_PER_BROKER_MAX = Key("connections.per.broker.max", integer(1, 1000), 64)
MANY_TO_ONE = Key("many.to.one", boolean, False)
ON_POISON_RECORD = Key("on.poison.record", one_of("stop", "quarantine"), "stop")
ON_SOURCE_GAP: Key[str | None] = Key("on.source.gap", one_of("stop", "continue", "restart"), None)
ON_TARGET_LOSS = Key("on.target.loss", one_of("stop", "recopy"), "stop")
STALL_TIMEOUT = Key("stall.timeout.ms", _POSITIVE, 30_000)
_OWN_GAPS = (ON_SOURCE_GAP, ON_TARGET_LOSS, STALL_TIMEOUT)
COPY_MODE = Key("copy.mode", one_of("auto", "pass", "repack"), "auto")
COPY_MODE_PASS_TOPICS: Key[tuple[str, ...]] = Key("copy.mode.pass.topics", strings, ())
COPY_MODE_REPACK_TOPICS: Key[tuple[str, ...]] = Key("copy.mode.repack.topics", strings, ())
_OWN_COPY_MODE = (COPY_MODE, COPY_MODE_PASS_TOPICS, COPY_MODE_REPACK_TOPICS)
SYNC_CONFIGS_DRY_RUN = Key("sync.topic.configs.dry.run", boolean, False)
SYNC_ACLS_DRY_RUN = Key("sync.topic.acls.dry.run", boolean, False)
REMOTE_PARTITIONS_MAX = Key("remote.partitions.max", _POSITIVE, 50_000)
REMOTE_ACLS_MAX = Key("remote.acls.max", _POSITIVE, 10_000)
GROUP = groups.GROUP
INTERNAL_REPLICATION_FACTOR = groups.INTERNAL_REPLICATION_FACTOR

# --- mm2py's own, by level --------------------------------------------------------------------------------------------

SYNC_GROUPS_REWIND = Key("sync.group.offsets.rewind", boolean, False)
_OWN_SYNC = (SYNC_CONFIGS_DRY_RUN, SYNC_ACLS_DRY_RUN, REMOTE_PARTITIONS_MAX, REMOTE_ACLS_MAX, SYNC_GROUPS_REWIND)
OWN_TOP = table_of(
    OWN_SECURITY,
    TOPICS_WATCH_INTERVAL,
    MEMORY_MAX_BYTES,
    METRICS_PARTITIONS_MAX,
    BYTES_PER_SECOND_MAX,
    CONNECTIONS_PER_BROKER_MAX,
    MANY_TO_ONE,
    groups.OWN,
    ON_POISON_RECORD,
    _OWN_SYNC,
    _OWN_COPY_MODE,
    _OWN_GAPS,
)
OWN_CLUSTER = table_of(OWN_SECURITY, groups.OWN)
OWN_FLOW = table_of(
    OWN_SECURITY,
    TOPICS_WATCH_INTERVAL,
    BYTES_PER_SECOND_MAX,
    CONNECTIONS_PER_BROKER_MAX,
    MANY_TO_ONE,
    ON_POISON_RECORD,
    _OWN_SYNC,
    _OWN_COPY_MODE,
    _OWN_GAPS,
)

RENAMED = {
    "topics.blacklist": "topics.exclude",
    "topic.blacklist": "topics.exclude",
    "groups.blacklist": "groups.exclude",
    "config.properties.blacklist": "config.properties.exclude",
}
"""Names that MirrorMaker 2 dropped in 4.0, and how one of them is misspelled. It ignores them since, and copies what
they were to keep out."""

# --- MirrorMaker 2's connectors ---------------------------------------------------------------------------------------

_JAVA_WAY_OUT = "mm2py does not run Java classes; remove it"
_BYTES_WAY_OUT = "records are copied as bytes; remove it"

_PROVIDERS_AT_THE_TOP = "config providers are named at the top of the file only"
_PROVIDERS_ELSEWHERE = superseded("config.providers", _PROVIDERS_AT_THE_TOP, agrees=is_blank)
CONFIG_PROVIDERS: Key[tuple[str, ...]] = Key("config.providers", strings, ())

CONNECTOR = table_of(
    ENABLED,
    TOPICS,
    TOPICS_EXCLUDE,
    CONFIG_PROPERTIES_EXCLUDE,
    REFRESH_TOPICS_ENABLED,
    REFRESH_TOPICS_INTERVAL,
    SYNC_CONFIGS_ENABLED,
    SYNC_CONFIGS_INTERVAL,
    SYNC_ACLS_ENABLED,
    SYNC_ACLS_INTERVAL,
    HEARTBEATS_REPLICATION,
    EMIT_HEARTBEATS_ENABLED,
    EMIT_HEARTBEATS_INTERVAL,
    HEARTBEATS_REPLICATION_FACTOR,
    REPLICATION_FACTOR,
    POLICY_CLASS,
    POLICY_SEPARATOR,
    POLICY_INTERNAL_SEPARATOR,
    SECURITY.values(),
    _PROVIDERS_ELSEWHERE,
    TASKS_MAX,
    EMIT_OFFSET_SYNCS,
    OFFSET_LAG_MAX,
    OFFSET_SYNCS_LOCATION,
    OFFSET_SYNCS_REPLICATION_FACTOR,
    GROUPS,
    GROUPS_EXCLUDE,
    REFRESH_GROUPS_ENABLED,
    REFRESH_GROUPS_INTERVAL,
    EMIT_CHECKPOINTS_ENABLED,
    EMIT_CHECKPOINTS_INTERVAL,
    CHECKPOINTS_REPLICATION_FACTOR,
    SYNC_GROUPS_ENABLED,
    SYNC_GROUPS_INTERVAL,
    not_yet("admin.timeout.ms metric.reporters metric.names.formats"),
    superseded("tasks.max.enforce", "mm2py makes no more tasks than it is allowed"),
    superseded("consumer.poll.timeout.ms", "nothing is polled"),
    superseded("config.action.reload", "the file is read at start"),
    superseded(
        "connector.plugin.version key.converter.plugin.version value.converter.plugin.version"
        " header.converter.plugin.version",
        "there are no plug-ins",
    ),
    superseded("errors.tolerance", "mm2py skips no record by itself", agrees=is_one_of("none")),
    superseded("errors.retry.timeout errors.retry.delay.max.ms", "what can be retried is retried without end"),
    superseded("errors.log.enable errors.log.include.messages", "errors are always logged, records never"),
    refused(
        "topic.filter.class",
        _JAVA_WAY_OUT,
        agrees=is_one_of("", "DefaultTopicFilter", f"{CONNECTOR_PACKAGE}.DefaultTopicFilter"),
    ),
    refused(
        "group.filter.class",
        _JAVA_WAY_OUT,
        agrees=is_one_of("", "DefaultGroupFilter", f"{CONNECTOR_PACKAGE}.DefaultGroupFilter"),
    ),
    refused(
        "config.property.filter.class",
        _JAVA_WAY_OUT,
        agrees=is_one_of("", "DefaultConfigPropertyFilter", f"{CONNECTOR_PACKAGE}.DefaultConfigPropertyFilter"),
    ),
    refused(
        "forwarding.admin.class",
        _JAVA_WAY_OUT,
        agrees=is_one_of("", "org.apache.kafka.clients.admin.ForwardingAdmin"),
    ),
    refused("transforms predicates", "records cannot be changed on their way yet; remove it", agrees=is_blank),
    refused("key.converter value.converter header.converter", _BYTES_WAY_OUT, agrees=is_one_of(BYTE_ARRAY_CONVERTER)),
    superseded("name", "positions are stored under the names of the connector classes, as MirrorMaker 2 does"),
    refused(
        "connector.class",
        _JAVA_WAY_OUT,
        agrees=is_one_of(
            *(
                form
                for connector in ("MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector")
                for form in (connector, f"{CONNECTOR_PACKAGE}.{connector}")
            )
        ),
    ),
    # Agreement with the flow's own aliases is judged where the flow is known.
    refused("source.cluster.alias target.cluster.alias", "the aliases are those of the flow", agrees=never),
)

FLOW_ONLY = table_of(
    USE_DEFAULTS_FROM,
    EXACTLY_ONCE_SUPPORT,
    refused("offsets.storage.topic", "positions are kept in the worker's offset.storage.topic", agrees=is_blank),
    superseded("transaction.boundary transaction.boundary.interval.ms", "records are copied without transactions"),
    superseded("topic.creation.groups", "remote topics follow their upstream topics"),
)
"""Settings of a connector that MirrorMaker 2 drops unless they are written as ``A->B.k``."""

# --- the Connect worker -----------------------------------------------------------------------------------------------

_NO_HERDERS = "there is no Connect worker"

_COMMON = table_of(
    not_yet(
        "connections.max.idle.ms metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metrics.sample.window.ms"
        " reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms"
        " socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms receive.buffer.bytes"
        " send.buffer.bytes metrics.num.samples client.dns.lookup metadata.recovery.strategy metrics.recording.level"
        " metric.reporters"
    ),
    SECURITY.values(),
    _PROVIDERS_ELSEWHERE,
)

WORKER = table_of(
    _COMMON.values(),
    BOOTSTRAP_SERVERS,
    OFFSETS_TOPIC,
    OFFSETS_PARTITIONS,
    OFFSETS_REPLICATION_FACTOR,
    OFFSET_FLUSH_INTERVAL,
    CONFIGS_TOPIC,
    CONFIGS_REPLICATION_FACTOR,
    GROUP_ID,
    EXACTLY_ONCE,
    refused("key.converter value.converter header.converter", _BYTES_WAY_OUT, agrees=is_one_of(BYTE_ARRAY_CONVERTER)),
    STATUS_TOPIC,
    STATUS_PARTITIONS,
    STATUS_REPLICATION_FACTOR,
    groups.WORKER,
    not_yet(
        "rebalance.timeout.ms worker.sync.timeout.ms worker.unsync.backoff.ms task.shutdown.graceful.timeout.ms"
        " request.timeout.ms scheduled.rebalance.max.delay.ms client.id"
    ),
    superseded("offset.flush.timeout.ms", "positions are stored as they are acknowledged"),
    superseded(
        "connect.protocol inter.worker.key.generation.algorithm inter.worker.key.size"
        " inter.worker.key.ttl.ms inter.worker.signature.algorithm inter.worker.verification.algorithms",
        _NO_HERDERS,
    ),
    superseded(
        "plugin.path plugin.discovery key.converter.plugin.version value.converter.plugin.version"
        " header.converter.plugin.version",
        "there are no plug-ins",
    ),
    superseded(
        "topic.creation.enable topic.tracking.enable topic.tracking.allow.reset",
        "remote topics follow their upstream topics",
    ),
    superseded("connector.client.config.override.policy", "every override is allowed", agrees=is_one_of("All")),
)

# --- Kafka's clients --------------------------------------------------------------------------------------------------

_CLIENT = table_of(
    _COMMON.values(),
    CLIENT_ID,
    REQUEST_TIMEOUT,
    not_yet("enable.metrics.push", agrees=is_one_of("false")),
    refused("security.providers", _JAVA_WAY_OUT, agrees=is_blank),
)
_NO_GROUP = "copying needs no consumer group"

CONSUMER = table_of(
    _CLIENT.values(),
    BOOTSTRAP_SERVERS,
    ISOLATION_LEVEL,
    AUTO_OFFSET_RESET,
    FETCH_MAX_BYTES,
    FETCH_PARTITION_MAX_BYTES,
    FETCH_MIN_BYTES,
    FETCH_MAX_WAIT,
    CLIENT_RACK,
    not_yet("default.api.timeout.ms"),
    superseded("check.crcs", "every batch is checked", agrees=is_one_of("true")),
    superseded("max.poll.records max.poll.interval.ms", "nothing is polled"),
    superseded("enable.auto.commit", "positions are stored with the copy", agrees=is_one_of("false")),
    superseded("allow.auto.create.topics", "nothing is created on the source", agrees=is_one_of("false")),
    superseded("exclude.internal.topics", "topics.exclude decides"),
    superseded(
        "auto.commit.interval.ms group.id group.instance.id group.protocol group.remote.assignor"
        " heartbeat.interval.ms partition.assignment.strategy session.timeout.ms share.acknowledgement.mode"
        " share.acquire.mode internal.throw.on.fetch.stable.offset.unsupported",
        _NO_GROUP,
    ),
    superseded("key.deserializer value.deserializer", "records are copied as bytes"),
    refused("interceptor.classes", _JAVA_WAY_OUT, agrees=is_blank),
)

PRODUCER = table_of(
    _CLIENT.values(),
    BOOTSTRAP_SERVERS,
    COMPRESSION,
    LINGER,
    not_yet("compression.gzip.level compression.lz4.level compression.zstd.level"),
    superseded("acks", "mm2py always waits for all replicas in sync", agrees=is_one_of("all", "-1")),
    superseded("batch.size", "batches are passed as they are, or repacked as copy.mode says"),
    superseded("buffer.memory", "memory.max.bytes bounds what is in flight"),
    superseded("max.request.size", "the target's max.message.bytes decides"),
    superseded("max.block.ms delivery.timeout.ms retries", "a batch is sent until its outcome is known"),
    superseded("max.in.flight.requests.per.connection", "order is kept by idempotence"),
    superseded("enable.idempotence", "always on", agrees=is_one_of("true")),
    superseded("transaction.timeout.ms transaction.two.phase.commit.enable", "records are copied without transactions"),
    superseded("transactional.id", "mm2py names its producers itself"),
    superseded("metadata.max.idle.ms", "metadata is kept for the topics that are copied"),
    superseded(
        "partitioner.adaptive.partitioning.enable partitioner.ignore.keys partitioner.availability.timeout.ms"
        " partitioner.class",
        "partitions are kept",
    ),
    refused("interceptor.classes", _JAVA_WAY_OUT, agrees=is_blank),
    refused("key.serializer value.serializer", _BYTES_WAY_OUT, agrees=is_one_of(BYTE_ARRAY_SERIALIZER)),
)

ADMIN = table_of(
    [key for key in _CLIENT.values() if key != CLIENT_ID],
    not_yet("client.id"),
    not_yet("default.api.timeout.ms retries"),
    superseded("bootstrap.servers", "a cluster has one list of addresses, for reading or writing records"),
    superseded("bootstrap.controllers", "a cluster has one list of addresses, for reading or writing records"),
)

CLIENTS: Mapping[str, Table] = {"consumer": CONSUMER, "producer": PRODUCER, "admin": ADMIN}

# --- the top of the file, and families of names -----------------------------------------------------------------------

FILE = table_of(
    CLUSTERS,
    CONFIG_PROVIDERS,
    rest.KEYS,
    superseded(
        "dedicated.mode.enable.internal.rest rest.advertised.host.name rest.advertised.port rest.advertised.listener",
        "workers find each other by topics on the target, and none calls another",
        agrees=is_one_of("false"),
    ),
    superseded(
        "access.control.allow.origin access.control.allow.methods response.http.headers.config",
        "pages of other sites are not served",
        agrees=is_blank,
    ),
    superseded("rest.extension.classes", "users and their roles stand in rest.users.file", agrees=is_blank),
)


_CONVERTERS = superseded("key.converter. value.converter. header.converter.", "ByteArrayConverter has no settings")
_PROVIDERS = superseded("config.providers.", _PROVIDERS_AT_THE_TOP)
PROVIDER_SETTINGS = Key("config.providers.", string, "")
CONNECTOR_FAMILIES = (
    *_PROVIDERS,
    *superseded("transforms.", "see transforms"),
    *superseded("predicates.", "see predicates"),
    *superseded("topic.creation.", "remote topics follow their upstream topics"),
    *_CONVERTERS,
)
WORKER_FAMILIES = (
    *not_yet("offset.storage. config.storage. status.storage. metrics.context."),
    *_PROVIDERS,
    *_CONVERTERS,
)
FILE_FAMILIES = (PROVIDER_SETTINGS, *rest.FAMILIES)
"""Families of settings, by the prefix of their names."""
