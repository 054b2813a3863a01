"""How a worker decides between the stored settings of a flow and those in its own file. Pure.

The workers of a flow run the stored settings; a file is a way to store some. The first worker that runs a flow stores
those of its file. While others run it, a different file is drift: it is shown, and replaces the stored settings only
when an operator says so (``mm2py apply``, ``--apply``, REST). Settings that MM2 has stored, or that no live worker
runs, are replaced by the file of the worker that starts. But a file that has not changed does not replace what an
operator has changed last.

A changed setting concerns some parts of a flow (``reach``). A part that may change in place uses the new settings from
its next round or request on: nothing stops. A row of the table that names no part concerns the whole flow: its tasks
are drained and restart, which is safe for any setting, and costs a pause.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from mm2py import __version__
from mm2py.config.flow_part import FlowPart
from mm2py.config.flow_properties import (
    FlowProperties,
    looks_like_address_or_secret,
    meaning,
    properties_of_connector,
    shown_change,
    stored_keys,
)
from mm2py.config.row import Status
from mm2py.records.author import UNKNOWN, Author, with_reason
from mm2py.records.connector_config import ConfigRecords, DecidedBy, FlowConfig, told_writer
from mm2py.records.history_record import HistoryEntry, SettingChange, settings_entry

SEEN_MOST: Final = 200
DECIDED_MOST: Final = 100
_OPERATOR: Final = frozenset({DecidedBy.APPLY, DecidedBy.REST})


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that differs; None: it is not set, and has its default."""

    name: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        """Return the change as operators read it; a value that may be secret is never shown."""
        return shown_change(self.name, self.old, self.new)


Difference = tuple[Change, ...]


def difference(old: FlowProperties, new: FlowProperties) -> Difference:
    """Return the settings whose meaning differs, by name; how they are spelled does not count."""
    return tuple(
        Change(name, old.get(name), new.get(name))
        for name in sorted(old.keys() | new.keys())
        if meaning(name, old.get(name)) != meaning(name, new.get(name))
    )


def digest(properties: FlowProperties) -> str:
    """Return a hash of a flow's settings: the same for all that have the same meaning."""
    meant = {name: meaning(name, value) for name, value in sorted(properties.items())}
    text = json.dumps([(name, repr(means)) for name, means in meant.items() if means != meaning(name, None)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def counting(records: ConfigRecords) -> FlowConfig | None:
    """Return the settings that count, by the records of a topic; None if there are none.

    Settings that MM2 has stored without copying the flow do not count. Those that MM2 stored over ours have ours as
    ``previous``.
    """
    foreign, ours = records.foreign, None if records.flow is None else storable(records.flow)
    if foreign is not None and not records.is_beside_mm2:
        return FlowConfig(properties_of_connector(foreign), DecidedBy.MM2, 0, previous=ours)
    return ours


def storable(config: FlowConfig) -> FlowConfig:
    """Return a record's settings without those that may not be stored.

    The story: an operator has written addresses and a password under our key by hand. A worker that stores these
    settings again would copy them, also to where Connect's readers look. Settings that only a newer mm2py knows are
    kept, unless they look like an address or a secret.
    """
    known, is_younger = stored_keys(), _number_of(config.written_by) > _number_of(__version__)
    properties = {
        name: value
        for name, value in config.properties.items()
        if name in known or (is_younger and not looks_like_address_or_secret(name))
    }
    previous = None if config.previous is None else storable(config.previous)
    if len(properties) == len(config.properties) and previous == config.previous:
        return config
    return replace(config, properties=properties, previous=previous)


def _number_of(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]{1,9}", version)[:3])


class StartChoice(StrEnum):
    """What a worker runs when it starts, named as its log event."""

    ADDED = "config.added"
    """Nothing was stored: it stores its file."""
    REPLACED = "config.replaced"
    """It stores its file in the place of other settings, which are kept for ``mm2py apply --previous``."""
    USED = "config.used"
    """It runs what is stored, and its file has the same settings."""
    KEPT = "config.kept"
    """It runs what is stored: an operator has changed that, and the file has not changed."""
    DRIFTED = "config.drift"
    """It runs what is stored, as others do, and shows how its file differs."""


@dataclass(frozen=True, slots=True)
class StartDecision:
    """The settings with which a worker starts a flow."""

    choice: StartChoice
    config: FlowConfig
    difference: Difference = ()
    """The changes that lead from the stored settings to the file."""
    to_store: FlowConfig | None = None
    """``config`` itself, or the same with this worker's file remembered; None if nothing has to be stored."""
    why: str = ""


def decide(
    stored: FlowConfig | None,
    file: FlowProperties,
    *,
    runners: Collection[str],
    apply: bool = False,
    lost_to: FlowConfig | None = None,
) -> StartDecision:
    """Decide which settings a worker runs that starts a flow.

    Args:
        stored: the settings that count (``counting``).
        file: the settings in this worker's file.
        runners: the other workers alive that run the flow, whatever version they have applied.
        apply: ``--apply``: the operator wants this file.
        lost_to: what another live worker stored, when this one wanted to store its file.
    """
    wanted = _taken(stored, file, DecidedBy.APPLY if apply else DecidedBy.FILE)
    if stored is None:
        return StartDecision(StartChoice.ADDED, wanted, to_store=wanted)
    found = difference(stored.properties, file)
    note = None if digest(file) in stored.seen[-(SEEN_MOST // 2) :] else remembering(stored, file)
    is_run = bool(runners) or (lost_to is not None and lost_to.write_id == stored.write_id)
    why = "no live worker runs it"
    if apply:
        if not found and stored.by is not DecidedBy.MM2:
            return StartDecision(StartChoice.USED, stored, to_store=note)
        why = "--apply"
    elif stored.by is DecidedBy.MM2 and is_run and stored.previous is not None:
        # MM2 has overwritten what others run: they continue, and store theirs again (``follow``); so does this worker.
        decision = decide(stored.previous, file, runners=runners)
        return decision if decision.choice is StartChoice.REPLACED else replace(decision, to_store=None)
    elif stored.by is DecidedBy.MM2:
        why = "MirrorMaker 2 has written it"
    elif not found:
        return StartDecision(StartChoice.USED, stored, to_store=note)
    elif is_run:
        return StartDecision(StartChoice.DRIFTED, stored, found, note)
    elif stored.by in _OPERATOR and digest(file) in {*stored.seen, *stored.decided}:
        return StartDecision(StartChoice.KEPT, stored, found, note)
    return StartDecision(StartChoice.REPLACED, wanted, found, wanted, why)


def depends_on_runners(
    stored: FlowConfig | None, file: FlowProperties, *, apply: bool = False, lost_to: FlowConfig | None = None
) -> bool:
    """Whether it matters to ``decide``, with the same arguments, that another worker runs the flow."""
    alone, beside = (decide(stored, file, runners=who, apply=apply, lost_to=lost_to) for who in ((), ("another",)))
    return alone != beside


def _taken(stored: FlowConfig | None, file: FlowProperties, by: DecidedBy) -> FlowConfig:
    config = changed(stored, file, by)
    return config if by is DecidedBy.FILE else remembering(config, file)


def changed(stored: FlowConfig | None, properties: FlowProperties, by: DecidedBy) -> FlowConfig:
    """Return what is to be stored in the place of ``stored``; its writer adds its own name and the time.

    After a change by an operator all files that were seen before count as unchanged; so does a file with the previous
    or the new settings. The decisions of operators are kept in a list of their own: however many there are, no worker's
    file is forgotten. After a change by a file any other file counts as changed.
    """
    seen: tuple[str, ...] = (digest(properties),)
    decided: tuple[str, ...] = ()
    if by in _OPERATOR:
        seen = () if stored is None else stored.seen
        decided = latest(
            () if stored is None else (*stored.decided, digest(stored.properties)),
            digest(properties),
            most=DECIDED_MOST,
        )
    return FlowConfig(
        dict(properties),
        by,
        _next_version(stored),
        seen=seen,
        decided=decided,
        previous=None if stored is None else replace(stored, previous=None, seen=(), decided=()),
    )


def latest(before: Iterable[str], one: str, *, most: int) -> tuple[str, ...]:
    """Return digests with one more, at most ``most``: those that have not been seen for the longest are dropped."""
    return (*dict.fromkeys(each for each in before if each != one), one)[-most:]


def _next_version(stored: FlowConfig | None) -> int:
    """Return the next version. What MM2 stored has none: the count continues from ours before it, if that is known."""
    before = [] if stored is None else [stored, *([] if stored.previous is None else [stored.previous])]
    return max((one.version for one in before), default=0) + 1


def remembering(stored: FlowConfig, file: FlowProperties) -> FlowConfig:
    """Return the same settings with a worker's file noted: if its worker starts alone later, it counts as unchanged."""
    return replace(stored, seen=latest(stored.seen, digest(file), most=SEEN_MOST))


def swapped(stored: FlowConfig | None) -> FlowConfig | None:
    """Return the settings before the last change, to be stored by an operator; None if there are none."""
    if stored is None or stored.previous is None:
        return None
    return changed(stored, stored.previous.properties, DecidedBy.APPLY)


def winner_of(since: Sequence[FlowConfig], basis: str, own_id: str) -> FlowConfig | None:
    """Return the settings that count among those that others wrote before our own write; None if there are none.

    A write wins if its writer had read the write just before it. Other writes lose, also ours.

    Args:
        since: what was written after what we had read, in the order of the log.
        basis: the write_id of what we had read.
        own_id: the write_id of our own write.
    """
    winner, before = None, basis
    for one in since:
        if one.write_id == own_id:
            break
        if one.based_on == before:
            winner = one
        before = one.write_id
    return winner


def entry_of(
    before: FlowConfig | None, stored: FlowConfig, *, at_ms: int, author: Author, worker: str, again: str
) -> HistoryEntry | None:
    """Return the history entry for settings that are stored; None: a worker has only noted its file.

    Args:
        before: what counted until then.
        author, worker: who stores it now.
        again: why a worker that ran these settings stores them once more; empty: they are a new decision.
    """
    changes = () if before is None else difference(before.properties, stored.properties)
    if before is not None and before.by is not DecidedBy.MM2 and not changes and not again:
        return None
    if again:
        author = replace(author, reason="")
        by = with_reason(told_writer(DecidedBy.FILE, author, worker), f"stored again, as {again}")
    else:
        author = stored.author
        by = stored.who if author != UNKNOWN else f"{stored.by} ({worker})"
    return settings_entry(
        [SettingChange(change.name, str(change)) for change in changes],
        at_ms=at_ms,
        by=by,
        author=author,
        writer=stored.by,
        worker=worker,
        version=stored.version,
        write_id=stored.write_id,
    )


# -- while a flow runs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Follow:
    """Run what is stored now. ``touched`` names the settings whose meaning has changed."""

    config: FlowConfig
    touched: frozenset[str]

    @property
    def parts(self) -> frozenset[FlowPart]:
        """The parts of the flow that these settings concern."""
        return reach(self.touched)


@dataclass(frozen=True, slots=True)
class Restore:
    """What this worker runs is lost or was overwritten, and not by a worker of mm2py: store it again."""

    config: FlowConfig
    why: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing has changed."""


News = Follow | Restore | Keep


def follow(applied: FlowConfig, stored: FlowConfig | None) -> News:
    """Decide what a worker that runs ``applied`` does about what is stored now."""
    if stored is None or stored.by is DecidedBy.MM2:
        why = "it is gone" if stored is None else "MirrorMaker 2 has written over it"
        version = max(applied.version, 0 if stored is None else _next_version(stored) - 1) + 1
        return Restore(replace(applied, version=version), why)
    if stored.version < applied.version:
        return Restore(replace(applied, version=applied.version + 1), "an older one came back: its topic was cut back")
    found = difference(applied.properties, stored.properties)
    if stored.version == applied.version and not found:
        return Keep()
    return Follow(stored, frozenset(change.name for change in found))


def behind(version: int, applied: Mapping[str, int]) -> list[str]:
    """Return the workers that have not applied a version yet, by name."""
    return sorted(worker for worker, theirs in applied.items() if theirs < version)


def reach(touched: Iterable[str]) -> frozenset[FlowPart]:
    """Return the parts of a flow that changed settings concern; none for settings that do nothing yet."""
    keys = (stored_keys().get(name) for name in touched)
    return frozenset(
        part
        for key in keys
        if key is not None and key.status is Status.WORKS
        for part in key.parts or (FlowPart.TASKS,)
    )


def named() -> frozenset[str]:
    """Return the settings that concern only some parts of a flow."""
    return frozenset(name for name, key in stored_keys().items() if key.parts)
