"""The inventory of a file: for each key its level, its setting, and what its operator should know.

MirrorMaker 2 does not mention a key that has no effect at the level where it was written. mm2py names each such key
once, with the place where it would count. Keys are shown, values of unknown keys never are.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from mm2py.config.keys import ENABLED
from mm2py.config.layers import WORKER_TOP_PREFIXES, Layer
from mm2py.config.properties import PropertyEntry
from mm2py.config.recovery_keys import CREDENTIALS
from mm2py.config.row import Key, Status, Table
from mm2py.config.security.keys import SECURITY
from mm2py.config.tables import (
    ADMIN,
    CLIENTS,
    CONNECTOR,
    CONNECTOR_FAMILIES,
    CONSUMER,
    FILE,
    FILE_FAMILIES,
    FLOW_ONLY,
    OWN_CLUSTER,
    OWN_FLOW,
    OWN_TOP,
    PRODUCER,
    RENAMED,
    WORKER,
    WORKER_FAMILIES,
)
from mm2py.flow import ARROW, ClusterAlias, Flow
from mm2py.secret import CLIENT_NAMES, may_show_unknown_key, shown_key, shown_unknown_key

LINES_MAX = 20
"""How many lines of one sort are spelled out; the rest is counted."""

_LATER_CLIENT = Key("a client of offset syncs or checkpoints", str, "", Status.NOT_YET)


class SettingLevel(Enum):
    TOP = "the top of the file"
    CLUSTER = "a cluster"
    FLOW = "a flow"


@dataclass(frozen=True, slots=True)
class FileItem:
    """One entry of the file, with its level and its setting.

    ``key`` is None for a name that neither MirrorMaker 2 nor mm2py knows; ``advice`` is set for a known name at a
    level where it does nothing, and says where it would count.
    """

    entry: PropertyEntry
    level: SettingLevel
    name: str
    cluster: str | None = None
    flow: Flow | None = None
    key: Key[Any] | None = None
    advice: str | None = None


def take_inventory(file: Layer, clusters: Sequence[str]) -> tuple[list[FileItem], list[str]]:
    """Find the level and the setting of every entry of the file.

    Returns:
        The items in the order of the file, and the problems: keys of impossible flows (an unknown cluster, a
        blank, a cluster to itself).
    """
    items: list[FileItem] = []
    problems: list[str] = []
    by_length = sorted(clusters, key=len, reverse=True)
    flows = _FlowNames(by_length)
    for key, entry in file.items():
        alias = next((alias for alias in by_length if key.startswith(f"{alias}.") and len(key) > len(alias) + 1), None)
        if ARROW in key and (alias is None or ARROW not in alias):
            match flows.split(key):
                case (Flow() as flow, str(name)):
                    found, advice = _find_at_flow(name)
                    items.append(FileItem(entry, SettingLevel.FLOW, name, flow=flow, key=found, advice=advice))
                    continue
                case str(problem):
                    if not may_show_unknown_key(key, entry.value):
                        problem = f"{shown_unknown_key(key, entry.value)} names no flow; write A->B.setting"
                    problems.append(f"line {entry.line}: {problem}")
                    continue
        found, advice = _find_at_top(key)
        if alias is not None and (found is None or advice is not None):
            name = key[len(alias) + 1 :]
            found, advice = _find_at_cluster(name)
            items.append(FileItem(entry, SettingLevel.CLUSTER, name, cluster=alias, key=found, advice=advice))
        else:
            items.append(FileItem(entry, SettingLevel.TOP, key, key=found, advice=advice))
    return items, problems


class _FlowNames:
    """Splits ``A->B.k``; aliases may hold dots and even arrows, so known pairs are tried first, long ones first."""

    def __init__(self, clusters: Sequence[str]) -> None:
        self._clusters = clusters

    def split(self, key: str) -> tuple[Flow, str] | str:
        for source in self._clusters:
            head = f"{source}{ARROW}"
            if not key.startswith(head):
                continue
            for target in self._clusters:
                prefix = f"{head}{target}."
                if key.startswith(prefix) and len(key) > len(prefix):
                    if source == target:
                        return f"flow {shown_key(prefix[:-1])} leads from a cluster to itself"
                    return Flow(ClusterAlias(source), ClusterAlias(target)), key[len(prefix) :]
        return self._problem(key)

    def _problem(self, key: str) -> str:
        known = f"clusters are {', '.join(sorted(self._clusters))}"
        source, _, rest = key.partition(ARROW)
        target, _, name = rest.partition(".")
        if rest.count(ARROW) or not source or not target or not name or " " in source + target:
            return f"{shown_key(key)} names no flow; write A->B.setting, without blanks ({known})"
        if source not in self._clusters:
            return f"flow {shown_key(key)} begins at {shown_key(source)}, which is not in clusters ({known})"
        return f"flow {shown_key(key)} ends at {shown_key(target)}, which is not in clusters ({known})"


def _family(name: str, families: Iterable[Key[Any]]) -> Key[Any] | None:
    return next((key for key in families if name.startswith(key.name) and len(name) > len(key.name)), None)


def _find_at_top(name: str) -> tuple[Key[Any] | None, str | None]:
    found = OWN_TOP.get(name) or FILE.get(name) or _family(name, FILE_FAMILIES)
    if found is not None:
        return found, None
    if name == "bootstrap.servers":
        return WORKER[name], None
    if name in CLIENT_NAMES:
        return SECURITY[name], None
    if name in CONNECTOR:
        return CONNECTOR[name], None
    if name.startswith(WORKER_TOP_PREFIXES):
        return WORKER.get(name) or _family(name, WORKER_FAMILIES), None
    return _misplaced(name, SettingLevel.TOP)


def _find_at_cluster(name: str) -> tuple[Key[Any] | None, str | None]:
    if name.startswith(CREDENTIALS.name):
        return SECURITY.get(name.removeprefix(CREDENTIALS.name)), None
    found = OWN_CLUSTER.get(name) or WORKER.get(name)
    if found is None:
        found = _client_key(name, ("",)) or _family(name, WORKER_FAMILIES)
    return (found, None) if found is not None else _misplaced(name, SettingLevel.CLUSTER)


def _find_at_flow(name: str) -> tuple[Key[Any] | None, str | None]:
    found = OWN_FLOW.get(name) or CONNECTOR.get(name) or FLOW_ONLY.get(name)
    if found is not None:
        if name in CLIENT_NAMES:
            return found, "write it as <cluster>." + name  # a connector connects to nothing by itself
        return found, None
    for side in ("source.cluster.", "target.cluster."):
        if name.startswith(side) and name[len(side) :] in CLIENT_NAMES:
            rest = name[len(side) :]
            return WORKER[rest], None
    if name.startswith("producer.override."):
        return _client_key(name.replace("producer.override.", "producer.", 1), ("",)), None
    later = _client_key(name, ("", "source.", "target."))
    if later is not None:
        copies = name.startswith(("consumer.", "source.consumer.", "admin.", "source.admin.", "target.admin."))
        return (later if copies else replace(_LATER_CLIENT, kind=later.kind)), None
    found = _family(name, CONNECTOR_FAMILIES)
    return (found, None) if found is not None else _misplaced(name, SettingLevel.FLOW)


def _client_key(name: str, sides: Sequence[str]) -> Key[Any] | None:
    for side in sides:
        for client, table in CLIENTS.items():
            prefix = f"{side}{client}."
            if name.startswith(prefix):
                rest = name[len(prefix) :]
                return table.get(rest)
    return None


def _misplaced(name: str, level: SettingLevel) -> tuple[Key[Any] | None, str | None]:
    """Find a known name that does nothing at this level, and say where it would count."""
    client = _client_key(name, ("",))
    places: list[tuple[Table | None, Key[Any] | None, str]] = [
        (OWN_TOP, None, f"{name} at the top of the file"),
        (OWN_FLOW, None, f"<source>-><target>.{name}"),
        (OWN_CLUSTER, None, f"<target>.{name}"),
        (
            CONNECTOR if level is SettingLevel.CLUSTER else None,
            None,
            f"<source>-><target>.{name}, or {name} for all flows",
        ),
        (FLOW_ONLY, None, f"<source>-><target>.{name}"),
        (WORKER if level is not SettingLevel.CLUSTER else None, None, f"<target>.{name}"),
        (None, client if level is SettingLevel.TOP and name.startswith("consumer.") else None, f"<source>.{name}"),
        (None, client if level is SettingLevel.TOP and name.startswith("producer.") else None, f"<target>.{name}"),
        (None, client if level is SettingLevel.TOP and name.startswith("admin.") else None, f"<cluster>.{name}"),
        (CONSUMER, None, f"<source>.consumer.{name}"),
        (PRODUCER, None, f"<target>.producer.{name}"),
        (ADMIN, None, f"<cluster>.admin.{name}"),
        (FILE, None, f"{name} at the top of the file"),
    ]
    for table, key, advice in places:
        found = key or (table or {}).get(name)
        if found is not None:
            return found, f"write it as {advice}"
    if level is SettingLevel.TOP and (found := _family(name, CONNECTOR_FAMILIES)) is not None:
        return found, f"write it as <source>-><target>.{name}"
    return None, None


def _near(name: str, names: Sequence[str]) -> list[str]:
    return difflib.get_close_matches(name[:100], names, 1, cutoff=0.75)


def nearest(item: FileItem, clusters: Collection[str]) -> str:
    """Return what the author of an unknown key may have meant, as half a sentence; empty if nothing is near."""
    clients = [f"{client}.{key}" for client, table in CLIENTS.items() for key in table]
    match item.level:
        case SettingLevel.TOP:
            prefix, names = "", [*CONNECTOR, *RENAMED, *OWN_TOP, *FILE, *CLIENT_NAMES]
        case SettingLevel.CLUSTER:
            prefix, names = f"{item.cluster}.", [*WORKER, *OWN_CLUSTER, *CLIENT_NAMES, *clients]
        case SettingLevel.FLOW:
            prefix, names = f"{item.flow}.", [*CONNECTOR, *RENAMED, *FLOW_ONLY, *OWN_FLOW, *clients]
    if item.level is SettingLevel.TOP:
        head, _, rest = item.name.partition(".")
        if rest and (rest in WORKER or rest in CLIENT_NAMES or _client_key(rest, ("",)) is not None):
            near = difflib.get_close_matches(head, list(clusters), 1)
            return f"{shown_key(head)} is not in clusters" + (f"; did you mean {near[0]}.{rest}?" if near else "")
    near = _near(item.name, names)
    if not near:
        return ""
    (meant,) = near
    text = f"{RENAMED[meant]}, formerly {meant}" if meant in RENAMED else meant
    return f"did you mean {prefix}{text}?"


def may_mean_enabled(item: FileItem) -> bool:
    """Return whether the unknown key of a flow may be its misspelt switch. The flow is then off, and its other entries
    cause no warning."""
    return item.key is None and item.level is SettingLevel.FLOW and bool(_near(item.name, [ENABLED.name]))


def warnings_of(items: Sequence[FileItem], clusters: Collection[str]) -> list[str]:
    """Return the warnings about keys that do nothing, one line for each, or one line for many.

    Args:
        items: the entries of the file to warn about.
        clusters: its aliases.
    """
    lines: list[str] = []
    unknown = [item for item in items if item.key is None]
    misplaced = [item for item in items if item.key is not None and item.advice is not None]
    placed = [item for item in items if item.key is not None and item.advice is None]
    not_yet = [
        item
        for item in placed
        if item.key is not None and item.key.status is Status.NOT_YET and not item.key.agrees(item.entry.value)
    ]
    superseded = [
        item
        for item in placed
        if item.key is not None and item.key.status is Status.SUPERSEDED and not item.key.agrees(item.entry.value)
    ]
    lines += _capped(
        [
            f"line {item.entry.line}: {shown_key(item.entry.key)} has no effect there, as in MirrorMaker 2;"
            f" {item.advice}"
            for item in misplaced
        ],
        "keys have no effect where they stand",
    )
    lines += _capped(
        [unknown_told(item, clusters) for item in unknown[:LINES_MAX]] + [""] * (len(unknown) - LINES_MAX),
        "keys are not known",
    )
    if not_yet:
        lines.append(f"these settings do nothing yet: {_listed(not_yet)}")
    if superseded:
        reasons: dict[str, list[FileItem]] = {}
        for item in superseded:
            assert item.key is not None  # noqa: S101
            reasons.setdefault(item.key.note, []).append(item)
        told = "; ".join(f"{_listed(group)} ({reason})" for reason, group in reasons.items())
        lines.append(f"these settings have no effect, because mm2py goes its own way: {told}")
    return lines


def unknown_told(item: FileItem, clusters: Collection[str]) -> str:
    """Return the line about an unknown key, with what its author may have meant."""
    if not may_show_unknown_key(item.name, item.entry.value):
        return f"line {item.entry.line}: {shown_unknown_key(item.name, item.entry.value)} is not known"
    hint = nearest(item, clusters)
    return f"line {item.entry.line}: {shown_key(item.entry.key)} is not known" + (f"; {hint}" if hint else "")


def _listed(items: Sequence[FileItem]) -> str:
    shown = ", ".join(shown_key(item.entry.key) for item in items[: 3 * LINES_MAX])
    return shown if len(items) <= 3 * LINES_MAX else f"{shown} and {len(items) - 3 * LINES_MAX} more"


def _capped(lines: list[str], rest: str) -> list[str]:
    return lines if len(lines) <= LINES_MAX else [*lines[:LINES_MAX], f"{len(lines) - LINES_MAX} more {rest}"]
