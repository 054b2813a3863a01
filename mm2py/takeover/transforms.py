"""Transforms and predicates of connectors: what becomes of each when a mirror is taken over. Pure.

A RegexRouter of the source connector becomes a rule of ``topics.rename`` (``mm2py/config/regex_router.py``). Those that
mm2py has (``mm2py/transforms/``) are kept. A chain with another one is refused: without it the copy would differ.

Counterpart: org.apache.kafka.connect.transforms of Kafka Connect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from mm2py.config.properties import PropertyEntry
from mm2py.config.regex_router import TRANSFORMS, NoRule, router_rule
from mm2py.config.transform_keys import chain_in
from mm2py.takeover.account import AccountedSetting, ProposedSetting, SettingOutcome, nothing, refused
from mm2py.topics.renaming import RENAME_KEY

PREDICATES: Final = "predicates"
_WAY_OUT: Final = (
    "Write it as a function in Python (docs/transforms.md), or leave it out: --without {name}. The copy then differs."
)


def is_of_transforms(name: str) -> bool:
    """Return whether a setting belongs to transforms or predicates."""
    return name in {TRANSFORMS, PREDICATES} or name.startswith((f"{TRANSFORMS}.", f"{PREDICATES}."))


def accounted_transforms(
    settings: Sequence[tuple[str, str]], place_of: Callable[[str], tuple[str, str]], flow: str, *, copies: bool
) -> Iterator[ProposedSetting | AccountedSetting]:
    """Yield what becomes of the transforms of a connector; those that its list does not name mean nothing.

    Args:
        flow: of the connector.
        copies: it is the one that copies.
    """
    values = {name: value for name, value in settings if is_of_transforms(name)}
    rule, is_kept, why = _judged(settings, copies=copies)
    for prefix in (TRANSFORMS, PREDICATES):
        named = [name.strip() for name in values.get(prefix, "").split(",") if name.strip()]
        types = ", ".join(f"{one} ({_type_of(values.get(f'{prefix}.{one}.type', ''))})" for one in named)
        for name in (name for name in values if name == prefix or name.startswith(f"{prefix}.")):
            place, shown = place_of(name)
            if name == prefix and not named:
                yield nothing(place, shown, "it names none")
            elif name != prefix and name.split(".")[1] not in named:
                yield nothing(place, shown, f"{prefix} does not name it")
            elif is_kept:
                yield ProposedSetting(place, shown, f"{flow}.{name}", values[name])
            elif name == TRANSFORMS and rule:
                yield ProposedSetting(place, shown, f"{flow}.{RENAME_KEY}", rule)
            elif rule:
                yield AccountedSetting(place, shown, SettingOutcome.RENAMED, to=f"{flow}.{RENAME_KEY}")
            elif name == prefix:
                yield refused(place, shown, f"{types}: {why}", _WAY_OUT.format(name=shown))
            else:
                yield nothing(place, shown, f"see {prefix}")


def _judged(settings: Sequence[tuple[str, str]], *, copies: bool) -> tuple[str, bool, str]:
    """Return the rule of ``topics.rename`` that transforms become, whether they are kept, or why neither is so."""
    if not copies:
        return "", False, "only those of the source connector are run"
    connector = {name: PropertyEntry(value, name) for name, value in settings}
    try:
        return router_rule(connector), False, ""
    except NoRule:
        chain, problems = chain_in(connector)
        return "", chain is not None, "; ".join(problems)


def _type_of(text: str) -> str:
    return text.strip().rpartition(".")[2] or "without a type"
