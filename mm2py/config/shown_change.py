"""A setting that has another value now, as an operator reads it: what came and what went, and nothing secret. Pure."""

from __future__ import annotations

from mm2py.config.flow_properties import stored_keys
from mm2py.config.kinds import BadValue, strings
from mm2py.config.secrets import VALUE_SHOWN_MAX, is_hidden, shown_key, shown_value


def shown_change(name: str, old: str | None, new: str | None) -> str:
    """Return the change in one line; None stands for the default.

    Both values are whole: of two long ones of which the ends are cut off nobody could tell how they differ. Of a long
    list only what was added and taken away is shown.
    """
    return f"{shown_key(name)}: {_of_lists(name, old, new) or f'{_shown(name, old)} -> {_shown(name, new)}'}"


def _shown(name: str, value: str | None) -> str:
    return "(default)" if value is None else shown_value(name, value, most=None)


def _of_lists(name: str, old: str | None, new: str | None) -> str:
    """Return what was added to a list and taken away; empty if the whole values are to be shown, or hidden."""
    key = stored_keys().get(name)
    if key is None or key.kind is not strings or old is None or new is None:
        return ""
    if max(len(old), len(new)) <= VALUE_SHOWN_MAX or is_hidden(name, old) or is_hidden(name, new):
        return ""
    try:
        before, after = strings(old), strings(new)
    except BadValue:
        return ""
    stay = set(before) & set(after)
    come = [f"+{shown_value(name, entry, most=None)}" for entry in after if entry not in stay]
    gone = [f"-{shown_value(name, entry, most=None)}" for entry in before if entry not in stay]
    return (
        f"{' '.join(come + gone)} ({len(stay)} others stay)"
        if come or gone
        else f"the same {len(stay)} in another order"
    )
