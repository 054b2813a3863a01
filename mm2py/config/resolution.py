"""Replaces references to config providers in a settings file by their values, where a setting may have them.

A file is resolved once, when it is read, so the settings of a running worker do not change. An entry keeps its text as
it was written in addition to the value, and messages show only that text.

The settings that the workers of a flow share take no references: they are stored where many can read them, and another
worker's providers need not have the same values. Settings that are stored, or come by REST, are never resolved.

Counterpart: ``MirrorMakerConfig.transform``, which resolves all references.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mm2py.config import keys
from mm2py.config.flow_properties import stored_keys
from mm2py.config.inventory import FileItem, take_inventory
from mm2py.config.kinds import BadValue
from mm2py.config.layers import named
from mm2py.config.properties import Properties, PropertyEntry
from mm2py.config.providers import read_providers
from mm2py.config.references import Unresolved, holds_reference, resolve
from mm2py.secret import Secret, may_hold_secret

MASKED_MIN_CHARS: Final = 8
"""Shorter values are not hidden in messages: a user may be called kafka, and a message without this word is no help."""


def resolve_references(properties: Properties, environment: Mapping[str, str]) -> Properties:
    """Return the properties of a file with the values that its config providers have.

    Args:
        environment: of the process.
    Returns:
        The properties; ``problems`` has what is wrong with references and providers.
    """
    file = properties.entries
    try:
        clusters = keys.CLUSTERS.kind(file[keys.CLUSTERS.name].value)
    except (KeyError, BadValue):  # reported where the clusters are needed
        return properties
    problems = list(properties.problems)
    warnings: list[str] = []
    secrets: list[Secret] = []
    entries: dict[str, PropertyEntry] = {}
    providers = read_providers(file, environment, problems)
    for item in take_inventory(file, clusters)[0]:
        entry = item.entry
        if item.key is None or item.advice is not None or not holds_reference(entry.value):
            continue
        if not _takes_references(item):
            problems.append(
                f"{named(entry)} holds a reference, ${{...}}, and all workers have to have the same value there; write"
                " the value itself"
            )
            continue
        try:
            resolved = resolve(entry.value, providers)
        except Unresolved as error:
            problems.append(f"{named(entry)}: {error}")
            continue
        if resolved.has_strangers:
            warnings.append(
                f"{named(entry)} holds a reference, ${{...}}, to a provider that config.providers does not name: it is"
                " used as it is written, as in Kafka"
            )
        if resolved.values:
            entries[entry.key] = replace(entry, value=resolved.text.reveal(), written=entry.value)
            if may_hold_secret(entry.key):
                secrets += [value for value in resolved.values if len(value.reveal()) >= MASKED_MIN_CHARS]
    return Properties({**file, **entries}, (*properties.warnings, *warnings), tuple(problems), tuple(secrets))


def _takes_references(item: FileItem) -> bool:
    """Return whether each worker has this setting for itself. ``clusters`` and the providers are needed to resolve, and
    take no references."""
    if item.key in (keys.CLUSTERS, keys.CONFIG_PROVIDERS, keys.PROVIDER_SETTINGS):
        return False
    return not any(item.key is key for key in stored_keys().values())
