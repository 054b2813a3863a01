"""REST without clusters: a worker's file and what it says of itself are real values, and nothing is ever written."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.config.rest import Exposure
from mm2py.connector import Flow
from mm2py.logs import make_logger
from mm2py.metrics.snapshot import WorkerSnapshot
from mm2py.records.audit_record import AuditRecord
from mm2py.records.connector_config import FlowConfig, Writer
from mm2py.status.facts import Facts
from mm2py.status.report import Report, report_of
from mm2py.worker.facts import Health, WorkerFacts
from rest.access.audit import Audit
from rest.access.authentication import Authentication
from rest.access.gate import App, Gate
from rest.access.users import UsersFile
from rest.app import make_app
from rest.changes import Changed
from rest.events.feed import EventFeed
from rest.live import View
from rest.services import Services
from rest.v1 import V1
from tests.fakes.worker_snapshot import worker

FILE = """clusters=A,B
A.bootstrap.servers=a.example:9092
B.bootstrap.servers=b.example:9092
A->B.enabled=true
B->A.enabled=true
"""


class FixedClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def boottime(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)


class FakeLink:
    async def facts(self) -> WorkerFacts:
        return WorkerFacts("host:1", "0.1.0", Health.HEALTHY, "It runs.", (), {})

    async def snapshot(self) -> WorkerSnapshot:
        return worker()


class FakeLive:
    async def report(self) -> Report:
        return (await self.view()).report

    async def view(self, *, since_s: float | None = None) -> View:
        facts = Facts(0, {}, [], [], {})
        return View(since_s or 0.0, facts, report_of(facts))


class FakeChanges:
    """Keeps settings in memory."""

    def __init__(self, file: SettingsFile, flow: Flow) -> None:
        self.by_file: Mapping[str, str] = file.shared(flow)
        self.config: FlowConfig | None = None

    async def stored(self) -> FlowConfig | None:
        return self.config

    async def change(self, wanted: Any, *, version: int | None) -> Changed:
        before = self.config
        self.config = FlowConfig(wanted(before), Writer.REST, 1 if before is None else before.version + 1)
        return Changed(self.config, before is None, ())


def make_services(directory: Path, text: str = FILE) -> Services:
    """Return the services of a worker with this settings file."""
    path = directory / "mm2.properties"
    path.write_text(text)
    file = read_settings_file(path, None)
    configuration = file.configuration()
    changes = {settings.flow: FakeChanges(file, settings.flow) for settings in configuration.flows}

    async def cluster_id() -> str:
        return "cluster-b"

    events = EventFeed()
    asyncio.run(events.close())  # a stream of them ends at once
    fakes: Any = (FakeLink(), FakeLive(), changes)
    return Services(configuration, *fakes, FixedClock(), cluster_id, V1(file, events=events))


class Guarded:
    """An application behind its gate, and what was logged and told of it."""

    def __init__(self, app: App, exposure: Exposure, users: Path | None = None, **options: Any) -> None:
        self.clock = FixedClock()
        self.text = io.StringIO()
        log = make_logger("debug", "json", self.text)
        self.told: list[AuditRecord] = []
        self.users = None if users is None else UsersFile(users, lambda why: log.warning("security.stale", why=why))
        authentication = None if self.users is None else Authentication(self.users, self.clock, log)
        audit = Audit(None, log, self.clock, worker="host:1")
        audit.tell = self._tell(audit.tell)  # type: ignore[method-assign]
        self.gate = Gate(app, exposure, audit=audit, log=log, authentication=authentication, **options)

    def _tell(self, tell: Any) -> Any:
        def both(*arguments: Any, **named: Any) -> None:
            caller, method, path = arguments
            self.told.append(
                AuditRecord(0, caller.user.name, caller.proof, caller.address, method, path, worker="", **named)
            )
            tell(*arguments, **named)

        return both

    def client(self, address: str = "192.0.2.7", certificate: bytes | None = None) -> TestClient:
        """Return a client whose connection comes from an address, perhaps with a certificate."""

        async def connected(scope: Any, receive: Any, send: Any) -> None:
            scope.setdefault("state", {})["certificate"] = certificate
            await self.gate(scope, receive, send)

        return TestClient(
            connected, base_url="http://localhost:8083", client=(address, 4000), raise_server_exceptions=False
        )

    @property
    def log(self) -> str:
        return self.text.getvalue()


def guarded(directory: Path, exposure: Exposure = Exposure.EVERYONE, **options: Any) -> Guarded:
    """Return the whole REST application of a worker behind a gate."""
    return Guarded(make_app(make_services(directory)), exposure, **options)
