"""Records that somebody else has written to the configs topic, beside a worker that runs its flow: S26."""

from __future__ import annotations

import asyncio
import json

import pytest

from mm2py.records.connector_config import FLOW_KEY, DecidedBy, encode_flow
from mm2py.shared_settings.flow_config import changed
from tests.scenarios.config_world import FlowWorker, put
from tests.scenarios.world import World

OURS = json.loads(encode_flow(changed(None, {"topics": "two", "enabled": "true"}, DecidedBy.APPLY)))


def flow_record(**fields: object) -> bytes:
    return json.dumps(OURS | fields).encode()


@pytest.mark.virtual_time(limit_s=600)
async def test_a_running_worker_goes_on_beside_hostile_records_and_tells_of_them() -> None:
    world = World(34)
    worker = FlowWorker(world, "w1", {"topics": "one"})
    before = await worker.start()
    for value in (
        flow_record(properties={"topics": "\ud800"}),
        flow_record(version=1 << 70),
        flow_record(by="canary"),
        b"[" * 100_000,
        b'{"readable_from":1}',
    ):
        keys = (
            FLOW_KEY,
            b"target-state-MirrorSourceConnector",
            b"mm2py-restart",
            b"connector-MirrorSourceConnector",
        )
        await put(world, *((key, value) for key in keys), (b"unknown", b"\xff"))
    await asyncio.sleep(5)
    assert worker.is_running and worker.settings is before and worker.heard == []
    told = world.log_text.getvalue()
    assert told.count("config.malformed") >= 1 and "mm2-configs.A.internal-0 at offset" in told
    assert "canary" not in told
