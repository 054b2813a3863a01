"""The requests of a check to one cluster: each reads, and none creates or changes anything.

A question that would make a broker create something is not asked. Looking for the coordinator of a group or of a
transactional id creates Kafka's own topic of them, if it is missing. So each broker is asked instead: a broker that is
not the coordinator denies what is denied, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from kio.schema.types import GroupId, TopicName, TransactionalId
from kio.static.primitive import i8

from mm2py.checks.facts import NOT_TOLD, GroupAnswer, TopicAnswer
from mm2py.checks.rights import operations_of
from mm2py.kafka import admin, messages
from mm2py.kafka.cluster import ASKED_MOST
from mm2py.kafka.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    SECURITY_DISABLED,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.list_offsets import chunks
from mm2py.kafka.port import ANY_BROKER, BrokerId, Brokers, ask
from mm2py.kafka.transport import wire
from mm2py.topics.topic_configs import TopicConfigEntry

TOPICS_A_REQUEST: Final = 200
GROUPS_A_REQUEST: Final = 200
METADATA_VERSION: Final = "metadata.version"
_BROKER_RESOURCE: Final = 4
_TOPIC_RESOURCE: Final = 2
_LITERAL: Final = 3
_ANY: Final = 1
_NOBODY: Final = "User:mm2py-check"

_NOT_OF_WORKERS: Final = frozenset(
    {
        messages.ConsumerGroupDescribeRequest,
        messages.DeleteTopicsRequest,
        messages.DescribeClusterRequest,
        messages.DescribeTransactionsRequest,
    }
)
"""Requests of commands, without which a worker runs."""
REQUESTS: Final[Mapping[int, tuple[str, tuple[int, int]]]] = MappingProxyType(
    {
        wire.FETCH_KEY: ("Fetch", (min(wire.FETCH_VERSIONS), max(wire.FETCH_VERSIONS))),
        wire.PRODUCE_KEY: ("Produce", (min(wire.PRODUCE_VERSIONS), max(wire.PRODUCE_VERSIONS))),
        **{
            int(request.__api_key__): (
                request.__name__.removesuffix("Request"),
                (int(request.__version__), int(request.__version__)),
            )
            for request in messages.REPLY_TO
            if request not in _NOT_OF_WORKERS
        },
    }
)
"""The requests that a worker sends, by API key: the name, and the versions of which a broker must speak one."""


async def versions_of(brokers: Brokers, broker: BrokerId) -> tuple[dict[int, tuple[int, int]], int | None]:
    """Return the versions of each request that a broker speaks, and the highest ``metadata.version`` it supports."""
    request = messages.ApiVersionsRequest(client_software_name="mm2py", client_software_version="0")
    reply = await ask(brokers, broker, request, messages.ApiVersionsResponse)
    ranges = {int(one.api_key): (int(one.min_version), int(one.max_version)) for one in reply.api_keys}
    levels = {one.name: int(one.max_version) for one in reply.supported_features}
    return ranges, levels.get(METADATA_VERSION)


async def operations_on_cluster(brokers: Brokers) -> frozenset[str] | None:
    """Return what the user may do on the cluster; None: DESCRIBE is missing, so it is not told."""
    request = messages.DescribeClusterRequest(include_cluster_authorized_operations=True)
    reply = await ask(brokers, ANY_BROKER, request, messages.DescribeClusterResponse)
    if reply.error_code:
        raise BrokerRefused("Asking for the rights on the cluster", int(reply.error_code))
    bits = int(reply.cluster_authorized_operations)
    return None if bits in (NOT_TOLD, 0) else operations_of(bits)


async def has_authorizer(brokers: Brokers) -> bool:
    """Return whether the cluster has an authorizer: one without refuses to list ACLs."""
    request = messages.DescribeAclsRequest(
        resource_type_filter=i8(_TOPIC_RESOURCE),
        resource_name_filter=_NOBODY,
        pattern_type_filter=i8(_LITERAL),
        principal_filter=_NOBODY,
        host_filter=None,
        operation=i8(_ANY),
        permission_type=i8(_ANY),
    )
    reply = await ask(brokers, ANY_BROKER, request, messages.DescribeAclsResponse)
    return int(reply.error_code) != SECURITY_DISABLED


async def settings_of_broker(brokers: Brokers, broker: BrokerId, keys: Sequence[str]) -> dict[str, str | None]:
    """Return some settings of a broker. Raises: BrokerRefused, they may not be read."""
    found = await admin.describe_broker_configs(brokers, broker, keys)
    if isinstance(found, BrokerRefused):
        raise found
    return {entry.name: entry.value for entry in found}


async def may_create_topics(brokers: Brokers, missing_topic: str) -> bool | None:
    """Return whether a topic might be created that does not exist. Nothing is created: the request only validates.

    None: the answer is about something else.
    """
    new = admin.NewTopic(missing_topic, 1, -1, {})
    refusal = (await admin.create_topics(brokers, [new], validate_only=True)).get(missing_topic)
    if refusal is None:
        return True
    return False if refusal.code == TOPIC_AUTHORIZATION_FAILED else None


async def topics_named(brokers: Brokers, names: Iterable[str]) -> dict[str, TopicAnswer]:
    """Return what the cluster tells about topics, with the rights on each, also on those that do not exist."""
    found: dict[str, TopicAnswer] = {}
    for some in chunks(sorted(set(names)), ASKED_MOST):
        request = messages.MetadataRequest(
            topics=tuple(messages.MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in some),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        reply = await ask(brokers, ANY_BROKER, request, messages.MetadataResponse)
        for topic in reply.topics:
            if topic.name is None:
                continue
            code, bits = int(topic.error_code), int(topic.topic_authorized_operations)
            is_hidden = code == TOPIC_AUTHORIZATION_FAILED
            parts = topic.partitions
            found[str(topic.name)] = TopicAnswer(
                str(topic.name),
                is_there=not is_hidden and code != UNKNOWN_TOPIC_OR_PARTITION and bool(parts),
                is_hidden=is_hidden,
                partitions=len(parts),
                leaderless=tuple(sorted(int(part.partition_index) for part in parts if part.leader_id < 0)),
                replicas=min((len(part.replica_nodes) for part in parts), default=0),
                operations=None if is_hidden or bits == NOT_TOLD else operations_of(bits),
            )
        await asyncio.sleep(0)
    return found


async def with_configs(
    brokers: Brokers, topics: Mapping[str, TopicAnswer], names: Iterable[str], keys: Sequence[str]
) -> tuple[dict[str, TopicAnswer], str]:
    """Return the topics with some of their settings, and why the settings of the first one may not be read.

    Args:
        names: the topics to ask about; those that do not exist are left out.
    """
    found = dict(topics)
    why = ""
    asked = [name for name in sorted(set(names)) if name in found and found[name].is_there]
    for some in chunks(asked, TOPICS_A_REQUEST):
        for name, entries in (await admin.describe_topic_configs(brokers, some, keys=keys)).items():
            if isinstance(entries, BrokerRefused):
                why = why or str(entries)
            elif name in found:
                configs = {
                    one.name: TopicConfigEntry(one.name, one.value, one.source, one.read_only, one.sensitive)
                    for one in entries
                }
                found[name] = replace(found[name], configs=configs)
    return found, why


async def groups_named(
    brokers: Brokers, every_broker: Sequence[BrokerId], names: Iterable[str]
) -> dict[str, GroupAnswer]:
    """Return what the brokers tell about consumer groups. Each is asked, so that no coordinator is looked for."""
    found: dict[str, GroupAnswer] = {}
    asked = sorted(set(names))
    for broker in every_broker:
        for some in chunks(asked, GROUPS_A_REQUEST):
            request = messages.DescribeGroupsRequest(
                groups=tuple(map(GroupId, some)), include_authorized_operations=True
            )
            try:
                reply = await ask(brokers, broker, request, messages.DescribeGroupsResponse)
            except KafkaError:
                continue  # MM0104 says so; its groups are then not told
            for one in reply.groups:
                name, code, bits = str(one.group_id), int(one.error_code), int(one.authorized_operations)
                if code == GROUP_AUTHORIZATION_FAILED:
                    found[name] = GroupAnswer(name, is_denied=True)
                elif code == 0:
                    told = None if bits == NOT_TOLD else operations_of(bits)
                    found[name] = GroupAnswer(name, False, told, len(one.members), one.protocol_type)
                elif name not in found:
                    found[name] = GroupAnswer(name, is_denied=False)
    return found


async def is_transactional_id_denied(brokers: Brokers, transactional_id: str) -> bool:
    """Return whether DESCRIBE on a transactional id is missing, which WRITE includes."""
    request = messages.DescribeTransactionsRequest(transactional_ids=(TransactionalId(transactional_id),))
    reply = await ask(brokers, ANY_BROKER, request, messages.DescribeTransactionsResponse)
    return any(int(one.error_code) == TRANSACTIONAL_ID_AUTHORIZATION_FAILED for one in reply.transaction_states)
