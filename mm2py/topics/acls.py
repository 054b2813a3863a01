"""Which ACLs of the source cluster's topics the remote topics get.

Only ACLs of topics are carried over: nothing is ever granted on a cluster, a group or a transactional id, nor on a
topic that is no copy. The corrections are those of decision 5.

Counterpart: ``shouldReplicateAcl`` and ``targetAclBinding`` of MM2's MirrorSourceConnector.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Final

from mm2py.flow import ClusterAlias, TopicName
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.names import ReplicationPolicy, remote_name_problem

ANY_TOPIC: Final = "*"
"""As a literal name it means every topic, also future ones."""


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
    """One ACL of a topic, or of all topics with a prefix. Codes that mm2py does not know are kept as numbers.

    ``principal`` and ``host`` are kept unchanged: ``User:CN=Jane, OU=x`` is one principal.
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


class AclLeftOut(StrEnum):
    """Why an ACL that seems to concern the copies is not carried over; each is logged once."""

    ALLOW_ANY = "it grants a right on every topic of the source; grant on the target what is meant there"
    ALLOW_PREFIXED = "it grants a right on a prefix; MirrorMaker 2 carries over literal names only, and so does mm2py"
    UNKNOWN_PATTERN = "its kind of pattern is none that mm2py knows"
    NO_TOPIC_NAME = "no topic on the target can be called what its name becomes there"


@dataclass(frozen=True, slots=True)
class AclPlan:
    """What the target should have, without repetition, in order; and what was left out although it concerns copies."""

    wanted: Sequence[TopicAcl]
    left_out: Sequence[tuple[TopicAcl, AclLeftOut]]


def plan_acls(
    acls: Iterable[TopicAcl],
    *,
    policy: ReplicationPolicy,
    source_alias: ClusterAlias,
    replicates: Callable[[str], bool],
    topics: Collection[str],
    kept: Collection[str],
) -> AclPlan:
    """Decide what the remote topics get of the source's ACLs.

    Args:
        replicates: whether a topic of that name would be copied; may raise PatternTooSlow. The topic need not exist.
        topics: the source topics that are copied now. Rights are granted only on their remote topics, because another
            topic with such a name on the target may have another owner.
        kept: the source topics that were copied once, whose remote topics still exist. If names stay the same on the
            target, or rules change them, an ACL that denies on many topics at once becomes one ACL for each of these
            and of ``topics``.
    Source: MirrorSourceConnector.shouldReplicateAcl, targetAclBinding, Apache Kafka, connect/mirror.
    """
    copies = sorted({*topics, *kept})
    wanted: dict[TopicAcl, None] = {}
    left_out: list[tuple[TopicAcl, AclLeftOut]] = []
    for acl in acls:
        made: Iterable[TopicAcl] = ()
        deny = acl.permission == Permission.DENY
        if acl.pattern not in {Pattern.LITERAL, Pattern.PREFIXED}:
            left_out.append((acl, AclLeftOut.UNKNOWN_PATTERN))
        elif not deny and acl.operation == Operation.WRITE:
            pass  # MM2's rule: only the mirror writes to a remote topic
        elif acl.pattern == Pattern.LITERAL and acl.name != ANY_TOPIC:
            if (deny or acl.name in topics) and _replicates(acl, replicates):
                made = [_for_one_topic(acl, policy, source_alias)]
        elif deny:
            made = _denied_on_many(acl, policy, source_alias, copies)
        else:
            left_out.append((acl, AclLeftOut.ALLOW_ANY if acl.name == ANY_TOPIC else AclLeftOut.ALLOW_PREFIXED))
        for remote in made:
            if remote_name_problem(remote.name) is None:
                wanted[remote] = None
            else:
                left_out.append((acl, AclLeftOut.NO_TOPIC_NAME))
    return AclPlan(tuple(wanted), tuple(left_out))


def _replicates(acl: TopicAcl, replicates: Callable[[str], bool]) -> bool:
    try:
        return replicates(acl.name)
    except PatternTooSlow:
        # Discovery reports this pattern. A DENY is kept, as it does no harm.
        return acl.permission == Permission.DENY


def _for_one_topic(acl: TopicAcl, policy: ReplicationPolicy, source_alias: ClusterAlias) -> TopicAcl:
    """Return the ACL of the remote topic. MM2's rule: ALLOW ALL becomes ALLOW READ."""
    deny = acl.permission == Permission.DENY
    operation = Operation.READ if not deny and acl.operation == Operation.ALL else acl.operation
    name = policy.format_remote_topic(source_alias, TopicName(acl.name))
    return replace(acl, name=str(name), operation=int(operation))


def _denied_on_many(
    acl: TopicAcl, policy: ReplicationPolicy, source_alias: ClusterAlias, copies: Iterable[str]
) -> Iterable[TopicAcl]:
    """Return a DENY on every topic, or on a prefix, for their copies, and for future copies if names allow that."""
    prefix = "" if acl.name == ANY_TOPIC and acl.pattern == Pattern.LITERAL else acl.name
    if not policy.keeps_names and not (policy.renames and prefix):
        remote = policy.format_remote_topic(source_alias, TopicName(prefix))
        return [replace(acl, name=str(remote), pattern=int(Pattern.PREFIXED))]
    return [
        replace(acl, name=str(policy.format_remote_topic(source_alias, TopicName(topic))), pattern=int(Pattern.LITERAL))
        for topic in copies
        if topic.startswith(prefix)
    ]


@dataclass(frozen=True, slots=True)
class MissingAcls:
    """The wanted ACLs that the target does not have yet, each part in order."""

    denials: Sequence[TopicAcl]
    """To be created before anything is granted: otherwise a denied user could read in between."""
    grants: Sequence[TopicAcl]
    beyond: Sequence[TopicAcl]
    """Grants for which there is no room."""
    in_all: int
    """How many ACLs the flow's remote topics would have with all of these."""


def missing_acls(
    wanted: Collection[TopicAcl], there: Iterable[TopicAcl], *, remotes: Container[str], most: int
) -> MissingAcls:
    """Return what is to be created, and what is not: a source cluster may have too many ACLs.

    Args:
        there: the target's ACLs of topics.
        remotes: the flow's remote topics. All existing ACLs of these count, also those that are no longer wanted: none
            is ever deleted, so a source that changes its ACLs again and again could otherwise create any number.
        most: how many ACLs the flow's remote topics may have; denials are created even beyond that.
    """
    existing, all_wanted = set(there), set(wanted)
    missing = sorted(all_wanted - existing)
    denials = [acl for acl in missing if acl.permission == Permission.DENY]
    grants = [acl for acl in missing if acl.permission != Permission.DENY]
    in_place = sum(acl.name in remotes or acl in all_wanted for acl in existing)
    room = max(0, most - in_place - len(denials))
    return MissingAcls(denials, grants[:room], grants[room:], in_place + len(missing))


def _word(codes: type[IntEnum], code: int) -> str:
    try:
        return codes(code).name
    except ValueError:
        return str(code)


_ANYBODY: Final = "User:*"
_ANY_HOST: Final = "*"
_READING: Final = frozenset({Operation.ALL, Operation.READ})
_KNOWING: Final = frozenset({Operation.ALL, Operation.READ, Operation.WRITE})


def reader_beyond(acls: Iterable[TopicAcl], *, quarantine: str, remote: str, open_without_acl: bool) -> str | None:
    """Return who could read the quarantine topic but not the remote topic, in words; None if there is no such user.

    Args:
        acls: all ACLs of topics on the target.
        open_without_acl: a topic without any ACL may be open to everybody (``allow.everyone.if.no.acl.found``).
    """
    known = list(acls)
    here = [acl for acl in known if matches(acl, quarantine)]
    there = [acl for acl in known if matches(acl, remote)]
    if open_without_acl and not here:
        return "everybody, for it has no ACL" if there else None
    readers = [acl for acl in here if acl.permission == Permission.ALLOW and acl.operation in _READING]
    knowing = [acl for acl in there if acl.permission == Permission.ALLOW and acl.operation in _KNOWING]
    for reader in readers:
        by_name = reader.name == quarantine and reader.pattern == Pattern.LITERAL
        open_there = open_without_acl and not there
        if not (by_name or open_there or any(_covers(grant, reader) for grant in knowing)):
            return f"{reader.principal} from {reader.host}"
    denied_here = [acl for acl in here if acl.permission == Permission.DENY and acl.operation in _READING]
    for denial in there:
        if denial.permission != Permission.DENY or denial.operation not in _READING:
            continue
        if any(_covers(ours, denial) for ours in denied_here):
            continue
        if any(_meet(reader, denial) and reader.name != quarantine for reader in readers):
            return f"{denial.principal} from {denial.host}"
    return None


def matches(acl: TopicAcl, topic: str) -> bool:
    """Whether an ACL is about a topic; or about a transactional id, if it is one of these."""
    if acl.pattern == Pattern.LITERAL:
        return acl.name in {topic, ANY_TOPIC}
    return acl.pattern == Pattern.PREFIXED and topic.startswith(acl.name)


def _covers(wider: TopicAcl, acl: TopicAcl) -> bool:
    """Whether ``wider`` applies to every user and host of ``acl``."""
    return wider.principal in {acl.principal, _ANYBODY} and wider.host in {acl.host, _ANY_HOST}


def _meet(one: TopicAcl, other: TopicAcl) -> bool:
    """Whether both may apply to the same user and host."""
    return (one.principal == other.principal or _ANYBODY in {one.principal, other.principal}) and (
        one.host == other.host or _ANY_HOST in {one.host, other.host}
    )
