"""What a change of settings would come to is told before it is made, and is what it comes to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mm2py_rest.clusters.live import FRESH_S
from tests.scenarios.rest.rest_world import SOURCE, Rest
from tests.scenarios.rest.test_connectors_over_rest import one_worker
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)

VALIDATE = "/v1/flows/A->B/config/validate"


async def planned(rest: Rest, **wanted: str | None) -> dict[str, Any]:
    found: dict[str, Any] = await rest.told("PUT", VALIDATE, 200, json=wanted)
    return found


async def test_what_would_change_and_what_would_restart_is_what_then_does() -> None:
    async with one_worker(topics="t0") as (_, _, rest):
        wanted = {"topics": "t0, t1", "exactly.once.source.support": "preparing", "offset.lag.max": "100"}
        found = await planned(rest, **wanted)
        assert [(one["name"], one["old"], one["new"], one["in_place"]) for one in found["changes"]] == [
            ("exactly.once.source.support", None, "preparing", False),
            ("topics", "t0", "t0, t1", True),
        ], "offset.lag.max has this value already, by default"
        assert (found["version"], found["restarts"], found["errors"], found["problem"]) == (1, True, {}, "")
        assert any("the next round of discovery" in text for text in found["changes"][1]["concerns"])
        assert (await rest.get(f"{SOURCE}/config")).headers["etag"] == '"1"', "nothing was changed"
        changed = await rest.told("PATCH", f"{SOURCE}/config", 200, json=wanted, headers={"If-Match": '"1"'})
        assert changed["restarts_for"] == ["exactly.once.source.support"]
        await asyncio.sleep(FRESH_S)
        found = await planned(rest, topics=None)
        assert [(one["name"], one["old"], one["new"]) for one in found["changes"]] == [("topics", "t0, t1", None)]
        assert (found["version"], found["restarts"]) == (2, False)
        assert (await planned(rest, **wanted))["changes"] == []


async def test_each_wrong_setting_has_its_message_and_the_right_ones_are_shown() -> None:
    async with one_worker(topics="t0") as (_, _, rest):
        wanted = {
            "tasks.max": "canary",
            "topics": "(?:a{3000}){3000}",
            "no.such": "x",
            "source.cluster.bootstrap.servers": "169.254.169.254:80",
            "producer.override.sasl.jaas.config": "hunter2",
            "offset.lag.max": "7",
            "errors.tolerance": "all",
        }
        answer = await rest.put(VALIDATE, json=wanted)
        found = answer.json()
        assert found["errors"].keys() == wanted.keys() - {"offset.lag.max", "errors.tolerance"}
        assert found["errors"]["tasks.max"] == "it is not a whole number"
        assert (
            "addresses and credentials cannot be changed over REST"
            in found["errors"]["source.cluster.bootstrap.servers"]
        )
        assert [one["name"] for one in found["changes"]] == ["offset.lag.max"]
        assert found["without_effect"] == ["errors.tolerance"]
        assert not any(value in answer.text for value in ("canary", "169.254", "hunter2"))


async def test_settings_that_cannot_be_together_are_named_before_they_are_stored() -> None:
    async with one_worker(topics="t0") as (_, _, rest):
        wanted = {"source.consumer.fetch.max.wait.ms": "99999999"}
        found = await planned(rest, **wanted)
        assert found["errors"] == {}
        assert "fetch.max.wait.ms has to be below the consumer's request.timeout.ms" in found["problem"]
        told = await rest.told("PATCH", f"{SOURCE}/config", 400, json=wanted)
        assert found["problem"] in told["message"]
