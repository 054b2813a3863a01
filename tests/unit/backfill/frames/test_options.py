"""Options as Spark hands them over, and what is refused."""

import pytest

from mm2py.backfill.frames.options import EARLIEST, LATEST, ClusterSide, OffsetColumns, ReadBound, read_options
from mm2py.errors import ConfigError

PLACE = {"file": "/etc/mm2.properties", "flow": "A->B", "side": "target", "topic": "A.orders"}


def test_what_is_left_out_reads_all_committed_records() -> None:
    found = read_options(PLACE, is_stream=False)
    assert (found.place.side, str(found.place.flow), found.place.topic) == (ClusterSide.TARGET, "A->B", "A.orders")
    assert (found.starting, found.ending) == (ReadBound(EARLIEST), ReadBound(LATEST))
    assert (found.partitions, found.read_committed, found.batches) == (None, True, False)
    assert (found.offset_columns, found.min_partitions) == (OffsetColumns.OWN, 1)


def test_names_count_in_any_case() -> None:
    given = {"startingoffsets": '{"0": 5, "1": -1}', "endingTIMESTAMP": "1700000000000", "partitions": "0,2, 5-7"}
    found = read_options(PLACE | given, is_stream=False)
    assert found.starting == ReadBound(EARLIEST, {0: 5, 1: LATEST})
    assert found.ending == ReadBound(LATEST, timestamp_ms=1_700_000_000_000)
    assert found.partitions == (0, 2, 5, 6, 7)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"startingOffset": "earliest"}, "Unknown option 'startingOffset'"),
        ({"startingOffsets": "first"}, "Option startingOffsets is 'first'"),
        ({"startingOffsets": '{"0": -3}'}, "Option startingOffsets is"),
        ({"startingOffsets": '{"t": {"0": 1}}'}, "Option startingOffsets is"),
        ({"startingOffsets": "earliest", "startingTimestamp": "5"}, "exclude each other"),
        ({"isolation": "committed"}, "Option isolation is 'committed'"),
        ({"partitions": "0-"}, "Option partitions is '0-'"),
        ({"minPartitions": "0"}, "Option minPartitions is '0'"),
        ({"maxOffsetsPerTrigger": "5"}, "means nothing to a batch read"),
        ({"topic": ""}, "Option topic is missing"),
        ({"side": "left"}, "Option side is 'left'"),
        ({"flow": "A"}, "is not a flow"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_options(PLACE | given, is_stream=False)
    assert told in str(raised.value)


def test_a_stream_has_no_end_and_may_be_limited() -> None:
    with pytest.raises(ConfigError, match="endingOffsets means nothing to a stream"):
        read_options(PLACE | {"endingOffsets": "latest"}, is_stream=True)
    assert read_options(PLACE | {"maxOffsetsPerTrigger": "500"}, is_stream=True).max_offsets_per_trigger == 500
