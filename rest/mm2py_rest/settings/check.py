"""Checks the settings that a connector is given over REST. Pure: it connects to nothing.

The settings are those of the flow, read by the same definitions as the file; its three connectors share them.
Addresses and credentials are not among them: each worker has these in its own file.

Counterpart: the ConfigDefs of MirrorMaker 2's connectors and ``AbstractHerder.validateConnectorConfig``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mm2py.config import keys, tables
from mm2py.config.flow_properties import contradicted, new_name, stored_keys
from mm2py.config.kinds import BadValue, boolean, strings
from mm2py.config.row import Key, Status
from mm2py.config.transform_keys import is_of_transforms
from mm2py.errors import ConfigError
from mm2py.flow import Flow, Kind
from mm2py.secret import HIDDEN, is_hidden, may_be_address, may_hold_secret, setting_within, shown_key
from mm2py.topics.filters import PatternList
from mm2py_rest.models import ConfigInfo, ConfigKey, ConfigsReport, ConfigValue

PACKAGE: Final = "org.apache.kafka.connect.mirror"
OF_CONNECT: Final = ("name", "connector.class", "source.cluster.alias", "target.cluster.alias")
"""What Connect's clients send in addition to the settings. These values follow from the flow and must not differ."""
GROUPS: Final = ("Common", "mm2py")
_NUMBERS_WITHOUT_DEFAULT: Final = (keys.TASKS_MAX, keys.BYTES_PER_SECOND_MAX, keys.FETCH_PARTITION_MAX_BYTES)
_PATTERNS: Final = (
    keys.TOPICS,
    keys.TOPICS_EXCLUDE,
    keys.GROUPS,
    keys.GROUPS_EXCLUDE,
    keys.CONFIG_PROPERTIES_EXCLUDE,
    keys.COPY_MODE_PASS_TOPICS,
    keys.COPY_MODE_REPACK_TOPICS,
)
SWITCHES: Final = {
    Kind.SOURCE: keys.ENABLED,
    Kind.CHECKPOINT: keys.EMIT_CHECKPOINTS_ENABLED,
    Kind.HEARTBEAT: keys.EMIT_HEARTBEATS_ENABLED,
}
"""The setting that switches a connector off. For Connect's clients this deletes the connector."""


@dataclass(slots=True)
class Checked:
    """The result of a check."""

    properties: dict[str, str] = field(default_factory=dict)
    """The settings to store."""
    without_effect: list[str] = field(default_factory=list)
    """Known settings that change nothing."""
    errors: dict[str, str] = field(default_factory=dict)
    """Errors by setting, as far as its name may be shown."""


def connector_properties(flow: Flow, kind: Kind, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a flow in the form of one of its connectors."""
    fixed = (f"{flow}.{kind}", f"{PACKAGE}.{kind}", flow.source, flow.target)
    return {**properties, **dict(zip(OF_CONNECT, fixed, strict=True))}


def check(flow: Flow | None, kind: Kind, wanted: Mapping[str, str]) -> Checked:
    """Check each setting by itself. Whether they fit together is checked when they are merged with the file.

    A name that MirrorMaker 2 dropped in 4.0 is read as its new name.
    Args:
        flow: None: any flow.
    """
    found = Checked()
    for given, value in wanted.items():
        name = new_name(given) or given
        if name != given and (other := contradicted(given, wanted)) is not None:
            found.errors[given] = f"it is an old name of {name}, and {other} has another value"
            continue
        if name in OF_CONNECT:
            if why := _not_fixed(flow, kind, name, value):
                found.errors[name] = why
            continue
        key = stored_keys().get(name)
        if key is not None:
            found.properties[name] = value
            if why := _wrong(key, value):
                found.errors[name] = f"it is {why}"
            if key.status is not Status.WORKS:
                found.without_effect.append(name)
        elif may_hold_secret(name) or may_be_address(name):
            found.errors[shown_key(name)] = (
                "addresses and credentials cannot be changed over REST; each worker has them in its own file"
            )
        elif is_of_transforms(name) and value.strip():
            found.errors[name] = "transforms cannot be changed over REST; each worker has them in its own file"
        elif name in tables.CONNECTOR or name in tables.FLOW_ONLY:
            found.without_effect.append(name)
        else:
            found.errors[shown_key(name)] = "there is no such setting of a flow"
    return found


def _not_fixed(flow: Flow | None, kind: Kind, name: str, value: str) -> str:
    if name == "connector.class":
        return "" if is_class(value, kind) else f"it is {PACKAGE}.{kind} and cannot be changed"
    if flow is None:
        return ""
    fixed = connector_properties(flow, kind, {})[name]
    is_same = value == fixed or (name == "name" and value == kind)  # MM2's dedicated mode names it so
    return "" if is_same else f"it is {fixed} and cannot be changed"


def is_class(text: str, kind: Kind) -> bool:
    """Whether a text names the class of a connector: whole, without its package, or as Connect's alias."""
    return text in (f"{PACKAGE}.{kind}", kind, kind.removesuffix("Connector"))


def _wrong(key: Key[Any], value: str) -> str:
    if within := setting_within(value):
        return f"not to be stored: it holds what looks like {within}"
    if key.refuses(value):
        return f"not supported: {key.note}"
    try:
        read = key.kind(value)
        if key in _PATTERNS:
            PatternList(key.name, read)
    except BadValue as error:
        return str(error)
    except ConfigError as error:
        why = error.what.removeprefix(f"{key.name}: ").rstrip(".")
        return f"not a list of patterns that mm2py has: {why}. {error.remedy}".rstrip()
    return ""


# -- as Connect's plug-ins show it -------------------------------------------------------------------------------------


def definitions(kind: Kind) -> list[ConfigKey]:
    """Return all settings of a connector."""
    named = [
        ConfigKey(
            name=name,
            required=name == "connector.class",
            default_value=f"{PACKAGE}.{kind}" if name == "connector.class" else None,
            documentation="It follows from the flow.",
            group=GROUPS[0],
            display_name=name,
            order_in_group=order,
        )
        for order, name in enumerate(OF_CONNECT, 1)
    ]
    return named + [_definition(order, name, key) for order, (name, key) in enumerate(stored_keys().items(), 1)]


def _definition(order: int, name: str, key: Key[Any]) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=_type(key),
        default_value=_default(key),
        documentation=key.text
        or f"{key.status.value[0].upper()}{key.status.value[1:]}." + (f" {key.note}." if key.note else ""),
        group=GROUPS[1],
        display_name=name,
        order_in_group=order,
    )


def _type(key: Key[Any]) -> str:
    if key.kind is boolean:
        return "BOOLEAN"
    if key.kind is strings:
        return "LIST"
    return "LONG" if isinstance(key.default, int) or key in _NUMBERS_WITHOUT_DEFAULT else "STRING"


def _default(key: Key[Any]) -> str | None:
    match key.default:
        case None | "":
            return None
        case bool():
            return str(key.default).lower()
        case tuple():
            return ",".join(key.default)
        case _:
            return str(key.default)


def validated(kind: Kind, wanted: Mapping[str, str]) -> ConfigsReport:
    """Return each setting with its value, or with what is wrong."""
    found = check(None, kind, wanted)
    known = definitions(kind)
    given = {new_name(name) or name: value for name, value in wanted.items()}
    infos = [_info(key, given.get(key.name, key.default_value), found.errors.get(key.name)) for key in known]
    names = {key.name for key in known}
    infos += [
        ConfigInfo(definition=None, value=ConfigValue(name=name, value=None, errors=[why]))
        for name, why in found.errors.items()
        if name not in names
    ]
    return ConfigsReport(name=f"{PACKAGE}.{kind}", error_count=len(found.errors), groups=list(GROUPS), configs=infos)


def _info(key: ConfigKey, value: str | None, error: str | None) -> ConfigInfo:
    shown = HIDDEN if value is not None and is_hidden(key.name, value) else value
    if error is not None:
        shown = None  # a wrong value may be anything, such as a password pasted into the wrong field
    errors = [] if error is None else [f"Invalid value for configuration {key.name}: {error}."]
    return ConfigInfo(definition=key, value=ConfigValue(name=key.name, value=shown, errors=errors))
