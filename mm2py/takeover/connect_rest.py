"""Asks and steers a Kafka Connect over its REST: configurations, states and offsets of connectors.

Source: ConnectorsResource of Apache Kafka, connect/runtime; offsets by KIP-875, which Kafka 3.6 has.
"""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from mm2py.errors import ConfigError, Mm2Error

ANSWER_MOST_S: Final = 30.0
ANSWER_MAX_BYTES: Final = 64 << 20
STOPPED: Final = "STOPPED"
_AGAIN_S: Final = 0.5
_REBALANCES: Final = 409


class ConnectFailed(Mm2Error):
    """A Kafka Connect does not answer, or refuses."""


class _ConnectorStateBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    state: str


class _ConnectorStatusBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    connector: _ConnectorStateBody
    tasks: list[_ConnectorStateBody]


@dataclass(frozen=True, slots=True)
class ConnectorRuns:
    """What a connector does now."""

    state: str
    tasks: int

    @property
    def is_stopped(self) -> bool:
        return self.state == STOPPED and not self.tasks


class ConnectRest:
    """The REST of one Connect cluster; any of its workers answers for all."""

    def __init__(self, url: str) -> None:
        """Raises: ConfigError, it is no address."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise ConfigError("The address of Kafka Connect is wrong.", remedy="Write http://HOST:PORT.")
        if parts.username is not None or parts.password is not None:
            raise ConfigError(
                "A command line is no place for a password.",
                remedy="Save what GET /connectors?expand=info answers, and use --from-connect-json.",
            )
        self._is_tls = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port
        self._path = parts.path.rstrip("/")

    def __str__(self) -> str:
        port = "" if self._port is None else f":{self._port}"
        return f"{'https' if self._is_tls else 'http'}://{self._host}{port}{self._path}"

    async def connectors(self) -> Any:
        """Return the body of ``GET /connectors?expand=info``. Raises: ConnectFailed."""
        return await self._ask("GET", "/connectors?expand=info")

    async def runs(self, name: str) -> ConnectorRuns:
        """Return what a connector does now. Raises: ConnectFailed."""
        body = await self._ask("GET", f"/connectors/{_quoted(name)}/status")
        try:
            status = _ConnectorStatusBody.model_validate(body)
        except ValidationError as error:
            raise ConnectFailed(f"{self} tells no state of {name}.", remedy="Is it Kafka Connect?") from error
        return ConnectorRuns(status.connector.state, len(status.tasks))

    async def stop(self, name: str) -> None:
        """Let a connector stop. It has stopped when ``runs`` says so. Raises: ConnectFailed."""
        await self._ask("PUT", f"/connectors/{_quoted(name)}/stop")

    async def offsets(self, name: str) -> Any:
        """Return the body of the offsets of a connector. Raises: ConnectFailed."""
        return await self._ask("GET", f"/connectors/{_quoted(name)}/offsets")

    async def alter_offsets(self, name: str, body: Mapping[str, Any]) -> None:
        """Set offsets of a connector that has stopped. Raises: ConnectFailed."""
        await self._ask("PATCH", f"/connectors/{_quoted(name)}/offsets", body)

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the answer. While the workers rebalance, ask again until they have."""
        until_s = asyncio.get_running_loop().time() + ANSWER_MOST_S
        while True:
            status, answer = await asyncio.to_thread(self._ask_once, method, path, body)
            if status == _REBALANCES and asyncio.get_running_loop().time() < until_s:
                await asyncio.sleep(_AGAIN_S)
                continue
            if status >= http.client.MULTIPLE_CHOICES:
                raise ConnectFailed(
                    f"{self} answers {status} to {method} {path}{_message(answer)}.",
                    remedy="Offsets over REST need Kafka 3.6 or later there, and no proxy that asks for a login."
                    if status in {401, 403, 404, 405}
                    else "",
                )
            return answer

    def _ask_once(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, Any]:
        connect = http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
        connection = connect(self._host, self._port, timeout=ANSWER_MOST_S)
        try:
            data = None if body is None else json.dumps(body).encode()
            headers = {"Accept": "application/json", "Content-Type": "application/json"}
            connection.request(method, f"{self._path}{path}", data, headers)
            reply = connection.getresponse()
            text = reply.read(ANSWER_MAX_BYTES)
            is_json = "json" in (reply.getheader("Content-Type") or "")
            return reply.status, json.loads(text) if is_json and text else None
        except (OSError, http.client.HTTPException) as error:
            raise ConnectFailed(
                f"{self} does not answer: {type(error).__name__}: {error}.",
                remedy="Is this the REST of a worker of Kafka Connect, and is it reachable from here?",
            ) from error
        except (ValueError, RecursionError) as error:
            raise ConnectFailed(f"{self} answers no JSON to {method} {path}.", remedy="Is it Kafka Connect?") from error
        finally:
            connection.close()


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _message(answer: Any) -> str:
    found = answer.get("message") if isinstance(answer, dict) else None
    return f": {found[:300]}" if isinstance(found, str) else ""
