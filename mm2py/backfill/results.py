"""What a backfill has copied: one row for each range that was copied without a break, kept as Parquet.

Together the rows of a partition reach from the first offset of the backfill to its seam. MirrorMaker 2 has no backfill.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mm2py.backfill.copy_job import arrow_schema
from mm2py.copying.reading.ledger_table import LedgerTable
from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow import Flow
from mm2py.kafka.port import Brokers
from mm2py.logs import make_logger
from mm2py.offsets.ledger import Ledger
from mm2py.offsets.runs import Entry, Run
from mm2py.topics.names import ledger_topic

Row = Mapping[str, Any]
"""See ``mm2py_connectors.backfill.attempt.CopiedRange``."""
NOWHERE: Final = "none"


class NotKept(Mm2Error):
    """The results of a backfill that is done cannot be written."""


def folder_of(text: str) -> Path | None:
    """Read the value of ``--parquet``; None: the results are not kept."""
    return None if text == NOWHERE else Path(text)


def check_folder(folder: Path) -> None:
    """Make sure that results can be kept in a folder, before anything is copied.

    Raises:
        ConfigError: they cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        why = "" if os.access(folder, os.W_OK | os.X_OK) else "it is not writable"
    except OSError as error:
        why = error.strerror or str(error)
    if why:
        raise ConfigError(
            f"The results of the backfill cannot be kept in {folder.absolute()}: {why}.",
            remedy=f"Name another folder with --parquet DIR, or keep no results with --parquet {NOWHERE}.",
        )


def keep(rows: Sequence[Row], folder: Path, backfill_id: str) -> Path:
    """Write the rows to a Parquet file, and return its absolute path.

    Raises:
        NotKept: the disk is full, or the folder is gone.
    """
    import pyarrow as pa  # noqa: PLC0415  (an extra)
    import pyarrow.parquet as pq  # noqa: PLC0415

    path = (folder / f"mm2py-backfill-{backfill_id}.parquet").absolute()
    try:
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=arrow_schema()), path)
    except OSError as error:
        raise NotKept(
            f"The results cannot be kept in {path}: {error.strerror or error}.",
            remedy="The backfill is done. Keep the results that are printed.",
        ) from error
    return path


async def counted_by_ledger(rows: Sequence[Row], flow: Flow, target: Brokers) -> Sequence[Row]:
    """Return the rows, completed from the ledger where attempts were lost: with record counts and target offsets.

    If the ledger cannot be read, these stay unknown, and a warning is logged.
    """
    if all(row["records"] is not None for row in rows):
        return rows
    log = make_logger("warning", "text")
    ledgers = LedgerTable(target, ledger_topic(flow.source), log)
    try:
        await ledgers.follow()
    except Mm2Error as error:
        log.warning("backfill.not_counted", why=str(error), effect="what killed attempts copied is not told")
    return [counted(row, ledgers.of((row["topic"], row["partition"])).newest) for row in rows]


def counted(row: Row, ledger: Ledger | None) -> Row:
    """Complete a row without a record count from the newest ledger of its partition; return other rows unchanged."""
    first, end = row["source_first"], row["source_next"]
    if row["records"] is not None or ledger is None or ledger.source_start > first or ledger.copied_to < end:
        return row  # it does not cover the whole range
    records, target_first, target_next = 0, row["target_first"], row["target_next"]
    for entry in ledger.entries(behind=first):
        if entry.source_offset >= end:
            break
        before, behind = max(first - entry.source_offset, 0), max(entry.source_end - end, 0)
        if (count := _copied(entry, before, behind)) is None:
            return row
        if count and target_first is None:
            target_first = entry.target_offset + before
        if count and (target_next is None or target_next < entry.target_offset + before + count):
            target_next = entry.target_offset + before + count
        records += count
    return {**row, "records": records, "target_first": target_first, "target_next": target_next}


def _copied(entry: Entry, before: int, behind: int) -> int | None:
    """Return how many records of an entry were copied, without some offsets at its begin and its end.

    Args:
        before: how many offsets at its begin do not count.
        behind: how many offsets at its end do not count.
    Returns:
        None if the entry does not say it.
    """
    if isinstance(entry, Run):
        return entry.record_count - before - behind
    if not entry.cause.is_copied:
        return 0
    return None if before or behind else entry.target_count
