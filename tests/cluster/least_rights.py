"""Two clusters that allow nothing by default, and users who have only the rights that docs/rights.md names.

The brokers log each decision of their authorizer. So a test sees both: what was denied, and which right was never used.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from deploy.local.jvm import QUICK_START
from deploy.local.kafka import KafkaCluster, start_clusters
from tests.cluster.kafka_client import admin
from tests.cluster.running import ANSWER_S, ROOT, Value, one_way_properties

PAGE: Final = ROOT / "docs" / "rights.md"
USERS: Final = tuple(f"user{number}" for number in range(16))
"""Brokers learn them at their start. Each scene takes the next one."""
PASSWORD: Final = "canary-password"  # noqa: S105
_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_KINDS: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}
_LOGGED_KINDS: Final = {
    "Topic": "topic",
    "Group": "group",
    "TransactionalId": "transactional id",
    "Cluster": "cluster",
}
_FILTERED: Final = frozenset({"ListTransactions"})
"""The broker looks at every transaction that it has, and leaves out those of others."""
_ONLY_WHILE_AWAY: Final = frozenset({"__transaction_state"})
"""Asked about only while no transaction coordinator answers. If it may not be seen, it counts as there."""
_ROW: Final = re.compile(
    r"\| (?P<purpose>[^|]+) \| (?P<on>[AB]) \| (?P<kind>[a-z ]+?)(?: `(?P<name>[^`]+)`)? \| (?P<rights>[A-Z_, ]+) \|"
)
_DECISION: Final = re.compile(
    r"Principal = User:(?P<user>\S+) is (?P<decision>Allowed|Denied) operation = (?P<right>\S+) from host = \S+ "
    r"on resource = (?P<kind>\w+):LITERAL:(?P<name>.+?) for request = (?P<request>\w+)"
)


@dataclass(frozen=True, slots=True)
class Right:
    """One operation of a row of the page; ``name`` ends with ``*`` for a prefix, and is ``*`` for all."""

    on: str
    kind: str
    name: str
    operation: str

    @property
    def is_prefix(self) -> bool:
        return self.name != "*" and self.name.endswith("*")

    def covers(self, decision: Decision) -> bool:
        is_named = decision.name.startswith(self.name[:-1]) if self.name.endswith("*") else decision.name == self.name
        return is_named and (decision.kind, decision.right) == (self.kind, self.operation)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a broker's authorizer decided about one operation of a user."""

    user: str
    allowed: bool
    right: str
    kind: str
    name: str
    request: str


def _rows() -> list[re.Match[str]]:
    return [row for line in PAGE.read_text().splitlines() if (row := _ROW.fullmatch(line)) is not None]


def purposes() -> set[str]:
    """Return what the page's rows are for."""
    return {row["purpose"] for row in _rows()}


def rights_of(purposes: Collection[str], names: Mapping[str, str]) -> list[Right]:
    """Return the rights that the page names for these purposes, with names for its placeholders.

    Raises:
        AssertionError: the page has no row for one of the purposes.
    """
    rows = _rows()
    missing = {*purposes} - {row["purpose"] for row in rows}
    assert not missing, f"{PAGE.name} has no row for {missing}"

    def named(row: re.Match[str]) -> str:
        return re.sub(r"\b[A-Z]+\b", lambda word: names.get(word[0], word[0]), row["name"] or "kafka-cluster")

    return [
        Right(row["on"], row["kind"], named(row), operation)
        for row in rows
        if row["purpose"] in purposes
        for operation in row["rights"].split(", ")
    ]


class GuardedPair:
    """Source and target, each with one node, on which only the super user of the tests has rights."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster) -> None:
        self.source, self.target = source, target
        self._users = iter(USERS)

    def grant(self, rights: Collection[Right]) -> str:
        """Grant the rights to a user who has none yet, and return the name."""
        user = next(self._users)
        for alias, cluster in (("A", self.source), ("B", self.target)):
            client = admin(cluster)
            rules = [
                AclBinding(
                    _KINDS[one.kind],
                    one.name.removesuffix("*") or "*",
                    ResourcePatternType.PREFIXED if one.is_prefix else ResourcePatternType.LITERAL,
                    f"User:{user}",
                    "*",
                    AclOperation[one.operation],
                    AclPermissionType.ALLOW,
                )
                for one in dict.fromkeys(rights)
                if one.on == alias
            ]
            for made in client.create_acls(rules).values() if rules else ():
                made.result(ANSWER_S)
        return user

    def properties(self, user: str, alias: str, **extra: Value) -> dict[str, Value]:
        """Return a file for the flow ``<alias>->B`` that connects as the user."""
        found = one_way_properties(
            self.source.bootstrap_for("SASL"), self.target.bootstrap_for("SASL"), names=(alias, "B")
        )
        for name in (alias, "B"):
            found |= {
                f"{name}.security.protocol": "SASL_PLAINTEXT",
                f"{name}.sasl.mechanism": "PLAIN",
                f"{name}.sasl.jaas.config": f'{_LOGIN} username="{user}" password="{PASSWORD}";',
            }
        own = {
            "config.storage.replication.factor": 1,
            "sync.topic.acls.enabled": False,
            "sync.topic.configs.enabled": False,
        }
        return found | own | extra

    def decisions(self, user: str) -> dict[str, list[Decision]]:
        """Return what the brokers decided so far about this user, by A and B."""
        return {
            alias: list(
                dict.fromkeys(
                    Decision(
                        found["user"],
                        found["decision"] == "Allowed",
                        found["right"],
                        _LOGGED_KINDS[found["kind"]],
                        found["name"],
                        found["request"],
                    )
                    for broker in cluster.brokers
                    for found in _DECISION.finditer(broker.log_path.read_text())
                    if found["user"] == user
                )
            )
            for alias, cluster in (("A", self.source), ("B", self.target))
        }


def assert_least(pair: GuardedPair, user: str, rights: Collection[Right]) -> None:
    """Assert that a broker denied the user nothing, and that the user made use of each right."""
    decisions = pair.decisions(user)
    denied = [
        (alias, one)
        for alias, found in decisions.items()
        for one in found
        if not one.allowed and one.request not in _FILTERED and one.name not in _ONLY_WHILE_AWAY
    ]
    assert not denied, denied
    unused = [right for right in rights if not any(one.allowed and right.covers(one) for one in decisions[right.on])]
    assert not unused, unused


@contextmanager
def guarded_pair() -> Iterator[GuardedPair]:
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f"{_LOGIN} {users};",
    }
    listeners = {"PLAINTEXT": "PLAINTEXT", "SASL": "SASL_PLAINTEXT"}
    logging = "-Dorg.slf4j.simpleLogger.log.kafka.authorizer.logger=debug"
    clusters = [
        KafkaCluster(name, settings=settings, listeners=listeners, jvm_options=(*QUICK_START, logging))
        for name in ("strict-source", "strict-target")
    ]
    with start_clusters(clusters) as (source, target):
        yield GuardedPair(source, target)
