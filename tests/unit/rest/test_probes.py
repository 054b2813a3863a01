"""``/live`` and ``/ready``: what the worker says of itself, and what is said of one that says nothing."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from mm2py.worker.facts import Health, WorkerFacts
from mm2py_rest.app import make_app
from mm2py_rest.worker_link import WorkerSilent
from tests.fakes.rest_services import make_services


class _Link:
    def __init__(self, facts: WorkerFacts | None) -> None:
        self._facts = facts

    async def facts(self) -> WorkerFacts:
        if self._facts is None:
            raise WorkerSilent("The worker has not answered for 5 s.")
        return self._facts


def ask(path: str, facts: WorkerFacts | None) -> tuple[int, str, str]:
    services = make_services()
    services.link = _Link(facts)  # type: ignore[assignment]
    answer = TestClient(make_app(services)).get(path)
    return answer.status_code, answer.json()["status"], answer.json()["message"]


@pytest.mark.parametrize("health", Health)
def test_a_worker_lives_as_long_as_it_answers_also_while_it_drains(health: Health) -> None:
    assert ask("/live", WorkerFacts(health, "why", "why")) == (200, "alive", "why")
    assert ask("/live", None) == (503, "silent", "The worker has not answered for 5 s.")


def test_a_worker_is_ready_only_if_nothing_of_its_own_keeps_it_from_copying() -> None:
    assert ask("/ready", WorkerFacts(Health.HEALTHY, "It runs.")) == (200, "ready", "It runs.")
    unready = WorkerFacts(Health.HEALTHY, "It runs.", "It runs none of its flows. A->B: no right")
    assert ask("/ready", unready) == (503, "not ready", "It runs none of its flows. A->B: no right")
    assert ask("/ready", None) == (503, "not ready", "The worker has not answered for 5 s.")
