"""The options of ``df.write.format("mm2py")``. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mm2py.backfill.frames.options import PLACE_OPTIONS, Options, TopicPlace
from mm2py.errors import ConfigError
from mm2py.records.compression import Codec

TIMEOUT_MS: Final = 300_000
JOB_MOST: Final = 100
_SPARKS_OWN: Final = ("checkpointLocation", "queryName", "path")
"""Options of the query, which Spark also passes to the data source."""
_JOB: Final = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where and how rows are written."""

    place: TopicPlace
    job: str | None
    """Names the write, so that a rerun skips tasks that were committed. A stream is named by its checkpoint."""
    codec: int
    transaction_timeout_ms: int


def write_options(given: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """Read the options of a writer.

    Args:
        given: as Spark passes them: names in any case.
    Raises:
        ConfigError: one is unknown, missing or wrong; the error names it.
    """
    known = (*PLACE_OPTIONS, "job", "compression", "transactionTimeoutMs")
    sparks_own = {name.lower() for name in _SPARKS_OWN} if is_stream else set[str]()
    options = Options({name: value for name, value in given.items() if name.lower() not in sparks_own}, known)
    options.check_known()
    job = options.text("job")
    if job is not None and is_stream:
        raise ConfigError(
            "Option job means nothing to a stream: its checkpointLocation names it.", remedy="Leave it out."
        )
    if job is not None and (not _JOB.fullmatch(job) or len(job) > JOB_MOST):
        raise ConfigError(f"Option job is {job!r}.", remedy=f"Use up to {JOB_MOST} letters, digits, '.', '_' or '-'.")
    codec = options.choice("compression", *(codec.name.lower() for codec in Codec))
    return WriteOptions(
        options.place(),
        job,
        int(Codec[codec.upper()]),
        options.number("transactionTimeoutMs", least=1) or TIMEOUT_MS,
    )


_REQUIRED: Final = ("value", "partition")
_BYTES: Final = ("binary", "string")
_TYPES: Final = {
    "value": _BYTES,
    "partition": ("int", "bigint", "smallint", "tinyint"),
    "key": _BYTES,
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
_OF_READER: Final = frozenset({"topic", "offset", "timestampType", "source_offset", "target_offset"})
"""Columns of a frame that was read. They are ignored: they say where a record was."""


def check_columns(columns: Mapping[str, str]) -> None:
    """Check the columns of a frame that is to be written.

    Args:
        columns: name to type, as Spark writes it in short.
    Raises:
        ConfigError: one is missing, unknown or of another type.
    """
    for name in _REQUIRED:
        if name not in columns:
            raise ConfigError(
                f"The frame has no column {name}.",
                remedy="Add .withColumn('partition', ...): mm2py chooses none." if name == "partition" else "Add it.",
            )
    for name, kind in columns.items():
        if name in _OF_READER:
            continue
        if name not in _TYPES:
            raise ConfigError(f"A record has no column {name!r}.", remedy=f"Drop it; there are: {', '.join(_TYPES)}.")
        if kind not in _TYPES[name]:
            raise ConfigError(f"Column {name} is of type {kind}.", remedy=f"Cast it to {' or '.join(_TYPES[name])}.")
