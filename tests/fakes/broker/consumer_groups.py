"""Consumer groups: their states and commits, and their coordinators' answers.

    cluster.groups.commit("g", {("t", 0): (5, "")})
    cluster.groups.activate("g", members=2)

No client of the model joins a group; a test sets which groups have members. Clients only commit without being members.
Source: KafkaApis, GroupMetadataManager, OffsetMetadataManager, Apache Kafka 4.3.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kio.schema.consumer_group_describe.v0.response import Assignment, Member
from kio.schema.consumer_group_describe.v0.response import DescribedGroup as DescribedConsumerGroup
from kio.schema.describe_groups.v5.response import DescribedGroup, DescribedGroupMember
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v4.response import ListedGroup
from kio.schema.offset_commit.v8.response import OffsetCommitResponsePartition, OffsetCommitResponseTopic
from kio.schema.offset_fetch.v8.response import OffsetFetchResponsePartitions, OffsetFetchResponseTopics
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i32Timedelta, i64

from mm2py.kafka.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)

if TYPE_CHECKING:
    from tests.fakes.broker.cluster_state import ClusterState

_NO_THROTTLE: Final = i32Timedelta.parse(datetime.timedelta(0))
_DESCRIBE: Final = 1 << 8
_ALL: Final = 1 << 3 | 1 << 6 | _DESCRIBE
"""READ, DELETE, DESCRIBE"""
_NOT_TOLD: Final = -(1 << 31)
_METADATA_MOST: Final = 4096
"""The default of ``offset.metadata.max.bytes``; brokers count characters."""


@dataclass(frozen=True, slots=True)
class StoredCommit:
    """One commit as a coordinator stores it."""

    offset: int
    metadata: str
    leader_epoch: int = -1


@dataclass(slots=True)
class ConsumerGroup:
    """One group. ``protocol_type`` is empty until a member joins, and stays when the last member leaves."""

    state: str = "Empty"
    protocol_type: str = ""
    members: int = 0
    commits: dict[tuple[str, int], StoredCommit] = field(default_factory=dict)


class ConsumerGroups:
    """All groups of a cluster.

    Attributes:
        available: whether FindCoordinator returns coordinators of groups.
        errors: errors that coordinators answer about a group, by group.
        list_errors: errors that brokers answer to ListGroups, by broker.
        denied: groups on which all rights are revoked; then listing them needs DESCRIBE on the cluster.
        unwritable: groups on which READ, the right to commit, is revoked, but not DESCRIBE.
        of_new_protocol: groups whose members speak the consumer protocol.
    """

    def __init__(self) -> None:
        self.known: dict[str, ConsumerGroup] = {}
        self.available = True
        self.errors: dict[str, ErrorCode] = {}
        self.list_errors: dict[int, ErrorCode] = {}
        self.denied: set[str] = set()
        self.unwritable: set[str] = set()
        self.of_new_protocol: set[str] = set()

    def commit(self, group: str, commits: Mapping[tuple[str, int], tuple[int, str]], *, leader_epoch: int = -1) -> None:
        """Store (offset, metadata) by topic and partition, as its members would; an unknown group begins Empty."""
        kept = self.known.setdefault(group, ConsumerGroup()).commits
        kept |= {key: StoredCommit(offset, metadata, leader_epoch) for key, (offset, metadata) in commits.items()}

    def activate(self, group: str, *, members: int = 1, state: str = "Stable", protocol_type: str = "consumer") -> None:
        """Let this many members join a group."""
        found = self.known.setdefault(group, ConsumerGroup())
        found.state, found.members, found.protocol_type = state, members, protocol_type

    def deactivate(self, group: str) -> None:
        """Let all members leave."""
        found = self.known[group]
        found.state, found.members = "Empty", 0

    def delete(self, group: str) -> None:
        del self.known[group]

    def forget_topic(self, topic: str) -> None:
        """Drop the commits of a topic that is deleted."""
        for group in self.known.values():
            group.commits = {key: commit for key, commit in group.commits.items() if key[0] != topic}

    def commits_of(self, group: str) -> dict[tuple[str, int], tuple[int, str]]:
        """Return (offset, metadata) by topic and partition."""
        return {key: (commit.offset, commit.metadata) for key, commit in self.known[group].commits.items()}


def list_groups(state: ClusterState, node: int, request: ListGroupsRequest) -> ListGroupsResponse:
    groups = state.groups
    hidden = groups.denied if "DESCRIBE" in state.denied_on_cluster else set()
    code = groups.list_errors.get(node, ErrorCode.none)
    return ListGroupsResponse(
        throttle_time=_NO_THROTTLE,
        error_code=code,
        groups=tuple(
            ListedGroup(group_id=GroupId(name), protocol_type=group.protocol_type, group_state=group.state)
            for name, group in groups.known.items()
            if not code and state.coordinator_of(name) == node and name not in hidden
            if not request.states_filter or group.state in request.states_filter
        ),
    )


def describe_groups(state: ClusterState, node: int, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    groups = []
    for name in request.groups:
        code = _judge(state, node, name)
        is_classic = name in state.groups.known and name not in state.groups.of_new_protocol
        group = state.groups.known[name] if is_classic else ConsumerGroup("Dead")
        group = ConsumerGroup("") if code else group
        allowed = _NOT_TOLD
        if request.include_authorized_operations and not code:
            allowed = _DESCRIBE if name in state.groups.unwritable else _ALL
        groups.append(
            DescribedGroup(
                error_code=code,
                group_id=GroupId(name),
                group_state=group.state,
                protocol_type=group.protocol_type,
                protocol_data="",
                members=tuple(_member(name, number) for number in range(group.members)),
                authorized_operations=i32(allowed),
            )
        )
    return DescribeGroupsResponse(throttle_time=_NO_THROTTLE, groups=tuple(groups))


def consumer_group_describe(
    state: ClusterState, node: int, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    groups = []
    for name in request.group_ids:
        code = _judge(state, node, name)
        if not code and name not in state.groups.of_new_protocol:
            code = ErrorCode.group_id_not_found
        group = ConsumerGroup("") if code else state.groups.known[name]
        groups.append(
            DescribedConsumerGroup(
                error_code=code,
                error_message=None,
                group_id=GroupId(name),
                group_state=group.state,
                group_epoch=i32(1),
                assignment_epoch=i32(1),
                assignor_name="uniform",
                members=tuple(
                    Member(
                        member_id=f"{name}-{number}",
                        member_epoch=i32(1),
                        client_id=f"client-{number}",
                        client_host="/127.0.0.1",
                        assignment=Assignment(topic_partitions=()),
                        target_assignment=Assignment(topic_partitions=()),
                    )
                    for number in range(group.members)
                ),
            )
        )
    return ConsumerGroupDescribeResponse(throttle_time=_NO_THROTTLE, groups=tuple(groups))


def _member(group: str, number: int) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=f"{group}-{number}",
        client_id=f"client-{number}",
        client_host="/127.0.0.1",
        member_metadata=b"",
        member_assignment=b"",
    )


def offset_fetch(state: ClusterState, node: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
    assert all(group.topics is None for group in request.groups), "the model tells all commits of a group or none"
    return OffsetFetchResponse(
        throttle_time=_NO_THROTTLE, groups=tuple(_fetched(state, node, group.group_id) for group in request.groups)
    )


def _fetched(state: ClusterState, node: int, name: str) -> OffsetFetchResponseGroup:
    code = _judge(state, node, name)
    group = state.groups.known.get(name, ConsumerGroup()) if not code else ConsumerGroup()
    by_topic: dict[str, list[OffsetFetchResponsePartitions]] = {}
    for (topic, partition), commit in group.commits.items():
        if topic not in state.denied_topics:
            told = OffsetFetchResponsePartitions(
                partition_index=i32(partition),
                committed_offset=i64(commit.offset),
                committed_leader_epoch=i32(commit.leader_epoch),
                metadata=commit.metadata,
                error_code=ErrorCode.none,
            )
            by_topic.setdefault(topic, []).append(told)
    return OffsetFetchResponseGroup(
        group_id=GroupId(name),
        error_code=code,
        topics=tuple(
            OffsetFetchResponseTopics(name=TopicName(topic), partitions=tuple(told)) for topic, told in by_topic.items()
        ),
    )


def offset_commit(state: ClusterState, node: int, request: OffsetCommitRequest) -> OffsetCommitResponse:
    outside = (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id)
    assert outside == (-1, "", None), "the model's groups have no members that send requests"
    topics = []
    for topic in request.topics:
        codes = [(part, _commit_error(state, node, request.group_id, topic.name, part)) for part in topic.partitions]
        for part, code in codes:
            if not code:
                commit = {
                    (str(topic.name), int(part.partition_index)): (
                        int(part.committed_offset),
                        part.committed_metadata or "",
                    )
                }
                state.groups.commit(request.group_id, commit, leader_epoch=part.committed_leader_epoch)
        topics.append(
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code)
                    for part, code in codes
                ),
            )
        )
    return OffsetCommitResponse(throttle_time=_NO_THROTTLE, topics=tuple(topics))


def _commit_error(
    state: ClusterState, node: int, name: str, topic: str, part: OffsetCommitRequestPartition
) -> ErrorCode:
    """Return the error of one commit, checked in a broker's order: rights and topics before the coordinator."""
    group = state.groups.known.get(name)
    known = state.topics_seen_by(node).get(topic)
    if name in state.groups.denied | state.groups.unwritable:
        return ErrorCode.group_authorization_failed
    if topic in state.denied_topics:
        return ErrorCode.topic_authorization_failed
    if known is None or not 0 <= part.partition_index < len(known.partitions):
        return ErrorCode.unknown_topic_or_partition
    code = _judge(state, node, name)
    if code:
        return code
    if group is not None and group.state != "Empty":
        return ErrorCode.unknown_member_id
    if len(part.committed_metadata or "") > _METADATA_MOST:
        return ErrorCode.offset_metadata_too_large
    return ErrorCode.none


def _judge(state: ClusterState, node: int, name: str) -> ErrorCode:
    """Return the error that answers any request about a group, or ``none``."""
    if name in state.groups.denied:
        return ErrorCode.group_authorization_failed
    if state.coordinator_of(name) != node:
        return ErrorCode.not_coordinator
    return state.groups.errors.get(name, ErrorCode.none)
