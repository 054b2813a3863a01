"""``/connector-plugins``: the three classes of connectors, their settings and the values that these may have.

Nothing is loaded, and a check of settings connects to nothing.
Source: ConnectorPluginsResource, Apache Kafka, connect/runtime.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from mm2py import __version__
from mm2py.flow import Kind
from mm2py.secret import shown_name
from mm2py_rest.access.roles import ADMIN, ANY_READER
from mm2py_rest.errors import RestError
from mm2py_rest.models import ConfigKey, ConfigMap, ConfigsReport, PluginInfo
from mm2py_rest.services import KINDS
from mm2py_rest.settings.check import PACKAGE, definitions, is_class, validated

router = APIRouter(prefix="/connector-plugins", tags=["connector plug-ins"])


@router.get("", dependencies=[ANY_READER])
async def list_plugins(
    connectors_only: Annotated[bool, Query(alias="connectorsOnly", description="there are no others")] = True,
) -> list[PluginInfo]:
    """Return the classes of connectors."""
    return [PluginInfo(class_name=f"{PACKAGE}.{kind}", version=__version__) for kind in KINDS]


@router.get("/{plugin}/config", dependencies=[ANY_READER], responses={404: {"description": "there is no such class"}})
async def get_definitions(plugin: str, version: str | None = None) -> list[ConfigKey]:
    """Return all settings of a connector. The three of a flow share them."""
    kind = _kind(plugin)
    if version not in (None, __version__, "latest"):
        raise RestError(400, f"There is only version {__version__}.")
    return definitions(kind)


@router.put(
    "/{plugin}/config/validate", dependencies=[ADMIN], responses={404: {"description": "there is no such class"}}
)
async def validate(plugin: str, wanted: ConfigMap) -> ConfigsReport:
    """Return what is wrong with settings."""
    kind = _kind(plugin)
    given = {key: value for key, value in wanted.items() if value is not None}
    named = given.get("connector.class")
    if named is None:
        raise RestError(400, "Connector config contains no connector type: name it as connector.class.")
    if not is_class(named, kind):
        raise RestError(400, f"Included connector type does not match request type {kind}")
    return validated(kind, given)


def _kind(plugin: str) -> Kind:
    for kind in KINDS:
        if is_class(plugin, kind):
            return kind
    raise RestError(404, f"Unknown plugin {shown_name(plugin)}.")
