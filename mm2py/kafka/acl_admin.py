"""What mm2py asks of a cluster about the ACLs of topics: which there are, and to add some. It never takes one away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kio.static.primitive import i8

from mm2py.kafka import messages
from mm2py.kafka.errors import BrokerRefused, CorruptReply
from mm2py.kafka.port import ANY_BROKER, Brokers, ask
from mm2py.topics.acls import TopicAcl

CHUNK_MOST: Final = 500
CHUNK_MOST_BYTES: Final = 256 * 1024
_TOPIC_RESOURCE: Final = 2
_ANY: Final = 1
_FIXED_BYTES: Final = 16


async def describe_topic_acls(brokers: Brokers, *, channel: str = "control") -> list[TopicAcl]:
    """Return all ACLs of topics, of names, of prefixes and of ``*``.

    Raises:
        BrokerRefused: ``SECURITY_DISABLED``, or DESCRIBE on the cluster is missing.
    """
    request = messages.DescribeAclsRequest(
        resource_type_filter=i8(_TOPIC_RESOURCE),
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
        raise BrokerRefused("Listing the ACLs of topics", code, message=reply.error_message)
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
        if resource.resource_type == _TOPIC_RESOURCE
        for acl in resource.acls
    ]


async def create_topic_acls(
    brokers: Brokers, acls: Sequence[TopicAcl], *, channel: str = "control"
) -> dict[TopicAcl, BrokerRefused | None]:
    """Add ACLs in one request (see ``in_chunks``); the answer tells for each what was wrong, or None."""
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
    """Yield the ACLs in parts that one request may hold, by number and by size."""
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
