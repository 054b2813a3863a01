"""What a fence adds to the source, and what it cannot prove. Pure.

Brokers' lists of producers carry no principal, and leave out producers without an id. So whom to deny is read from the
ACLs: DENY beats every ALLOW. What no DENY of a named principal reaches is listed as unproven, with its way out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mm2py.checks.rights import PLACEHOLDER
from mm2py.dr.fence.facts import FenceFacts, KnownAcls
from mm2py.dr.fence.record import BINDINGS_MOST, FenceBinding, FencedKind, FenceWay
from mm2py.kafka.producer.fencing import PREFIX
from mm2py.topics.acls import ANY_TOPIC, Operation, Pattern, Permission, TopicAcl, matches
from mm2py.topics.topic_configs import FENCE_MESSAGE_BYTES

ANYBODY: Final = "User:*"
NAMED_MOST: Final = 5
_WRITING: Final = frozenset({int(Operation.WRITE), int(Operation.ALL)})
_ACCEPT: Final = "--accept-unproven-fence goes on without that proof"


@dataclass(frozen=True, slots=True)
class FenceWanted:
    """What an operator asks for."""

    cluster: str
    topics: tuple[str, ...]
    way: FenceWay
    principals: tuple[str, ...] = ()
    """Whom to deny besides those that the ACLs name."""
    own_principals: frozenset[str] = frozenset()
    """mm2py's own on this cluster: the way back stays open."""
    keeps_names: bool = False
    """The flow has the identity policy."""


@dataclass(frozen=True, slots=True, order=True)
class FenceObstacle:
    """Something that the fence does not reach, or that forbids it; and the way out."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}"


@dataclass(frozen=True, slots=True)
class FencePlan:
    """What a fence would do."""

    wanted: FenceWanted
    bindings: tuple[FenceBinding, ...] = ()
    """All that must be there."""
    there: frozenset[FenceBinding] = frozenset()
    """Those of ``bindings`` that are there already."""
    sizes: Mapping[str, str | None] | None = None
    """By topic, the present value of ``max.message.bytes`` of its own; None: sizes are left alone."""
    unproven: tuple[FenceObstacle, ...] = ()
    """What it cannot prove: refused unless an operator accepts it."""
    refused: tuple[FenceObstacle, ...] = ()
    """Why it must not be raised, whatever is accepted."""
    notes: tuple[str, ...] = ()

    @property
    def added(self) -> tuple[FenceBinding, ...]:
        """The bindings that are not there yet."""
        return tuple(one for one in self.bindings if one not in self.there)

    def is_same(self, other: FencePlan) -> bool:
        """Whether both would do the same, and prove the same. Notes may differ: they tell what a transactional producer
        has open at the moment, which changes all the time."""
        return replace(self, notes=()) == replace(other, notes=())


def plan_fence(wanted: FenceWanted, facts: FenceFacts) -> FencePlan:
    """Return what a fence of the chosen topics adds, and what it cannot prove."""
    if wanted.way is FenceWay.HOOK:
        note = "The hook decides what stops producers. What it did is seen in the verification alone."
        return FencePlan(wanted, notes=(note,))
    if wanted.way is FenceWay.SIZE:
        return _by_size(wanted, facts)
    if facts.acls is None:
        return FencePlan(wanted, refused=(_no_authorizer(wanted, facts),))
    return _by_acls(wanted, facts, facts.acls)


def _no_authorizer(wanted: FenceWanted, facts: FenceFacts) -> FenceObstacle:
    remedy = "Name a command that stops producers: --hook-fence CMD."
    if not _why_no_size(wanted, facts):
        remedy += " Or let the topics refuse every batch: --by-size."
    return FenceObstacle(
        f"{wanted.cluster} has no authorizer (SECURITY_DISABLED), so no ACL can stop a producer there.", remedy
    )


# -- by ACLs -----------------------------------------------------------------------------------------------------------


def _by_acls(wanted: FenceWanted, facts: FenceFacts, acls: KnownAcls) -> FencePlan:
    refused = _refused_principals(wanted)
    unproven: set[FenceObstacle] = set()
    bindings: set[FenceBinding] = set()
    wide: dict[tuple[FencedKind, TopicAcl], list[str]] = {}
    closed: list[str] = []
    opened: list[str] = []
    of_topics, of_ids = _RulesByName(acls.topics), _RulesByName(acls.transactional_ids)
    for topic in wanted.topics:
        rules = of_topics.of(topic)
        writers = _writers(rules, wanted)
        bindings |= {FenceBinding(FencedKind.TOPIC, topic, one) for one in writers}
        for acl in _wide_rules(rules, wanted):
            wide.setdefault((FencedKind.TOPIC, acl), []).append(topic)
        if not rules and facts.open_without_acl:
            (closed if writers else opened).append(topic)
    ids, coupled = _transactional_ids(wanted, facts)
    for name in sorted(ids):
        rules = of_ids.of(name)
        bindings |= {FenceBinding(FencedKind.TRANSACTIONAL_ID, name, one) for one in _writers(rules, wanted)}
        for acl in _wide_rules(rules, wanted):
            wide.setdefault((FencedKind.TRANSACTIONAL_ID, acl), []).append(name)
    unproven |= {_too_wide(acl, kind, names) for (kind, acl), names in wide.items()}
    if closed:
        refused.append(_would_close(wanted.cluster, closed))
    if opened:
        unproven.add(_open_to_all(wanted.cluster, opened))
    unproven |= set(_super_users(wanted.cluster, facts))
    unproven |= {FenceObstacle(what, f"{_ACCEPT[:1].upper()}{_ACCEPT[1:]}.") for what in facts.unknown}
    if len(bindings) > BINDINGS_MOST:
        text = f"The fence would add {len(bindings):,} ACLs, {BINDINGS_MOST:,} are possible."
        refused.append(FenceObstacle(text, "Name fewer topics: --topics."))
    there = {
        *((FencedKind.TOPIC, acl) for acl in acls.topics),
        *((FencedKind.TRANSACTIONAL_ID, acl) for acl in acls.transactional_ids),
    }
    return FencePlan(
        wanted,
        bindings=tuple(sorted(bindings)),
        there=frozenset(one for one in bindings if (one.kind, one.acl) in there),
        unproven=tuple(sorted(unproven)),
        refused=tuple(refused),
        notes=tuple(_notes(wanted, bindings, coupled)),
    )


def _refused_principals(wanted: FenceWanted) -> list[FenceObstacle]:
    found: list[FenceObstacle] = []
    if PLACEHOLDER in wanted.own_principals:
        found.append(
            FenceObstacle(
                f"Under which name {wanted.cluster} knows mm2py is not told by the file, and mm2py must stay free.",
                "Name it: --own-principal User:NAME, as the cluster's authorizer sees it.",
            )
        )
    for one in wanted.principals:
        if one in wanted.own_principals:
            found.append(
                FenceObstacle(f"{one} is mm2py's own: denied, it could not bring records back.", "Leave it out.")
            )
        elif one == ANYBODY:
            found.append(FenceObstacle(f"{one} would deny mm2py, too, and no ALLOW beats a DENY.", "Name principals."))
    return found


class _RulesByName:
    """The rules for each name. Thousands of topics and of rules need no look at every pair."""

    def __init__(self, acls: Iterable[TopicAcl]) -> None:
        self._wide: list[TopicAcl] = []
        self._literal: dict[str, list[TopicAcl]] = {}
        for acl in acls:
            if _is_wide(acl):
                self._wide.append(acl)
            else:
                self._literal.setdefault(acl.name, []).append(acl)

    def of(self, name: str) -> list[TopicAcl]:
        """Return the rules that match a name."""
        return [acl for acl in (*self._literal.get(name, ()), *self._wide) if matches(acl, name)]


def _writers(rules: Iterable[TopicAcl], wanted: FenceWanted) -> set[str]:
    """Return whom to deny: whom one of the rules lets write, and those that the operator names."""
    by_rule = {acl.principal for acl in rules if _lets_write(acl)}
    return {*by_rule, *wanted.principals} - wanted.own_principals - {ANYBODY}


def _lets_write(acl: TopicAcl) -> bool:
    return acl.permission == Permission.ALLOW and acl.operation in _WRITING


def _wide_rules(rules: Iterable[TopicAcl], wanted: FenceWanted) -> list[TopicAcl]:
    """Return the rules by which more may be written than DENYs of names reach."""
    theirs = [acl for acl in rules if _lets_write(acl) and acl.principal not in wanted.own_principals]
    return [acl for acl in theirs if acl.principal == ANYBODY or _is_wide(acl)]


def _is_wide(acl: TopicAcl) -> bool:
    return acl.pattern == Pattern.PREFIXED or acl.name == ANY_TOPIC


def _too_wide(acl: TopicAcl, kind: FencedKind, names: Sequence[str]) -> FenceObstacle:
    where = f"{kind} {in_short(names)}"
    if acl.principal == ANYBODY:
        return FenceObstacle(
            f"{acl} lets everybody write to {where}, and a DENY for everybody would stop mm2py, too.",
            f"Replace it by rules that name principals, or name those that write: --principal User:NAME; {_ACCEPT}.",
        )
    return FenceObstacle(
        f"{acl} reaches beyond {where}: what else it covers, also what is made later, is not fenced.",
        f"Replace it by a rule for each name; {_ACCEPT}.",
    )


def _would_close(cluster: str, topics: Sequence[str]) -> FenceObstacle:
    return FenceObstacle(
        f"No ACL names {in_short(topics)}, and {cluster} may leave such topics open to everybody"
        " (allow.everyone.if.no.acl.found): the first ACL, even a DENY, would shut out its readers and mm2py.",
        "Allow first what is needed: ALLOW READ for readers and mm2py, WRITE for producers. Or use --hook-fence CMD.",
    )


def _open_to_all(cluster: str, topics: Sequence[str]) -> FenceObstacle:
    return FenceObstacle(
        f"No ACL names {in_short(topics)}, and {cluster} may leave such topics open to everybody"
        " (allow.everyone.if.no.acl.found).",
        f"Give it ACLs that name its readers and producers, or use --hook-fence CMD; {_ACCEPT}.",
    )


def _super_users(cluster: str, facts: FenceFacts) -> Iterable[FenceObstacle]:
    if facts.super_users is None:
        return
    who = facts.super_users or "whose names brokers do not tell"
    yield FenceObstacle(
        f"{cluster} has super users ({who}): no ACL stops them.",
        f"Make sure that no producer is one (super.users in the brokers' files); {_ACCEPT}, and the verification shows"
        " what they write.",
    )


def _transactional_ids(wanted: FenceWanted, facts: FenceFacts) -> tuple[set[str], dict[str, set[str]]]:
    """Return the ids that have written to the chosen topics, and what else each has open now."""
    ids: set[str] = set()
    coupled: dict[str, set[str]] = {}
    chosen = set(wanted.topics)
    writing = {one.producer_id for producers in facts.producers.values() for one in producers}
    for one in facts.transactions:
        topics = {topic for topic, _ in one.partitions}
        if one.transactional_id.startswith(PREFIX) or not (topics & chosen or one.producer_id in writing):
            continue
        ids.add(one.transactional_id)
        if topics - chosen:
            coupled[one.transactional_id] = topics - chosen
    return ids, coupled


def _notes(
    wanted: FenceWanted, bindings: Collection[FenceBinding], coupled: Mapping[str, Collection[str]]
) -> Iterable[str]:
    if wanted.own_principals:
        own = ", ".join(sorted(wanted.own_principals))
        yield f"mm2py's own stay free: {own}. An application that uses such a name is not stopped."
    denied = {one.name for one in bindings if one.kind is FencedKind.TOPIC}
    open_topics = [topic for topic in wanted.topics if topic not in denied]
    if open_topics:
        yield f"No ACL names anybody to deny on {in_short(open_topics)}."
    for name, topics in sorted(coupled.items()):
        yield f"Transactional id {name} also writes to {in_short(sorted(topics))}, and stops there, too."


# -- by size -----------------------------------------------------------------------------------------------------------


def _by_size(wanted: FenceWanted, facts: FenceFacts) -> FencePlan:
    refused = _why_no_size(wanted, facts)
    return FencePlan(
        wanted,
        sizes=dict(facts.sizes),
        refused=tuple(refused),
        unproven=(
            FenceObstacle(
                "Brokers remember a transactional producer for a day: one that last wrote before that is not seen.",
                f"Make sure that no producer of these topics is transactional; {_ACCEPT}.",
            ),
        ),
        notes=(
            f"max.message.bytes={FENCE_MESSAGE_BYTES} stops batches by their size, whoever sends them. Small records"
            " may pass: whatever is not larger than that. The verification shows whether anything did.",
            "Where a producer is transactional it is refused: brokers check the markers of transactions by it, too, and"
            " an open transaction would hang for good.",
        ),
    )


def _why_no_size(wanted: FenceWanted, facts: FenceFacts) -> list[FenceObstacle]:
    """Return why ``max.message.bytes`` must not be the fence; nothing if it may be."""
    found: list[FenceObstacle] = []
    if wanted.keeps_names:
        found.append(
            FenceObstacle(
                "Under the identity policy records come back into the same topics, and max.message.bytes stops them,"
                " too.",
                "Use ACLs, or --hook-fence CMD.",
            )
        )
    known = {one.producer_id: one.transactional_id for one in facts.transactions}
    chosen = set(wanted.topics)
    transactional = {
        topic
        for (topic, _), producers in facts.producers.items()
        for one in producers
        if one.coordinator_epoch >= 0 or one.txn_start_offset >= 0 or one.producer_id in known
    } | {topic for one in facts.transactions for topic, _ in one.partitions if topic in chosen}
    if transactional:
        found.append(
            FenceObstacle(
                f"{in_short(sorted(transactional))} has transactional producers: brokers check the markers of"
                " transactions by max.message.bytes, too, and open transactions would hang.",
                "Use ACLs, or --hook-fence CMD.",
            )
        )
    found += [FenceObstacle(what, "Without that, max.message.bytes may hang transactions.") for what in facts.unknown]
    return found


def in_short(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = f" and {len(names) - NAMED_MOST} more" if len(names) > NAMED_MOST else ""
    return f"{', '.join(names[:NAMED_MOST])}{more}"
