"""What a fence changes on a cluster: bindings that it adds or removes, and the limits of topics.

Only what is named is changed: a binding is removed by all of its fields, never by a pattern.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from kio.static.primitive import i8

from mm2py.dr.fence.record import FenceBinding, FencedKind
from mm2py.errors import Mm2Error
from mm2py.kafka import admin, messages
from mm2py.kafka.errors import BrokerRefused, Reaction
from mm2py.kafka.list_offsets import chunks
from mm2py.kafka.port import ANY_BROKER, Brokers, ask
from mm2py.topics.topic_configs import MAX_MESSAGE_BYTES, ConfigSource

BINDINGS_A_REQUEST: Final = 200
TOPICS_A_REQUEST: Final = 200
_RESOURCES: Final[Mapping[FencedKind, int]] = {FencedKind.TOPIC: 2, FencedKind.TRANSACTIONAL_ID: 5}


class FenceIncomplete(Mm2Error):
    """A cluster did not take a part of the fence, or did not give it back. The record of the fence knows all of it."""


class FencedCluster(Protocol):
    """The cluster whose producers are fenced."""

    async def add(self, bindings: Collection[FenceBinding]) -> None:
        """Add bindings; one that is there stays. Raises: FenceIncomplete, KafkaError."""
        ...

    async def remove(self, bindings: Collection[FenceBinding]) -> None:
        """Remove exactly these; one that is not there is none to remove. Raises: FenceIncomplete, KafkaError."""
        ...

    async def sizes(self, topics: Sequence[str]) -> dict[str, str | None]:
        """Return each topic's own value of max.message.bytes; None: it has none. A deleted topic is left out."""
        ...

    async def set_sizes(self, sizes: Mapping[str, str | None]) -> None:
        """Give topics this value, or none of their own. Raises: FenceIncomplete, KafkaError."""
        ...


class ClusterFence:
    """A ``FencedCluster`` over the brokers' port."""

    def __init__(self, alias: str, brokers: Brokers) -> None:
        self._alias = alias
        self._brokers = brokers

    async def add(self, bindings: Collection[FenceBinding]) -> None:
        """See ``FencedCluster.add``."""
        for some in chunks(list(bindings), BINDINGS_A_REQUEST):
            request = messages.CreateAclsRequest(
                creations=tuple(
                    messages.AclCreation(
                        resource_type=i8(_RESOURCES[one.kind]),
                        resource_name=one.acl.name,
                        resource_pattern_type=i8(one.acl.pattern),
                        principal=one.acl.principal,
                        host=one.acl.host,
                        operation=i8(one.acl.operation),
                        permission_type=i8(one.acl.permission),
                    )
                    for one in some
                )
            )
            reply = await ask(self._brokers, ANY_BROKER, request, messages.CreateAclsResponse)
            for one, result in zip(some, reply.results, strict=True):
                self._judge(f"Adding {one}", int(result.error_code), result.error_message)

    async def remove(self, bindings: Collection[FenceBinding]) -> None:
        """See ``FencedCluster.remove``."""
        for some in chunks(list(bindings), BINDINGS_A_REQUEST):
            request = messages.DeleteAclsRequest(
                filters=tuple(
                    messages.DeleteAclsFilter(
                        resource_type_filter=i8(_RESOURCES[one.kind]),
                        resource_name_filter=one.acl.name,
                        pattern_type_filter=i8(one.acl.pattern),
                        principal_filter=one.acl.principal,
                        host_filter=one.acl.host,
                        operation=i8(one.acl.operation),
                        permission_type=i8(one.acl.permission),
                    )
                    for one in some
                )
            )
            reply = await ask(self._brokers, ANY_BROKER, request, messages.DeleteAclsResponse)
            for one, result in zip(some, reply.filter_results, strict=True):
                codes = [(int(result.error_code), result.error_message)]
                codes += [(int(acl.error_code), acl.error_message) for acl in result.matching_acls]
                for code, message in codes:
                    self._judge(f"Removing {one}", code, message)

    async def sizes(self, topics: Sequence[str]) -> dict[str, str | None]:
        """See ``FencedCluster.sizes``. Raises: BrokerRefused, the settings of a topic may not be read."""
        found: dict[str, str | None] = {}
        for some in chunks(topics, TOPICS_A_REQUEST):
            answers = await admin.describe_topic_configs(self._brokers, some, keys=[MAX_MESSAGE_BYTES])
            for topic, entries in answers.items():
                if isinstance(entries, BrokerRefused):
                    if entries.reaction is Reaction.REFRESH:
                        continue  # it was deleted
                    raise entries
                own = [one.value for one in entries if one.source == ConfigSource.DYNAMIC_TOPIC]
                found[topic] = own[0] if own else None
        return found

    async def set_sizes(self, sizes: Mapping[str, str | None]) -> None:
        """See ``FencedCluster.set_sizes``."""
        for some in chunks(list(sizes), TOPICS_A_REQUEST):
            changes = {topic: {MAX_MESSAGE_BYTES: sizes[topic]} for topic in some}
            answers = await admin.alter_topic_configs(self._brokers, changes)
            for refusal in answers.values():
                if refusal is not None:
                    raise FenceIncomplete(refusal.what, remedy=f"Grant ALTER_CONFIGS on these topics of {self._alias}.")

    def _judge(self, what: str, code: int, message: str | None) -> None:
        if code:
            refusal = BrokerRefused(what, code, message=message)
            raise FenceIncomplete(refusal.what, remedy=f"Grant ALTER on the cluster resource of {self._alias}.")
