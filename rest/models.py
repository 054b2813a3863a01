"""The bodies of Kafka Connect's REST API, as its clients know them. Source: connect/runtime, rest.entities."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


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


class HealthBody(Body):
    """``GET /health``."""

    status: str = Field(examples=["healthy"])
    message: str
