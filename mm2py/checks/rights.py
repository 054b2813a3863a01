"""The rights that mm2py needs, by feature: the table of docs/rights.md, and what one flow needs of it. Pure.

MirrorMaker 2 has no such table: KIP-382 names the ACLs of its principal in prose.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from mm2py.checks.checked_topics import heartbeats_on_source, own_heartbeats
from mm2py.checks.facts import FlowAnswers
from mm2py.config.settings import FlowSettings, HeartbeatSettings
from mm2py.flow import ClusterAlias
from mm2py.topics.acls import Operation
from mm2py.topics.names import HEARTBEATS, control_log, recovery_topic

ResourceKind = Literal["topic", "group", "transactional id", "cluster"]
COPYING: Final = "copying"
NAMES_A_COMMAND: Final = 20
"""How many topics or groups one command names."""
PLACEHOLDER: Final = "User:PRINCIPAL"


@dataclass(frozen=True, slots=True)
class RightsRow:
    """One row of docs/rights.md."""

    purpose: str
    on: Literal["A", "B"]
    kind: ResourceKind
    name: str
    """With the placeholders of the page; ``*`` at its end is a prefix; empty: the cluster."""
    operations: tuple[str, ...]
    code: str = ""
    """The check that asks for it; empty: no flow of a worker needs it."""


_ALL: Final = ("CREATE", "READ", "WRITE", "DESCRIBE_CONFIGS")


def _on_both(purpose: str, kind: ResourceKind, name: str, operations: tuple[str, ...]) -> tuple[RightsRow, RightsRow]:
    """Return a row for each cluster: what needs it goes in both directions."""
    return RightsRow(purpose, "A", kind, name, operations), RightsRow(purpose, "B", kind, name, operations)


RIGHTS: Final = (
    RightsRow(COPYING, "A", "topic", "TOPIC", ("READ", "DESCRIBE_CONFIGS"), "MM0401"),
    RightsRow(COPYING, "B", "topic", "A.TOPIC", ("CREATE", "READ", "WRITE", "ALTER", "DESCRIBE_CONFIGS"), "MM0402"),
    RightsRow(COPYING, "B", "topic", "mm2-configs.A.internal", _ALL, "MM0403"),
    RightsRow(COPYING, "B", "topic", "mm2-offsets.A.internal", _ALL, "MM0403"),
    RightsRow(COPYING, "B", "topic", "mm2-status.A.internal", _ALL, "MM0403"),
    RightsRow(COPYING, "B", "topic", "mm2-ledger.A.internal", _ALL, "MM0403"),
    RightsRow(COPYING, "B", "topic", "mm2-cluster.NAME.internal", _ALL, "MM0403"),
    RightsRow(COPYING, "B", "transactional id", "mm2py-NAME-*", ("WRITE",), "MM0404"),
    RightsRow(COPYING, "B", "group", "A-mm2", ("DESCRIBE",), "MM0405"),
    RightsRow(COPYING, "B", "cluster", "", ("DESCRIBE_CONFIGS",), "MM0406"),
    RightsRow(COPYING, "B", "topic", "mm2-recovery.*", ("DESCRIBE",), "MM0403"),
    RightsRow("flight recorder", "B", "topic", "mm2-flight.A.internal", ("CREATE", "WRITE"), "MM0415"),
    RightsRow("history", "B", "topic", "mm2-history.A.internal", ("CREATE", "READ", "WRITE"), "MM0416"),
    RightsRow("history", "B", "topic", "mm2-flight.A.internal", ("READ",), "MM0416"),
    RightsRow(
        "offset syncs", "A", "topic", "mm2-offset-syncs.B.internal", ("CREATE", "WRITE", "DESCRIBE_CONFIGS"), "MM0407"
    ),
    RightsRow("groups", "A", "group", "GROUP", ("DESCRIBE",), "MM0408"),
    RightsRow("groups", "A", "topic", "mm2-offset-syncs.B.internal", ("READ",), "MM0408"),
    RightsRow("groups", "B", "group", "GROUP", ("READ",), "MM0408"),
    RightsRow("groups", "B", "topic", "A.checkpoints.internal", _ALL, "MM0408"),
    RightsRow("heartbeats", "B", "topic", "heartbeats", ("CREATE", "WRITE", "DESCRIBE_CONFIGS"), "MM0409"),
    RightsRow("heartbeats on the source", "A", "topic", "heartbeats", _ALL, "MM0410"),
    RightsRow("heartbeats on the source", "A", "topic", "mm2-cluster.NAME.internal", _ALL, "MM0410"),
    RightsRow("heartbeats on the source", "A", "cluster", "", ("DESCRIBE_CONFIGS",), "MM0410"),
    RightsRow("heartbeats on the source", "B", "topic", "A.heartbeats", _ALL, "MM0410"),
    RightsRow("configurations", "B", "topic", "A.TOPIC", ("ALTER_CONFIGS",), "MM0411"),
    RightsRow("ACLs", "A", "cluster", "", ("DESCRIBE",), "MM0412"),
    RightsRow("ACLs", "A", "topic", "mm2-dr-fences.internal", ("READ",), "MM0412"),
    RightsRow("ACLs", "B", "cluster", "", ("ALTER",), "MM0412"),
    RightsRow("quarantine", "B", "topic", "mm2-quarantine.A.internal", _ALL, "MM0413"),
    RightsRow("quarantine", "B", "cluster", "", ("DESCRIBE",), "MM0413"),
    RightsRow("rings", "A", "topic", "mm2-configs.*", ("READ",), "MM0414"),
    RightsRow("rings", "A", "topic", "mm2-offsets.*", ("READ",), "MM0414"),
    RightsRow("backfill and verify", "A", "cluster", "", ("DESCRIBE",)),
    RightsRow("backfill and verify", "B", "topic", "mm2-quarantine.A.internal", ("DESCRIBE",)),
    RightsRow("fence", "A", "cluster", "", ("ALTER", "DESCRIBE_CONFIGS")),
    RightsRow("fence", "A", "topic", "TOPIC", ("READ", "DESCRIBE_CONFIGS")),
    RightsRow("fence", "A", "transactional id", "ID", ("WRITE",)),
    RightsRow("fence", "A", "topic", "mm2-dr-fences.internal", _ALL),
    RightsRow("fence", "B", "topic", "mm2-dr-fences.internal", _ALL),
    RightsRow("fence", "B", "topic", "mm2-configs.A.internal", ("READ",)),
    RightsRow("fence", "A", "topic", "mm2-recovery.*", ("DESCRIBE",)),
    RightsRow("fence", "B", "topic", "mm2-recovery.*", ("DESCRIBE",)),
    *_on_both("recoveries", "topic", "mm2-recovery.*", _ALL),
    *_on_both("recoveries", "transactional id", "mm2py-dr.*", ("WRITE",)),
    *_on_both("recoveries", "transactional id", "mm2py-NAME-*", ("WRITE",)),
    *_on_both("recoveries", "topic", "mm2-configs.*", ("READ", "WRITE", "DESCRIBE_CONFIGS")),
    *_on_both("recoveries", "topic", "mm2-offsets.*", ("READ", "WRITE")),
    *_on_both("recoveries", "topic", "mm2-ledger.*", ("READ",)),
    *_on_both("recoveries", "topic", "mm2-cluster.*", ("READ",)),
    *_on_both("recoveries", "group", "GROUP", ("READ",)),
    RightsRow("recoveries", "A", "group", "B-mm2", ("DESCRIBE",)),
    RightsRow("recoveries", "B", "group", "A-mm2", ("DESCRIBE",)),
    RightsRow("recoveries", "B", "topic", "A.TOPIC", ("WRITE",)),
    RightsRow("failover", "B", "topic", "mm2-recovery.*", _ALL),
    RightsRow("failover", "B", "transactional id", "mm2py-dr.*", ("WRITE",)),
    RightsRow("failover", "B", "topic", "mm2-dr-fences.internal", ("READ", "WRITE", "DESCRIBE_CONFIGS")),
    RightsRow("failover", "B", "topic", "A.checkpoints.internal", ("READ",)),
    RightsRow("failover", "B", "group", "GROUP", ("READ",)),
    RightsRow("failover", "B", "cluster", "", ("DESCRIBE",)),
    RightsRow("drill", "A", "topic", "TOPIC", ("READ", "DESCRIBE_CONFIGS")),
    RightsRow("drill", "A", "group", "GROUP", ("DESCRIBE",)),
    RightsRow("drill", "A", "topic", "mm2-ledger.B.internal", ("READ",)),
    RightsRow("drill", "B", "topic", "A.TOPIC", ("READ", "DESCRIBE_CONFIGS")),
    RightsRow("drill", "B", "group", "GROUP", ("DESCRIBE",)),
    RightsRow("drill", "B", "group", "mm2py-drill.*", ("READ", "DELETE")),
    RightsRow("drill", "B", "topic", "A.checkpoints.internal", ("READ",)),
    RightsRow("drill", "B", "topic", "mm2-configs.A.internal", ("READ",)),
    RightsRow("drill", "B", "topic", "mm2-ledger.A.internal", ("READ",)),
    RightsRow("drill", "B", "topic", "mm2-status.A.internal", ("READ",)),
    RightsRow("drill", "B", "topic", "mm2-quarantine.A.internal", ("DESCRIBE",)),
    *_on_both("drill", "topic", "mm2-drills.*", ("CREATE", "WRITE", "DESCRIBE_CONFIGS")),
    *_on_both("drill", "cluster", "", ("DESCRIBE",)),
    RightsRow("looking", "A", "topic", "TOPIC", ("DESCRIBE",)),
    RightsRow("looking", "A", "group", "GROUP", ("DESCRIBE",)),
    RightsRow("looking", "A", "topic", "mm2-offset-syncs.B.internal", ("READ",)),
    RightsRow("looking", "B", "topic", "A.TOPIC", ("DESCRIBE",)),
    RightsRow("looking", "B", "group", "GROUP", ("DESCRIBE",)),
    RightsRow("looking", "B", "topic", "mm2-cluster.NAME.internal", ("READ",)),
    RightsRow("looking", "B", "topic", "mm2-configs.A.internal", ("READ",)),
    RightsRow("looking", "B", "topic", "mm2-offsets.A.internal", ("READ",)),
    RightsRow("looking", "B", "topic", "mm2-status.A.internal", ("READ",)),
    RightsRow("looking", "B", "topic", "mm2-ledger.A.internal", ("READ",)),
    RightsRow("looking", "B", "topic", "mm2-flight.A.internal", ("READ",)),
    RightsRow("looking", "B", "topic", "A.checkpoints.internal", ("READ",)),
    RightsRow("looking", "B", "topic", "mm2-recovery.*", ("DESCRIBE",)),
    RightsRow("application", "B", "topic", "A.TOPIC", ("DESCRIBE",)),
    RightsRow("application", "B", "topic", "mm2-ledger.A.internal", ("READ",)),
    RightsRow("application", "B", "topic", "A.checkpoints.internal", ("READ",)),
)


def rights_table() -> list[str]:
    """Return the lines of the table in docs/rights.md."""
    lines = ["| for | on | resource | operations |", "| --- | --- | --- | --- |"]
    for row in RIGHTS:
        resource = f"{row.kind} `{row.name}`" if row.name else row.kind
        lines.append(f"| {row.purpose} | {row.on} | {resource} | {', '.join(row.operations)} |")
    return lines


@dataclass(frozen=True, slots=True)
class RightsNeed:
    """What one row means for one flow."""

    row: RightsRow
    on_source: bool
    names: tuple[str, ...]
    """The resources, each of which is asked about; empty: the cluster, or groups of which none is shown."""

    @property
    def is_prefix(self) -> bool:
        """Whether the right is granted on a prefix, of which the names are examples."""
        return self.row.name.endswith("*")


def rights_needed(
    settings: FlowSettings,
    heartbeats: Sequence[HeartbeatSettings],
    *,
    topics: Sequence[str],
    source_groups: Sequence[str],
    worker_group_there: str,
) -> list[RightsNeed]:
    """Return the rights that the enabled features of a flow need.

    Args:
        heartbeats: all of the file.
        topics: the topics of the source that the flow copies.
        source_groups: the consumer groups of the source that it follows.
        worker_group_there: the group of workers that writes heartbeats to the source.
    """
    purposes = _purposes(settings, heartbeats)
    names = _names(settings, worker_group_there)
    found: list[RightsNeed] = []
    for row in RIGHTS:
        if not row.code or row.purpose not in purposes:
            continue
        on_source = row.on == "A"
        if row.name == "TOPIC":
            own = tuple(topics)
        elif row.name == "A.TOPIC":
            own = tuple(settings.remote_topic(topic) for topic in topics)
        elif row.name == "GROUP":
            if not on_source and (settings.checkpoints is None or settings.checkpoints.group_sync is None):
                continue  # nothing is committed on the target
            own = tuple(source_groups)
        else:
            own = (names[row.on, row.name],) if row.name else ()
        if row.name == "mm2-offset-syncs.B.internal" and settings.offset_syncs is not None:
            own, on_source = (settings.offset_syncs.topic,), settings.offset_syncs.on_source
        is_of_groups = row.kind == "group" and on_source  # those that the user may not describe are not shown
        if row.kind != "cluster" and not own and not is_of_groups:
            continue
        found.append(RightsNeed(row, on_source, own))
    return found


def _purposes(settings: FlowSettings, heartbeats: Sequence[HeartbeatSettings]) -> set[str]:
    acls_s, configs_s = settings.sync_topic_acls_interval_s, settings.sync_topic_configs_interval_s
    enabled = {
        COPYING: True,
        "flight recorder": True,
        "history": True,
        "rings": True,
        "offset syncs": settings.offset_syncs is not None,
        "groups": settings.checkpoints is not None,
        "heartbeats": own_heartbeats(settings.flow, heartbeats) is not None,
        "heartbeats on the source": heartbeats_on_source(settings.flow, heartbeats) is not None,
        "configurations": configs_s is not None and not settings.sync_topic_configs_dry_run,
        "ACLs": acls_s is not None and not settings.sync_topic_acls_dry_run,
        "quarantine": settings.quarantines,
    }
    return {purpose for purpose, is_on in enabled.items() if is_on}


def _names(settings: FlowSettings, worker_group_there: str) -> Mapping[tuple[str, str], str]:
    """Return what the names of the page are for a flow, by cluster and name."""
    source, target = settings.flow.source, settings.flow.target
    checkpoints = settings.checkpoints.topic if settings.checkpoints is not None else ""
    fixed: dict[tuple[str, str], str] = {
        ("B", "mm2-configs.A.internal"): settings.configs_topic,
        ("B", "mm2-offsets.A.internal"): settings.offsets_topic,
        ("B", "mm2-status.A.internal"): settings.status_topic,
        ("B", "A-mm2"): settings.mm2_group_id,
        ("B", "A.checkpoints.internal"): checkpoints,
        ("B", "A.heartbeats"): settings.remote_topic(HEARTBEATS),
        ("A", "mm2-cluster.NAME.internal"): str(control_log(worker_group_there, producer_expiry_ms=0).name),
        ("A", "mm2-configs.*"): f"mm2-configs.{target}.internal",
        ("A", "mm2-offsets.*"): f"mm2-offsets.{target}.internal",
        ("B", "mm2-recovery.*"): str(recovery_topic(settings.flow).name),
        ("B", "mm2py-NAME-*"): f"mm2py-{settings.group}-check",
    }
    others: dict[tuple[str, str], str] = {
        (row.on, row.name): _filled(row.name, source, target, settings.group) for row in RIGHTS
    }
    return {**others, **fixed}


def _filled(name: str, source: ClusterAlias, target: ClusterAlias, group: str) -> str:
    words = {"A": source, "B": target, "NAME": group}
    return re.sub(r"\b(?:A|B|NAME)\b", lambda word: words[word[0]], name)


def missing_operations(
    need: RightsNeed, told: frozenset[str] | None, *, is_there: bool, may_create_all: bool
) -> list[str] | None:
    """Return the operations of a row that are missing on one resource; None: they are not told.

    Args:
        told: what the user may do on the resource.
        is_there: the topic exists, so CREATE is not needed.
        may_create_all: the user may create every topic.
    """
    if told is None:
        return None
    needed = [one for one in need.row.operations if not (one == "CREATE" and (is_there or may_create_all))]
    return [one for one in needed if one not in told]


def operations_of(bits: int) -> frozenset[str]:
    """Return the names of the operations that a broker's answer allows, as far as mm2py has names for them."""
    return frozenset(one.name for one in Operation if bits >> one.value & 1)


def grants(
    need: RightsNeed, names: Sequence[str], answers: FlowAnswers, *, operations: Iterable[str] | None = None
) -> tuple[str, ...]:
    """Return the commands that grant the operations of a row on these resources.

    Args:
        operations: others than all of the row.
    """
    cluster = answers.source if need.on_source else answers.target
    words = [f"--operation {_option(one)}" for one in operations or need.row.operations]
    head = (
        f"kafka-acls --bootstrap-server {cluster.first_address} --add"
        f" --allow-principal {shlex.quote(cluster.principal)} {' '.join(words)}"
    )
    if need.row.kind == "cluster":
        return (f"{head} --cluster",)
    option = {"topic": "--topic", "group": "--group", "transactional id": "--transactional-id"}[need.row.kind]
    if need.is_prefix:
        prefix = _prefix_of(need, answers.settings.group)
        return (f"{head} {option} {shlex.quote(prefix)} --resource-pattern-type prefixed",)
    return tuple(
        f"{head} {' '.join(f'{option} {shlex.quote(name)}' for name in names[at : at + NAMES_A_COMMAND])}"
        for at in range(0, len(names), NAMES_A_COMMAND)
    )


def _prefix_of(need: RightsNeed, group: str) -> str:
    return need.row.name.removesuffix("*").replace("NAME", group)


def _option(operation: str) -> str:
    """Return ``DESCRIBE_CONFIGS`` as ``kafka-acls`` takes it: ``DescribeConfigs``."""
    return "".join(word.capitalize() for word in operation.split("_"))
