"""What the client refuses before it asks any broker."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError

from mm2py.client import DefaultReplicationPolicy, MirrorClient

pytestmark = pytest.mark.real_time

CLIENT = MirrorClient(bootstrap_servers="127.0.0.1:1")


@pytest.mark.parametrize("option", ["group_id", "isolation_level", "value_deserializer"])
def test_options_that_would_change_what_is_read_are_refused(option: str) -> None:
    with pytest.raises(TypeError, match=f"sets {option} itself"):
        MirrorClient(bootstrap_servers="127.0.0.1:1", **dict[str, Any]({option: "mine"}))


@pytest.mark.parametrize(
    "asked",
    [
        CLIENT.heartbeat_topics,
        lambda: CLIENT.remote_consumer_offsets("group", "A"),
        lambda: CLIENT.remote_consumer_offsets_matching(re.compile("g.*"), "A"),
        lambda: CLIENT.translate("A", {("orders", 0): [1]}),
    ],
    ids=["topics", "group", "groups", "translate"],
)
async def test_a_client_that_is_not_connected_says_how_to_connect_it(asked: Any) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await asked()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda: CLIENT.translate("A", {("orders", 0): [5, -1]}), "orders-0: an offset is at least 0, not -1"),
        (lambda: CLIENT.translate_back("A", {("A.orders", 2): [-7]}), "A.orders-2: an offset is at least 0, not -7"),
        (lambda: CLIENT.translate_back("A", {("orders", 0): [5]}), "orders is no remote topic of A"),
        (lambda: CLIENT.translate_back("A", {("B.orders", 0): [5]}), "B.orders is no remote topic of A"),
    ],
)
async def test_offsets_and_topics_that_cannot_be_are_named(asked: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        await asked()


async def test_nothing_is_asked_of_the_brokers_for_no_offsets() -> None:
    assert await CLIENT.translate("A", {}) == {}
    assert await CLIENT.translate_back("A", {}) == {}


async def test_a_cluster_that_cannot_be_reached_is_an_error_at_once_and_leaves_no_task_behind() -> None:
    with pytest.raises(KafkaConnectionError):
        async with MirrorClient(bootstrap_servers="127.0.0.1:1", policy=DefaultReplicationPolicy(separator="_")):
            pass
    assert ({task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}) == set()
