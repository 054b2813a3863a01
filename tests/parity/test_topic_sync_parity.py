"""Which settings and ACLs a remote topic gets, beside MirrorMaker 2's own classes; they differ only where we say so."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway

from mm2py.flow import ClusterAlias, TopicName
from mm2py.topics.acls import ANY_TOPIC, AclLeftOut, AclPlan, Operation, Pattern, Permission, TopicAcl, plan_acls
from mm2py.topics.filters import TopicFilter, should_replicate
from mm2py.topics.names import remote_name_problem
from mm2py.topics.topic_configs import (
    TIMESTAMP_LIMITS,
    ConfigPropertyFilter,
    ConfigSource,
    TopicConfigEntry,
    config_changes,
)
from tests.parity.test_policies_parity import (
    java_map,
    java_objects,
    java_policy,
    our_policy,
    reflected,
    source_connector,
)

JAVA_SOURCES = {
    ConfigSource.DYNAMIC_TOPIC: "DYNAMIC_TOPIC_CONFIG",
    ConfigSource.DYNAMIC_BROKER: "DYNAMIC_BROKER_CONFIG",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    ConfigSource.STATIC_BROKER: "STATIC_BROKER_CONFIG",
    ConfigSource.DEFAULT: "DEFAULT_CONFIG",
    ConfigSource.UNKNOWN: "UNKNOWN",
}
SETTINGS = ["retention.ms", "min.insync.replicas", "cleanup.policy", *TIMESTAMP_LIMITS]


def java_entry(jvm: JavaGateway, entry: TopicConfigEntry) -> Any:
    admin = jvm.jvm.org.apache.kafka.clients.admin
    source = getattr(admin.ConfigEntry.ConfigSource, JAVA_SOURCES[ConfigSource(entry.source)])
    return admin.ConfigEntry(
        *(entry.name, entry.value, source, entry.sensitive, entry.read_only),
        *(jvm.jvm.java.util.ArrayList(), admin.ConfigEntry.ConfigType.STRING, ""),
    )


@pytest.mark.parametrize("exclude", [None, "retention\\..*", ""])
@pytest.mark.parametrize("use_defaults_from", ["target", "source", "else"])
def test_a_sync_sets_and_deletes_what_mm2_would(jvm: JavaGateway, use_defaults_from: str, exclude: str | None) -> None:
    """The remote topic has every setting of its own, with another value, so that nothing is left out as done."""
    java_filter = jvm.jvm.org.apache.kafka.connect.mirror.DefaultConfigPropertyFilter()
    texts = {"use.defaults.from": use_defaults_from}
    java_filter.configure(java_map(jvm, texts | ({} if exclude is None else {"config.properties.exclude": exclude})))
    connector = source_connector(jvm, java_policy(jvm, "Default", "A", None, None), None, java_filter, True)
    target_config = reflected(jvm, "MirrorSourceConnector", "getDeclaredMethods", "targetConfig", 2)
    ours = (
        ConfigPropertyFilter(use_defaults_from=use_defaults_from)
        if exclude is None
        else ConfigPropertyFilter([exclude] if exclude else [], use_defaults_from)
    )
    remote = [TopicConfigEntry(name, "by hand", ConfigSource.DYNAMIC_TOPIC) for name in SETTINGS]
    for name, source, read_only, sensitive in itertools.product(SETTINGS, JAVA_SOURCES, (False, True), (False, True)):
        entry = TopicConfigEntry(name, "value", source, read_only, sensitive)
        java_entries = jvm.jvm.java.util.ArrayList()
        java_entries.append(java_entry(jvm, entry))
        kept = target_config.invoke(
            connector, java_objects(jvm, jvm.jvm.org.apache.kafka.clients.admin.Config(java_entries), True)
        ).entries()
        expected = [
            (
                one.name(),
                None if one.isDefault() and not java_filter.shouldReplicateSourceDefault(one.name()) else "value",
            )
            for one in jvm.jvm.java.util.ArrayList(kept)
        ]
        if name in TIMESTAMP_LIMITS:
            expected = []  # our correction: only a looser one is carried over
        assert [(change.name, change.new) for change in config_changes([entry], remote, ours)] == expected, entry


def java_acl(jvm: JavaGateway, acl: TopicAcl) -> Any:
    common = jvm.jvm.org.apache.kafka.common
    return common.acl.AclBinding(
        common.resource.ResourcePattern(
            common.resource.ResourceType.TOPIC,
            acl.name,
            getattr(common.resource.PatternType, Pattern(acl.pattern).name),
        ),
        common.acl.AccessControlEntry(
            acl.principal,
            acl.host,
            getattr(common.acl.AclOperation, Operation(acl.operation).name),
            getattr(common.acl.AclPermissionType, Permission(acl.permission).name),
        ),
    )


def from_java(binding: Any) -> TopicAcl:
    pattern, entry = binding.pattern(), binding.entry()
    assert pattern.resourceType().name() == "TOPIC"
    return TopicAcl(
        pattern.name(),
        int(Pattern[pattern.patternType().name()]),
        entry.principal(),
        entry.host(),
        int(Operation[entry.operation().name()]),
        int(Permission[entry.permissionType().name()]),
    )


class Mm2:
    """What MM2's connector makes of one ACL, in the order of its pipeline."""

    def __init__(self, jvm: JavaGateway, policy: str, topics: str) -> None:
        java_filter = jvm.jvm.org.apache.kafka.connect.mirror.DefaultTopicFilter()
        java_filter.configure(java_map(jvm, {"topics": topics}))
        config_filter = jvm.jvm.org.apache.kafka.connect.mirror.DefaultConfigPropertyFilter()
        self._jvm = jvm
        self._connector = source_connector(
            jvm, java_policy(jvm, policy, "A", None, None), java_filter, config_filter, True
        )
        self._replicates_acl, self._replicates_topic, self._target = (
            reflected(jvm, "MirrorSourceConnector", "getDeclaredMethods", name, 1)
            for name in ("shouldReplicateAcl", "shouldReplicateTopic", "targetAclBinding")
        )

    def target_acl(self, acl: TopicAcl) -> TopicAcl | None:
        binding = java_acl(self._jvm, acl)
        if acl.pattern != Pattern.LITERAL or not self._ask(self._replicates_acl, binding):
            return None
        if not self._ask(self._replicates_topic, acl.name):
            return None
        return from_java(self._ask(self._target, binding))

    def _ask(self, method: Any, argument: object) -> Any:
        return method.invoke(self._connector, java_objects(self._jvm, argument))


NAMES = [
    "orders",
    "payroll",
    "A.orders",
    "target.orders",
    "heartbeats",
    "__consumer_offsets",
    "mm2-offsets.A.internal",
    "o r, ü",
]


@pytest.mark.parametrize("topics", [".*", "orders"])
@pytest.mark.parametrize("policy", ["Default", "Identity"])
def test_acls_become_what_mm2_makes_of_them_but_for_our_corrections(jvm: JavaGateway, policy: str, topics: str) -> None:
    mm2, ours, topic_filter = Mm2(jvm, policy, topics), our_policy(policy, "A", None, None), TopicFilter([topics])

    def replicates(name: str) -> bool:
        return should_replicate(
            TopicName(name),
            policy=ours,
            topic_filter=topic_filter,
            heartbeats_replication=True,
            target_alias=ClusterAlias("target"),
            aliases=(),
        ).replicate

    copied = [name for name in NAMES if name != "payroll" and remote_name_problem(name) is None]
    principals = itertools.cycle([("User:CN=Jane, OU=R&D, O=Wörks", "10.0.0.1"), ("User:*", "*")])
    many = 0
    for name, pattern, operation, permission in itertools.product([*NAMES, ANY_TOPIC], Pattern, Operation, Permission):
        principal, host = next(principals)
        acl = TopicAcl(name, int(pattern), principal, host, int(operation), int(permission))
        theirs = mm2.target_acl(acl)
        plan = plan_acls(
            [acl],
            policy=ours,
            source_alias=ClusterAlias("A"),
            replicates=replicates,
            topics=[*copied, "o", "x"],
            kept=["once"],
        )
        if pattern is Pattern.LITERAL and name != ANY_TOPIC:
            if name not in copied and (permission is Permission.ALLOW or theirs is None):
                assert plan == AclPlan((), ()), acl  # nothing is granted on what is no copy
            elif name not in copied and remote_name_problem(theirs.name) is not None:
                assert plan == AclPlan((), ((acl, AclLeftOut.NO_TOPIC_NAME),)), acl
            else:
                assert plan.wanted == (() if theirs is None else (theirs,)), acl
            continue
        # The corrections of decision 5: what is denied on many topics stays denied, what is allowed is said.
        many += 1
        assert theirs is None or (name == ANY_TOPIC and (policy == "Identity" or theirs.name == "A.*"))
        if permission is Permission.ALLOW:
            assert plan.wanted == ()
            reason = AclLeftOut.ALLOW_ANY if name == ANY_TOPIC else AclLeftOut.ALLOW_PREFIXED
            assert plan.left_out == (() if operation is Operation.WRITE else ((acl, reason),))
        elif remote_name_problem(name) is not None and pattern is Pattern.PREFIXED and policy == "Default":
            assert plan == AclPlan((), ((acl, AclLeftOut.NO_TOPIC_NAME),))
        else:
            assert plan.left_out == ()
            assert all((one.operation, one.permission) == (acl.operation, acl.permission) for one in plan.wanted)
    assert many > 100
