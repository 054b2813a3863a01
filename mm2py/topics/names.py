"""Topic names: which ones a broker accepts, and which ones it takes for the same.

Answers to ``Topic.validate`` and ``Topic.hasCollision`` of Kafka's clients.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

NAME_MAX_CHARS = 249
_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")


def remote_name_problem(name: str) -> str | None:
    """Return why a broker would refuse to create a topic of that name, as half a sentence, or None if it would not."""
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return f"{name!r} alone is not allowed"
    if len(name) > NAME_MAX_CHARS:
        return f"it has {len(name)} characters, {NAME_MAX_CHARS} are allowed"
    illegal = _ILLEGAL.search(name)
    if illegal is not None:
        return f"it contains {illegal.group()!r}; only letters, digits, '.', '_' and '-' are allowed"
    return None


def metric_collisions(names: Iterable[str]) -> list[list[str]]:
    """Return the names that differ in dots against underscores alone, in groups.

    Metrics cannot tell ``a.b`` from ``a_b``. Kafka refuses to create the second of two such topics, so on one cluster
    they meet only when one is a remote topic: warn, and let the others go on.
    """
    same: defaultdict[str, set[str]] = defaultdict(set)
    for name in names:
        same[name.replace(".", "_")].add(name)
    return sorted(sorted(group) for group in same.values() if len(group) > 1)
