"""What ``mm2py takeover`` prints of settings. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from mm2py.secret import printable, shown_key
from mm2py.takeover.account import AccountedSetting, SettingOutcome, SettingsAccount
from mm2py.takeover.what_runs import SecretToFill
from mm2py.text_table import text_table


def lines_of_account(account: SettingsAccount) -> list[str]:
    """Return every setting with what becomes of it, in a table for each place, and the sums. Values are not shown."""
    lines: list[str] = []
    by_place: dict[str, list[AccountedSetting]] = {}
    for one in account.accounted:
        by_place.setdefault(one.place, []).append(one)
    for place, some in by_place.items():
        rows = [[shown_key(one.name), str(one.outcome), _becomes(one)] for one in some]
        lines += ["", printable(place) or "besides", *(f"  {line}" for line in text_table(["setting", "is", ""], rows))]
    counts = Counter(one.outcome for one in account.accounted)
    sums = ", ".join(f"{counts[outcome]} {outcome}" for outcome in SettingOutcome if counts[outcome])
    return [*lines[1:], "", f"{len(account.accounted)} settings: {sums}."]


def lines_of_fills(fills: Sequence[SecretToFill]) -> list[str]:
    """Return which files the operator has to fill."""
    if not fills:
        return []
    rows = [[one.path, one.of] for one in fills]
    return [
        "Fill these files before mm2py starts; only mm2py should be able to read them:",
        *(f"  {line}" for line in text_table(["file", "holds"], rows)),
    ]


def lines_of_refusals(refused: Iterable[AccountedSetting]) -> list[str]:
    """Return what is refused, a sentence each, with the way out."""
    lines = []
    for one in refused:
        place = f"{printable(one.place)}: " if one.place else ""
        lines.append(f"Refused: {place}{shown_key(one.name)}: {one.why}. {one.remedy}".strip())
    return lines


def _becomes(one: AccountedSetting) -> str:
    to = shown_key(one.to) if one.outcome is not SettingOutcome.KEPT and one.to and one.to != one.name else ""
    return ": ".join(part for part in (to, one.why) if part)
