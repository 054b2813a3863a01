"""What becomes of each setting of a mirror that is taken over. Pure.

Every setting is accounted for once: it is kept, gets another name, means nothing here, is refused, or the operator has
left it out. What mm2py does with a name says its own table of settings, so this module knows no setting by itself.

MirrorMaker 2 has no counterpart: it ignores what it does not know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mm2py.config.flow_properties import new_name
from mm2py.config.inventory import FileItem, take_inventory
from mm2py.config.kinds import BadValue
from mm2py.config.properties import PropertyEntry
from mm2py.config.references import holds_reference
from mm2py.config.regex_router import TRANSFORMS
from mm2py.config.row import Key, Status
from mm2py.secret import shown_key
from mm2py.topics.renaming import RENAME_KEY

UNKNOWN: Final = "neither MirrorMaker 2 nor mm2py has such a setting"
WITHOUT: Final = "Change it where it runs, or leave it out: --without {name}. The copy may then differ."


class SettingOutcome(StrEnum):
    """What becomes of a setting."""

    KEPT = "kept"
    RENAMED = "renamed"
    NOTHING = "means nothing here"
    REFUSED = "refused"
    LEFT_OUT = "left out by you"
    ADDED = "added"


@dataclass(frozen=True, slots=True)
class AccountedSetting:
    """One setting, and what becomes of it."""

    place: str
    """Where it stands: a file, a connector, a path in a resource; empty for what is added."""
    name: str
    """Its name there."""
    outcome: SettingOutcome
    to: str = ""
    """The key of the settings file; empty: none has it."""
    why: str = ""
    """A clause; empty where the name says all."""
    remedy: str = ""
    """The way out of a refusal."""

    @property
    def is_refused(self) -> bool:
        return self.outcome is SettingOutcome.REFUSED


@dataclass(frozen=True, slots=True)
class ProposedSetting:
    """One setting of what runs, with the key under which a settings file would have it."""

    place: str
    name: str
    key: str
    value: str

    def __repr__(self) -> str:
        return f"ProposedSetting({self.place!r}, {shown_key(self.name)})"  # values may be credentials

    def becomes(self, outcome: SettingOutcome, *, to: str = "", why: str = "", remedy: str = "") -> AccountedSetting:
        """Return what becomes of it."""
        return AccountedSetting(self.place, self.name, outcome, to, why, remedy)


@dataclass(frozen=True, slots=True)
class SettingsAccount:
    """All settings of what runs, and the entries of the file that does the same."""

    entries: Mapping[str, str]
    accounted: tuple[AccountedSetting, ...]

    def __repr__(self) -> str:
        return f"SettingsAccount({len(self.entries)} entries)"  # values may be credentials

    @property
    def refused(self) -> list[AccountedSetting]:
        return [one for one in self.accounted if one.is_refused]


def refused(place: str, name: str, why: str, remedy: str = "") -> AccountedSetting:
    """Return a setting that is refused. Without a remedy the way out is to leave it out."""
    return AccountedSetting(
        place, name, SettingOutcome.REFUSED, why=why, remedy=remedy or WITHOUT.format(name=shown_key(name))
    )


def nothing(place: str, name: str, why: str) -> AccountedSetting:
    """Return a setting that means nothing here."""
    return AccountedSetting(place, name, SettingOutcome.NOTHING, why=why)


def added(name: str, why: str) -> AccountedSetting:
    """Return a setting that the file needs, and that nothing of what runs says."""
    return AccountedSetting("", name, SettingOutcome.ADDED, to=name, why=why)


def account_for(
    found: Iterable[ProposedSetting | AccountedSetting],
    clusters: Sequence[str],
    *,
    extra: Mapping[str, tuple[str, str]],
    without: Collection[str] = (),
) -> SettingsAccount:
    """Return what becomes of all settings.

    Args:
        found: the settings of what runs, in the order in which they count: of two for one key the first one does, and
            they have to be equal. Those that are accounted for already stay so.
        extra: what the file needs besides, by key: the value, and why.
        without: the names of settings that the operator leaves out.
    """
    entries: dict[str, str] = {key: value for key, (value, _) in extra.items()}
    accounted = [added(key, why) for key, (_, why) in extra.items()]
    origins: dict[str, ProposedSetting] = {}
    for one in found:
        if one.name in without or f"{one.place}: {one.name}" in without:
            accounted.append(AccountedSetting(one.place, one.name, SettingOutcome.LEFT_OUT))
            continue
        if isinstance(one, AccountedSetting):
            accounted.append(one)
            continue
        made, is_written = _become(one, clusters)
        first = origins.get(made.to)
        if is_written and first is not None and first.value.strip() != one.value.strip():
            made = one.becomes(
                SettingOutcome.REFUSED,
                why=f"it differs from {first.place}: {shown_key(first.name)}, and a flow has one value",
                remedy="Make them equal, or leave both out with --without.",
            )
        elif is_written:
            origins.setdefault(made.to, one)
            entries[made.to] = one.value
        accounted.append(made)
    return SettingsAccount(entries, tuple(dict.fromkeys(accounted)))


def account_for_file(
    entries: Mapping[str, PropertyEntry], clusters: Sequence[str], place: str, counting: Mapping[str, PropertyEntry]
) -> SettingsAccount:
    """Return what becomes of the settings of a dedicated MirrorMaker 2: mm2py reads the same file.

    Args:
        counting: the same file as mm2py reads it, in which transforms that rename topics are rules.
    """
    found: list[ProposedSetting | AccountedSetting] = []
    for key, entry in entries.items():
        flow, dot, _ = key.partition(f".{TRANSFORMS}")
        rule = f"{flow}.{RENAME_KEY}"
        if dot and key not in counting and rule in counting:
            found.append(AccountedSetting(place, key, SettingOutcome.RENAMED, to=rule))
        else:
            found.append(ProposedSetting(place, key, key, entry.value))
    return account_for(found, clusters, extra={})


def _become(one: ProposedSetting, clusters: Sequence[str]) -> tuple[AccountedSetting, bool]:
    """Return what becomes of one setting, and whether it is written."""
    key = new_name(one.key) or one.key
    items, problems = take_inventory({key: PropertyEntry(one.value, key)}, clusters)
    if not items:
        return one.becomes(SettingOutcome.NOTHING, why=problems[0].partition(": ")[2] or UNKNOWN), False
    (item,) = items
    outcome, why, remedy = _judge(item)
    if outcome is not SettingOutcome.KEPT:
        return one.becomes(outcome, why=why, remedy=remedy or _way_out(outcome, one.name)), False
    is_same = key == one.name
    return one.becomes(SettingOutcome.KEPT if is_same else SettingOutcome.RENAMED, to=key), True


def _way_out(outcome: SettingOutcome, name: str) -> str:
    return WITHOUT.format(name=shown_key(name)) if outcome is SettingOutcome.REFUSED else ""


def _judge(item: FileItem) -> tuple[SettingOutcome, str, str]:
    """Return what becomes of an entry of a settings file, why, and what to do."""
    key, value = item.key, item.entry.value
    if key is None:
        return SettingOutcome.NOTHING, UNKNOWN, ""
    if item.advice is not None:
        return SettingOutcome.NOTHING, f"MirrorMaker 2 does not read it there ({item.advice})", ""
    agrees = key.agrees(value)
    if key.refuses(value) or (key.status is Status.REFUSED and not agrees):
        return SettingOutcome.REFUSED, key.note or "mm2py does not do this", ""
    if key.status in {Status.SUPERSEDED, Status.REFUSED}:
        return SettingOutcome.NOTHING, "it is always so" if agrees else key.note, ""
    if key.status is Status.NOT_YET:
        return SettingOutcome.NOTHING, "it is always so" if agrees else "mm2py has no use for it", ""
    if (why := _why_bad(key, value)) is not None:
        return SettingOutcome.REFUSED, f"its value is {why}", "Write a value of its kind."
    return SettingOutcome.KEPT, "", ""


def _why_bad(key: Key[object], value: str) -> str | None:
    if holds_reference(value):
        return None
    try:
        key.kind(value)
    except BadValue as bad:
        return bad.unquoted
    return None
