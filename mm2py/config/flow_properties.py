"""Which settings belong to a flow and may be shared, and which stay in each worker's own file.

What a flow copies, and how, has to be the same for all workers that run it. These settings go to
``mm2-configs.A.internal``. How a worker reaches the clusters is its own matter: addresses, credentials, paths, proofs
of identity and settings of its connections never leave its file. So this module lists what may be shared. Unknown keys
are not shared. Known keys that look like a secret or an address are not shared either, in whatever table they are.

The names are those of a connector's settings in MM2, so that settings which MM2 has stored are read the same way:
``topics``, ``source.consumer.fetch.max.bytes``, ``producer.override.linger.ms``. mm2py's own settings and the few of
the worker have no prefix. Only settings that were set are stored; a setting that is not there has its default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, Final

from mm2py.config import keys, tables, transform_keys
from mm2py.config.kinds import BadValue, addresses, boolean, strings
from mm2py.config.layers import FlowLayers, Layer, client_config, flow_layers
from mm2py.config.properties import PropertyEntry
from mm2py.config.references import holds_reference
from mm2py.config.regex_router import NoRule, router_rule
from mm2py.config.row import Key, Status, Table
from mm2py.config.security.keys import OWN as OWN_SECURITY
from mm2py.config.security.keys import secret
from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias, Flow
from mm2py.secret import (
    CLIENT_NAMES,
    VALUE_SHOWN_MAX,
    is_hidden,
    may_be_address,
    may_hold_secret,
    setting_within,
    shown_key,
    shown_value,
)
from mm2py.topics.renaming import RENAME_KEY

FlowProperties = Mapping[str, str]
"""The settings of one flow that its workers share, by name."""

ENABLED: Final = keys.ENABLED.name
_CONSUMER: Final = "source.consumer."
_PRODUCER: Final = "producer.override."
_SOURCE_ADMIN: Final = "source.admin."
_TARGET_ADMIN: Final = "target.admin."

_OF_WORKERS: Final = frozenset({"client.id", "client.rack", "group.id"})
"""Known settings that say who or where a worker is, not what a flow does."""
_OF_FILES: Final = frozenset({transform_keys.TRANSFORMS.name, transform_keys.PREDICATES.name})
"""Settings of a flow that may name what is on a worker's disk."""
_FIRST_VALUES: Final = frozenset({keys.STANDBY.name})
"""Settings of a flow that only say with what it begins; what follows is stored in a record of its own."""
_LIVE: Final = frozenset({Status.WORKS, Status.NOT_YET})
_WORKER: Final = (
    keys.OFFSETS_TOPIC,
    keys.OFFSETS_PARTITIONS,
    keys.OFFSETS_REPLICATION_FACTOR,
    keys.OFFSET_FLUSH_INTERVAL,
    keys.STATUS_TOPIC,
    keys.STATUS_PARTITIONS,
    keys.STATUS_REPLICATION_FACTOR,
    keys.EXACTLY_ONCE,
)
"""All workers have to know where positions and gaps are kept, else records would be copied twice."""


class StoredConfigUnusable(ConfigError):
    """A flow cannot run by the settings that are stored in its configs topic."""

    def __init__(self, flow: Flow | str, why: str) -> None:
        super().__init__(
            f"The stored configuration of {flow} cannot be used: {why.rstrip('.')}.",
            remedy="Apply a file that can: mm2py apply FILE; --previous takes the last one back.",
        )


def new_name(key: str) -> str | None:
    """Return the new name, with the same prefix, of a key whose name MM2 dropped in 4.0; None for other keys."""
    for old, new in tables.RENAMED.items():
        if key == old or key.endswith(f".{old}"):
            return key.removesuffix(old) + new
    return None


def contradicted(key: str, values: Mapping[str, str]) -> str | None:
    """Return the key, of the new or another old name, whose value contradicts that of a key with an old name.

    A flow's old name must not contradict the new name at the top of the file, either: MM2 3.x took the new name then.

    Args:
        key: one of ``values`` that has a ``new_name``.
        values: all settings of a file or a connector, by key.
    """
    new = new_name(key) or key
    olds = [new.removesuffix(to) + old for old, to in tables.RENAMED.items() if new == to or new.endswith(f".{to}")]
    others = [other for other in (new, *olds) if other != key and other in values]
    others += [name for name in tables.RENAMED.values() if new != name and new.endswith(f".{name}")]
    meant = _entries(values[key])
    return next((other for other in others if other in values and _entries(values[other]) != meant), None)


def _entries(text: str) -> set[str]:
    return {entry.strip() for entry in text.split(",")}


def may_be_stored(key: Key[Any]) -> bool:
    """Return whether a known setting belongs to a flow, and is no address, no credential and not a worker's own."""
    return (
        key.status in _LIVE
        and key.name not in CLIENT_NAMES
        and key.name not in _OF_WORKERS
        and key.name not in _FIRST_VALUES
        and key.name not in _OF_FILES
        and key not in OWN_SECURITY
        and key.kind not in (secret, addresses)
        and not key.name.startswith("metric")
        and not looks_like_address_or_secret(key.name)
    )


def looks_like_address_or_secret(name: str) -> bool:
    """Judge a setting by its name alone: for unknown keys, and as a safeguard against a mistake in the tables."""
    if name == keys.OFFSET_SYNCS_LOCATION.name:
        return False  # it says source or target
    return may_hold_secret(name) or may_be_address(name)


@cache
def stored_keys() -> Table:
    """Return all settings that may be stored, by the names under which they are stored."""
    return dict(_stored_keys())


def _stored_keys() -> Iterator[tuple[str, Key[Any]]]:
    for table in (tables.CONNECTOR, tables.FLOW_ONLY, tables.OWN_FLOW, {key.name: key for key in _WORKER}):
        yield from ((name, key) for name, key in table.items() if may_be_stored(key))
    for prefix, table in (
        (_CONSUMER, tables.CONSUMER),
        (_PRODUCER, tables.PRODUCER),
        (_SOURCE_ADMIN, tables.ADMIN),
        (_TARGET_ADMIN, tables.ADMIN),
    ):
        # Most settings of clients that do nothing yet concern connections; those of connectors will work later.
        yield from (
            (prefix + name, key) for name, key in table.items() if may_be_stored(key) and key.status is Status.WORKS
        )


def own_layer(file: Layer, flow: Flow, cluster: ClusterAlias) -> dict[str, PropertyEntry]:
    """Return mm2py's own settings of a flow at one of its clusters: the flow's override the cluster's, and these the
    top of the file."""
    layer: dict[str, PropertyEntry] = {}
    for prefix, table in (("", tables.OWN_TOP), (f"{cluster}.", tables.OWN_CLUSTER), (f"{flow}.", tables.OWN_FLOW)):
        layer.update({name: file[prefix + name] for name in table if prefix + name in file})
    return layer


def factor_that_counts(layer: Layer, key: Key[int], own: Layer) -> tuple[Layer, Key[Any]]:
    """Return the setting, and the layer it is in, that gives the replication factor of an internal topic.

    This is the topic's own setting ``key``, else the one for all internal topics. The factor is the default of ``key``
    if neither is there.

    Args:
        layer: where the topic's own setting stands.
        own: mm2py's own settings, as ``own_layer`` returns them.
    """
    for_all = keys.INTERNAL_REPLICATION_FACTOR
    return (own, for_all) if key.name not in layer and for_all.name in own else (layer, key)


def flow_properties(file: Layer, flow: Flow, *, enabled: bool = True) -> dict[str, str]:
    """Return the settings of a flow in a file that workers share. Pure; the file has to be checked before.

    Args:
        file: the entries of the whole file, by key.
        enabled: whether the file enables the flow.
    """
    own = {
        name: file[prefix + name]
        for prefix in ("", f"{flow}.")
        for name in tables.OWN_FLOW
        if f"{prefix}{name}" in file
    }
    found = _properties(flow_layers(file, flow), own)
    found[ENABLED] = "true" if enabled else "false"
    return dict(sorted(found.items()))


def properties_of_connector(raw: Mapping[str, str]) -> dict[str, str]:
    """Return the flow's settings from those of a source connector, as MM2 or another client has stored them.

    As in MM2 3.x, a new name overrides an old one.
    """
    connector = {key: PropertyEntry(value, key, 0) for key, value in raw.items()}
    connector = {new: connector[old] for old in raw if (new := new_name(old)) is not None} | connector
    with suppress(NoRule):
        connector[RENAME_KEY] = PropertyEntry(router_rule(connector), RENAME_KEY, 0)
    consumer = client_config(connector, "source", "consumer")
    producer = {key.removeprefix(_PRODUCER): entry for key, entry in connector.items() if key.startswith(_PRODUCER)}
    admin = {side: client_config(connector, side, "admin") for side in ("source", "target")}
    layers = FlowLayers(connector, connector, consumer, producer, admin["source"], admin["target"])
    found = _properties(layers, connector)
    found[ENABLED] = "true" if is_true(raw.get(ENABLED, "true")) else "false"
    return dict(sorted(found.items()))


def is_true(text: str) -> bool:
    try:
        return boolean(text)
    except BadValue:
        return False


def _properties(layers: FlowLayers, own: Layer) -> dict[str, str]:
    found: dict[str, str] = {}
    for layer, prefix, is_ours in _places(layers, own):
        found |= {
            prefix + name: entry.value
            for name, entry in layer.items()
            if entry.line is not None and is_ours(prefix + name)
        }
    return found


def _places(layers: FlowLayers, own: Layer) -> Iterator[tuple[Layer, str, Callable[[str], bool]]]:
    known = stored_keys()
    worker = {key.name for key in _WORKER}
    yield layers.worker, "", lambda name: name in worker and name in known
    yield layers.connector, "", lambda name: name in known and (name in tables.CONNECTOR or name in tables.FLOW_ONLY)
    yield own, "", lambda name: name in known and name in tables.OWN_FLOW
    yield layers.consumer, _CONSUMER, lambda name: name in known
    yield layers.producer, _PRODUCER, lambda name: name in known
    yield layers.source_admin, _SOURCE_ADMIN, lambda name: name in known
    yield layers.target_admin, _TARGET_ADMIN, lambda name: name in known


def with_stored(layers: FlowLayers, flow: Flow, stored: FlowProperties) -> FlowLayers:
    """Return a flow's layers with its shared settings as they are stored, and all others as its file has them.

    A shared setting that is not stored has its default, whatever the file says. Settings that only a newer mm2py knows
    are ignored.
    """
    defaults = flow_layers({}, flow)
    worker, connector, _, consumer, producer, source_admin, target_admin = (
        {
            **{name: entry for name, entry in layer.items() if not is_ours(prefix + name)},
            **{name: entry for name, entry in default.items() if is_ours(prefix + name)},
            **{
                name.removeprefix(prefix): PropertyEntry(value, name)
                for name, value in stored.items()
                if name.startswith(prefix) and is_ours(name)
            },
        }
        for (layer, prefix, is_ours), (default, _, _) in zip(_places(layers, {}), _places(defaults, {}), strict=True)
    )
    return replace(
        layers,
        connector=connector,
        worker=worker,
        consumer=consumer,
        producer=producer,
        source_admin=source_admin,
        target_admin=target_admin,
    )


def own_with_stored(own: Layer, stored: FlowProperties) -> dict[str, PropertyEntry]:
    """Like ``with_stored``, for mm2py's own settings of a flow."""
    known = {name for name in tables.OWN_FLOW if name in stored_keys()}
    return {name: entry for name, entry in own.items() if name not in known} | {
        name: PropertyEntry(stored[name], name) for name in known if name in stored
    }


def check_stored(flow: Flow, stored: FlowProperties) -> None:
    """Raises: StoredConfigUnusable, if a setting cannot have its value, or a value must not be stored."""
    bad = []
    for name, value in stored.items():
        key = stored_keys().get(name)
        if key is None:
            continue
        if holds_reference(value):
            bad.append(f"{name} holds a reference to a config provider, which only a worker's own file may")
            continue
        if setting_within(value):
            bad.append(f"{name} holds what looks like {setting_within(value)}, which must not be stored")
            continue
        try:
            key.kind(value)
        except BadValue as error:
            bad.append(f"{name} is {error}")
    if bad:
        raise StoredConfigUnusable(flow, "; ".join(bad))


def is_enabled(stored: FlowProperties) -> bool:
    """Return whether the flow is to copy."""
    return is_true(stored.get(ENABLED, "true"))


def meaning(name: str, value: str | None) -> object:
    """Return what the text of a setting means, None for one that is not set: equal meanings are no difference."""
    key = stored_keys().get(name)
    if key is None:
        return value
    if value is None:
        return key.default if key.status is Status.WORKS else None
    try:
        return key.kind(value)
    except BadValue:
        return value


def shown_change(name: str, old: str | None, new: str | None) -> str:
    """Return the change in one line; None means the default.

    Both values are shown whole, because long ones may differ anywhere. Of a long list only what was added and removed
    is shown.
    """
    return f"{shown_key(name)}: {_of_lists(name, old, new) or f'{_shown(name, old)} -> {_shown(name, new)}'}"


def _shown(name: str, value: str | None) -> str:
    return "(default)" if value is None else shown_value(name, value, most=None)


def _of_lists(name: str, old: str | None, new: str | None) -> str:
    """Return what was added to a list and taken away; empty if the whole values are to be shown, or hidden."""
    key = stored_keys().get(name)
    if key is None or key.kind is not strings or old is None or new is None:
        return ""
    if max(len(old), len(new)) <= VALUE_SHOWN_MAX or is_hidden(name, old) or is_hidden(name, new):
        return ""
    try:
        before, after = strings(old), strings(new)
    except BadValue:
        return ""
    stay = set(before) & set(after)
    come = [f"+{shown_value(name, entry, most=None)}" for entry in after if entry not in stay]
    gone = [f"-{shown_value(name, entry, most=None)}" for entry in before if entry not in stay]
    return (
        f"{' '.join(come + gone)} ({len(stay)} others stay)"
        if come or gone
        else f"the same {len(stay)} in another order"
    )
