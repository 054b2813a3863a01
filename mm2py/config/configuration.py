"""From a settings file to the configuration of a process: what it enables, and what is wrong or missing in it.

This is the border: MirrorMaker 2's properties come in, read by ``properties.py``, layered by ``layers.py``, listed by
``inventory.py``; out go the typed ones of ``settings.py``. All problems of a file are told at once (``problems.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mm2py.config import keys
from mm2py.config.flows_reading import FlowsReading
from mm2py.config.inventory import Item, take_inventory
from mm2py.config.kinds import BadValue, java_trim
from mm2py.config.layers import Layer, cluster_pairs
from mm2py.config.problems import Unusable, add_problem, all_problems, bad_value, listed_flows
from mm2py.config.properties import Properties, bom_hides_a_key, read_properties
from mm2py.config.secrets import shown_unknown_key
from mm2py.config.settings import Configuration
from mm2py.flow import ClusterAlias, Flow


def load_configuration(path: Path, clusters: Sequence[str] | None) -> Configuration:
    """Read a settings file and return the flows it enables.

    Args:
        path: a properties file as MirrorMaker 2 reads it.
        clusters: aliases of ``--clusters``: only flows and heartbeats into these are returned. None or empty: all.
    Raises:
        ConfigError: the file or a selected alias is wrong, or neither flow nor heartbeats are left. The message names
            the file and, for every problem, the line and the key. Flows that are refused do not raise; there may be no
            others.
    """
    properties = read_properties(path)
    problems: list[str] = []
    try:
        return _configuration(properties, clusters or (), problems)
    except Unusable:
        raise all_problems(path, problems) from None


def _configuration(properties: Properties, selected: Sequence[str], problems: list[str]) -> Configuration:
    file = properties.entries
    _check_text(properties, problems)
    clusters = _clusters(file, problems)
    strangers = [alias for alias in dict.fromkeys(selected) if alias not in clusters]
    if strangers:
        names = ", ".join(map(repr, strangers))
        problems.append(f"--clusters names {names}, not in clusters, which are {', '.join(clusters)}")
    items, flow_problems = take_inventory(file, clusters)
    problems += flow_problems
    enabled = _enabled_flows(file, clusters, problems)
    _check_values(items, enabled, problems)
    pairs = _pairs(file, clusters, enabled)
    if not pairs and not problems:
        problems.append("No source->target replication flows; enable one with A->B.enabled = true")
    reading = FlowsReading(file, items, enabled=enabled, pairs=pairs, selected=selected, problems=problems)
    if pairs and not reading.selected_pairs and not problems:
        into = ", ".join(dict.fromkeys(selected))
        there = listed_flows(enabled or pairs)
        problems.append(f"No source->target replication flows into {into}; enabled are {there}")
    return reading.configuration(properties.warnings, clusters)


def _check_text(properties: Properties, problems: list[str]) -> None:
    hidden = bom_hides_a_key(properties)
    if hidden is not None:
        problems.append(
            f"line {hidden.line}: a UTF-8 byte order mark at the beginning of the file became part of its first key;"
            " save the file without it"
        )
    for entry in properties.entries.values():
        if not _encodable(entry.key) or not _encodable(entry.value):
            shown = shown_unknown_key(entry.key, entry.stray)
            problems.append(f"line {entry.line}: {shown} holds half of a character (\\uD800 to \\uDFFF)")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _clusters(file: Layer, problems: list[str]) -> tuple[str, ...]:
    entry = file.get("clusters")
    if entry is None:
        hint = (
            " (this looks like the settings of one connector on Kafka Connect)"
            if "source.cluster.alias" in file
            else ""
        )
        problems.append(f"clusters is required: the aliases of all clusters, separated by commas{hint}")
        raise Unusable
    try:
        clusters = keys.CLUSTERS.kind(entry.value)
    except BadValue as bad:
        problems.append(f"line {entry.line}: clusters is {bad}")
        raise Unusable from bad
    if not clusters:
        problems.append(f"line {entry.line}: clusters is empty")
        raise Unusable
    for alias in clusters:
        if not alias.isprintable():
            problems.append(f"line {entry.line}: clusters has an alias with a control character, {alias!a}")
    return clusters


def _enabled_flows(file: Layer, clusters: Sequence[str], problems: list[str]) -> list[Flow]:
    """Return the flows to run: enabled by their own key, or by a top-level ``enabled`` where a herder would exist."""
    herders = cluster_pairs(file, clusters)
    flows = []
    for source in clusters:
        for target in clusters:
            flow = Flow(ClusterAlias(source), ClusterAlias(target))
            own = file.get(f"{flow}.enabled")
            entry = own if own is not None else file.get("enabled")
            if source == target or entry is None or (own is None and (source, target) not in herders):
                continue
            try:
                if keys.ENABLED.kind(entry.value):
                    flows.append(flow)
            except BadValue as bad:
                add_problem(problems, bad_value(entry, bad))
    return flows


def _pairs(file: Layer, clusters: Sequence[str], enabled: Sequence[Flow]) -> list[Flow]:
    """Return the pairs that have a herder in MirrorMaker 2, in the order of ``clusters``."""
    herders = cluster_pairs(file, clusters) | {(flow.source, flow.target) for flow in enabled}
    return [
        Flow(ClusterAlias(source), ClusterAlias(target))
        for source in clusters
        for target in clusters
        if (source, target) in herders
    ]


def _check_values(items: Sequence[Item], enabled: Sequence[Flow], problems: list[str]) -> None:
    """Check the values of all known keys, whether they do something yet or not; flows that are off are passed over."""
    has_providers = any(item.name == "config.providers" and java_trim(item.entry.value) for item in items)
    for item in items:
        if item.key is None or item.advice is not None or (item.flow is not None and item.flow not in enabled):
            continue
        if (has_providers and "${" in item.entry.value) or item.key.refuses(item.entry.value):
            continue
        try:
            item.key.kind(item.entry.value)
        except BadValue as bad:
            add_problem(problems, bad_value(item.entry, bad))
