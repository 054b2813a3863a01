"""What may be written, and how it is named."""

import pytest

from mm2py.backfill.frames.write_options import TIMEOUT_MS, check_columns, write_options
from mm2py.errors import ConfigError

PLACE = {"file": "/etc/mm2.properties", "flow": "A->B", "side": "target", "topic": "copy"}
COLUMNS = {"partition": "int", "value": "string"}


def test_options_of_spark_are_passed_over_in_a_stream_only() -> None:
    given = PLACE | {"checkpointlocation": "/tmp/c", "compression": "ZSTD"}  # noqa: S108
    found = write_options(given, is_stream=True)
    assert (found.job, found.codec, found.transaction_timeout_ms) == (None, 4, TIMEOUT_MS)
    with pytest.raises(ConfigError, match="Unknown option 'checkpointlocation'"):
        write_options(given, is_stream=False)


@pytest.mark.parametrize("job", ["", "a b", "x" * 101, "a/b"])
def test_a_job_is_named_so_that_a_transactional_id_can_hold_it(job: str) -> None:
    with pytest.raises(ConfigError, match="Option job is"):
        write_options(PLACE | {"job": job}, is_stream=False)
    with pytest.raises(ConfigError, match="means nothing to a stream"):
        write_options(PLACE | {"job": "nightly"}, is_stream=True)


def test_columns_of_a_frame_that_was_read_are_allowed() -> None:
    read = {"topic": "string", "offset": "bigint", "timestampType": "int", "source_offset": "bigint"}
    check_columns(COLUMNS | read | {"headers": "array<struct<key:string,value:binary>>", "timestamp": "timestamp"})


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"value": "string"}, "no column partition"),
        ({"partition": "int"}, "no column value"),
        (COLUMNS | {"colour": "string"}, "no column 'colour'"),
        (COLUMNS | {"timestamp": "timestamp_ntz"}, "Column timestamp is of type timestamp_ntz"),
        (COLUMNS | {"partition": "string"}, "Column partition is of type string"),
    ],
)
def test_columns_that_are_no_part_of_a_record_are_refused(columns: dict[str, str], told: str) -> None:
    """B88."""
    with pytest.raises(ConfigError, match=told):
        check_columns(columns)
