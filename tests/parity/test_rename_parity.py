"""A rule of ``topics.rename`` beside Kafka Connect's RegexRouter: both give each topic the same name."""

from __future__ import annotations

from py4j.java_gateway import JavaGateway

from mm2py.errors import ConfigError
from mm2py.topics.renaming import RenameRule

NAMES = ["", "a", "ab", "abc", "a.b", "b.v1", "orders.v1", "aab", "A-1", "x_y.z", "abab", "ddd"]
LEFTS = [
    r"(.*)\.v1",
    "(a)(b)?.*",
    "(.*?)",
    "(a|ab)(.*)",
    "(?i)a(.*)",
    "(x)?(.*)b",
    "([a-z]+)[.](.*)",
    "d+?",
    "a.b",
    ".*",
]
RIGHTS = ["$1", "x.$1", "$1$2", "$0", "$01", "$12", "$2-$1", "y", "$1.$1", "A.$0.z", "$3", "$"]


def by_java(jvm: JavaGateway, left: str, right: str) -> dict[str, str]:
    """Return what RegexRouter makes of topics."""
    router = jvm.jvm.org.apache.kafka.connect.transforms.RegexRouter()
    settings = jvm.jvm.java.util.HashMap()
    settings.put("regex", left)
    settings.put("replacement", right)
    router.configure(settings)
    new_record = jvm.jvm.org.apache.kafka.connect.source.SourceRecord
    return {name: str(router.apply(new_record(None, None, name, None, None)).topic()) for name in NAMES}


def test_rules_name_topics_as_the_transform_does(jvm: JavaGateway) -> None:
    compared = 0
    for left in LEFTS:
        for right in RIGHTS:
            try:
                rule = RenameRule.of(f"(?:{left}) -> {right}" if not left.startswith("(?i)") else f"{left} -> {right}")
            except ConfigError:
                continue  # Java refuses it when it meets the first topic
            ours = {name: name if (new := rule.new_name(name)) is None else new for name in NAMES}
            assert by_java(jvm, left, right) == ours, (left, right)
            compared += len(NAMES)
    assert compared > 800
