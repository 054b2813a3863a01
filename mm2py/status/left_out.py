"""Why a flow leaves a topic or a consumer group out: which pattern decided, and where it is written. Pure.

MirrorMaker 2 does not say that it leaves something out. A flow may have a dozen patterns from three places: an operator
who reads only "excluded" has to try them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mm2py.config.origins import SettingOrigin
from mm2py.secret import HIDDEN, is_hidden, printable
from mm2py.topics.filters import FilterDecision, FilteredOut, NameFilter, PatternTooSlow

TOO_SLOW: Final = "A pattern finds no answer in time. Rewrite it."
SHOWN_MOST: Final = 200
"""The most characters of a pattern that are shown; the rest is cut off."""


def why_left_out(name: str, names: NameFilter, origins: Mapping[str, SettingOrigin]) -> str:
    """Return why a filter does not let a name pass, in a sentence; empty if it does.

    Args:
        name: of a topic, or of a group.
        names: the filter by which the workers run.
        origins: where its two lists are written, by the names of their settings, as far as known.
    """
    try:
        decision = names.decision(name)
    except PatternTooSlow:
        return TOO_SLOW
    if decision.why_not is None:
        return ""
    origin = origins.get(decision.key, SettingOrigin(decision.key, ""))
    place = origin.text if origin.where else origin.key
    if decision.why_not is FilteredOut.NOT_INCLUDED:
        return f"No pattern of {place} matches it."
    if decision.pattern is None:
        return f"A pattern of {place} matches it."
    return f"{_pattern(decision.pattern, decision, origin)} matches it."


def why_excluded_as_well(name: str, names: NameFilter, origins: Mapping[str, SettingOrigin]) -> str:
    """Return which pattern would leave out a name that no pattern selects, in a sentence; empty: none would.

    Arguments: see ``why_left_out``.
    """
    try:
        decision = names.exclusion(name)
    except PatternTooSlow:
        return TOO_SLOW
    if decision is None:
        return ""
    origin = origins.get(decision.key, SettingOrigin(decision.key, ""))
    if decision.pattern is None:
        return f"A pattern of {origin.text if origin.where else origin.key} matches it as well."
    return f"{_pattern(decision.pattern, decision, origin)} matches it as well."


def why_let_pass(name: str, names: NameFilter, origins: Mapping[str, SettingOrigin]) -> str:
    """Return which pattern lets a name pass, in a sentence; empty if none does. Arguments: see ``why_left_out``."""
    try:
        decision = names.decision(name)
    except PatternTooSlow:
        return ""
    if decision.why_not is not None:
        return ""
    origin = origins.get(decision.key, SettingOrigin(decision.key, ""))
    place = origin.text if origin.where else origin.key
    if decision.pattern is None:
        return f"{place} selects it."
    return f"{_pattern(decision.pattern, decision, origin)} selects it."


def _pattern(pattern: str, decision: FilterDecision, origin: SettingOrigin) -> str:
    """Return an entry of a list, and where it is written."""
    shown = HIDDEN if is_hidden(decision.key, pattern) else printable(pattern[:SHOWN_MOST])
    if origin.is_default:
        return f"Pattern `{shown}` of {origin.text if origin.where else origin.key}"
    where = f", {origin.where}" if origin.where else ""
    return f"Pattern `{shown}` (entry {decision.number} of {origin.key}{where})"
