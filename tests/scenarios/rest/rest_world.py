"""The REST of a worker, on broker models and under virtual time: all but its sockets and its process."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2

from mm2py.kafka.port import BrokerId
from mm2py.logs import LEVELS
from mm2py.status.cluster_inquiry import Patience
from mm2py.status.inquiry import Inquiry
from mm2py.worker.facts import Health, WorkerFacts
from mm2py_rest.app import make_app
from mm2py_rest.clusters.live import LiveReport
from mm2py_rest.clusters.questions import FlowQuestions
from mm2py_rest.services import Services
from mm2py_rest.settings.changes import FlowChanges
from mm2py_rest.settings.offset_changes import OffsetChanges
from mm2py_rest.v1 import V1
from mm2py_rest.worker_link import WorkerSilent
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.open_rest import open_to_all, report_at_once
from tests.scenarios.settings.test_status_command import Link
from tests.scenarios.shared_world import SharedWorld

SOURCE, CHECKPOINT, HEARTBEAT = (
    f"/connectors/A->B.Mirror{kind}Connector" for kind in ("Source", "Checkpoint", "Heartbeat")
)


class FakeLink:
    """The worker's own answers, as the test sets them."""

    def __init__(self) -> None:
        self.health = Health.HEALTHY
        self.level = "info"
        self.is_silent = False

    async def facts(self) -> WorkerFacts:
        self._answer()
        return WorkerFacts(self.health, "as the test says")

    async def log_level(self) -> str:
        self._answer()
        return self.level

    async def set_log_level(self, level: str) -> None:
        self._answer()
        assert level in LEVELS
        self.level = level

    def _answer(self) -> None:
        if self.is_silent:
            raise WorkerSilent("The worker has not answered for 5 s.")


class _Link(Link):
    """REST's connection to a cluster, which may fall silent."""

    def __init__(self, alias: str, cluster: ClusterModel, rest: Rest) -> None:
        super().__init__(cluster, lambda *_: alias not in rest.away)
        self._alias = alias
        self._rest = rest

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        if type(request).__name__.startswith(self._rest.silent_from.get(self._alias, "none")):
            self._rest.silent.add(self._alias)
        if self._alias in self._rest.silent:
            await asyncio.Event().wait()
        return await super().send(broker, request, channel=channel)


class Rest(httpx2.AsyncClient):
    """Asks one worker's REST."""

    def __init__(
        self, world: SharedWorld, link: FakeLink, name: str, also: Mapping[str, ClusterModel], **extra: str
    ) -> None:
        file, rng = world.file(extra), random.Random(world.rng.random())
        configuration = file.configuration()
        self.away: set[str] = set()
        """Clusters that refuse connections."""
        self.silent: set[str] = set()
        """Clusters that accept requests and never answer."""
        self.silent_from: dict[str, str] = {}
        """By cluster, from which request on it is silent."""

        clusters = {"A": world.source, "B": world.target, **also}

        def connect(alias: str) -> Any:
            return _Link(alias, clusters[alias], self)

        inquiry = Inquiry(
            file,
            lambda _, cluster, __, ___: connect(cluster.alias),
            clock=world.clock,
            rng=rng,
            patience=Patience(world.clock),
        )
        self.inquiry = inquiry
        changes = {
            settings.flow: FlowChanges(
                file, settings, lambda: connect("B"), worker=name, clock=world.clock, rng=rng, log=world.log
            )
            for settings in configuration.flows
        }
        offsets = {
            settings.flow: OffsetChanges(
                lambda: connect("A"),
                lambda: connect("B"),
                configuration.groups[settings.flow.target],
                clock=world.clock,
                rng=rng,
            )
            for settings in configuration.flows
        }
        questions = {
            settings.flow: FlowQuestions(settings, lambda: connect("A"), lambda: connect("B"), world.clock)
            for settings in configuration.flows
        }
        self.failures: list[str] = []
        self.live = LiveReport(inquiry.look, world.clock, self.failures.append, make=report_at_once)

        async def cluster_id() -> str | None:
            return "id-B"

        services = Services(
            configuration,
            link,  # type: ignore[arg-type]
            self.live,
            changes,
            world.clock,
            cluster_id,
            V1(file, questions),
            offset_changes=offsets,
        )
        super().__init__(
            transport=httpx2.ASGITransport(open_to_all(make_app(services))), base_url="http://127.0.0.1:8083"
        )

    async def told(self, method: str, path: str, code: int, **more: Any) -> Any:
        """Ask, and return the body, None if it is empty; the status code has to be this one."""
        answer = await self.request(method, path, **more)
        assert answer.status_code == code, (answer.status_code, answer.text)
        body = answer.json() if answer.content else None
        assert (body is None) == (not answer.content), "a body that is null is not empty"
        return body


@contextlib.asynccontextmanager
async def rest_of(
    world: SharedWorld,
    link: FakeLink | None = None,
    name: str = "w1",
    also: Mapping[str, ClusterModel] | None = None,
    **extra: str,
) -> AsyncIterator[Rest]:
    """The REST process of a worker whose file has these lines, and clusters, besides; no worker need run."""
    async with Rest(world, link or FakeLink(), name, also or {}, **extra) as rest:
        running = asyncio.create_task(rest.live.run(), name="looks")
        try:
            yield rest
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await rest.inquiry.close()
            assert not rest.failures
