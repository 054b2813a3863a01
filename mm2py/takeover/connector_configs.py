"""Connectors of MirrorMaker 2 on Kafka Connect: from JSON files, or from what its REST says. Pure.

Accepted are the bodies of Connect's REST: a configuration alone, one beside its name, ``GET /connectors?expand=info``,
and lists of these. Connectors of other classes are left alone.

Counterpart: org.apache.kafka.connect.runtime.rest.entities.ConnectorInfo of Kafka Connect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from mm2py.config.layers import CONNECTOR_PACKAGE
from mm2py.config.references import names_of
from mm2py.errors import ConfigError
from mm2py.flow import ARROW, Kind
from mm2py.secret import shown_name
from mm2py.takeover.account import AccountedSetting, ProposedSetting, refused
from mm2py.takeover.what_runs import (
    KINDS,
    MirrorConnector,
    RunningFlow,
    WhatRuns,
    by_pair,
    flow_of_connectors,
    settings_of_flow,
    why_no_flow,
)

JSON_MAX_BYTES: Final = 8 << 20
_PROVIDER_PACKAGE: Final = "org.apache.kafka.common.config.provider"
KNOWN_PROVIDERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "file": f"{_PROVIDER_PACKAGE}.FileConfigProvider",
        "directory": f"{_PROVIDER_PACKAGE}.DirectoryConfigProvider",
        "dir": f"{_PROVIDER_PACKAGE}.DirectoryConfigProvider",
        "secrets": f"{_PROVIDER_PACKAGE}.DirectoryConfigProvider",
        "env": f"{_PROVIDER_PACKAGE}.EnvVarConfigProvider",
    }
)
"""Providers by the names that they usually have. Only the worker's file says which class it is."""
_KINDS_BY_CLASS: Final = {form: kind for kind in KINDS for form in (str(kind), f"{CONNECTOR_PACKAGE}.{kind}")}

Value = str | bool | int | float | None


class _ConnectorBody(BaseModel):
    """One connector as Connect's REST names it. Further fields, such as its tasks, say nothing of its settings."""

    model_config = ConfigDict(extra="ignore", strict=True)

    name: str
    config: Mapping[str, Value]


class _ConfigBody(BaseModel):
    """The configuration of a connector alone."""

    model_config = ConfigDict(strict=True)

    config: Mapping[str, Value]


def text_of(value: Value) -> str:
    """Return a value as Connect has it, whose settings are texts."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_connectors(body: Any, where: str) -> tuple[list[MirrorConnector], list[str]]:
    """Return the connectors of MirrorMaker 2 in a body, and the names of other connectors.

    Args:
        where: the file or address, for messages.
    Raises:
        ConfigError: it is no body of a connector.
    """
    found: list[MirrorConnector] = []
    others: list[str] = []
    for name, config in _bodies(body, where):
        kind = _KINDS_BY_CLASS.get(config.get("connector.class", "").strip())
        if kind is None:
            others.append(shown_name(name))
            continue
        source = config.get("source.cluster.alias", "").strip()
        if not source:
            raise ConfigError(
                f"{where}: connector {shown_name(name)} has no source.cluster.alias.",
                remedy="A connector of MirrorMaker 2 does not start without it. Is the file whole?",
            )
        target = config.get("target.cluster.alias", "target").strip()
        found.append(MirrorConnector(name, kind, source, target, tuple(config.items()), name))
    return found, others


def _bodies(body: Any, where: str) -> Iterator[tuple[str, dict[str, str]]]:
    if isinstance(body, list):
        for one in body:
            yield from _bodies(one, where)
        return
    if not isinstance(body, dict):
        raise ConfigError(f"{where} holds no JSON object of a connector.", remedy="Save what Connect's REST answers.")
    try:
        if "connector.class" in body:
            config = _ConfigBody(config=body).config
            name = body.get("name")
            yield (name if isinstance(name, str) else where), _texts(config)
        elif "config" in body:
            one = _ConnectorBody.model_validate(body)
            yield one.name, _texts(one.config)
        elif body and all(isinstance(one, dict) and ("info" in one or "config" in one) for one in body.values()):
            for one in body.values():
                yield from _bodies(one.get("info", one), where)
        elif body:
            raise ConfigError(
                f"{where} holds no configuration of a connector.",
                remedy="Save what GET /connectors/NAME answers, or GET /connectors?expand=info.",
            )
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))  # the value may be a credential
        raise ConfigError(
            f"{where}: {place} is not what Connect has there.", remedy="Settings are texts, numbers or true and false."
        ) from None


def _texts(config: Mapping[str, Value]) -> dict[str, str]:
    return {name: text_of(value) for name, value in config.items() if value is not None}


def mirror_of(connectors: Sequence[MirrorConnector], said: str, others: Sequence[str] = ()) -> WhatRuns:
    """Return what these connectors run. Raises: ConfigError, there are none."""
    if not connectors:
        left = f" It has {', '.join(others[:3])}." if others else ""
        raise ConfigError(
            f"{said} has no connector of MirrorMaker 2.{left}",
            remedy=f"Name one whose connector.class is {CONNECTOR_PACKAGE}.{Kind.SOURCE}.",
        )
    settings: list[ProposedSetting | AccountedSetting] = []
    flows: list[RunningFlow] = []
    for some in by_pair(connectors):
        settings += settings_of_flow(some)
        for one in some:
            settings += unknown_providers(one)
        flow = flow_of_connectors(some)
        if flow is not None and not any(why_no_flow(some)):
            flows.append(RunningFlow(flow, {one.kind: one.name for one in some}))
    extra = extra_settings(connectors)
    extra |= provider_settings([value for one in connectors for _, value in one.settings])
    notes = [
        f"{one.name} has no header.converter: Connect's own changes headers that are not text. Such copies differ from"
        " their source; from here on mm2py copies headers as they are."
        for one in connectors
        if one.kind is Kind.SOURCE and "header.converter" not in dict(one.settings)
    ]
    if others:
        notes.append(f"Left alone, as they are not of MirrorMaker 2: {', '.join(others)}.")
    return WhatRuns(said, clusters_of(connectors), tuple(flows), tuple(settings), extra, notes=tuple(notes))


def clusters_of(connectors: Sequence[MirrorConnector]) -> tuple[str, ...]:
    """Return the aliases, each once."""
    return tuple(dict.fromkeys(alias for one in connectors for alias in (one.source, one.target)))


def extra_settings(connectors: Sequence[MirrorConnector]) -> dict[str, tuple[str, str]]:
    """Return what a settings file needs besides the settings of connectors, to do just what they do."""
    extra = {
        "clusters": (", ".join(clusters_of(connectors)), "the aliases"),
        "emit.heartbeats.enabled": ("false", "only a heartbeat connector emits some"),
    }
    for some in by_pair(connectors):
        flow = f"{some[0].source}{ARROW}{some[0].target}"
        kinds = {one.kind for one in some}
        if Kind.SOURCE in kinds and not any("enabled" in dict(one.settings) for one in some):
            extra[f"{flow}.enabled"] = ("true", f"{some[0].name} copies it")
        if Kind.HEARTBEAT in kinds and not any("emit.heartbeats.enabled" in dict(one.settings) for one in some):
            extra[f"{flow}.emit.heartbeats.enabled"] = ("true", f"there is a {Kind.HEARTBEAT}")
        if Kind.SOURCE in kinds and Kind.CHECKPOINT not in kinds:
            extra[f"{flow}.emit.checkpoints.enabled"] = ("false", f"there is no {Kind.CHECKPOINT}")
    return extra


def provider_settings(values: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the settings that name the config providers to which values refer."""
    names = list(dict.fromkeys(name for value in values for name in names_of(value) if name in KNOWN_PROVIDERS))
    if not names:
        return {}
    extra = {"config.providers": (", ".join(names), "values refer to them; see that the worker had the same")}
    for name in names:
        extra[f"config.providers.{name}.class"] = (KNOWN_PROVIDERS[name], "the provider that usually has this name")
    return extra


def unknown_providers(connector: MirrorConnector) -> Iterator[AccountedSetting]:
    """Yield the settings whose values refer to providers that mm2py has not."""
    for name, value in connector.settings:
        for provider in names_of(value):
            if provider not in KNOWN_PROVIDERS:
                yield refused(
                    *connector.place_of(name),
                    f"it refers to the config provider {provider}, which mm2py has not",
                    "Let it refer to a file, a directory or the environment: ${file:PATH:KEY}, ${dir:PATH:FILE},"
                    " ${env:NAME}.",
                )
