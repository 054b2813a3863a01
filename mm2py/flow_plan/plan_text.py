"""A plan as text for people. Equal things are folded into one line; ``--json`` has all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from mm2py.flow_plan.planned import BROKERS_DEFAULT, PlannedFlow, PlannedInternal, PlannedRefusal, PlannedTopic

NAMED_MOST: Final = 5
"""How many names one line lists."""
LINES_MOST: Final = 20
"""How many lines one heading has."""


def lines_of(flow: PlannedFlow) -> list[str]:
    """Return what people read about one flow; the first line is its name."""
    lines = [flow.flow]
    if flow.refused:
        lines.append(f"  refused: {flow.refused}")
    lines += [f"  not known: {why}" for why in dict.fromkeys(flow.unread)]
    if flow.starts:
        lines.append(f"  would start: {', '.join(flow.starts)} (no worker runs it; start one: mm2py FILE)")
    if flow.runs:
        lines.append(f"  runs already: {', '.join(flow.runs)}")
    lines += [f"  held: {text}" for text in flow.held]
    if flow.settings_text:
        lines.append(f"  settings: {flow.settings_text}")
        lines += [f"      {one.text}" for one in flow.settings]
    if flow.topics or flow.left_out:
        left_out = ", ".join(f"{count} {why}" for why, count in flow.left_out.items())
        lines.append(f"  topics: {flow.topics} selected" + (f"; left out: {left_out}" if left_out else ""))
    lines += _part("would be copied from now on", _folded("", flow.begins))
    lines += _part("would not be copied any more (their copies stay)", _folded("", flow.stops))
    lines += _part("topics that would be created", _creates(flow.creates))
    lines += _part(
        "topics that would get more partitions", (f"{one.remote}: {one.has} -> {one.wants}" for one in flow.widens)
    )
    only = ", which are only logged (dry run)"
    changes = _grouped((f"{one.setting}: {_value(one.old)} -> {_value(one.new)}", one.remote) for one in flow.configs)
    lines += _part(
        f"settings of topics that would change{only if flow.configs_only_logged else ''}",
        (f"{names}: {change}" for change, found in changes.items() for names in _folded("", found)),
    )
    lines += _part(f"ACLs that would be created{only if flow.acls_only_logged else ''}", flow.acls)
    lines += _part("topics of mm2py's own that would be created", map(_internal, flow.internal))
    lines += _refused(flow.refusals)
    lines += [f"  note: {note}" for note in flow.notes]
    if flow.is_known and not flow.changes:
        lines.append("  nothing to do")
    return lines


def _part(heading: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if not found:
        return
    yield f"  {heading}:"
    yield from (f"      {line}" for line in found[:LINES_MOST])
    if len(found) > LINES_MOST:
        yield f"      ... and {len(found) - LINES_MOST} more (--json)"


def _refused(refusals: Sequence[PlannedRefusal]) -> Iterator[str]:
    """Yield two lines for each topic: why, and what an operator does."""
    if refusals:
        yield "  refused:"
    for one in refusals[:LINES_MOST]:
        yield f"      {one.topic}: {one.why}"
        if one.remedy:
            yield f"          what to do: {one.remedy}"
    if len(refusals) > LINES_MOST:
        yield f"      ... and {len(refusals) - LINES_MOST} more (--json)"


def _creates(topics: Sequence[PlannedTopic]) -> Iterator[str]:
    """Yield topics with the same partitions, replicas and settings in one line."""
    alike = _grouped((_shape(one.partitions, one.replication_factor, one.configs), one.remote) for one in topics)
    for shape, names in alike.items():
        yield from _folded(shape, names)
    for one in topics:
        yield from (f"{one.remote} without {text}" for text in one.left_out)


def _internal(topic: PlannedInternal) -> str:
    return f"{topic.name} on {topic.cluster} {_shape(topic.partitions, topic.replication_factor, topic.configs)}"


def _shape(partitions: int, replicas: int, configs: Mapping[str, str]) -> str:
    count = f"{partitions} partition{'' if partitions == 1 else 's'}"
    copies = f"{replicas} replica{'' if replicas == 1 else 's'}"
    if replicas == BROKERS_DEFAULT:
        copies = "as many replicas as the brokers say"
    settings = ", ".join(f"{name}={value}" for name, value in configs.items())
    return f"({count}, {copies}{f'; {settings}' if settings else ''})"


def _grouped(found: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for what, name in found:
        grouped.setdefault(what, []).append(name)
    return grouped


def _folded(what: str, names: Sequence[str]) -> Iterator[str]:
    """Yield one line for all names, if there are any."""
    if names:
        more = f" and {len(names) - NAMED_MOST} more" if len(names) > NAMED_MOST else ""
        yield f"{', '.join(names[:NAMED_MOST])}{more} {what}".rstrip()


def _value(value: str | None) -> str:
    return "(the target's default)" if value is None else value or "''"
