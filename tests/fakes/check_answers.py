"""What two clusters answer to a check when all is well, and settings of the flow ``A->B``; tests change parts of it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from deploy.local.broker_settings import render_properties
from mm2py.checks.checked_topics import CheckedTopic, checked_topics
from mm2py.checks.facts import BootstrapAnswer, BrokerAnswer, ClusterAnswers, FlowAnswers, GroupAnswer, TopicAnswer
from mm2py.checks.questions import REQUESTS
from mm2py.checks.rights import RightsNeed, rights_needed
from mm2py.config.configuration import load_configuration
from mm2py.config.settings import Configuration
from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.security.settings import PLAINTEXT, Security
from mm2py.topics.topic_configs import ConfigSource, TopicConfigEntry

FLOW = Flow(ClusterAlias("A"), ClusterAlias("B"))
EVERYTHING = frozenset({"CREATE", "READ", "WRITE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"})
VERSIONS = {key: versions for key, (_, versions) in REQUESTS.items()}
NOW_MS = 1_764_000_000_000


def configuration(**extra: Any) -> Configuration:
    """Return the configuration of a file with the flow ``A->B``, as it is read."""
    lines = {
        "clusters": "A,B",
        "A.bootstrap.servers": "a1:9092",
        "B.bootstrap.servers": "b1:9092",
        "A->B.enabled": True,
        "A->B.topics": "orders.*",
        "emit.checkpoints.enabled": False,
        "emit.heartbeats.enabled": False,
        "sync.topic.acls.enabled": False,
        "sync.topic.configs.enabled": False,
        **extra,
    }
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "mm2.properties"
        path.write_text(render_properties(lines))
        return load_configuration(path, None)


def broker(number: int = 1, **changes: Any) -> BrokerAnswer:
    """Return what a broker of version 4.3, half a millisecond away, answers."""
    found = BrokerAnswer(number, f"a{number}:9092", None, VERSIONS, 30, 0.0005)
    return replace(found, **changes)


def cluster(alias: str = "A", *, security: Security = PLAINTEXT, **changes: Any) -> ClusterAnswers:
    """Return what a cluster of one broker without an authorizer answers."""
    found = ClusterAnswers(
        alias,
        ClusterAlias(alias),
        security,
        "User:mirror",
        None,
        (BootstrapAnswer(f"{alias.lower()}1:9092", f"id-{alias}"),),
        f"id-{alias}",
        (broker(),),
        {
            "message.max.bytes": "1048588",
            "log.retention.ms": None,
            "log.retention.hours": "168",
            "log.retention.bytes": "-1",
            "log.cleanup.policy": "delete",
            "socket.send.buffer.bytes": "102400",
            "socket.receive.buffer.bytes": "102400",
            "transaction.state.log.replication.factor": "1",
        },
        None,
        EVERYTHING,
        False,
        True,
    )
    return replace(found, **changes)


def topic(name: str, configs: Mapping[str, str] | None = None, **changes: Any) -> TopicAnswer:
    """Return what a cluster tells about a topic of three partitions. ``configs``: over Kafka's defaults."""
    defaults = {
        "max.message.bytes": "1048588",
        "retention.ms": "604800000",
        "retention.bytes": "-1",
        "cleanup.policy": "delete",
        "min.insync.replicas": "1",
    }
    entries = {
        key: TopicConfigEntry(
            key, value, ConfigSource.DEFAULT if value == defaults.get(key) else ConfigSource.DYNAMIC_TOPIC
        )
        for key, value in {**defaults, **(configs or {})}.items()
    }
    found = TopicAnswer(name, True, False, 3, (), 1, EVERYTHING, entries)
    return replace(found, **changes)


def missing(name: str, operations: frozenset[str] | None = EVERYTHING) -> TopicAnswer:
    """Return what a cluster tells about a topic that it does not have."""
    return TopicAnswer(name, False, operations=operations)


def hidden(name: str) -> TopicAnswer:
    """Return what a cluster tells about a topic that the user may not describe."""
    return TopicAnswer(name, False, is_hidden=True)


def flow_answers(settings: Configuration | None = None, **changes: Any) -> FlowAnswers:
    """Return what both clusters tell about the flow: two topics, no remote topics, all internal topics."""
    settings = settings or configuration()
    there = wanted(settings)
    found = FlowAnswers(
        settings.flows[0],
        cluster("A"),
        cluster("B"),
        selected=("orders", "orders.eu"),
        source_topics={
            **{name: topic(name) for name in ("orders", "orders.eu")},
            **{one.name: internal(one) for one in there if one.on_source},
        },
        target_topics={
            **{name: missing(name) for name in ("A.orders", "A.orders.eu")},
            **{one.name: internal(one) for one in there if not one.on_source},
            "__transaction_state": topic("__transaction_state"),
        },
        target_groups={"A-mm2": GroupAnswer("A-mm2", is_denied=False, operations=EVERYTHING)},
        transactional_id_denied=False,
    )
    return replace(found, **changes)


def internal(one: CheckedTopic, configs: Mapping[str, str] | None = None, **changes: Any) -> TopicAnswer:
    """Return an internal topic as mm2py creates it."""
    found = topic(one.name, {**one.topic.configs, **(configs or {})}, partitions=one.topic.partitions)
    return replace(found, **changes)


def wanted(settings: Configuration) -> list[CheckedTopic]:
    """Return the internal topics of the flow."""
    groups = settings.groups
    return checked_topics(settings.flows[0], groups[FLOW.target], settings.heartbeats, groups.get(FLOW.source))


def needs(settings: Configuration, answers: FlowAnswers) -> list[RightsNeed]:
    """Return the rights that the flow needs."""
    return rights_needed(
        settings.flows[0],
        settings.heartbeats,
        topics=answers.selected,
        source_groups=sorted(answers.source_groups),
        worker_group_there="mm2py",
    )
