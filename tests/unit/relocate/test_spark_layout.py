"""The files of a checkpoint, as PySpark 4.3 wrote them: ``checkpoints`` beside this file is what two real queries left.

Both counted the records of two partitions, in three batches; one read by format mm2py, one by Spark's own kafka.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2py.relocate.spark_layout import (
    CheckpointRefused,
    KeptBatches,
    SourceFormat,
    SourcePosition,
    kept_batches,
    read_batch,
)

CHECKPOINTS = Path(__file__).parent / "checkpoints"
TOPIC_ID = "9b4adb83-529a-4f05-92ab-0a21052be4d8"


def text_with(*lines: str, version: str = "v1") -> str:
    return "\n".join((version, '{"batchWatermarkMs":0}', *lines))


@pytest.mark.parametrize("name", ["mm2py", "kafka"])
def test_what_spark_wrote_is_read_and_written_again_byte_for_byte(name: str) -> None:
    files = sorted((CHECKPOINTS / name / "offsets").glob("[0-9]*"))
    assert [file.name for file in files] == ["0", "1", "2"]
    for file in files:
        assert read_batch(int(file.name), file.read_text()).text() == file.read_text()


def test_positions_of_both_formats_are_known_and_a_source_may_have_none_yet() -> None:
    (own,) = read_batch(2, (CHECKPOINTS / "mm2py" / "offsets" / "2").read_text()).sources
    assert own == SourcePosition(SourceFormat.MM2PY, TOPIC_ID, {"": {0: 10, 1: 10}})
    (kafka,) = read_batch(2, (CHECKPOINTS / "kafka" / "offsets" / "2").read_text()).sources
    assert kafka == SourcePosition(SourceFormat.KAFKA, "", {"orders": {0: 10, 1: 10}})
    text = text_with('{"a":{"1":5,"10":7},"topic_id":{"0":0}}', "-")
    batch = read_batch(3, text)
    assert [one.format for one in batch.sources] == [SourceFormat.KAFKA, SourceFormat.NONE]
    assert batch.sources[0].topics == {"a": {1: 5, 10: 7}, "topic_id": {0: 0}}
    assert batch.text() == text


@pytest.mark.parametrize(
    "line",
    [
        '{"logOffset":7}',
        "7",
        "{}",
        '{"orders":{}}',
        '{"orders":{"0":-1}}',
        '{"orders":{"0":true}}',
        '{"orders":{"0":5},"more":5}',
        '{"orders":{"x":5}}',
        '{"topic_id":"","0":5}',
        '{"topic_id":"9b4adb83"}',
        '{"topic_id":"9b4adb83","0":"5"}',
    ],
)
def test_a_source_of_another_kind_is_refused_by_name(line: str) -> None:
    with pytest.raises(CheckpointRefused, match=r"offsets/9, source 1 has the position .* neither of format mm2py"):
        read_batch(9, text_with('{"orders":{"0":5}}', line))


@pytest.mark.parametrize("text", ["", "v1", text_with("-", version="v2"), text_with("-", version="")])
def test_another_layout_is_refused(text: str) -> None:
    with pytest.raises(CheckpointRefused, match="offsets/9 has version"):
        read_batch(9, text)


def test_spark_needs_the_last_committed_batch_and_its_neighbour() -> None:
    assert kept_batches([0], [0]) == KeptBatches(None, 0, None)
    assert kept_batches([3, 4, 5], [3, 4, 5]) == KeptBatches(4, 5, None)
    assert kept_batches([3, 4, 5, 6], [3, 4, 5]) == KeptBatches(None, 5, 6)
    assert kept_batches([5], [5]) == KeptBatches(None, 5, None)
    assert kept_batches([5, 6], [5]).counted == (5, 6)


@pytest.mark.parametrize(
    ("planned", "committed", "why"),
    [
        ([0], [], "No batch of this query is committed"),
        ([], [0], "Batch 0 is the last one in commits"),
        ([4], [4, 5], "Batch 5 is the last one in commits"),
        ([4, 5, 6, 7], [4, 5], "batch 7 the last one in offsets"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(planned: list[int], committed: list[int], why: str) -> None:
    with pytest.raises(CheckpointRefused, match=why):
        kept_batches(planned, committed)
