"""MirrorMaker 2's way to rename topics, the transform RegexRouter, as a rule of ``topics.rename``. Pure.

In MirrorMaker 2 the transform sees the remote name, ``A.orders``, and mm2py's rules see the topic's own name. Under the
identity policy the two are the same. Under the default policy a router can be a rule only if it keeps the prefix on
both sides: ``A\\.orders`` and ``A.sales.orders``. One that takes the prefix off is refused: then no name would show
where a topic comes from, and the identity policy says just that.

Counterpart: org.apache.kafka.connect.transforms.RegexRouter of Apache Kafka, which works on single records: MirrorMaker
2 creates remote topics, and writes checkpoints, under the names without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mm2py.config.kinds import BadValue, strings
from mm2py.config.layers import Layer, connector_config, origin
from mm2py.config.properties import Properties, PropertyEntry
from mm2py.errors import ConfigError
from mm2py.flow import ARROW, parse_flow
from mm2py.secret import shown_key
from mm2py.topics.filters import IGNORE_CASE
from mm2py.topics.names import DEFAULT_SEPARATOR, POLICY_CLASS_KEY, SEPARATOR_KEY
from mm2py.topics.renaming import RENAME_KEY, RULE_ARROW, RenameRule

TRANSFORMS: Final = "transforms"
_ROUTER: Final = "RegexRouter"
ROUTERS: Final = (_ROUTER, f"org.apache.kafka.connect.transforms.{_ROUTER}")
_WRITE_RULES: Final = f"write {RENAME_KEY} instead"


class NoRule(ValueError):
    """The transforms of a flow are no rule. The text says why, as half a sentence."""


def router_rule(connector: Layer) -> str:
    """Return the rule that does what the transforms of a source connector do.

    Args:
        connector: its settings, as Connect names them, with ``source.cluster.alias``.
    Raises: NoRule.
    """
    texts = {name: entry.value for name, entry in connector.items()}
    try:
        names = strings(texts.get(TRANSFORMS, ""))
    except BadValue as bad:
        raise NoRule(f"it is {bad}") from bad
    if len(names) != 1:
        raise NoRule(f"mm2py takes one {_ROUTER}: the second would see what the first has made; {_WRITE_RULES}")
    prefix = f"{TRANSFORMS}.{names[0]}."
    of_it = {name.removeprefix(prefix): text for name, text in texts.items() if name.startswith(prefix)}
    if of_it.get("type", "").strip() not in ROUTERS:
        raise NoRule(f"it is no {_ROUTER}")
    if others := sorted(of_it.keys() - {"type", "regex", "replacement"}):
        raise NoRule(f"{prefix}{others[0]} does not work; {_WRITE_RULES}")
    if RENAME_KEY in connector:
        raise NoRule(f"{RENAME_KEY} is there, too; remove one of the two")
    left, right = of_it.get("regex", ""), of_it.get("replacement", "")
    if "," in left + right or RULE_ARROW in left + right:
        raise NoRule(f"a rule can hold neither ',' nor '{RULE_ARROW}'; {_WRITE_RULES}")
    if "IdentityReplicationPolicy" not in texts.get(POLICY_CLASS_KEY, ""):
        left, right = _without_prefix(texts, left, right)
    flag = IGNORE_CASE if left.startswith(IGNORE_CASE) else ""
    rule = f"{flag}(?:{left.removeprefix(flag)}) {RULE_ARROW} {right}"
    try:
        RenameRule.of(rule)
    except ConfigError as error:
        raise NoRule(f"it would be the rule {rule!r}, and that is wrong: {error.what}") from error
    return rule


def _without_prefix(texts: Mapping[str, str], left: str, right: str) -> tuple[str, str]:
    """Return the pattern and the new name without what the default policy puts in front of each. Raises: NoRule."""
    begin = f"{texts.get('source.cluster.alias', '')}{texts.get(SEPARATOR_KEY, DEFAULT_SEPARATOR)}"
    escaped = begin.replace(".", "\\.")
    found = next((form for form in (escaped, begin) if left.startswith(form)), None)
    rest = "" if found is None else left.removeprefix(found)
    if found is None or not right.startswith(begin) or rest.startswith(("*", "+", "?", "{")) or _has_choice(rest):
        raise NoRule(
            f"it sees {begin}orders, and only a router that keeps {begin} in front works. If it takes {begin} off, set"
            f" {POLICY_CLASS_KEY} = IdentityReplicationPolicy and remove it, else {_WRITE_RULES}"
        )
    return rest, right.removeprefix(begin)


def _has_choice(pattern: str) -> bool:
    """Return whether ``|`` stands outside of all groups: then the pattern is more than one."""
    depth, is_escaped = 0, False
    for character in pattern:
        if is_escaped:
            is_escaped = False
        elif character == "\\":
            is_escaped = True
        elif character == "|" and not depth:
            return True
        else:
            depth += {"(": 1, ")": -1}.get(character, 0)
    return False


def with_router_rules(properties: Properties) -> Properties:
    """Return the same file with ``topics.rename`` in place of the transforms that say the same. Others stay."""
    entries, warnings = dict(properties.entries), list(properties.warnings)
    for key, entry in properties.entries.items():
        head, dot, name = key.rpartition(".")
        if name != TRANSFORMS or head.count(ARROW) != 1 or not dot or not entry.value.strip():
            continue
        try:
            flow = parse_flow(head)
            rule = router_rule(connector_config(properties.entries, flow))
        except (ConfigError, NoRule):
            continue
        for one in [one for one in entries if one == key or one.startswith(f"{key}.")]:
            del entries[one]
        entries[f"{flow}.{RENAME_KEY}"] = replace(entry, key=f"{flow}.{RENAME_KEY}", value=rule)
        warnings.append(f"line {entry.line}: {shown_key(key)} is a {_ROUTER}, and counts as {RENAME_KEY} = {rule}")
    return replace(properties, entries=entries, warnings=tuple(warnings))


def router_refusal(entry: PropertyEntry, connector: Layer) -> str:
    """Return why a flow with these transforms is not started, as a clause."""
    try:
        router_rule(connector)
    except NoRule as why:
        return f"{origin(entry)} does not work ({why})"
    return f"{origin(entry)} counts only for a flow: write A->B.{TRANSFORMS}"
