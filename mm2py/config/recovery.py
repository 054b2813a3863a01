"""What a file has for recoveries: credentials of their own, and commands that are called by name. Pure.

MirrorMaker 2 has nothing like it. These settings stay in the file of who recovers: nothing stores them, and REST shows
no value of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from mm2py.config.flow_properties import own_layer
from mm2py.config.layers import Layer, flow_layers
from mm2py.config.recovery_keys import CREDENTIALS, HOOKS
from mm2py.config.security.keys import SECURITY
from mm2py.config.security.sasl import read_security
from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.security.settings import Security


class CredentialsUnusable(ConfigError):
    """The credentials of recoveries cannot be used."""


def recovery_security(file: Layer, flow: Flow, alias: ClusterAlias) -> Security | None:
    """Return how recoveries of a flow connect to one of its clusters; None: as the flow does.

    ``A.dr.k`` overrides what the flow's client has for ``k`` there.

    Args:
        file: all entries of the file.
    Raises:
        CredentialsUnusable: they cannot be used. A recovery never falls back to others.
    """
    prefix = f"{alias}.{CREDENTIALS.name}"
    own = {name: file[prefix + name] for name in SECURITY if prefix + name in file}
    if not own:
        return None
    layers = flow_layers(file, flow)
    client = layers.consumer if alias == flow.source else layers.producer
    found = read_security({**client, **own}, own_layer(file, flow, alias))
    if found.reasons:
        raise CredentialsUnusable(
            f"Recoveries cannot connect to {alias}: {'; '.join(found.reasons)}.",
            remedy=f"Correct {prefix}*, or remove it.",
        )
    return found.security


def recovery_hooks(file: Layer) -> Mapping[str, tuple[str, ...]]:
    """Return the words of the commands that the file names, by name."""
    found = {key.removeprefix(HOOKS.name): entry for key, entry in file.items() if key.startswith(HOOKS.name)}
    return {name: HOOKS.kind(entry.value) for name, entry in found.items() if name}
