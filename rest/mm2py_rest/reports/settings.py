"""Each setting of a flow or of a worker with its value, its default, and where the value comes from. Pure.

Values that may contain a secret are hidden, and addresses are masked. Keys of a file that mm2py does not know are
counted and not shown: they may be pieces of secrets.

Counterpart: ``GET /connectors/NAME/config`` of Connect, which shows only values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from enum import StrEnum
from typing import Any, Final

from pydantic import Field

from mm2py.config import groups, keys, tables
from mm2py.config.configuration import SettingsFile
from mm2py.config.flow_properties import meaning, stored_keys
from mm2py.config.inventory import SettingLevel, take_inventory
from mm2py.config.layers import FlowLayers, flow_layers
from mm2py.config.origins import CLIENTS, clients_of, entry_of
from mm2py.config.properties import PropertyEntry
from mm2py.config.row import Key, Status
from mm2py.flow import ClusterAlias, Flow
from mm2py.records.connector_config import DecidedBy, FlowConfig
from mm2py.secret import HIDDEN, Secret, is_hidden, may_be_address
from mm2py.shared_settings.flow_config import reach
from mm2py.status.bodies import JsonBody

MASKED_ADDRESS: Final = "[address]"


class Origin(StrEnum):
    """Where the value of a setting comes from."""

    STORED = "stored"
    """From the settings that the workers of the flow share, on the target."""
    FILE = "file"
    """From the file of the worker that was asked."""
    DEFAULT = "default"


class Written(JsonBody):
    """One line of a settings file."""

    key: str = Field(examples=["A->B.topics"])
    """As it is written there: at the top, for a cluster, or for a flow."""
    line: int | None = Field(examples=[12])
    """Where its entry begins."""
    value: str
    """What it says; hidden or masked as the value of the setting."""


class Setting(JsonBody):
    """One setting."""

    name: str = Field(examples=["topics"])
    """Of a flow: as a connector has it. Of a worker: as a file has it."""
    value: str | None = Field(examples=["orders.*"])
    """As text; null: none is set, and there is no default."""
    default: str | None = Field(examples=[".*"])
    """As text; null: there is none."""
    origin: Origin
    """Where the value comes from."""
    file: Written | None
    """What the file says; null: nothing. It does not count where the origin is ``stored``."""
    differs: bool
    """The file means something else than what is stored."""
    effect: str = Field(examples=["works"])
    """works, superseded (mm2py does this in its own way), not-yet (it does nothing yet) or refused."""
    may_change: bool
    """Workers share it, so it may be changed over REST. Else only a file has it, as addresses and credentials."""
    in_place: bool
    """If it is changed, copying goes on; else the flow is drained and restarts. False where it may not be changed."""


class StoredVersion(JsonBody):
    """Which settings of a flow are stored, and who stored them."""

    version: int
    """Goes up by one with each change."""
    by: DecidedBy
    """The kind of the writer: a worker from its file, or an operator by ``mm2py apply`` or REST."""
    worker: str
    """The worker or the command that wrote it, for people."""
    at_ms: int
    """When, by that machine's clock."""
    user: str = Field(default="", examples=["bob"])
    """Who decided it; empty: an earlier version of mm2py has stored it, and does not say."""
    host: str = Field(default="", examples=["ops1"])
    """On which machine; over REST that of the worker that was asked."""
    reason: str = Field(default="", examples=["raise topics for team x"])
    """Why, as that user has said; empty: no reason was given."""


class FlowSettingsBody(JsonBody):
    """The settings of a flow, by name."""

    flow: str = Field(examples=["A->B"])
    """The flow."""
    stored: StoredVersion | None
    """Null: nothing is stored, and each worker runs by its own file."""
    settings: tuple[Setting, ...]
    """First those that the workers share, then those of the connections, which only the file has."""


class WorkerSettingsBody(JsonBody):
    """The settings of a worker that are of no single flow, by name."""

    worker: str
    """Its name."""
    file: str
    """The name of its file, without its folder."""
    settings: tuple[Setting, ...]
    """First those that a worker has for itself and for its groups, then the other lines of the file."""
    unknown_keys: int
    """How many keys of the file mm2py does not know; its log names them at start."""


def flow_settings_body(file: SettingsFile, flow: Flow, stored: FlowConfig | None) -> FlowSettingsBody:
    """Return the settings of a flow.

    Args:
        stored: the stored settings; None: nothing is stored.
    """
    entries = file.properties.entries
    layers, defaults = flow_layers(entries, flow), flow_layers({}, flow)
    shared = stored_keys()
    settings = [
        _shared(name, key, entry_of(name, layers, entries, flow), entry_of(name, defaults, {}, flow), stored)
        for name, key in sorted(shared.items())
    ]
    settings += sorted(_of_connections(layers), key=lambda setting: setting.name)
    version = None
    if stored is not None:
        version = StoredVersion(
            version=stored.version,
            by=stored.by,
            worker=stored.worker,
            at_ms=stored.at_ms,
            **asdict(stored.author),
        )
    return FlowSettingsBody(flow=str(flow), stored=version, settings=tuple(settings))


def worker_settings_body(file: SettingsFile, targets: Mapping[ClusterAlias, str], *, worker: str) -> WorkerSettingsBody:
    """Return the settings of a worker.

    Args:
        targets: the clusters that it writes to, and the names of its groups there.
    """
    entries = file.properties.entries
    clusters = keys.CLUSTERS.kind(entries[keys.CLUSTERS.name].value)
    items, _ = take_inventory(entries, clusters)
    known = {**tables.FILE, **{name: key for name, key in tables.OWN_TOP.items() if name not in tables.OWN_FLOW}}
    found = {name: _of_file(name, key, entries.get(name)) for name, key in known.items()}
    for target in sorted(targets):
        for key in (*groups.OWN, *groups.WORKER):
            name = f"{target}.{key.name}"
            entry = entries.get(name) or (entries.get(key.name) if key in groups.OWN else None)
            found[name] = _of_file(name, key, entry)
    others = {
        item.entry.key: _of_file(item.entry.key, item.key, item.entry)
        for item in items
        if item.key is not None and item.level is not SettingLevel.FLOW and item.entry.key not in found
    }
    return WorkerSettingsBody(
        worker=worker,
        file=file.path.name,
        settings=(*_by_name(found), *_by_name(others)),
        unknown_keys=sum(item.key is None for item in items),
    )


def _by_name(settings: Mapping[str, Setting]) -> list[Setting]:
    return [settings[name] for name in sorted(settings)]


def _shared(
    name: str, key: Key[Any], entry: PropertyEntry | None, default: PropertyEntry | None, stored: FlowConfig | None
) -> Setting:
    default_text = _default_of(key) if default is None else default.value
    written = None if entry is None else _written(name, entry)
    if stored is None:
        value = default_text if entry is None else _shown(name, entry.value)
        origin = Origin.DEFAULT if entry is None else Origin.FILE
        differs = False
    else:
        text = stored.properties.get(name)
        value = default_text if text is None else _shown(name, text)
        origin = Origin.DEFAULT if text is None else Origin.STORED
        differs = meaning(name, text) != meaning(name, None if entry is None else entry.value)
    return Setting(
        name=name,
        value=value,
        default=default_text,
        origin=origin,
        file=written,
        differs=differs,
        effect=_effect(key),
        may_change=value != HIDDEN,
        in_place=all(part.is_in_place for part in reach([name])),
    )


def _of_connections(layers: FlowLayers) -> Iterator[Setting]:
    """Yield the settings of a flow's clients that only the file has: addresses, credentials, time-outs."""
    of_clients = (tables.CONSUMER, tables.PRODUCER, tables.ADMIN, tables.ADMIN)
    shared = stored_keys()
    for prefix, layer, table in zip(CLIENTS, clients_of(layers), of_clients, strict=True):
        for short, entry in layer.items():
            if entry.line is not None and prefix + short not in shared and short in table:
                yield _of_file(prefix + short, table[short], entry)


def _of_file(name: str, key: Key[Any], entry: PropertyEntry | None) -> Setting:
    default = _default_of(key)
    return Setting(
        name=name,
        value=default if entry is None else _shown_entry(name, entry),
        default=default,
        origin=Origin.DEFAULT if entry is None else Origin.FILE,
        file=None if entry is None else _written(name, entry),
        differs=False,
        effect=_effect(key),
        may_change=False,
        in_place=False,
    )


def _written(name: str, entry: PropertyEntry) -> Written | None:
    if entry.line is None:
        return None
    return Written(key=entry.key, line=entry.line, value=_shown_entry(name, entry))


def _shown_entry(name: str, entry: PropertyEntry) -> str:
    """Return the value of an entry as it may be shown. Of a config provider it is the reference, never the value."""
    return _shown(name, entry.text)


def _shown(name: str, value: str) -> str:
    if is_hidden(name, value):
        return HIDDEN
    if name not in stored_keys() and name != keys.CLUSTERS.name and may_be_address(name):
        return MASKED_ADDRESS
    return value


def _default_of(key: Key[Any]) -> str | None:
    return _text_of(key.default)


def _text_of(default: object) -> str | None:
    match default:
        case None:
            return None
        case bool():
            return "true" if default else "false"
        case Secret():
            return HIDDEN
        case tuple():
            return ",".join(map(str, default))
        case _:
            return str(default)


def _effect(key: Key[Any]) -> str:
    return {Status.WORKS: "works", Status.SUPERSEDED: "superseded", Status.NOT_YET: "not-yet"}.get(
        key.status, "refused"
    )
