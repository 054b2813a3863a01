"""Whether a group of MirrorMaker 2 copies a flow, by the stored settings of its connectors."""

from __future__ import annotations

import json

import pytest

from mm2py.shared_settings.running_mm2 import SETTINGS_KEY, TASKS_KEY, is_switched_off


def settings(**properties: str) -> bytes:
    return json.dumps({"properties": {"connector.class": "x", **properties}}).encode()


OFF, ON = settings(enabled="false"), settings(enabled="true")


@pytest.mark.parametrize("off", [OFF, settings(enabled=" False "), None])
@pytest.mark.parametrize("tasks", [{}, {TASKS_KEY: b'{"tasks":0}'}, {TASKS_KEY: None}])
def test_a_source_connector_without_task_that_is_off_or_deleted_copies_nothing(
    off: bytes | None, tasks: dict[bytes, bytes | None]
) -> None:
    assert is_switched_off({SETTINGS_KEY: off, **tasks})


def test_a_flow_that_has_found_no_topic_yet_counts_as_copying() -> None:
    """It has no task yet, and would start to copy the first topic."""
    assert not is_switched_off({SETTINGS_KEY: ON, TASKS_KEY: b'{"tasks":0}'})


def test_a_flow_that_was_just_switched_off_counts_as_copying_while_it_has_tasks() -> None:
    assert not is_switched_off({SETTINGS_KEY: OFF, TASKS_KEY: b'{"tasks":2}'})


def test_a_worker_that_has_just_started_counts_as_copying() -> None:
    assert not is_switched_off({})
    assert not is_switched_off({TASKS_KEY: b'{"tasks":0}'})


@pytest.mark.parametrize("value", [b"\xff", b"[]", b'{"properties":null}', settings(), settings(enabled="${file:on}")])
def test_settings_that_cannot_be_read_count_as_copying(value: bytes) -> None:
    assert not is_switched_off({SETTINGS_KEY: value})


@pytest.mark.parametrize("value", [b"\xff", b"[]", b"{}", b'{"tasks":null}'])
def test_tasks_that_cannot_be_read_count_as_copying(value: bytes) -> None:
    assert not is_switched_off({SETTINGS_KEY: OFF, TASKS_KEY: value})
