"""Which changed settings restart the checkpoint connector of a flow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mm2py_connectors.wiring import checkpoint_parts
from tests.scenarios.world import flow_settings


def parts(*changes: tuple[str, str]) -> Any:
    current: Any = SimpleNamespace(settings=flow_settings(changes), is_settled=True)
    return checkpoint_parts(current)


@pytest.mark.parametrize("change", [("offset.lag.max", "7"), ("offset-syncs.topic.replication.factor", "2")])
def test_how_often_offset_syncs_are_written_is_nothing_to_it(change: tuple[str, str]) -> None:
    """It reads them, from one topic on one side."""
    assert parts() is not None
    assert parts(change) == parts()


@pytest.mark.parametrize(
    "change",
    [
        ("offset-syncs.topic.location", "target"),
        ("emit.offset-syncs.enabled", "false"),
        ("emit.checkpoints.interval.seconds", "5"),
        ("topics", "orders"),
        ("emit.checkpoints.enabled", "false"),
    ],
)
def test_what_it_reads_and_when_restarts_it(change: tuple[str, str]) -> None:
    assert parts(change) != parts()
