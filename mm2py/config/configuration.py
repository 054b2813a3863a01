"""Makes the configuration of a process from a settings file, or reports what is wrong or missing in the file.

This is the border: MirrorMaker 2's properties come in, read by ``properties.py``, layered by ``layers.py``, listed by
``inventory.py``; the typed settings of ``settings.py`` go out. All problems of a file are reported at once.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mm2py.config import keys
from mm2py.config.flow_properties import (
    FlowProperties,
    StoredConfigUnusable,
    check_stored,
    contradicted,
    flow_properties,
    is_enabled,
    new_name,
    stored_keys,
)
from mm2py.config.flows import FlowsReading, FlowUnsupported
from mm2py.config.inventory import FileItem, may_mean_enabled, take_inventory, unknown_told
from mm2py.config.kinds import BadValue, string
from mm2py.config.layers import (
    Layer,
    Unusable,
    add_problem,
    all_problems,
    bad_value,
    cluster_pairs,
    listed_flows,
    named,
)
from mm2py.config.properties import Properties, PropertyEntry, read_properties
from mm2py.config.regex_router import with_router_rules
from mm2py.config.resolution import resolve_references
from mm2py.config.row import Key, Status
from mm2py.config.settings import Configuration, FlowSettings
from mm2py.errors import ConfigError
from mm2py.flow import ARROW, ClusterAlias, Flow, parse_flow
from mm2py.secret import may_hold_secret, setting_within, shown_key, without

_SENT_BY_KAFKAS_CLIENTS = frozenset({"client.id"})
"""Their values leave the process as they are, as soon as mm2py uses them in each client."""


def load_configuration(path: Path, clusters: Sequence[str] | None) -> Configuration:
    """Read a settings file and return the flows it enables.

    Args:
        path: a properties file as MirrorMaker 2 reads it.
        clusters: aliases of ``--clusters``: only flows and heartbeats into these are returned. None or empty: all.
    Raises:
        ConfigError: the file or a selected alias is wrong, or neither flow nor heartbeats are left. The message names
            the file and, for every problem, the line and the key. A refused flow does not raise, even if there
            is no other.
    """
    return read_settings_file(path, clusters).configuration()


def as_argument(path: Path) -> str:
    """Return a file as an argument of a command line, valid in any directory."""
    return shlex.quote(str(path.absolute()))


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A settings file as it was read once; the file on the disk may have changed since."""

    path: Path
    properties: Properties
    selected: tuple[str, ...]
    """The aliases of ``--clusters``; none: all."""

    @property
    def argument(self) -> str:
        """The file as an argument of a command line, valid in any directory."""
        return as_argument(self.path)

    def configuration(self, stored: Mapping[Flow, FlowProperties] | None = None) -> Configuration:
        """Return the flows that the file enables, with their addresses and credentials.

        Args:
            stored: the settings that the workers of a flow share (``flow_properties.py``); they override the file's. A
                flow that they switch off is left out.
        Raises:
            ConfigError: as ``load_configuration``.
            StoredConfigUnusable: the stored settings cannot be used; this is not the file's fault.
        """
        stored = {} if stored is None else stored
        for flow, properties in stored.items():
            check_stored(flow, properties)
        problems: list[str] = []
        try:
            found = _configuration(self.properties, self.selected, problems, stored)
        except Unusable:
            problems = [self._masked(problem) for problem in problems]
            if stored and problems:
                raise StoredConfigUnusable(listed_flows(list(stored)), "; ".join(problems)) from None
            raise all_problems(self.path, problems) from None
        refused = {
            flow: FlowUnsupported(self._masked(error.what), remedy=error.remedy)
            for flow, error in found.refused.items()
        }
        return replace(found, refused=MappingProxyType(refused), warnings=tuple(map(self._masked, found.warnings)))

    def _masked(self, text: str) -> str:
        """Hide credentials from config providers. Messages never repeat a credential; this is a second safeguard."""
        return without(text, self.properties.secrets)

    def shared(self, flow: Flow) -> dict[str, str]:
        """Return the file's settings of a flow that workers share."""
        own = self.properties.entries.get(f"{flow}.enabled")
        return flow_properties(self.properties.entries, flow, enabled=own is None or _is_true(own.value))

    def switched_off(self) -> list[Flow]:
        """Return the flows that the file names only to switch them off, by their own key."""
        suffix = f".{keys.ENABLED.name}"
        return [
            parse_flow(key.removesuffix(suffix))
            for key, entry in self.properties.entries.items()
            if key.endswith(suffix) and key.count(ARROW) == 1 and not _is_true(entry.value)
        ]

    def flows_switched_off(self) -> list[FlowSettings]:
        """Return these flows as they would run, if the file says how to reach their clusters."""
        found: list[FlowSettings] = []
        for flow in self.switched_off():
            try:
                flows = self.switching_on(flow).configuration().flows
            except ConfigError:
                continue
            found += [settings for settings in flows if settings.flow == flow]
        return found

    def switching_on(self, flow: Flow) -> SettingsFile:
        """Return the same file with a flow enabled, so that its addresses can be read."""
        key = f"{flow}.{keys.ENABLED.name}"
        entries = {**self.properties.entries, key: PropertyEntry("true", key, 0)}
        return replace(self, properties=replace(self.properties, entries=entries))

    def alone(self, flow: Flow) -> SettingsFile:
        """Return the same file with only this flow enabled, so that two directions form no ring.

        Raises: ConfigError, as ``configuration``.
        """
        found = self.configuration()
        others = [f"{other}.{keys.ENABLED.name}" for other in (*(one.flow for one in found.flows), *found.refused)]
        entries = {**self.properties.entries, **{key: PropertyEntry("false", key, 0) for key in others}}
        return replace(self, properties=replace(self.properties, entries=entries)).switching_on(flow)


def read_settings_file(path: Path, clusters: Sequence[str] | None) -> SettingsFile:
    """Read a file, and the values of its config providers; arguments: see ``load_configuration``.

    Raises:
        ConfigError: the file cannot be read. For problems with its providers ``configuration`` raises.
    """
    properties = resolve_references(_with_new_names(read_properties(path)), os.environ)
    return SettingsFile(path, with_router_rules(properties), tuple(clusters or ()))


def flow_of(file: SettingsFile, name: str) -> FlowSettings:
    """Return the settings by which a file runs a flow.

    Raises:
        ConfigError: the file is wrong, or does not run a flow of this name.
    """
    wanted = parse_flow(name)
    configuration = file.configuration()
    for settings in configuration.flows:
        if settings.flow == wanted:
            return settings
    if wanted in configuration.refused:
        raise configuration.refused[wanted]
    enabled = ", ".join(str(settings.flow) for settings in configuration.flows)
    only, name_one = (f", only {enabled}", "Name one of these, or set") if enabled else ("", "Set")
    raise ConfigError(f"{file.path} enables no flow {wanted}{only}.", remedy=f"{name_one} {wanted}.enabled = true.")


def with_flow(file: SettingsFile, name: str) -> SettingsFile:
    """Return a file that enables a flow. If ``file`` does not enable it, the result enables no other flow.

    The story: B took over from A. Now A is back, and the file enables only B->A. Only the ledger of A->B knows where
    B->A begins on B. With both flows enabled, the identity policy would refuse them as a ring.

    Raises: ConfigError, as ``SettingsFile.configuration``.
    """
    wanted, found = parse_flow(name), file.configuration()
    is_there = wanted in found.refused or any(settings.flow == wanted for settings in found.flows)
    return file if is_there else file.alone(wanted)


def _with_new_names(properties: Properties) -> Properties:
    """Return the same file with the names that some settings have since MirrorMaker 2 4.0."""
    values = {key: entry.value for key, entry in properties.entries.items()}
    entries: dict[str, PropertyEntry] = {}
    warnings, problems = list(properties.warnings), list(properties.problems)
    for key, entry in properties.entries.items():
        new = new_name(key)
        if new is None:
            entries[key] = entry
            continue
        other = contradicted(key, values)
        if other is not None:
            problems.append(
                f"{named(entry)} is an old name of {shown_key(new)}, and {shown_key(other)} has another value in line"
                f" {properties.entries[other].line}; remove one of them"
            )
        else:
            warnings.append(f"{named(entry)} is an old name, and counts as {shown_key(new)}; write {shown_key(new)}")
        if new not in values:
            entries[new] = replace(entry, key=new)
    return replace(properties, entries=entries, warnings=tuple(warnings), problems=tuple(problems))


def _configuration(
    properties: Properties,
    selected: Sequence[str],
    problems: list[str],
    stored: Mapping[Flow, FlowProperties],
) -> Configuration:
    file = properties.entries
    clusters = _clusters(file, problems)
    strangers = [alias for alias in dict.fromkeys(selected) if alias not in clusters]
    if strangers:
        names = ", ".join(map(repr, strangers))
        problems.append(f"--clusters names {names}, not in clusters, which are {', '.join(clusters)}")
    items, flow_problems = take_inventory(file, clusters)
    _check_swallowed([item.entry for item in items if item.key is not None and _is_told(item.key)], problems)
    if properties.problems:
        problems[:] = properties.problems
        raise Unusable
    problems += flow_problems
    enabled = _enabled_flows(file, clusters, problems)
    _check_values(items, enabled, problems)
    enabled = [flow for flow in enabled if is_enabled(stored.get(flow, {}))]
    pairs = _pairs(file, clusters, enabled)
    if not pairs and not problems and not stored:
        problems += [unknown_told(item, clusters) for item in items if may_mean_enabled(item)]
        problems.append("No source->target replication flows; enable one with A->B.enabled = true")
    reading = FlowsReading(
        file, items, enabled=enabled, pairs=pairs, selected=selected, problems=problems, stored=stored
    )
    if pairs and not reading.selected_pairs and not problems and not stored:
        into = ", ".join(dict.fromkeys(selected))
        there = listed_flows(enabled or pairs)
        problems.append(f"No source->target replication flows into {into}; enabled are {there}")
    return reading.configuration(properties.warnings, clusters)


def _is_true(text: str) -> bool:
    try:
        return keys.ENABLED.kind(text)
    except BadValue:
        return False


def _is_told(key: Key[Any]) -> bool:
    """Return whether a setting's value leaves the worker: stored for all workers, sent, or shown where it is wrong.

    A setting that only plug-ins read is left out: it may hold anything, even settings of their own connections. The
    story of what is sent: a client id ended in a backslash. So the password in the next line was a part of it, and was
    sent to every broker in every request.
    """
    is_used = key.kind is not string or key.status is Status.WORKS or key.name in _SENT_BY_KAFKAS_CLIENTS
    return is_used or any(key is stored for stored in stored_keys().values())


def _check_swallowed(entries: Iterable[PropertyEntry], problems: list[str]) -> None:
    """Look for lines that have become part of the value before them, in values that might be stored or shown.

    Raises:
        Unusable: there are some. Then no other problem is reported: it could quote what must not be shown.
    """
    found = [(entry, setting_within(entry.value)) for entry in entries if not may_hold_secret(entry.key)]
    told = [
        f"line {entry.line}: the value of {shown_key(entry.key)} holds what looks like a setting of its own ({name});"
        " if that stands in a line of its own, remove the backslash at the end of the line before: it makes the next"
        " line, even a comment, part of the value. If it is a remark behind the value, give the remark a line of its"
        " own: it is a part of the value, too"
        for entry, name in found
        if name
    ]
    if told:
        problems[:] = told
        raise Unusable


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
    _check_swallowed([entry], problems)
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


def _check_values(items: Sequence[FileItem], enabled: Sequence[Flow], problems: list[str]) -> None:
    """Check the values of all settings that have an effect; flows that are switched off are passed over."""
    for item in items:
        if item.key is None or item.advice is not None or (item.flow is not None and item.flow not in enabled):
            continue
        if item.key.refuses(item.entry.value):
            continue
        try:
            item.key.kind(item.entry.value)
        except BadValue as bad:
            add_problem(problems, bad_value(item.entry, bad))
