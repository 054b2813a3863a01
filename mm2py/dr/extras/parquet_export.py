"""Exports extra records as Parquet files, one for each partition: needs pyarrow, which ``mm2py[spark]`` brings.

A file is written beside its name first, and renamed when it is whole. So a file with its own name is complete, and a
call that was killed is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mm2py.dr.extras.extras_inquiry import ExtrasInquiry
from mm2py.dr.extras.found import PartitionExtras
from mm2py.errors import Mm2Error

ROWS_AT_ONCE: Final = 10_000


class ExportRefused(Mm2Error):
    """Records cannot be exported to files here."""


def require_pyarrow() -> None:
    """Raises: ExportRefused, pyarrow is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401, PLC0415  (an extra)
    except ImportError as error:
        raise ExportRefused(
            "Parquet files need pyarrow, which is not installed.",
            remedy="Install mm2py[spark], or export to a topic: --export-topic NAME.",
        ) from error


async def export_parquet(parts: Sequence[PartitionExtras], inquiry: ExtrasInquiry, folder: Path) -> int:
    """Write the files, and return how many records they have.

    Raises: ExportRefused; as ``ExtrasInquiry.records``.
    """
    require_pyarrow()
    count = 0
    try:
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        for part in parts:
            count += await _export(part, inquiry, folder)
    except OSError as error:
        raise ExportRefused(
            f"Nothing can be written to {folder}: {error.strerror or error}.", remedy="Name another folder."
        ) from error
    return count


async def _export(part: PartitionExtras, inquiry: ExtrasInquiry, folder: Path) -> int:
    import pyarrow as pa  # noqa: PLC0415  (an extra)
    import pyarrow.parquet as pq  # noqa: PLC0415

    header = pa.struct([("name", pa.string()), ("value", pa.binary())])
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp_ms", pa.int64()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(header)),
        ]
    )
    path = folder / file_name(part)
    beside = path.with_suffix(".part")
    count, rows = 0, list[dict[str, Any]]()
    with pq.ParquetWriter(beside, schema) as writer:
        async for record in inquiry.records(part):
            count += 1
            rows.append(
                {
                    "topic": part.topic,
                    "partition": part.number,
                    "offset": record.offset,
                    "timestamp_ms": record.timestamp_ms,
                    "key": record.key,
                    "value": record.value,
                    "headers": [{"name": _text(name), "value": value} for name, value in record.headers],
                }
            )
            if len(rows) == ROWS_AT_ONCE:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                rows = []
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    await asyncio.to_thread(beside.replace, path)
    return count


def _text(name: str) -> str:
    """Return the name of a header without bytes that are no text."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def file_name(part: PartitionExtras) -> str:
    """Return the name of a partition's file: topic, partition, first and next offset."""
    return f"{part.topic}-{part.number}-{part.first}-{part.end}.parquet"
