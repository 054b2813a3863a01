"""Who may read the quarantine topic: nobody who may not read the remote topic for which its records were meant. Pure.

mm2py grants nothing on the quarantine topic and denies nothing there: it looks at the ACLs that are there, and where
they would show a record to somebody who may not read it in its remote topic, it is not put there. Two that count as
knowing a remote topic's records: who is granted a right by the very name of the quarantine topic (an operator did that
on purpose), and who may write to the remote topic (mm2py itself, which often reads its own topics by a prefix).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mm2py.topics.acls import ANY_TOPIC, Operation, Pattern, Permission, TopicAcl

_ANYBODY: Final = "User:*"
_ANY_HOST: Final = "*"
_READING: Final = frozenset({Operation.ALL, Operation.READ})
_KNOWING: Final = frozenset({Operation.ALL, Operation.READ, Operation.WRITE})


def reader_beyond(acls: Iterable[TopicAcl], *, quarantine: str, remote: str, open_without_acl: bool) -> str | None:
    """Return who could read the quarantine topic and not the remote topic, in words; None if there is nobody.

    Args:
        acls: all ACLs of topics on the target.
        open_without_acl: a topic without any ACL may be open to everybody (``allow.everyone.if.no.acl.found``).
    """
    known = list(acls)
    here = [acl for acl in known if _matches(acl, quarantine)]
    there = [acl for acl in known if _matches(acl, remote)]
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


def _matches(acl: TopicAcl, topic: str) -> bool:
    if acl.pattern == Pattern.LITERAL:
        return acl.name in {topic, ANY_TOPIC}
    return acl.pattern == Pattern.PREFIXED and topic.startswith(acl.name)


def _covers(wider: TopicAcl, acl: TopicAcl) -> bool:
    """Whether whoever ``acl`` speaks of is spoken of by ``wider``."""
    return wider.principal in {acl.principal, _ANYBODY} and wider.host in {acl.host, _ANY_HOST}


def _meet(one: TopicAcl, other: TopicAcl) -> bool:
    """Whether there can be somebody of whom both speak."""
    return (one.principal == other.principal or _ANYBODY in {one.principal, other.principal}) and (
        one.host == other.host or _ANY_HOST in {one.host, other.host}
    )
