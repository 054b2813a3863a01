"""What a cluster says about who can write to topics: the facts that a fence is planned from. Pure.

``asking.py`` collects them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mm2py.kafka.port import TopicPartition
from mm2py.kafka.producer.transactions import ActiveProducer
from mm2py.topics.acls import TopicAcl


@dataclass(frozen=True, slots=True)
class KnownAcls:
    """The ACLs of a cluster that decide who may write."""

    topics: Sequence[TopicAcl]
    transactional_ids: Sequence[TopicAcl]
    """In the form of those of topics; ``name`` is the transactional id."""


@dataclass(frozen=True, slots=True)
class SeenTransaction:
    """A transactional id as its coordinator knows it."""

    transactional_id: str
    producer_id: int
    state: str
    """As Kafka spells it: Empty, Ongoing, CompleteAbort, ..."""
    partitions: frozenset[TopicPartition] = frozenset()
    """Those in its open transaction, as far as we may describe their topics."""


@dataclass(frozen=True, slots=True)
class FenceFacts:
    """What the source of a flow says."""

    acls: KnownAcls | None
    """None: the cluster has no authorizer."""
    open_without_acl: bool
    """A resource without an ACL may be open to everybody (``allow.everyone.if.no.acl.found``, or it is not known)."""
    super_users: str | None
    """The value of ``super.users``; empty: it is set, and brokers hide the value; None: no broker sets it."""
    producers: Mapping[TopicPartition, Sequence[ActiveProducer]]
    """What the leaders remember, of the chosen topics."""
    transactions: Sequence[SeenTransaction]
    """All that the cluster shows us, of any topic."""
    sizes: Mapping[str, str | None]
    """By chosen topic, its own value of ``max.message.bytes``; None: it has none of its own."""
    unknown: Sequence[str] = field(default=())
    """What the cluster did not say, each a sentence with its remedy."""
