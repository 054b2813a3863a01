"""What an executor of Spark does for a backfill: reads the settings file, connects, and runs one attempt of a task.

The file must exist on every executor, with the same content as on the driver. So no secret leaves the file.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mm2py.backfill.copy_job import TaskOrder
from mm2py.clock import SystemClock
from mm2py.config.configuration import flow_of, read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.connector import Side
from mm2py.errors import ConfigError
from mm2py.event_loop import loop_factory
from mm2py.flow_clusters import both_of
from mm2py.kafka.producer.fencing import TransactionalId
from mm2py.kafka.transport.wire import FrameMemory, keep_large_blocks
from mm2py.logs import make_logger
from mm2py.records.backfill_record import process_of
from mm2py.records.connector_config import decode_flow
from mm2py.shared_settings.follow import merged_or_file
from mm2py_connectors.backfill.attempt import Attempt, CopiedRange

if TYPE_CHECKING:
    import pyarrow as pa


def digest_of(path: Path) -> str:
    """Return a digest of a settings file's content. Raises: ConfigError, it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read on {os.uname().nodename}: {error.strerror}.",
            remedy="Put the settings file at the same path on the driver and on every executor.",
        ) from error


def check(order: TaskOrder) -> None:
    """Raises: ConfigError, if the settings file is missing here, or differs from the driver's."""
    if digest_of(Path(order.file)) != order.file_digest:
        raise ConfigError(
            f"{order.file} on {os.uname().nodename} is not the file of the driver.",
            remedy="Put the same settings file on the driver and on every executor.",
        )


def settings_of(order: TaskOrder) -> FlowSettings:
    """Return the settings of a task: those that workers share, the addresses of the file, and the task's own rate.

    Raises: as ``check``; ConfigError.
    """
    check(order)
    file = read_settings_file(Path(order.file), None)
    settings = flow_of(file, order.flow)
    if order.stored is not None:
        settings = merged_or_file(file, settings, decode_flow(order.stored, settings.configs_topic))
    if order.max_bytes_per_second is not None:
        settings = replace(settings, bytes_per_second_max=order.max_bytes_per_second)
    return settings


def copy(order: TaskOrder, attempt: int) -> list[Mapping[str, Any]]:
    """Run one attempt of a task, and return a row for each partition.

    Raises:
        Mm2Error: the attempt failed; another one continues where this one stopped.
    """
    keep_large_blocks()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return [asdict(one) for one in runner.run(_copy(order, attempt))]


def copy_rows(order: TaskOrder, attempt: int, rows: Iterator[pa.RecordBatch]) -> list[Mapping[str, Any]]:
    """Like ``copy``, but copies the rows that Spark has kept of the task's only partition. Raises: as ``copy``."""
    keep_large_blocks()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:  # its end waits for the thread that waits for rows
        return [asdict(one) for one in runner.run(_copy(order, attempt, rows))]


async def _copy(order: TaskOrder, attempt: int, rows: Iterator[pa.RecordBatch] | None = None) -> list[CopiedRange]:
    settings = settings_of(order)
    memory = read_settings_file(Path(order.file), None).configuration().memory_max_bytes
    rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
    frames = FrameMemory(memory // 2)
    async with both_of("backfill", settings, rng, frames) as both, AsyncExitStack() as stack:
        source, target = (
            Side(alias, brokers, brokers.check_bootstrap, brokers.reads_topic_ids)
            for alias, brokers in zip((settings.source.alias, settings.target.alias), both, strict=True)
        )
        if rows is not None:
            from mm2py.backfill.pipeline.filtered_source import FilteredSource  # noqa: PLC0415  (an extra)

            ((key, wanted),) = order.ranges.items()
            filtered = FilteredSource(both.source, key, wanted, partial(asyncio.to_thread, next, rows, None))
            stack.push_async_callback(filtered.close)
            source = replace(source, brokers=filtered)
            settings = replace(settings, bytes_per_second_max=None)  # Spark keeps to the rate when it reads
        name = TransactionalId(
            settings.group, process_of(order.backfill, order.task), order.attempt(attempt), str(settings.flow)
        )
        log = make_logger(order.log_level, "text").bind(backfill=order.backfill, task=order.task, attempt=attempt)
        one = Attempt(settings, source, target, name, order.ranges, clock=SystemClock(), rng=rng, log=log)
        return await one.run(memory)
