"""Names and layouts of the topics that mm2py and MM2 keep for themselves, and how to know them wherever they turn up.

Three groups: what the replication policy names (offset syncs, checkpoints, heartbeats), Kafka Connect's three stores,
which always use ``.``, and mm2py's own. None of them is ever mirrored, whatever separator and filters say, except
heartbeats, whose copies prove the path.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from mm2py.flow import ClusterAlias, TopicName
from mm2py.topics.replication_policy import DEFAULT_SEPARATOR

FENCE_TOPIC = TopicName("mm2-fence.internal")

COMPACT = {"cleanup.policy": "compact"}
QUARANTINED_MAX_BYTES = 100 * 1024 * 1024
"""Kafka's default for ``socket.request.max.bytes``: brokers close a connection over which more is sent at once."""
DAY_MS = 24 * 60 * 60 * 1000
CONTROL_LOG_RETENTION_MS = 7 * DAY_MS
CONTROL_LOG_SEGMENT_MS = 60 * 60 * 1000
CONTROL_LOG_MESSAGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """What to create when the topic is not there."""

    name: TopicName
    partitions: int
    configs: Mapping[str, str] = field(default_factory=lambda: dict(COMPACT))


def quarantine(source_alias: ClusterAlias) -> InternalTopic:
    """Records that the target refused, kept until an operator has looked at them: nothing expires.

    Its timestamps are ours, and its records may be as large as a request to a broker with default settings.
    """
    return InternalTopic(
        TopicName(f"mm2-quarantine.{source_alias}.internal"),
        partitions=1,
        configs={
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "max.message.bytes": str(QUARANTINED_MAX_BYTES),
            "message.timestamp.type": "CreateTime",
        },
    )


def control_log(group: str, *, producer_expiry_ms: int) -> InternalTopic:
    """Where the workers of a group join, beat and claim leadership.

    Cleaned by deletion, not compaction: all readers must see the same records. It outlives twice the time after which
    the target forgets a producer, ``producer_expiry_ms``. min.insync.replicas depends on the brokers there are.
    """
    return InternalTopic(
        TopicName(f"mm2-cluster.{group}.internal"),
        partitions=1,
        configs={
            "cleanup.policy": "delete",
            "retention.ms": str(max(CONTROL_LOG_RETENTION_MS, 2 * producer_expiry_ms)),
            "retention.bytes": "-1",
            "segment.ms": str(CONTROL_LOG_SEGMENT_MS),
            "max.message.bytes": str(CONTROL_LOG_MESSAGE_BYTES),
            "message.timestamp.type": "LogAppendTime",
            "unclean.leader.election.enable": "false",
        },
    )


def fence_topic() -> InternalTopic:
    """The partition of empty aborted transactions that keep a transactional id alive; nobody produces data to it."""
    return InternalTopic(
        FENCE_TOPIC,
        partitions=1,
        configs={"cleanup.policy": "delete", "retention.ms": str(DAY_MS)},
    )


_ALWAYS_DOTTED = re.compile(
    r"mm2-(?:(?:offsets|configs|status|ledger|quarantine|cluster)\..+\.internal|fence\.internal)", re.DOTALL
)
_OFFSET_SYNCS = "mm2-offset-syncs"


def is_own_topic(name: str, separators: Collection[str] = ()) -> bool:
    """Return whether mm2py or MM2 writes the topic for itself, here or on the cluster it was mirrored from.

    Args:
        name: with or without hops in front; a hop ends with any separator that is no letter or digit.
        separators: those in use besides ``.``; only they, and ``.``, make a checkpoints topic.

    Known by layout, not by owner: a user's topic ``team.mm2-status.x.internal`` is taken for one of these. The name
    ``mm2-offsets_A_internal`` is not: Connect's stores never have another separator than ``.``.
    """
    if not name.endswith("internal"):
        return False
    known = {DEFAULT_SEPARATOR, *separators}
    if any(name.endswith(f"{separator}checkpoints{separator}internal") for separator in known):
        return True
    return any(
        _ALWAYS_DOTTED.fullmatch(bare) is not None or _is_offset_syncs(bare) for bare in _without_hops(name, known)
    )


def _without_hops(name: str, separators: Collection[str]) -> Iterator[str]:
    """Yield what the name may be called at home, for every place at which a hop may end."""
    for start in re.finditer("mm2-", name):
        before = name[: start.start()]
        if not before or not before[-1].isalnum() or before.endswith(tuple(separators)):
            yield name[start.start() :]


def _is_offset_syncs(bare: str) -> bool:
    """``mm2-offset-syncs`` S alias S ``internal``, whatever the separator S is."""
    if not bare.startswith(_OFFSET_SYNCS) or not bare.endswith("internal"):
        return False
    middle = bare[len(_OFFSET_SYNCS) : -len("internal")]
    longest = (len(middle) - 1) // 2
    return any(middle.startswith(middle[-length:]) for length in range(1, longest + 1))
