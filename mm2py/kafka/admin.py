"""Requests to a cluster that carry no records: topics, configurations, coordinators, groups, ACLs of topics.

Plain functions over the brokers' port, one request each. Errors of single topics are returned with the results,
errors of the whole request are raised. ACLs are listed and added here, never removed.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kio.schema.types import BrokerId as KioBrokerId
from kio.schema.types import GroupId, ProducerId, TopicName, TransactionalId
from kio.static.primitive import i8, i16, i32, i32Timedelta

from mm2py.kafka import messages
from mm2py.kafka.errors import BrokerRefused, CorruptReply
from mm2py.kafka.list_offsets import chunks
from mm2py.kafka.port import ANY_BROKER, BrokerId, Brokers, ask
from mm2py.topics.acls import TopicAcl

_TOPIC_RESOURCE: Final = 2
_BROKER_RESOURCE: Final = 4
_TRANSACTIONAL_ID_RESOURCE: Final = 5
_GROUP_KEY: Final = 0
_TRANSACTION_KEY: Final = 1
_SET: Final = 0
_DELETE: Final = 1
COORDINATORS_A_REQUEST: Final = 1000
_ADMIN_TIMEOUT: Final = i32Timedelta.parse(datetime.timedelta(seconds=30))


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created; ``replication_factor`` -1 leaves it to the broker."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One configuration of a topic or broker, as DescribeConfigs returns it."""

    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A classic group: its state (``Dead`` if there is none), its protocol type, and how many members it has."""

    state: str
    protocol_type: str
    members: int


async def create_topics(
    brokers: Brokers, topics: Iterable[NewTopic], *, validate_only: bool = False
) -> dict[str, BrokerRefused | None]:
    """Create topics; return for each topic what was wrong, or None.

    With ``validate_only`` nothing is created, and what would be wrong is returned.
    """
    reply = await _create_topics(brokers, topics, validate_only=validate_only)
    return {
        str(topic.name): _refusal(f"Creating topic {topic.name}", int(topic.error_code), topic.error_message)
        for topic in reply.topics
    }


async def configs_if_created(brokers: Brokers, topics: Iterable[NewTopic]) -> dict[str, Sequence[ConfigEntry]]:
    """Return the configuration that each topic would have, defaults included. Nothing is created.

    A topic that would be refused is left out. Where DESCRIBE_CONFIGS is missing, the configuration is empty.
    """
    reply = await _create_topics(brokers, topics, validate_only=True)
    return {
        str(topic.name): [
            ConfigEntry(entry.name, entry.value, int(entry.config_source), entry.read_only, entry.is_sensitive)
            for entry in topic.configs or ()
        ]
        for topic in reply.topics
        if not topic.error_code
    }


async def _create_topics(
    brokers: Brokers, topics: Iterable[NewTopic], *, validate_only: bool
) -> messages.CreateTopicsResponse:
    request = messages.CreateTopicsRequest(
        topics=tuple(
            messages.CreatableTopic(
                name=TopicName(topic.name),
                num_partitions=i32(topic.partitions),
                replication_factor=i16(topic.replication_factor),
                assignments=(),
                configs=tuple(
                    messages.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
                ),
            )
            for topic in topics
        ),
        timeout=_ADMIN_TIMEOUT,
        validate_only=validate_only,
    )
    return await ask(brokers, ANY_BROKER, request, messages.CreateTopicsResponse)


async def create_partitions(brokers: Brokers, counts: Mapping[str, int]) -> dict[str, BrokerRefused | None]:
    """Give topics this many partitions in total; return for each topic what was wrong, or None."""
    request = messages.CreatePartitionsRequest(
        topics=tuple(
            messages.CreatePartitionsTopic(name=TopicName(name), count=i32(count), assignments=None)
            for name, count in counts.items()
        ),
        timeout=_ADMIN_TIMEOUT,
        validate_only=False,
    )
    reply = await ask(brokers, ANY_BROKER, request, messages.CreatePartitionsResponse)
    return {
        str(result.name): _refusal(f"Adding partitions to {result.name}", int(result.error_code), result.error_message)
        for result in reply.results
    }


async def describe_topic_configs(
    brokers: Brokers, topics: Sequence[str], *, keys: Sequence[str] | None = None, channel: str = "control"
) -> dict[str, Sequence[ConfigEntry] | BrokerRefused]:
    """Return each topic's configuration, defaults included, or why it could not be read."""
    return await _describe_configs(brokers, ANY_BROKER, _TOPIC_RESOURCE, topics, keys, channel=channel)


async def alter_topic_configs(
    brokers: Brokers, changes: Mapping[str, Mapping[str, str | None]], *, channel: str = "control"
) -> dict[str, BrokerRefused | None]:
    """Set settings of topics, or reset them to the default (None); return for each topic what was wrong, or None.

    Brokers change all the named settings of a topic, or none of them.
    """
    request = messages.IncrementalAlterConfigsRequest(
        resources=tuple(
            messages.AlterConfigsResource(
                resource_type=i8(_TOPIC_RESOURCE),
                resource_name=topic,
                configs=tuple(
                    messages.AlterableConfig(
                        name=name, config_operation=i8(_DELETE if value is None else _SET), value=value
                    )
                    for name, value in settings.items()
                ),
            )
            for topic, settings in changes.items()
        ),
        validate_only=False,
    )
    reply = await ask(brokers, ANY_BROKER, request, messages.IncrementalAlterConfigsResponse, channel=channel)
    return {
        result.resource_name: _refusal(
            f"Changing the configuration of {result.resource_name}", int(result.error_code), result.error_message
        )
        for result in reply.responses
    }


async def replica_counts(brokers: Brokers, topics: Sequence[str], *, channel: str = "control") -> dict[str, int]:
    """Return how many replicas the partitions of each topic have at least; topics with an error are left out."""
    request = messages.MetadataRequest(
        topics=tuple(messages.MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in topics),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    reply = await ask(brokers, ANY_BROKER, request, messages.MetadataResponse, channel=channel)
    return {
        str(topic.name): min(len(part.replica_nodes) for part in topic.partitions)
        for topic in reply.topics
        if topic.partitions
    }


async def describe_log_sizes(
    brokers: Brokers, broker: BrokerId, partitions: Mapping[str, Sequence[int]]
) -> dict[tuple[str, int], int]:
    """Return the log sizes of partitions on a broker, in bytes; partitions that it does not have are left out.

    Raises:
        BrokerRefused: DESCRIBE on the cluster is missing.
    """
    topics = tuple(
        messages.DescribableLogDirTopic(topic=TopicName(name), partitions=tuple(map(i32, numbers)))
        for name, numbers in partitions.items()
    )
    request = messages.DescribeLogDirsRequest(topics=topics)
    reply = await ask(brokers, broker, request, messages.DescribeLogDirsResponse)
    if reply.error_code:
        raise BrokerRefused("Asking for the sizes of logs", int(reply.error_code))
    return {
        (str(topic.name), int(part.partition_index)): int(part.partition_size)
        for found in reply.results
        for topic in found.topics
        for part in topic.partitions
    }


async def describe_broker_config(brokers: Brokers, broker: BrokerId, key: str) -> str | None:
    """Return one setting of a broker; None where it is unknown there or we may not ask."""
    entry = await broker_config_entry(brokers, broker, key)
    return None if entry is None or isinstance(entry, BrokerRefused) else entry.value


async def broker_config_entry(brokers: Brokers, broker: BrokerId, key: str) -> ConfigEntry | BrokerRefused | None:
    """Return one setting of a broker, None if it has none of that name, or why it could not be read.

    For a setting that Kafka itself does not know, such as an authorizer's, brokers return an entry whose value is
    hidden (None).
    """
    found = await describe_broker_configs(brokers, broker, [key])
    if isinstance(found, BrokerRefused):
        return found
    return next((entry for entry in found if entry.name == key), None)


async def describe_broker_configs(
    brokers: Brokers, broker: BrokerId, keys: Sequence[str]
) -> Sequence[ConfigEntry] | BrokerRefused:
    """Return some settings of a broker, or why they could not be read."""
    return (await _describe_configs(brokers, broker, _BROKER_RESOURCE, [str(broker)], keys))[str(broker)]


async def _describe_configs(
    brokers: Brokers,
    broker: BrokerId,
    resource_type: int,
    names: Sequence[str],
    keys: Sequence[str] | None,
    *,
    channel: str = "control",
) -> dict[str, Sequence[ConfigEntry] | BrokerRefused]:
    request = messages.DescribeConfigsRequest(
        resources=tuple(
            messages.DescribeConfigsResource(
                resource_type=i8(resource_type),
                resource_name=name,
                configuration_keys=None if keys is None else tuple(keys),
            )
            for name in names
        ),
        include_synonyms=False,
        include_documentation=False,
    )
    reply = await ask(brokers, broker, request, messages.DescribeConfigsResponse, channel=channel)
    found: dict[str, Sequence[ConfigEntry] | BrokerRefused] = {}
    for result in reply.results:
        what = f"Reading the configuration of {result.resource_name}"
        refusal = _refusal(what, int(result.error_code), result.error_message)
        found[result.resource_name] = refusal or [
            ConfigEntry(entry.name, entry.value, int(entry.config_source), entry.read_only, entry.is_sensitive)
            for entry in result.configs
        ]
    return found


async def epoch_ends(
    brokers: Brokers, broker: BrokerId, epochs: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], int]:
    """Ask a leader where the records of a leader epoch, or of those before it, end; by topic and partition.

    If records beyond that end were read under the epoch, the log was truncated since. Partitions for which the leader
    has no answer are left out.
    """
    by_topic: dict[str, list[messages.OffsetForLeaderPartition]] = {}
    for (topic, partition), epoch in epochs.items():
        asked = messages.OffsetForLeaderPartition(
            partition=i32(partition), current_leader_epoch=i32(-1), leader_epoch=i32(epoch)
        )
        by_topic.setdefault(topic, []).append(asked)
    request = messages.OffsetForLeaderEpochRequest(
        replica_id=KioBrokerId(-1),
        topics=tuple(
            messages.OffsetForLeaderTopic(topic=TopicName(topic), partitions=tuple(asked))
            for topic, asked in by_topic.items()
        ),
    )
    reply = await ask(brokers, broker, request, messages.OffsetForLeaderEpochResponse)
    return {
        (str(topic.topic), int(part.partition)): int(part.end_offset)
        for topic in reply.topics
        for part in topic.partitions
        if part.error_code == 0 and part.end_offset >= 0
    }


async def find_coordinator(brokers: Brokers, key: str, *, transactions: bool) -> BrokerId:
    """Return the coordinator of a transactional id, or of a group.

    Raises:
        BrokerRefused: there is none (yet), or we may not ask.
    """
    found = (await find_coordinators(brokers, [key], transactions=transactions))[key]
    if isinstance(found, BrokerRefused):
        raise found
    return found


async def find_coordinators(
    brokers: Brokers, keys: Collection[str], *, transactions: bool, channel: str = "control"
) -> dict[str, BrokerId | BrokerRefused]:
    """Return for each transactional id, or each group, its coordinator, or why the cluster names none.

    Raises: as ``Brokers.send``; CorruptReply: the answer leaves one out.
    """
    found: dict[str, BrokerId | BrokerRefused] = {}
    for some in chunks(list(dict.fromkeys(keys)), COORDINATORS_A_REQUEST):
        request = messages.FindCoordinatorRequest(
            key_type=i8(_TRANSACTION_KEY if transactions else _GROUP_KEY), coordinator_keys=tuple(some)
        )
        reply = await ask(brokers, ANY_BROKER, request, messages.FindCoordinatorResponse, channel=channel)
        for one in reply.coordinators:
            what = f"Finding the coordinator of {one.key}"
            found[one.key] = _refusal(what, int(one.error_code), one.error_message) or BrokerId(one.node_id)
        if not found.keys() >= set(some):
            raise CorruptReply("The cluster", f"{len(reply.coordinators)} coordinators of {len(some)}")
    return found


async def init_producer_id(
    brokers: Brokers,
    broker: BrokerId,
    transactional_id: str | None,
    *,
    transaction_timeout_ms: int = 10_000,
    expected: tuple[int, int] = (-1, -1),
) -> tuple[int, int]:
    """Return (producer id, epoch). If ``expected`` is our own, the coordinator raises the epoch, unless another process
    has raised it (PRODUCER_FENCED).

    Raises:
        BrokerRefused: with the broker's code.
    """
    request = messages.InitProducerIdRequest(
        transactional_id=None if transactional_id is None else TransactionalId(transactional_id),
        transaction_timeout=i32Timedelta.parse(datetime.timedelta(milliseconds=transaction_timeout_ms)),
        producer_id=ProducerId(expected[0]),
        producer_epoch=i16(expected[1]),
    )
    reply = await ask(brokers, broker, request, messages.InitProducerIdResponse)
    refusal = _refusal(f"A producer id for {transactional_id}", int(reply.error_code), None)
    if refusal is not None:
        raise refusal
    return int(reply.producer_id), int(reply.producer_epoch)


async def describe_group(brokers: Brokers, coordinator: BrokerId, group: str) -> GroupDescription:
    """Describe a classic group.

    Raises:
        BrokerRefused: with the broker's code.
    """
    request = messages.DescribeGroupsRequest(groups=(GroupId(group),), include_authorized_operations=False)
    reply = await ask(brokers, coordinator, request, messages.DescribeGroupsResponse)
    described = reply.groups[0]
    refusal = _refusal(f"Describing group {group}", int(described.error_code), None)
    if refusal is not None:
        raise refusal
    return GroupDescription(described.group_state, described.protocol_type, len(described.members))


def _refusal(what: str, code: int, message: str | None) -> BrokerRefused | None:
    return None if code == 0 else BrokerRefused(what, code, message=message)


CHUNK_MOST: Final = 500
CHUNK_MOST_BYTES: Final = 256 * 1024
_ANY: Final = 1
_FIXED_BYTES: Final = 16


async def describe_topic_acls(brokers: Brokers, *, channel: str = "control") -> list[TopicAcl]:
    """Return all ACLs of topics: of single names, of prefixes and of ``*``.

    Raises:
        BrokerRefused: ``SECURITY_DISABLED``, or DESCRIBE on the cluster is missing.
    """
    return await _describe_acls(brokers, _TOPIC_RESOURCE, "Listing the ACLs of topics", channel=channel)


async def describe_transactional_id_acls(brokers: Brokers, *, channel: str = "control") -> list[TopicAcl]:
    """Return all ACLs of transactional ids, in the form of those of topics. Raises: as ``describe_topic_acls``."""
    what = "Listing the ACLs of transactional ids"
    return await _describe_acls(brokers, _TRANSACTIONAL_ID_RESOURCE, what, channel=channel)


async def _describe_acls(brokers: Brokers, resource_type: int, what: str, *, channel: str) -> list[TopicAcl]:
    request = messages.DescribeAclsRequest(
        resource_type_filter=i8(resource_type),
        resource_name_filter=None,
        pattern_type_filter=i8(_ANY),
        principal_filter=None,
        host_filter=None,
        operation=i8(_ANY),
        permission_type=i8(_ANY),
    )
    reply = await ask(brokers, ANY_BROKER, request, messages.DescribeAclsResponse, channel=channel)
    code = int(reply.error_code)
    if code:
        raise BrokerRefused(what, code, message=reply.error_message)
    return [
        TopicAcl(
            resource.resource_name,
            int(resource.pattern_type),
            acl.principal,
            acl.host,
            int(acl.operation),
            int(acl.permission_type),
        )
        for resource in reply.resources
        if resource.resource_type == resource_type
        for acl in resource.acls
    ]


async def create_topic_acls(
    brokers: Brokers, acls: Sequence[TopicAcl], *, channel: str = "control"
) -> dict[TopicAcl, BrokerRefused | None]:
    """Add ACLs in one request (see ``in_chunks``); return for each ACL what was wrong, or None."""
    request = messages.CreateAclsRequest(
        creations=tuple(
            messages.AclCreation(
                resource_type=i8(_TOPIC_RESOURCE),
                resource_name=acl.name,
                resource_pattern_type=i8(acl.pattern),
                principal=acl.principal,
                host=acl.host,
                operation=i8(acl.operation),
                permission_type=i8(acl.permission),
            )
            for acl in acls
        )
    )
    reply = await ask(brokers, ANY_BROKER, request, messages.CreateAclsResponse, channel=channel)
    if len(reply.results) != len(acls):
        raise CorruptReply("The cluster", f"{len(reply.results)} results for {len(acls)} ACLs")
    answers: dict[TopicAcl, BrokerRefused | None] = {}
    for acl, result in zip(acls, reply.results, strict=True):
        code = int(result.error_code)
        answers[acl] = BrokerRefused(f"Creating the ACL {acl}", code, message=result.error_message) if code else None
    return answers


def in_chunks(acls: Sequence[TopicAcl]) -> Iterator[list[TopicAcl]]:
    """Yield the ACLs in parts that fit into one request, by number and by size."""
    chunk: list[TopicAcl] = []
    size = 0
    for acl in acls:
        own = _FIXED_BYTES + sum(len(text.encode()) for text in (acl.name, acl.principal, acl.host))
        if chunk and (len(chunk) >= CHUNK_MOST or size + own > CHUNK_MOST_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(acl)
        size += own
    if chunk:
        yield chunk
