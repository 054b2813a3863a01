"""Brokers for a trial run: no request reaches a cluster that could change it."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.metadata.v12.request import MetadataRequest
from kio.static.protocol import Payload

from mm2py.kafka import admin, messages
from mm2py.kafka.admin import NewTopic
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.port import ANY_BROKER, BrokerId, FetchRequest, ProduceRequest
from mm2py.kafka.trial_brokers import READING, VALIDATED, TrialBrokers, WouldChange, configs_of
from tests.fakes.broker.broker_model import ClusterModel
from tests.scenarios.world import World

WRITING = {
    messages.FindCoordinatorRequest,
    messages.AddPartitionsToTxnRequest,
    messages.CreateAclsRequest,
    messages.DeleteAclsRequest,
    messages.DeleteGroupsRequest,
    messages.DeleteTopicsRequest,
    messages.EndTxnRequest,
    messages.InitProducerIdRequest,
    messages.OffsetCommitRequest,
    messages.SaslAuthenticateRequest,
    messages.SaslHandshakeRequest,
    messages.WriteTxnMarkersRequest,
}


class Deaf:
    """Brokers that fail the test if they are asked anything."""

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        raise AssertionError(f"{type(request).__name__} was sent")


def test_every_request_of_mm2py_is_read_tried_or_refused() -> None:
    known: set[type[Payload]] = set(messages.REPLY_TO)
    assert {*READING, *VALIDATED, *WRITING} - {FetchRequest} == known


@pytest.mark.parametrize("kind", sorted(WRITING, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
async def test_a_request_that_writes_is_not_sent(kind: type[Any]) -> None:
    with pytest.raises(WouldChange, match=kind.__name__):
        await TrialBrokers(Deaf()).send(ANY_BROKER, object.__new__(kind))  # type: ignore[arg-type]
    with pytest.raises(WouldChange, match="ProduceRequest"):
        await TrialBrokers(Deaf()).send(ANY_BROKER, ProduceRequest([], timeout_ms=1))  # type: ignore[arg-type]


async def test_metadata_that_would_create_topics_is_not_asked_for() -> None:
    request = MetadataRequest(topics=(), allow_auto_topic_creation=True, include_topic_authorized_operations=False)
    with pytest.raises(WouldChange):
        await TrialBrokers(Deaf()).send(ANY_BROKER, request)  # type: ignore[arg-type]


@pytest.mark.virtual_time(limit_s=60)
async def test_topics_partitions_and_settings_are_tried_and_nothing_changes() -> None:
    world = World(1)
    target: ClusterModel = world.target
    target.create_topic("there", 1, {"retention.ms": "5"})
    trial = TrialBrokers(target)
    new = [NewTopic("new", 3, 1, {"retention.ms": "7"}), NewTopic("there", 1, 1, {}), NewTopic("wide", 1, 9, {})]
    with pytest.raises(WouldChange, match="FindCoordinatorRequest"):  # it makes brokers create Kafka's own topics
        await admin.find_coordinator(trial, "billing", transactions=False)
    assert (await fetch_metadata(trial, None)).topics.keys() == {"there"}
    answers = await admin.create_topics(trial, new)
    assert [name for name, refusal in answers.items() if refusal is None] == ["new"]
    assert (await admin.create_topics(trial, [NewTopic("tried", 1, 1, {})], validate_only=True))["tried"] is None
    assert list(trial.created) == ["new"] and configs_of(trial.created["new"]) == {"retention.ms": "7"}
    assert await admin.create_partitions(trial, {"there": 4}) == {"there": None}
    assert trial.widened == {"there": 4}
    assert await admin.alter_topic_configs(trial, {"there": {"retention.ms": "9"}}) == {"there": None}
    refusal = (await admin.alter_topic_configs(trial, {"there": {"retention.ms": "many"}}))["there"]
    assert refusal is not None
    assert list(target.topics) == ["there"]
    assert (len(target.topics["there"].partitions), target.topics["there"].overrides) == (1, {"retention.ms": "5"})
