"""The bodies of Kafka Connect's REST API, as its clients know them. Source: connect/runtime, rest.entities."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _texts(value: object) -> object:
    """Convert numbers and booleans to texts, as Connect does: many clients send them."""
    if not isinstance(value, dict):
        return value
    return {key: json.dumps(one) if isinstance(one, bool | int | float) else one for key, one in value.items()}


ConfigMap = Annotated[dict[str, str | None], BeforeValidator(_texts)]
"""Settings by name."""


class Body(BaseModel):
    """A body: what it does not name is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerInfo(Body):
    """``GET /``."""

    version: str = Field(description="the release of mm2py", examples=["0.1.0"])
    commit: str = Field(description="of the sources; always unknown")
    kafka_cluster_id: str = Field(description="of the first target cluster of this worker; empty while not known")


class TaskId(Body):
    """Names a task of a connector."""

    connector: str = Field(examples=["A->B.MirrorSourceConnector"])
    task: int


class ConnectorInfo(Body):
    """A connector and the settings of its flow."""

    name: str = Field(examples=["A->B.MirrorSourceConnector"])
    config: dict[str, str]
    tasks: list[TaskId]
    type: str = "source"


class ConnectorChanged(ConnectorInfo):
    """What a change of settings has come to: Connect's body, and more."""

    version: int = Field(description="of the flow's settings, for If-Match")
    restarts_for: list[str] = Field(
        description="the changed settings for which the flow is drained and restarts; the others take effect in place"
    )
    without_effect: list[str] = Field(description="settings that mm2py knows and that change nothing")


class ConnectorState(Body):
    """The state of a connector."""

    state: str = Field(examples=["RUNNING"])
    worker_id: str
    trace: str | None = None
    version: str | None = None


class CreateRequest(Body):
    """``POST /connectors``."""

    name: str = Field(examples=["A->B.MirrorSourceConnector"])
    config: ConfigMap
    initial_state: Literal["RUNNING", "PAUSED", "STOPPED"] | None = None


class TaskInfo(Body):
    """A task in ``GET /connectors/NAME/tasks``."""

    id: TaskId
    config: dict[str, str]


class ActiveTopics(Body):
    """The topics that a connector writes to."""

    topics: list[str]


class TaskState(Body):
    """The state of one task."""

    id: int
    state: str = Field(examples=["RUNNING"])
    worker_id: str
    trace: str | None = None
    version: str | None = None


class ConnectorStatus(Body):
    """``GET /connectors/NAME/status``."""

    name: str
    connector: ConnectorState
    tasks: list[TaskState]
    type: str = "source"


class Message(Body):
    """What came of a change of offsets."""

    message: str


class HealthBody(Body):
    """``GET /health``, ``/live`` and ``/ready``."""

    status: str = Field(examples=["healthy"])
    message: str


# -- plug-ins and loggers ----------------------------------------------------------------------------------------------


class PluginInfo(Body):
    """``GET /connector-plugins``."""

    class_name: str = Field(
        serialization_alias="class", examples=["org.apache.kafka.connect.mirror.MirrorSourceConnector"]
    )
    type: str = "source"
    version: str


class ConfigKey(Body):
    """What a setting is."""

    name: str
    type: str = "STRING"
    required: bool = False
    default_value: str | None
    importance: str = "MEDIUM"
    documentation: str
    group: str
    width: str = "MEDIUM"
    display_name: str
    dependents: list[str] = []
    order_in_group: int


class ConfigValue(Body):
    """What a setting would be, and what is wrong with it."""

    name: str
    value: str | None
    recommended_values: list[str] = []
    errors: list[str]
    visible: bool = True


class ConfigInfo(Body):
    """One setting of a ``ConfigsReport``."""

    definition: ConfigKey | None = Field(description="null: there is no such setting")
    value: ConfigValue


class ConfigsReport(Body):
    """``PUT /connector-plugins/NAME/config/validate``."""

    name: str
    error_count: int
    groups: list[str]
    configs: list[ConfigInfo]


class LoggerLevel(Body):
    """The level of a logger."""

    level: str = Field(examples=["INFO"])
    last_modified: int | None = Field(default=None, description="always null: it is not known")
