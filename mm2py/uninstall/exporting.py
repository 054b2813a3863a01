"""Positions and ledger of a flow as JSON lines, before their topics are removed. MirrorMaker 2 has no counterpart."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mm2py.config.settings import FlowSettings
from mm2py.copying.reading.internal_table import read_table
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias
from mm2py.kafka.cluster import ClusterMetadata
from mm2py.kafka.port import Brokers
from mm2py.records import ledger_record
from mm2py.records.java_struct import MalformedRecord
from mm2py.records.source_offset import MalformedPosition, decode_key
from mm2py.topics.names import ledger_topic

POSITIONS_FILE: Final = "positions.jsonl"
LEDGER_FILE: Final = "ledger.jsonl"


class ExportFailed(Mm2Error):
    """The files cannot be written, so nothing is removed."""


async def export(settings: FlowSettings, target: Brokers, metadata: ClusterMetadata, folder: Path) -> dict[str, int]:
    """Write what is stored into a new folder, and return the number of lines of each file.

    Raises:
        ExportFailed: the folder holds something, or cannot be written.
        DamagedTopic, KafkaError: as ``read_table``.
    """
    positions = await _last_of_each(target, metadata, settings.offsets_topic)
    ledger = await _last_of_each(target, metadata, str(ledger_topic(settings.flow.source)))
    lines = {
        POSITIONS_FILE: list(_positions(positions, settings.flow.source)),
        LEDGER_FILE: list(map(_chunk, ledger.items())),
    }
    await asyncio.to_thread(_write_all, folder, lines)
    return {name: len(all_lines) for name, all_lines in lines.items()}


def _write_all(folder: Path, lines: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ExportFailed(f"{folder} is not empty.", remedy="Name a new folder with --export.")
        for name, all_lines in lines.items():
            _write(folder / name, all_lines)
    except OSError as error:
        why = f"{folder} cannot be written: {error.strerror}."
        raise ExportFailed(why, remedy="Name another with --export.") from error


async def _last_of_each(brokers: Brokers, metadata: ClusterMetadata, name: str) -> dict[bytes, bytes]:
    topic, found = metadata.topics.get(name), dict[bytes, bytes]()

    def take(key: bytes | None, value: bytes | None) -> None:
        if key is not None and value is None:
            found.pop(key, None)
        elif key is not None and value is not None:
            found[key] = value

    if topic is not None:
        await read_table(brokers, topic, take)
    return found


def _positions(records: Mapping[bytes, bytes], source: ClusterAlias) -> Iterable[dict[str, Any]]:
    for key, value in records.items():
        try:
            partition = decode_key(key)
        except MalformedPosition:
            yield _raw(key, value)
            continue
        if partition is not None and partition.cluster == source:
            yield {"topic": partition.topic, "partition": partition.partition, "value": _json(value)}


def _chunk(record: tuple[bytes, bytes]) -> dict[str, Any]:
    key, value = record
    try:
        chunk = ledger_record.decode(key, value)
    except (MalformedRecord, ledger_record.NewerLedgerFormat):
        chunk = None
    if chunk is None:
        return _raw(key, value)
    return {
        "topic": chunk.key.topic,
        "partition": chunk.key.partition,
        "ledger": chunk.key.number,
        "source_offset": chunk.key.source_offset,
        "target_offset": chunk.target_offset,
        "copied_to": chunk.copied_to,
        "is_whole": chunk.is_whole,
        "is_rebuilt": chunk.is_rebuilt,
        "entries": [[*entry] for entry in chunk.entries],
    }


def _raw(key: bytes, value: bytes) -> dict[str, Any]:
    return {"key_hex": key.hex(), "value_hex": value.hex()}


def _json(value: bytes) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return {"value_hex": value.hex()}


def _write(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    with path.open("x") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
