"""Every setting of a file with the value that counts for each flow and client, and where it comes from. Pure.

The layers are those from which ``flows.py`` and ``groups.py`` make the typed settings, so what is listed here is what
mm2py does. Workers that run follow the settings that are stored on the target; this module knows only the file.
MirrorMaker 2 prints such lists in its log, one for each client, without the line that decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from mm2py.config import groups, keys, recovery_keys, rest, tables, transform_keys
from mm2py.config.configuration import SettingsFile
from mm2py.config.flow_properties import factor_that_counts, own_layer
from mm2py.config.inventory import FileItem, nearest, take_inventory
from mm2py.config.kinds import BadValue
from mm2py.config.layers import FlowLayers, Layer, flow_layers
from mm2py.config.properties import PropertyEntry
from mm2py.config.references import names_of
from mm2py.config.row import Key, Reader, Status, shown_default
from mm2py.config.security import keys as security
from mm2py.config.security.sasl import read_security
from mm2py.config.settings import Configuration
from mm2py.flow import ClusterAlias, Flow
from mm2py.secret import CLIENT_NAMES, HIDDEN, Secret, is_hidden, may_show_unknown_key, shown_key, shown_unknown_key
from mm2py.topics.replicas import AtMost

POSITIONS_NOTE: Final = "positions are stored at least every second"
FEWER_NOTE: Final = "as many as there are brokers, if they are fewer"
ALONE_NOTE: Final = "1048576, and 4194304 for a partition that is read alone"

STANDBY_NOTE: Final = "the first value; once it ran, what is stored counts: mm2py status FILE"


class FlowSwitch(StrEnum):
    """What the file lets a flow do."""

    ENABLED = "enabled"
    REFUSED = "refused"
    """It is enabled, and must not run."""
    HEARTBEATS = "only heartbeats"
    """It is not enabled; heartbeats are emitted for its pair of clusters."""
    OFF = "off"


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """One setting of one client."""

    name: str
    """As the client has it: ``fetch.max.bytes``."""
    value: str | None
    """As text; a secret is hidden, and of a config provider it is the reference. None: not set, and no default."""
    is_set: bool
    """The file sets it; else the value is the default."""
    differs: bool
    """The value means something else than the default."""
    key: str
    """The key of the file that decides; empty: none does."""
    line: int | None
    """The line of that key."""
    origin: str
    """``mm2.properties line 12: A.consumer.fetch.max.bytes``, or ``default``."""
    note: str = ""
    """What else decides, in half a sentence."""


@dataclass(frozen=True, slots=True)
class SettingsOfClient:
    """The settings of one client of a flow, or of one part of a worker."""

    client: str
    """``source consumer``, ``target producer``, ``worker``, ..."""
    cluster: str
    """The cluster that it asks or writes to; empty: it has none of its own."""
    settings: tuple[EffectiveSetting, ...]


@dataclass(frozen=True, slots=True)
class SettingsOfFlow:
    """One flow."""

    flow: str
    switch: FlowSwitch
    why_refused: str
    """Why it must not run; empty: it may."""
    clients: tuple[SettingsOfClient, ...]


@dataclass(frozen=True, slots=True)
class UnusedKey:
    """A key of the file that mm2py does not use."""

    key: str
    line: int | None
    why: str


@dataclass(frozen=True, slots=True)
class EffectiveSettings:
    """All of a file."""

    flows: tuple[SettingsOfFlow, ...]
    groups: tuple[SettingsOfClient, ...]
    """The groups of workers, one for each target cluster."""
    worker: tuple[SettingsOfClient, ...]
    """What counts for the whole file."""
    unused: tuple[UnusedKey, ...]


def effective_settings(file: SettingsFile, configuration: Configuration, only: Flow | None = None) -> EffectiveSettings:
    """Return what counts, and which keys of the file do not.

    Args:
        configuration: of the same file.
        only: a flow of two clusters of the file, enabled or not; None: all that are enabled, and all heartbeats.
    """
    entries = file.properties.entries
    listing = _Listing(file)
    enabled = [settings.flow for settings in configuration.flows]
    pairs = [one.flow for one in configuration.heartbeats]
    switches = {
        **dict.fromkeys(pairs, FlowSwitch.HEARTBEATS),
        **dict.fromkeys(configuration.refused, FlowSwitch.REFUSED),
        **dict.fromkeys(enabled, FlowSwitch.ENABLED),
    }
    flows = {flow: listing.of_flow(flow, switch, configuration) for flow, switch in switches.items()}
    of_groups = {target: listing.of_group(target) for target in configuration.groups}
    worker = listing.of_file(with_tls=any(one.is_tls for one in configuration.rest.listeners))
    unused = tuple(_unused(entries, listing.used, {*enabled, *configuration.refused}, pairs=switches))
    if only is not None:
        flows = {only: flows.get(only) or listing.of_flow(only, FlowSwitch.OFF, configuration)}
        of_groups = {only.target: of_groups.get(only.target) or listing.of_group(only.target)}
    order = list(FlowSwitch)
    return EffectiveSettings(
        tuple(sorted(flows.values(), key=lambda one: (order.index(one.switch), one.flow))),
        tuple(of_groups[target] for target in sorted(of_groups)),
        worker,
        unused,
    )


class _Listing:
    """Lists the settings of a file, and notes which of its keys it has come across."""

    def __init__(self, file: SettingsFile) -> None:
        self.used: set[str] = set()
        self._name = file.path.name
        self._entries = file.properties.entries

    def of_flow(self, flow: Flow, switch: FlowSwitch, configuration: Configuration) -> SettingsOfFlow:
        layers, defaults = flow_layers(self._entries, flow), flow_layers({}, flow)
        own = own_layer(self._entries, flow, flow.target)
        heartbeats = self._heartbeats(flow, layers, defaults, own)
        producer = self._record_client(flow, layers.producer, defaults.producer, flow.target, Reader.PRODUCER)
        target_admin = self._client("target admin", flow.target, layers.target_admin, Reader.ADMIN)
        if switch is FlowSwitch.HEARTBEATS:
            return SettingsOfFlow(str(flow), switch, "", (heartbeats, producer, target_admin))
        clients: tuple[SettingsOfClient, ...] = (
            self._source_connector(layers, own),
            self._checkpoints(flow, layers, own),
            heartbeats,
            self._record_client(flow, layers.consumer, defaults.consumer, flow.source, Reader.CONSUMER, layers.worker),
            producer,
            self._client("source admin", flow.source, layers.source_admin, Reader.ADMIN),
            target_admin,
            self._worker(flow, layers, defaults, own),
        )
        clients += tuple(filter(None, (self._recoveries(flow.source), self._recoveries(flow.target))))
        refusal = configuration.refused.get(flow)
        return SettingsOfFlow(str(flow), switch, "" if refusal is None else str(refusal), clients)

    def _recoveries(self, cluster: ClusterAlias) -> SettingsOfClient | None:
        """Return how recoveries connect to a cluster; None: as the flow does."""
        prefix = f"{cluster}.{recovery_keys.CREDENTIALS.name}"
        found = tuple(
            self._of_entry(name.removeprefix(prefix), entry)
            for name, entry in self._entries.items()
            if name.startswith(prefix) and name.removeprefix(prefix) in security.SECURITY
        )
        return SettingsOfClient("recoveries", cluster, found) if found else None

    def of_group(self, target: ClusterAlias) -> SettingsOfClient:
        """Return the settings of the group of workers into a cluster; ZooKeeper's only if it elects the leader."""
        layer = groups.group_layer(self._entries, target)
        rows: list[Key[Any]] = [
            groups.GROUP,
            keys.INTERNAL_REPLICATION_FACTOR,
            groups.SESSION_TIMEOUT,
            groups.HEARTBEAT_INTERVAL,
            groups.LEADER_ELECTION,
        ]
        if _value(layer, groups.LEADER_ELECTION) == "zookeeper":
            with_tls = bool(_value(layer, groups.ZOOKEEPER_SSL))
            rows += [key for key in groups.ZOOKEEPER.values() if with_tls or key.name not in groups.ZOOKEEPER_TLS]
        return SettingsOfClient("group of workers", target, tuple(self._row(key, layer) for key in rows))

    def of_file(self, *, with_tls: bool) -> tuple[SettingsOfClient, ...]:
        """Return the settings that count for the whole file: of a worker, of REST, of config providers.

        Args:
            with_tls: REST listens with TLS. Without ``listeners.https.*`` it takes the ``ssl.*`` at the top.
        """
        entries = self._entries
        of_rest = [key for key in rest.REST.rows if Reader.FAMILY not in key.readers]
        of_worker = [key for key in tables.FILE.values() if key.status is Status.WORKS and key not in of_rest]
        of_worker += [key for key in tables.OWN_TOP.values() if key.readers == (Reader.OWN_TOP,)]
        names = [name for name in entries if name.startswith((rest.HTTPS.name, rest.ADMIN_HTTPS.name))]
        if with_tls and not any(name.startswith(rest.HTTPS.name) for name in names):
            names += [name for name in entries if name.startswith("ssl.") and name != rest.CLIENT_AUTH.name]
        families = (keys.PROVIDER_SETTINGS.name, recovery_keys.HOOKS.name)
        others = [name for name in entries if name.startswith(families)]
        return (
            SettingsOfClient(
                "whole file",
                "",
                (
                    *(self._row(key, entries) for key in of_worker),
                    *(self._of_entry(name, entries[name]) for name in others),
                ),
            ),
            SettingsOfClient(
                "REST",
                "",
                (
                    *(self._row(key, entries) for key in of_rest),
                    *(self._of_entry(name, entries[name]) for name in names),
                ),
            ),
        )

    def _source_connector(self, layers: FlowLayers, own: Layer) -> SettingsOfClient:
        elsewhere = {*keys.HEARTBEATS.rows, *keys.CONSUMER_GROUPS.rows}
        rows = [
            (key, layers.connector)
            for key in (*tables.CONNECTOR.values(), *tables.FLOW_ONLY.values())
            if key.status is Status.WORKS and key.name not in CLIENT_NAMES and key not in elsewhere
        ]
        rows += [(key, own) for key in tables.OWN_FLOW.values() if key not in elsewhere and key not in security.OWN]
        found = [self._row(key, layer) for key, layer in rows]
        found += [
            self._of_entry(name, entry)
            for name, entry in layers.connector.items()
            if name.startswith(transform_keys.FAMILIES)
        ]
        return SettingsOfClient("source connector", "", tuple(found))

    def _checkpoints(self, flow: Flow, layers: FlowLayers, own: Layer) -> SettingsOfClient:
        on_source = _value(layers.connector, keys.OFFSET_SYNCS_LOCATION) == "source"
        at_syncs = own_layer(self._entries, flow, flow.source if on_source else flow.target)
        found = []
        for key in keys.CONSUMER_GROUPS.rows:
            if key is keys.OFFSET_SYNCS_REPLICATION_FACTOR:
                found.append(self._factor(key, layers.connector, at_syncs))
            elif key is keys.CHECKPOINTS_REPLICATION_FACTOR:
                found.append(self._factor(key, layers.connector, own))
            else:
                found.append(self._row(key, own if Reader.OWN_FLOW in key.readers else layers.connector))
        return SettingsOfClient("checkpoint connector and offset syncs", "", tuple(found))

    def _heartbeats(self, flow: Flow, layers: FlowLayers, defaults: FlowLayers, own: Layer) -> SettingsOfClient:
        found = tuple(
            self._factor(key, layers.connector, own)
            if key is keys.HEARTBEATS_REPLICATION_FACTOR
            else self._row(key, layers.connector)
            for key in keys.HEARTBEATS.rows
        )
        return SettingsOfClient("heartbeat connector", flow.target, found)

    def _record_client(
        self,
        flow: Flow,
        layer: Layer,
        defaults: Layer,
        cluster: ClusterAlias,
        reader: Reader,
        worker: Layer | None = None,
    ) -> SettingsOfClient:
        """Return the client that reads or writes records. All connections to its cluster have its security."""
        own = own_layer(self._entries, flow, cluster)
        table, client = (
            (tables.CONSUMER, "source consumer") if reader is Reader.CONSUMER else (tables.PRODUCER, "target producer")
        )
        rows = [key for key in table.values() if reader in key.readers]
        used = read_security(layer, own).used | {keys.BOOTSTRAP_SERVERS.name, "security.protocol"}
        rows += [key for key in security.SECURITY.values() if key.name in used]
        found = [self._row(key, layer, defaults) for key in rows]
        found += [self._row(key, own) for key in security.OWN]
        if worker is not None and _value(worker, keys.EXACTLY_ONCE) == "enabled":
            found = [self._committed(one, worker) if one.name == keys.ISOLATION_LEVEL.name else one for one in found]
        return SettingsOfClient(client, cluster, tuple(found))

    def _committed(self, setting: EffectiveSetting, worker: Layer) -> EffectiveSetting:
        """Return the isolation level that exactly-once brings with it."""
        if setting.value == "read_committed":
            return setting
        reason = worker[keys.EXACTLY_ONCE.name]
        return EffectiveSetting(
            setting.name,
            "read_committed",
            is_set=True,
            differs=True,
            key=shown_key(reason.key),
            line=reason.line,
            origin=self._origin(reason),
            note="exactly once reads committed records only",
        )

    def _client(self, client: str, cluster: str, layer: Layer, reader: Reader) -> SettingsOfClient:
        rows = [key for key in tables.ADMIN.values() if reader in key.readers]
        return SettingsOfClient(client, cluster, tuple(self._row(key, layer) for key in rows))

    def _worker(self, flow: Flow, layers: FlowLayers, defaults: FlowLayers, own: Layer) -> SettingsOfClient:
        factors = (
            keys.OFFSETS_REPLICATION_FACTOR,
            keys.STATUS_REPLICATION_FACTOR,
            keys.CONFIGS_REPLICATION_FACTOR,
        )
        of_group = {key.name for key in groups.WORKER}
        rows = [
            key
            for key in tables.WORKER.values()
            if Reader.WORKER in key.readers and key.name not in of_group and key.name not in CLIENT_NAMES
        ]
        found = tuple(
            self._factor(key, layers.worker, own) if key in factors else self._row(key, layers.worker, defaults.worker)
            for key in rows
        )
        return SettingsOfClient("worker", flow.target, found)

    def _factor(self, key: Key[int], layer: Layer, own: Layer) -> EffectiveSetting:
        counts_in, counting = factor_that_counts(layer, key, own)
        found = self._row(counting, counts_in)
        return (
            found
            if counting is key
            else EffectiveSetting(
                key.name, found.value, found.is_set, differs=True, key=found.key, line=found.line, origin=found.origin
            )
        )

    def _row(self, key: Key[Any], layer: Layer, defaults: Layer | None = None) -> EffectiveSetting:
        entry = layer.get(key.name)
        of_layer = None if defaults is None else defaults.get(key.name)
        default = _default_text(key) if of_layer is None else of_layer.value
        note = _note(key, entry)
        if entry is None or entry.line is None:
            value = default if entry is None else entry.value
            return EffectiveSetting(
                key.name, value, is_set=False, differs=False, key="", line=None, origin="default", note=note
            )
        self.used.add(entry.key)
        usual = key.default if of_layer is None else _meaning(key, of_layer.value)
        differs = isinstance(usual, AtMost) or _meaning(key, entry.value) != usual
        return self._set(key.name, entry, differs=differs, note=note)

    def _of_entry(self, name: str, entry: PropertyEntry) -> EffectiveSetting:
        self.used.add(entry.key)
        return self._set(name, entry, differs=True)

    def _set(self, name: str, entry: PropertyEntry, *, differs: bool, note: str = "") -> EffectiveSetting:
        value = HIDDEN if is_hidden(name, entry.text) or is_hidden(entry.key, entry.text) else entry.text
        return EffectiveSetting(
            name,
            value,
            is_set=True,
            differs=differs,
            key=shown_key(entry.key),
            line=entry.line,
            origin=self._origin(entry),
            note=note,
        )

    def _origin(self, entry: PropertyEntry) -> str:
        providers = names_of(entry.text) if entry.written is not None else ()
        by = f", from config provider {' and '.join(providers)}" if providers else ""
        return f"{self._name} line {entry.line}: {shown_key(entry.key)}{by}"


def _note(key: Key[Any], entry: PropertyEntry | None) -> str:
    if key is keys.OFFSET_FLUSH_INTERVAL:
        return POSITIONS_NOTE
    if key is keys.FETCH_PARTITION_MAX_BYTES and entry is None:
        return ALONE_NOTE
    if key is keys.STANDBY and entry is not None:
        return STANDBY_NOTE
    return (
        "as many as there are brokers, if they are fewer" if entry is None and isinstance(key.default, AtMost) else ""
    )


def _default_text(key: Key[Any]) -> str | None:
    match key.default:
        case None:
            return None
        case Secret():
            return HIDDEN
        case tuple():
            return ", ".join(map(str, key.default))
        case _:
            return shown_default(key.default)


def _value(layer: Layer, key: Key[Any]) -> Any:
    entry = layer.get(key.name)
    return key.default if entry is None else _meaning(key, entry.value)


def _meaning(key: Key[Any], text: str) -> Any:
    """Return what a text means; the text itself if it is wrong: a flow that is switched off is not checked."""
    try:
        return key.kind(text)
    except BadValue:
        return text


def _unused(
    entries: Layer, used: Collection[str], enabled: Collection[Flow], *, pairs: Collection[Flow]
) -> Iterator[UnusedKey]:
    clusters = keys.CLUSTERS.kind(entries[keys.CLUSTERS.name].value)
    switches = (keys.ENABLED, keys.EMIT_HEARTBEATS_ENABLED)  # they count where they switch something off, too
    for item in take_inventory(entries, clusters)[0]:
        if item.entry.key in used or (item.advice is None and any(item.key is key for key in switches)):
            continue
        is_known = item.key is not None
        shown = shown_key(item.entry.key) if is_known else shown_unknown_key(item.entry.key, item.entry.value)
        yield UnusedKey(shown, item.entry.line, _why_unused(item, clusters, enabled, pairs))


def _why_unused(item: FileItem, clusters: Sequence[str], enabled: Collection[Flow], pairs: Collection[Flow]) -> str:
    key = item.key
    if key is None:
        may_hint = may_show_unknown_key(item.name, item.entry.value)
        hint = nearest(item, clusters) if may_hint else ""
        return "not known" + (f"; {hint}" if hint else "")
    if item.advice is not None:
        return f"no effect there, as in MirrorMaker 2; {item.advice}"
    if item.flow is not None and item.flow not in enabled:
        return f"{item.flow} is not enabled"
    agrees = key.agrees(item.entry.value)
    match key.status:
        case Status.NOT_YET:
            return "does nothing yet"
        case Status.SUPERSEDED:
            return f"not needed: {key.note}"
        case Status.REFUSED:
            return "not needed: mm2py does this anyway" if agrees else f"refused: {key.note}"
        case Status.WORKS:
            return _why_it_does_nothing(item, key, pairs)


def _why_it_does_nothing(item: FileItem, key: Key[Any], pairs: Collection[Flow]) -> str:
    """Return why a setting that works does nothing for the flows and heartbeats of ``pairs``."""
    if item.cluster is not None:
        if all(item.cluster not in (pair.source, pair.target) for pair in pairs):
            return f"no flow that is enabled uses cluster {item.cluster}"
        if key in (*groups.OWN, *groups.WORKER) and all(item.cluster != pair.target for pair in pairs):
            return f"it is for a target cluster, and no flow that is enabled leads into {item.cluster}"
    return "another key overrides it, or another setting turns it off"


def changed_only(found: EffectiveSettings) -> EffectiveSettings:
    """Return only what differs from the defaults. Clients without such a setting are left out, flows are not."""

    def of(clients: Iterable[SettingsOfClient]) -> tuple[SettingsOfClient, ...]:
        some = (
            SettingsOfClient(one.client, one.cluster, tuple(each for each in one.settings if each.differs))
            for one in clients
        )
        return tuple(one for one in some if one.settings)

    flows = tuple(SettingsOfFlow(one.flow, one.switch, one.why_refused, of(one.clients)) for one in found.flows)
    return EffectiveSettings(flows, of(found.groups), of(found.worker), found.unused)
