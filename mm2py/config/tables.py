"""All settings by who reads them: the rows that work, and what else MirrorMaker 2 and Kafka's clients have.

Each has one of four standings (``Status``). ``layers.py`` and ``inventory.py`` know the *level* of a key: the top of
the file, ``X.`` of a cluster, ``A->B.`` of a flow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mm2py.config import groups, keys, recovery_keys, rest, transform_keys
from mm2py.config.layers import BYTE_ARRAY_CONVERTER, BYTE_ARRAY_SERIALIZER, CONNECTOR_PACKAGE
from mm2py.config.row import (
    Key,
    Reader,
    Table,
    is_blank,
    is_one_of,
    never,
    not_yet,
    refused,
    superseded,
    table_of,
)
from mm2py.config.security import keys as security
from mm2py.config.security.keys import SECURITY

SECTIONS = (
    keys.CLUSTERS_AND_FLOWS,
    keys.WHICH_TOPICS,
    keys.HEARTBEATS,
    keys.CONSUMER_GROUPS,
    keys.NAMES,
    keys.NEW_TOPICS,
    keys.IN_STEP,
    security.SECURED_CONNECTIONS,
    keys.SECRETS,
    keys.READING,
    keys.WRITING,
    keys.POSITIONS,
    keys.GAPS,
    keys.BESIDE_MM2,
    groups.GROUP_OF_WORKERS,
    keys.BATCHES,
    transform_keys.TRANSFORMING,
    keys.REFUSED_RECORDS,
    rest.REST,
    recovery_keys.RECOVERY,
    keys.LIMITS,
)
"""In the order of ``mm2.properties.example`` and ``docs/settings.md``."""


def _rows(reader: Reader) -> list[Key[Any]]:
    return [key for section in SECTIONS for key in section.rows if reader in key.readers]


FIELDS = tuple(key for section in SECTIONS for key in section.rows if key.field)
"""Settings whose value is a field of ``FlowSettings``."""

OWN_TOP = table_of(_rows(Reader.OWN_TOP))
OWN_CLUSTER = table_of(_rows(Reader.OWN_CLUSTER))
OWN_FLOW = table_of(_rows(Reader.OWN_FLOW))

RENAMED = {
    "topics.blacklist": "topics.exclude",
    "topic.blacklist": "topics.exclude",
    "groups.blacklist": "groups.exclude",
    "config.properties.blacklist": "config.properties.exclude",
}
"""Names that MirrorMaker 2 dropped in 4.0, and a misspelling of one of them. It ignores them since, and copies what
they should exclude."""

# --- MirrorMaker 2's connectors ---------------------------------------------------------------------------------------

_JAVA_WAY_OUT = "mm2py does not run Java classes; remove it"
_BYTES_WAY_OUT = "records are copied as bytes; remove it"

_PROVIDERS_AT_THE_TOP = "config providers are named at the top of the file only"
_PROVIDERS_ELSEWHERE = superseded("config.providers", _PROVIDERS_AT_THE_TOP, agrees=is_blank)
CONNECTOR = table_of(
    _rows(Reader.CONNECTOR),
    SECURITY.values(),
    _PROVIDERS_ELSEWHERE,
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
    _rows(Reader.FLOW_ONLY),
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
    _rows(Reader.WORKER),
    refused("key.converter value.converter header.converter", _BYTES_WAY_OUT, agrees=is_one_of(BYTE_ARRAY_CONVERTER)),
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
    not_yet("enable.metrics.push", agrees=is_one_of("false")),
    refused("security.providers", _JAVA_WAY_OUT, agrees=is_blank),
)
_NO_GROUP = "copying needs no consumer group"

CONSUMER = table_of(
    _CLIENT.values(),
    _rows(Reader.CONSUMER),
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
    _rows(Reader.PRODUCER),
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
    _CLIENT.values(),
    _rows(Reader.ADMIN),
    not_yet("client.id"),
    not_yet("default.api.timeout.ms retries"),
    superseded("bootstrap.servers", "a cluster has one list of addresses, for reading or writing records"),
    superseded("bootstrap.controllers", "a cluster has one list of addresses, for reading or writing records"),
)

CLIENTS: Mapping[str, Table] = {"consumer": CONSUMER, "producer": PRODUCER, "admin": ADMIN}

# --- the top of the file, and families of names -----------------------------------------------------------------------

FILE = table_of(
    _rows(Reader.FILE),
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
CONNECTOR_FAMILIES = (
    *_PROVIDERS,
    *_rows(Reader.FLOW_FAMILY),
    *superseded("topic.creation.", "remote topics follow their upstream topics"),
    *_CONVERTERS,
)
WORKER_FAMILIES = (
    *not_yet("offset.storage. config.storage. status.storage. metrics.context."),
    *_PROVIDERS,
    *_CONVERTERS,
)
FILE_FAMILIES = (*_rows(Reader.FAMILY),)
"""Families of settings, by the prefix of their names."""
