"""REST without clusters: a worker's file and its facts are real values, and nothing is ever written."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fastapi import FastAPI
from starlette.testclient import TestClient

from mm2py.config.rest import Exposure
from mm2py.copying.replay import ReplaySelection
from mm2py.logs import make_logger
from mm2py.metrics.worker_numbers import WorkerSnapshot
from mm2py.records.audit_record import AuditRecord
from mm2py.records.author import Author
from mm2py.records.connector_config import DecidedBy, FlowConfig
from mm2py.records.pause_record import PausedPart
from mm2py.shared_settings.flow_config import difference
from mm2py.status.report import Report
from mm2py.worker.facts import Health, WorkerFacts
from mm2py_rest.access.admission import App, RequestGate
from mm2py_rest.access.audit import Audit
from mm2py_rest.access.authentication import Authentication
from mm2py_rest.access.local_token import LocalToken
from mm2py_rest.access.sessions import Sessions
from mm2py_rest.access.users import UsersFile
from mm2py_rest.app import make_app
from mm2py_rest.built_page import BuiltPage
from mm2py_rest.services import Services
from mm2py_rest.settings.changes import Changed, PlannedChange
from mm2py_rest.settings.loss_changes import LossOutcome
from tests.fakes import v1_services
from tests.fakes.worker_snapshot import worker as worker_snapshot


class FixedClock:
    """A clock that stops until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def boottime(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)


class FakeLink:
    """A worker that reports its health and its counters."""

    async def facts(self) -> WorkerFacts:
        return WorkerFacts(Health.HEALTHY, "It runs.")

    async def log_level(self) -> str:
        return "info"

    async def set_log_level(self, level: str) -> None:
        pass

    async def snapshot(self) -> WorkerSnapshot:
        return worker_snapshot()


class EndedEvents:
    """A stream that ends at once; a real one continues as long as its client listens."""

    async def stream(self, *_: object, **__: object) -> AsyncIterator[str]:
        yield ": alive\n\n"


class FakeLive(v1_services.FakeLive):
    async def report(self) -> Report:
        return self.found.report

    def changed(self) -> None:
        pass


class FakeChanges:
    """Keeps settings in memory."""

    flow = v1_services.FLOW
    by_file: Mapping[str, str] = MappingProxyType({"topics": "orders"})

    def __init__(self) -> None:
        self.config: FlowConfig | None = None

    async def stored(self) -> FlowConfig | None:
        return self.config

    def plan(self, stored: FlowConfig | None, wanted: Mapping[str, str]) -> PlannedChange:
        before = self.by_file if stored is None else stored.properties
        return PlannedChange(FlowConfig(dict(wanted), DecidedBy.REST, 0), difference(before, wanted))

    async def change(self, wanted: Any, *, version: int | None, author: Author) -> Changed:
        before = self.config
        version = 1 if before is None else before.version + 1
        self.config = FlowConfig(wanted(before), DecidedBy.REST, version, author=author)
        return Changed(self.config, ())

    async def direct(self, *_: object) -> None:
        pass

    async def pause(self, *_: object) -> None:
        pass

    async def resume(self, *_: object) -> list[PausedPart]:
        return []

    async def restart(self, *_: object) -> None:
        pass

    async def set_log_level(self, *_: object) -> None:
        pass


class FakeLosses:
    """Does what it is asked for, and keeps it."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.refusal: Exception | None = None
        self.is_done = True

    async def accept(self, _: object, topic: str, partition: int, position: int | None) -> LossOutcome:
        return self._outcome("accept", topic, partition, position)

    async def replay(self, _: object, selection: ReplaySelection, *, stop_partitions: bool) -> LossOutcome:
        return self._outcome("replay", selection, stop_partitions)

    def _outcome(self, *asked: object) -> LossOutcome:
        self.asked.append(asked)
        if self.refusal is not None:
            raise self.refusal
        return LossOutcome(self.is_done, "It is told.")


def make_services() -> Services:
    """Return the services of a worker of ``A->B``. Its file also has ``B->A``, which is refused."""
    fakes: Any = {
        "link": FakeLink(),
        "live": FakeLive(v1_services.facts_of()),
        "changes": {v1_services.FLOW: FakeChanges()},
        "loss_changes": {v1_services.FLOW: FakeLosses()},
    }
    return replace(v1_services.services(events=EndedEvents()), **fakes)


class Guarded:
    """An application behind its gate, with its log and its audit records."""

    def __init__(
        self,
        app: App,
        exposure: Exposure,
        users: Path | None = None,
        token: Path | None = None,
        clock: FixedClock | None = None,
        **options: Any,
    ) -> None:
        self.clock = clock or FixedClock()
        self.text = io.StringIO()
        log = make_logger("debug", "json", self.text)
        self.told: list[AuditRecord] = []
        self.users = None if users is None else UsersFile(users, lambda why: log.warning("security.stale", why=why))
        authentication = None if self.users is None else Authentication(self.users, self.clock, log)
        audit = Audit(None, log, self.clock, worker="host:1")
        audit.tell = self._tell(audit.tell)  # type: ignore[method-assign]
        local = LocalToken(token, self.clock, log)
        proofs: Any = {"authentication": authentication, "token": local}
        self.gate = RequestGate(app, exposure, audit=audit, log=log, **proofs, **options)

    def _tell(self, tell: Any) -> Any:
        def both(*arguments: Any, **named: Any) -> None:
            caller, method, path = arguments
            self.told.append(
                AuditRecord(0, caller.user.name, caller.proof, caller.address, method, path, worker="", **named)
            )
            tell(*arguments, **named)

        return both

    def client(self, address: str = "192.0.2.7", certificate: bytes | None = None) -> TestClient:
        """Return a client that connects from ``address``, perhaps with a certificate."""

        async def connected(scope: Any, receive: Any, send: Any) -> None:
            scope.setdefault("state", {})["certificate"] = certificate
            await self.gate(scope, receive, send)

        return TestClient(
            connected, base_url="http://localhost:8083", client=(address, 4000), raise_server_exceptions=False
        )

    @property
    def log(self) -> str:
        return self.text.getvalue()


def guarded(
    exposure: Exposure = Exposure.EVERYONE,
    page: BuiltPage | None = None,
    services: Services | None = None,
    **options: Any,
) -> Guarded:
    """Return the whole REST application of a worker behind a gate; ``page``: the web page that it serves."""
    services, app = services or make_services(), _app()
    services.page = page or services.page
    clock = FixedClock()
    services.sessions = Sessions(clock)

    async def of_these_services(scope: Any, receive: Any, send: Any) -> None:
        app.state.services = services
        await app(scope, receive, send)

    return Guarded(of_these_services, exposure, clock=clock, sessions=services.sessions, **options)


@cache
def _app() -> FastAPI:
    """Return the application, the same for all tests: making its routes takes a while."""
    return make_app(make_services())
