"""The newest snapshot that a joiner may begin with, in the end of the control log that it has read so far. Pure.

A snapshot is the fold of all records below ``covers``, and so true whoever wrote it. Not so if the log was cut back
since, or made anew: the story is that of a leader that has read to 95, while the log is cut back to 80 and grows again;
what it appends before it notices tells of records that are gone. So a snapshot goes with the topic id and the leader
epoch of the last record that it covers: after a cut other records stand there, under a higher epoch.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from mm2py.errors import Mm2Error
from mm2py.records.control_record import ControlRecord, Snapshot

HISTORY: Final = "history"
"""The header of a snapshot's records: ``<topic id>:<leader epoch>``."""


class Item(NamedTuple):
    """One record of the log as it was read. Junk has neither record nor error."""

    offset: int
    leader_epoch: int
    time_ms: int
    record: ControlRecord | None
    error: Mm2Error | None = None
    """Why nobody may read over it."""
    history: str = ""


class Found(NamedTuple):
    """A whole snapshot."""

    snapshot_id: str
    covers: int
    state: str
    offset: int
    """Of its first part."""
    history: str


def history_of(topic_id: uuid.UUID | None, leader_epoch: int) -> str:
    """Return the header's value; without an epoch, as of a record that the writer has not read itself, only the id."""
    return f"{topic_id}:{leader_epoch if leader_epoch >= 0 else ''}"


def newest_whole(items: Sequence[Item], void: Collection[str]) -> Found | None:
    """Return the newest snapshot of which all parts are there, leaving out those whose id is in ``void``."""
    parts: dict[str, dict[int, Item]] = {}
    for item in reversed(items):
        snapshot = item.record
        if not isinstance(snapshot, Snapshot) or snapshot.snapshot_id in void:
            continue
        found = parts.setdefault(snapshot.snapshot_id, {})
        found[snapshot.part] = item
        if all(number in found for number in range(snapshot.parts)):
            texts = [found[number].record for number in range(snapshot.parts)]
            return Found(
                snapshot.snapshot_id,
                snapshot.covers,
                "".join(text.state for text in texts if isinstance(text, Snapshot)),
                min(part.offset for part in found.values()),
                item.history,
            )
    return None


def is_of_this_log(found: Found, items: Sequence[Item], topic_id: uuid.UUID | None, log_start_offset: int) -> bool:
    """Tell whether the snapshot covers records of this log, all that follow being there.

    Args:
        items: must begin at the last record that it covers, or at the log start.
    """
    if not log_start_offset <= found.covers <= found.offset:
        return False
    its_id, _, its_epoch = found.history.partition(":")
    if its_id not in {"", str(None), str(topic_id)} and topic_id is not None:
        return False
    last = next((item for item in items if item.offset == found.covers - 1), None)
    return last is None or not its_epoch or its_epoch == str(last.leader_epoch)
