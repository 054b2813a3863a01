"""How long the history of a flow keeps those waiting who ask for it."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
import structlog

from mm2py.clock import SystemClock
from mm2py_rest.history.log import READ_MOST_S, HistoryLog, HistorySilent
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.world import flow_settings


async def _never() -> Any:
    await asyncio.Event().wait()


def test_nobody_waits_longer_for_the_history_because_others_wait_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waited for all those before: the fifth page that asked had its answer after 25 seconds."""

    async def ask_at_once() -> None:
        history = HistoryLog(
            flow_settings(),
            lambda: pytest.fail("not asked"),
            clock=SystemClock(),
            rng=random.Random(1),
            log=structlog.get_logger(),
        )
        monkeypatch.setattr(history, "_read_on", _never)
        begun_s = asyncio.get_running_loop().time()
        found = await asyncio.gather(*(history.read() for _ in range(5)), return_exceptions=True)
        assert [type(one) for one in found] == [HistorySilent] * 5
        assert asyncio.get_running_loop().time() - begun_s == pytest.approx(READ_MOST_S)
        assert "took more than 5 s" in history.problem

    run_virtual(ask_at_once(), seed=1)
