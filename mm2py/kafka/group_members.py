"""The members of consumer groups, with the hosts on which they run.

A coordinator describes groups of the classic protocol and those of the consumer protocol by two different requests. A
broker that does not know the second one has no such groups.

Rights: DESCRIBE on the group.

Counterpart: KafkaAdminClient.describeConsumerGroups of Apache Kafka, which asks in the other order.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kio.schema.types import GroupId

from mm2py.errors import for_each
from mm2py.kafka import messages
from mm2py.kafka.consumer_groups import find_coordinators
from mm2py.kafka.errors import BrokerRefused, UnsupportedVersion
from mm2py.kafka.port import BrokerId, Brokers, ask
from mm2py.secret import printable

GROUPS_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member."""

    member_id: str
    client_id: str
    host: str
    """As its coordinator sees it."""

    def __str__(self) -> str:
        return printable(f"{self.member_id} on {self.host}")


async def members_of(brokers: Brokers, groups: Collection[str]) -> dict[str, tuple[GroupMember, ...]]:
    """Return the members of groups. Groups that their coordinator does not describe are left out.

    Raises:
        KafkaError: as ``Brokers.send``, of any coordinator.
    """
    found: dict[str, tuple[GroupMember, ...]] = {}
    coordinators = await find_coordinators(brokers, groups) if groups else {}

    async def describe(group: str) -> None:
        coordinator = coordinators[group]
        if not isinstance(coordinator, BrokerRefused):
            members = await _classic(brokers, coordinator, group) or await _of_consumers(brokers, coordinator, group)
            found.update({group: members} if members else {})

    await for_each(coordinators, describe, at_once=GROUPS_AT_ONCE, name="describing groups")
    return found


async def _classic(brokers: Brokers, coordinator: BrokerId, group: str) -> tuple[GroupMember, ...]:
    request = messages.DescribeGroupsRequest(groups=(GroupId(group),), include_authorized_operations=False)
    reply = await ask(brokers, coordinator, request, messages.DescribeGroupsResponse)
    return tuple(
        GroupMember(member.member_id, member.client_id, member.client_host.removeprefix("/"))
        for one in reply.groups
        for member in one.members
    )


async def _of_consumers(brokers: Brokers, coordinator: BrokerId, group: str) -> tuple[GroupMember, ...]:
    request = messages.ConsumerGroupDescribeRequest(group_ids=(GroupId(group),), include_authorized_operations=False)
    try:
        reply = await ask(brokers, coordinator, request, messages.ConsumerGroupDescribeResponse)
    except UnsupportedVersion:
        return ()
    return tuple(
        GroupMember(member.member_id, member.client_id, member.client_host.removeprefix("/"))
        for one in reply.groups
        for member in one.members
    )
