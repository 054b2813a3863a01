"""Which ACLs of the source cluster's topics the remote topics get.

Answers to ``shouldReplicateAcl`` and ``targetAclBinding`` of MM2's MirrorSourceConnector. Only ACLs of topics come
here: nothing is ever granted on a cluster, a group or a transactional id. The corrections are those of decision 5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Final

from mm2py.flow import ClusterAlias, TopicName
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.replication_policy import IdentityReplicationPolicy, ReplicationPolicy

ANY_TOPIC: Final = "*"
"""As a literal name it stands for every topic, those to come included."""


class Pattern(IntEnum):
    """How an ACL's name is meant, by Kafka's codes."""

    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What an ACL is about, by Kafka's codes; those that topics have."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11


class Permission(IntEnum):
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, order=True)
class TopicAcl:
    """One ACL of a topic, or of all topics with a prefix. Codes unknown to mm2py stay the numbers they are.

    ``principal`` and ``host`` are kept to the letter: ``User:CN=Jane, OU=x`` is one principal.
    """

    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        return (
            f"{_word(Permission, self.permission)} {_word(Operation, self.operation)}"
            f" on {_word(Pattern, self.pattern)} {self.name} for {self.principal} from {self.host}"
        )


class LeftOut(StrEnum):
    """Why an ACL that seems to concern the copies is not carried over; each is said once."""

    ALLOW_ANY = "it grants a right on every topic of the source; grant on the target what is meant there"
    ALLOW_PREFIXED = "it grants a right on a prefix; MirrorMaker 2 carries over literal names only, and so does mm2py"
    UNKNOWN_PATTERN = "its kind of pattern is none that mm2py knows"


@dataclass(frozen=True, slots=True)
class AclPlan:
    """What the target should have, without repetition, in order; and what was left out although it concerns copies."""

    wanted: Sequence[TopicAcl]
    left_out: Sequence[tuple[TopicAcl, LeftOut]]


def plan_acls(
    acls: Iterable[TopicAcl],
    *,
    policy: ReplicationPolicy,
    source_alias: ClusterAlias,
    replicates: Callable[[str], bool],
    topics: Collection[str],
) -> AclPlan:
    """Decide what the remote topics get of the source's ACLs.

    Args:
        replicates: whether a topic of that name would be copied; may raise PatternTooSlow. The topic need not exist.
        topics: the source topics that are copied now; what is denied on many topics at once is spread over them where
            names stay the same on the target.
    Source: MirrorSourceConnector.shouldReplicateAcl, targetAclBinding, Apache Kafka, connect/mirror.
    """
    wanted: dict[TopicAcl, None] = {}
    left_out: list[tuple[TopicAcl, LeftOut]] = []
    for acl in acls:
        if acl.pattern == Pattern.LITERAL and acl.name != ANY_TOPIC:
            remote = _for_one_topic(acl, policy, source_alias, replicates)
            if remote is not None:
                wanted[remote] = None
        elif acl.pattern not in {Pattern.LITERAL, Pattern.PREFIXED}:
            left_out.append((acl, LeftOut.UNKNOWN_PATTERN))
        elif acl.permission == Permission.DENY:
            for remote in _denied_on_many(acl, policy, source_alias, topics):
                wanted[remote] = None
        elif acl.operation != Operation.WRITE:
            left_out.append((acl, LeftOut.ALLOW_ANY if acl.name == ANY_TOPIC else LeftOut.ALLOW_PREFIXED))
    return AclPlan(tuple(wanted), tuple(left_out))


def _for_one_topic(
    acl: TopicAcl, policy: ReplicationPolicy, source_alias: ClusterAlias, replicates: Callable[[str], bool]
) -> TopicAcl | None:
    """MM2's rule: nobody else writes to a remote topic. ALLOW WRITE stays behind, ALLOW ALL becomes ALLOW READ."""
    allow = acl.permission == Permission.ALLOW
    if allow and acl.operation == Operation.WRITE:
        return None
    try:
        if not replicates(acl.name):
            return None
    except PatternTooSlow:
        if allow:
            return None  # whoever asks for topics says so; a DENY is kept, for it does no harm
    operation = Operation.READ if allow and acl.operation == Operation.ALL else acl.operation
    name = policy.format_remote_topic(source_alias, TopicName(acl.name))
    return replace(acl, name=str(name), operation=int(operation))


def _denied_on_many(
    acl: TopicAcl, policy: ReplicationPolicy, source_alias: ClusterAlias, topics: Collection[str]
) -> Iterable[TopicAcl]:
    """A DENY on every topic, or on a prefix, holds for their copies, and for copies to come where names allow it."""
    prefix = "" if acl.name == ANY_TOPIC and acl.pattern == Pattern.LITERAL else acl.name
    if not isinstance(policy, IdentityReplicationPolicy):
        remote = policy.format_remote_topic(source_alias, TopicName(prefix))
        return [replace(acl, name=str(remote), pattern=int(Pattern.PREFIXED))]
    return [
        replace(acl, name=str(policy.format_remote_topic(source_alias, TopicName(topic))), pattern=int(Pattern.LITERAL))
        for topic in sorted(topics)
        if topic.startswith(prefix)
    ]


def _word(codes: type[IntEnum], code: int) -> str:
    try:
        return codes(code).name
    except ValueError:
        return str(code)
