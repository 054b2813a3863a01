"""What becomes of a checkpoint's batches, once the places of its offsets are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mm2py.relocate.placing import KeptOffset, PlacedOffset, PlaceInLog
from mm2py.relocate.relocation import Relocation, kept_offsets, relocation_of
from mm2py.relocate.spark_layout import CheckpointRefused, KeptBatches, read_batch

ID, ID_THERE = "9b4adb83-529a-4f05-92ab-0a21052be4d8", "00000000-0000-4000-8000-000000000007"
LINES = (f'{{"topic_id": "{ID}", "0": 4, "2": 6}}', "-", '{"pay":{"0":1},"refund":{"0":2}}')
BATCHES = {number: read_batch(number, "\n".join(("v1", '{"batchWatermarkMs":5}', *LINES))) for number in (6, 7)}


def placed(one: KeptOffset, *, unknown: tuple[str, ...] = ()) -> PlacedOffset:
    topic = one.topic or "orders"
    place = PlaceInLog(None, "not copied yet", "Wait.") if topic in unknown else PlaceInLog(one.offset + 100, "copied")
    return PlacedOffset(one, topic, f"A.{topic}", ID_THERE, place)


def found(batches: KeptBatches, *, unknown_before: tuple[str, ...] = (), unknown: tuple[str, ...] = ()) -> Relocation:
    places = {
        number: [placed(one, unknown=unknown_before if number == 6 else unknown) for one in kept_offsets(batch)]
        for number, batch in BATCHES.items()
    }
    return relocation_of(batches, BATCHES, places)


def test_every_source_gets_the_names_ids_and_offsets_of_the_other_cluster() -> None:
    relocation = found(KeptBatches(6, 7, None))
    assert [batch.text().split("\n") for batch in relocation.batches] == [
        [
            "v1",
            '{"batchWatermarkMs":5}',
            f'{{"topic_id": "{ID_THERE}", "0": 104, "2": 106}}',
            "-",
            '{"A.pay":{"0":101},"A.refund":{"0":102}}',
        ]
    ] * 2
    assert [(one.batch, one.source, one.topic, one.partition, one.other_offset) for one in relocation.offsets] == [
        (7, 0, "orders", 0, 104),
        (7, 0, "orders", 2, 106),
        (7, 2, "pay", 0, 101),
        (7, 2, "refund", 0, 102),
    ]
    assert relocation.refused is None and relocation.why == ""
    assert relocation.topics() == {"orders": "A.orders", "pay": "A.pay", "refund": "A.refund"}


def test_the_batch_before_the_last_one_may_have_no_position_and_decides_nothing() -> None:
    relocation = found(KeptBatches(6, 7, None), unknown_before=("orders",))
    assert relocation.refused is None
    assert [batch.text().split("\n")[2] for batch in relocation.batches] == [
        "-",
        f'{{"topic_id": "{ID_THERE}", "0": 104, "2": 106}}',
    ]


def test_two_topics_that_become_one_are_refused() -> None:
    def merged(one: KeptOffset) -> PlacedOffset:
        return replace(placed(one), other_topic="A.all")

    places = {number: [merged(one) for one in kept_offsets(batch)] for number, batch in BATCHES.items()}
    with pytest.raises(CheckpointRefused, match=r"Two topics of the query are copied to A\.all"):
        relocation_of(KeptBatches(6, 7, None), BATCHES, places)


def test_both_ends_of_a_planned_batch_must_be_known() -> None:
    planned = KeptBatches(None, 6, 7)
    assert [(one.batch, one.is_planned) for one in found(planned).offsets][3:5] == [(6, False), (7, True)]
    for unknown in ({"unknown_before": ("pay",)}, {"unknown": ("pay",)}):
        relocation = found(planned, **unknown)
        assert relocation.refused is not None and relocation.refused.topic == "pay"
        assert relocation.why == "pay-0 1: not copied yet"
    assert found(planned, unknown=("orders",)).why == "orders-0 4: not copied yet, and 1 more"
