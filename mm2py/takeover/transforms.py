"""Transforms and predicates of connectors: what becomes of each when a mirror is taken over. Pure.

A RegexRouter of the source connector becomes a rule of ``topics.rename`` (``mm2py/config/regex_router.py``). All others
are refused by their names, because without them the copy would differ.

Counterpart: org.apache.kafka.connect.transforms of Kafka Connect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from mm2py.config.properties import PropertyEntry
from mm2py.config.regex_router import TRANSFORMS, NoRule, router_rule
from mm2py.takeover.account import AccountedSetting, ProposedSetting, SettingOutcome, nothing, refused
from mm2py.topics.renaming import RENAME_KEY

PREDICATES: Final = "predicates"
_WAY_OUT: Final = (
    "Do that with mm2py backfill or in a consumer, or leave it out: --without {name}. The copy then differs."
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
    key = f"{flow}.{RENAME_KEY}"
    for prefix in (TRANSFORMS, PREDICATES):
        named = [name.strip() for name in values.get(prefix, "").split(",") if name.strip()]
        types = ", ".join(f"{one} ({_type_of(values.get(f'{prefix}.{one}.type', ''))})" for one in named)
        rule, why = "", "records are copied as bytes"
        if prefix == TRANSFORMS and named and copies:
            try:
                rule = router_rule({name: PropertyEntry(value, name) for name, value in settings})
            except NoRule as no_rule:
                why = str(no_rule)
        for name in (name for name in values if name == prefix or name.startswith(f"{prefix}.")):
            place, shown = place_of(name)
            if name == prefix and rule:
                yield ProposedSetting(place, shown, key, rule)
            elif name == prefix and named:
                yield refused(place, shown, f"{types}: {why}", _WAY_OUT.format(name=shown))
            elif name == prefix:
                yield nothing(place, shown, "it names none")
            elif name.split(".")[1] not in named:
                yield nothing(place, shown, f"{prefix} does not name it")
            elif rule:
                yield AccountedSetting(place, shown, SettingOutcome.RENAMED, to=key)
            else:
                yield nothing(place, shown, f"see {prefix}")


def _type_of(text: str) -> str:
    return text.strip().rpartition(".")[2] or "without a type"
