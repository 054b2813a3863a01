"""What the sync of ACLs leaves out: bindings of a fence, which are no rights that an operator has given or taken.

Nothing in a binding shows who added it, so the record of the fence says it. The record is stored before the first
binding is added, and marked as lifted after the last one is removed. The story: a sync reads the ACLs, the fence is
lifted, and then the sync reads the record. It would take the bindings for an operator's, and nobody would ever remove
them from the target. So the record is read before the ACLs and after them, and what either says is left out.

``max.message.bytes`` of a fence shows by itself what it is (``mm2py/topics/topic_configs.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mm2py.dr.fence.fence_log import read_fences
from mm2py.dr.fence.record import ANY_HOST, FencedKind, FenceRecord, fences_up
from mm2py.errors import Mm2Error
from mm2py.kafka.port import Brokers
from mm2py.topics.acls import Operation, Pattern, Permission, TopicAcl


@dataclass(frozen=True, slots=True)
class HeldBackAcls:
    """The bindings of all fences of a cluster, at one time."""

    acls: frozenset[TopicAcl] = frozenset()
    unknown: str = ""
    """Why the records cannot be read; empty: they can."""


def bindings_in_force(records: Collection[FenceRecord]) -> frozenset[TopicAcl]:
    """Return the ACLs of topics that fences of a cluster have added, and not given back. Pure."""
    return frozenset(
        binding.acl for record in fences_up(records) for binding in record.bindings if binding.kind is FencedKind.TOPIC
    )


def without_fences(
    acls: Sequence[TopicAcl], before: HeldBackAcls, after: HeldBackAcls
) -> tuple[list[TopicAcl], list[TopicAcl]]:
    """Return the ACLs of a source that may be carried over, and those that are held back for they may be a fence's.

    If the records cannot be read, every ACL that could be a fence's is held back. Pure.
    """
    fence = before.acls | after.acls
    is_unknown = bool(before.unknown or after.unknown)
    held = [acl for acl in acls if acl in fence or (is_unknown and _may_be_fence(acl))]
    return [acl for acl in acls if acl not in set(held)], held


def _may_be_fence(acl: TopicAcl) -> bool:
    return (acl.pattern, acl.host, acl.operation, acl.permission) == (
        Pattern.LITERAL,
        ANY_HOST,
        Operation.WRITE,
        Permission.DENY,
    )


async def acls_held_back(alias: str, brokers: Brokers, *, channel: str = "control") -> HeldBackAcls:
    """Return the bindings of all fences of a cluster; why they are unknown, if the records may not be read.

    Raises: KafkaError, if asking again may help.
    """
    try:
        return HeldBackAcls(bindings_in_force(await read_fences(alias, brokers, channel=channel)))
    except Mm2Error as error:
        if error.retriable:
            raise
        return HeldBackAcls(unknown=str(error))
