"""Where the value of a flow's setting comes from: a line of the file, the stored settings, or the default. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mm2py.config import keys, tables
from mm2py.config.configuration import SettingsFile
from mm2py.config.layers import FlowLayers, Layer, flow_layers
from mm2py.config.properties import PropertyEntry
from mm2py.flow import Flow
from mm2py.moments import time_text
from mm2py.records.connector_config import FlowConfig
from mm2py.secret import shown_key

CLIENTS: Final = ("source.consumer.", "producer.override.", "source.admin.", "target.admin.")
DECIDING: Final = (
    keys.TOPICS.name,
    keys.TOPICS_EXCLUDE.name,
    keys.GROUPS.name,
    keys.GROUPS_EXCLUDE.name,
    keys.EMIT_CHECKPOINTS_ENABLED.name,
    keys.EMIT_CHECKPOINTS_INTERVAL.name,
    keys.SYNC_GROUPS_ENABLED.name,
)
"""The settings that say what a flow copies, which groups it follows, and whether it does."""


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """Where the value of a setting comes from."""

    key: str
    """Its name there: ``A->B.topics.exclude`` in a file, ``topics.exclude`` elsewhere."""
    where: str
    """``mm2.properties line 14``, ``stored as version 4 by rest, anna on ops1, 2026-11-28T14:02:11Z``, ``the default``.

    The version is the first one that has this value, as far as versions are kept.
    """
    is_default: bool = False
    """The setting is written nowhere."""

    @property
    def text(self) -> str:
        return f"{self.key} ({self.where})"


def origin_of(file: SettingsFile, flow: Flow, name: str, stored: FlowConfig | None = None) -> SettingOrigin:
    """Return where the value comes from that a setting has in a flow.

    Args:
        file: of the worker or the command that was asked.
        name: the setting as a connector has it, as ``topics.exclude``.
        stored: the settings that the workers share, if they run by them; the file's then do not count.
    """
    default = SettingOrigin(name, "the default", is_default=True)
    if stored is not None:
        value = stored.properties.get(name)
        if value is None:
            return default
        while stored.previous is not None and stored.previous.properties.get(name) == value:
            stored = stored.previous
        author = stored.author
        who = f"{author.user} on {author.host}" if author.user and author.host else author.user
        when = time_text(stored.at_ms) if stored.at_ms else ""
        return SettingOrigin(
            name, ", ".join(filter(None, (f"stored as version {stored.version} by {stored.by}", who, when)))
        )
    entries = file.properties.entries
    entry = entry_of(name, flow_layers(entries, flow), entries, flow)
    if entry is None or entry.line is None:
        return default
    return SettingOrigin(shown_key(entry.key), f"{file.path.name} line {entry.line}")


def origins_of_filters(file: SettingsFile, flow: Flow, stored: FlowConfig | None) -> Mapping[str, SettingOrigin]:
    """Return where the values of ``DECIDING`` come from in a flow, by their names; arguments: see ``origin_of``."""
    return {name: origin_of(file, flow, name, stored) for name in DECIDING}


def entry_of(name: str, layers: FlowLayers, entries: Layer, flow: Flow) -> PropertyEntry | None:
    """Return a file's entry for the shared name of a setting; for some defaults, an entry without a line."""
    for prefix, layer in zip(CLIENTS, clients_of(layers), strict=True):
        if name.startswith(prefix):
            return layer.get(name.removeprefix(prefix))
    if name == keys.ENABLED.name:
        return entries.get(f"{flow}.{name}") or entries.get(name)
    if name in tables.OWN_FLOW:
        return entries.get(f"{flow}.{name}") or entries.get(name)
    if name in tables.CONNECTOR or name in tables.FLOW_ONLY:
        return layers.connector.get(name)
    return layers.worker.get(name)


def clients_of(layers: FlowLayers) -> tuple[Layer, Layer, Layer, Layer]:
    """Return the settings of a flow's clients, in the order of ``CLIENTS``."""
    return layers.consumer, layers.producer, layers.source_admin, layers.target_admin
