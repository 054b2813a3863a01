"""The settings file that does the same as one call of ``mm2py mirror``. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import javaproperties

from mm2py.mirror.request import TARGET, MirrorRequest
from mm2py.topics.filters import DEFAULT_TOPICS_EXCLUDE

IDENTITY: Final = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def properties_text(request: MirrorRequest) -> str:
    """Return the file. It has the credentials of the client files."""
    lines: list[str] = []
    for title, entries in _sections(request):
        lines += ["", f"# {title}"]
        for key, value in entries:
            lines.append(javaproperties.join_key_value(key, value, separator=" = ", ensure_ascii=True))
    return "\n".join([f"# Made by mm2py mirror, of {len(request.sources)} source(s).", *lines[1:], ""])


def _sections(request: MirrorRequest) -> Iterator[tuple[str, Sequence[tuple[str, str]]]]:
    aliases = [source.alias for source in request.sources]
    clusters = [("clusters", ", ".join([*aliases, TARGET])), (f"{TARGET}.bootstrap.servers", request.target)]
    clusters += [(f"{TARGET}.{key}", value) for key, value in request.target_client.settings.items()]
    for source in request.sources:
        clusters.append((f"{source.alias}.bootstrap.servers", source.bootstrap))
        clusters += [(f"{source.alias}.{key}", value) for key, value in source.client.settings.items()]
        if request.from_latest:
            clusters.append((f"{source.alias}.consumer.auto.offset.reset", "latest"))
    yield "clusters", list(dict(clusters).items())
    flows: list[tuple[str, str]] = []
    for source in request.sources:
        flow = f"{source.alias}->{TARGET}"
        flows.append((f"{flow}.enabled", "true"))
        if source.group:
            flows.append((f"{flow}.starting.offsets.group", source.group))
    flows.append(("topics", request.topics))
    if request.exclude:
        flows.append(("topics.exclude", ", ".join([*DEFAULT_TOPICS_EXCLUDE, request.exclude])))
    if request.is_identity:
        flows.append(("replication.policy.class", IDENTITY))
    elif request.separator != ".":
        flows.append(("replication.policy.separator", request.separator))
    yield "flows and topics", flows
    own = [
        ("mm2py.group", f"mirror-{'-'.join(sorted(aliases))}"[:200]),
        ("offset-syncs.topic.location", "target"),
        ("emit.heartbeats.enabled", "false"),
        ("heartbeats.replication.enabled", "false"),
        ("emit.checkpoints.enabled", "false"),
        ("sync.topic.acls.enabled", "false"),
        ("replication.factor", "-1"),
        ("listeners", ""),
    ]
    yield "only reads from the sources; no heartbeats, groups, ACLs and REST, unless you change that", own
