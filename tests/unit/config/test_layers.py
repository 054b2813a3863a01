"""Who overrides whom in a settings file, quirks of MirrorMaker 2 included."""

from __future__ import annotations

import pytest

from mm2py.config.layers import (
    Layer,
    cluster_pairs,
    cluster_props,
    connector_config,
    data_producer_config,
    flow_layers,
    worker_config,
)
from mm2py.config.properties import PropertyEntry, parse_properties
from mm2py.flow import ClusterAlias, Flow

A_TO_B = Flow(ClusterAlias("A"), ClusterAlias("B"))


def file(*lines: str) -> Layer:
    return parse_properties("\n".join(lines).encode()).entries


def value(layer: Layer, name: str) -> str | None:
    entry = layer.get(name)
    return None if entry is None else entry.value


@pytest.mark.parametrize(
    ("lines", "herders"),
    [
        ([], 6),
        (["emit.heartbeats.enabled=false"], 0),
        (["a->b.emit.heartbeats.enabled=false", "a->c.emit.heartbeats.enabled=false"], 4),
        (["emit.heartbeats.enabled=false", "a->b.enabled=true", "b->a.enabled=TRUE", "b->c.enabled=true"], 3),
        (
            [
                "emit.heartbeats.enabled=false",
                "a->b.enabled=true",
                "a->c.enabled=true",
                "c->a.emit.heartbeats.enabled=true",
            ],
            3,
        ),
        (["emit.heartbeats.enabled=no", "a->b.enabled=yes"], 0),
    ],
)
def test_heartbeats_make_a_herder_even_without_a_flow(lines: list[str], herders: int) -> None:
    assert len(cluster_pairs(file(*lines), ["a", "b", "c"])) == herders


def test_a_client_name_goes_down_to_the_cluster_and_its_clients() -> None:
    props = cluster_props(file("security.protocol=SSL", "A.bootstrap.servers=a:1", "A.admin.security.protocol=P"), "A")
    assert value(props, "bootstrap.servers") == value(props, "consumer.bootstrap.servers") == "a:1"
    assert value(props, "security.protocol") == value(props, "producer.security.protocol") == "SSL"
    assert value(props, "admin.security.protocol") == "P"


def test_other_names_stay_where_they_are() -> None:
    props = cluster_props(file("request.timeout.ms=1", "A.client.id=x", "consumer.isolation.level=y"), "A")
    assert sorted(props) == ["client.id"]


def test_an_alias_that_begins_another_takes_its_keys_too() -> None:
    assert value(cluster_props(file("A.B.client.id=x"), "A"), "B.client.id") == "x"


def test_the_top_of_the_file_overrides_the_cluster_for_storage_of_the_worker() -> None:
    worker = worker_config(file("offset.storage.topic=top", "B.offset.storage.topic=b", "B.group.id=g"), A_TO_B)
    assert value(worker, "offset.storage.topic") == "top"
    assert value(worker, "group.id") == "g"


def test_the_worker_is_named_after_the_source_and_set_by_the_target() -> None:
    lines = ["A.offset.flush.interval.ms=1", "B.offset.flush.interval.ms=2", "offset.flush.interval.ms=3"]
    worker = worker_config(file(*lines, "A->B.offset.flush.interval.ms=4"), A_TO_B)
    assert value(worker, "offset.flush.interval.ms") == "2"
    assert value(worker, "group.id") == "A-mm2"
    assert value(worker, "client.id") == "A->B"
    assert value(worker, "offset.storage.topic") == "mm2-offsets.A.internal"


def test_prefixes_of_the_worker_need_no_dot() -> None:
    worker = worker_config(file("taskforce=1", "workers=2", "offset.storages=3", "config.providers=x"), A_TO_B)
    assert {"taskforce", "workers", "offset.storages", "config.providers"} <= set(worker)


def test_a_connector_knows_its_own_names_from_the_top_and_any_from_its_flow() -> None:
    lines = ["topics=t", "use.defaults.from=source", "no.such.key=1", "replication.policymaker=2"]
    connector = connector_config(file(*lines, "A->B.anything=3", "A->B.topics=u"), A_TO_B)
    assert value(connector, "topics") == "u"
    assert value(connector, "anything") == "3"
    assert value(connector, "replication.policymaker") == "2"
    assert "use.defaults.from" not in connector
    assert "no.such.key" not in connector


def test_cluster_settings_of_a_connector_do_nothing_under_the_cluster() -> None:
    connector = connector_config(file("A.emit.checkpoints.interval.seconds=1"), A_TO_B)
    assert "emit.checkpoints.interval.seconds" not in connector
    assert value(connector, "source.cluster.emit.checkpoints.interval.seconds") == "1"


def test_the_order_of_the_data_consumer_from_strong_to_weak() -> None:
    lines = [
        "A->B.source.consumer.sasl.mechanism=1",
        "A.consumer.sasl.mechanism=2",
        "A.sasl.mechanism=3",
        "sasl.mechanism=4",
        "A->B.consumer.sasl.mechanism=5",
        "A->B.source.cluster.sasl.mechanism=6",
    ]
    for strongest in range(len(lines)):
        consumer = flow_layers(file(*lines[strongest:]), A_TO_B).consumer
        assert value(consumer, "sasl.mechanism") == str(strongest + 1)


def test_reading_begins_at_the_earliest_record_and_never_commits() -> None:
    consumer = flow_layers(file("A.consumer.enable.auto.commit=true"), A_TO_B).consumer
    assert value(consumer, "auto.offset.reset") == "earliest"
    assert value(consumer, "enable.auto.commit") == "false"


def test_the_data_producer_is_set_by_the_target_cluster_and_an_override() -> None:
    lines = ["A->B.producer.acks=0", "A->B.target.producer.acks=0", "A.producer.acks=0", "producer.acks=0"]
    producer = flow_layers(file(*lines, "B.producer.linger.ms=1", "B.bootstrap.servers=b:1"), A_TO_B).producer
    assert value(producer, "acks") == "all"
    assert value(producer, "linger.ms") == "1"
    assert value(producer, "bootstrap.servers") == "b:1"
    overridden = flow_layers(file("B.producer.acks=1", "A->B.producer.override.acks=-1"), A_TO_B).producer
    assert value(overridden, "acks") == "-1"


def test_without_addresses_the_data_producer_has_none() -> None:
    assert "bootstrap.servers" not in data_producer_config({}, {})


def test_every_value_keeps_where_it_was_written() -> None:
    layers = flow_layers(file("", "A.consumer.client.id=x"), A_TO_B)
    assert layers.consumer["client.id"] == PropertyEntry("x", "A.consumer.client.id", 2)
    assert layers.worker["group.id"].line is None
