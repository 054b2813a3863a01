"""Transforms and predicates of connectors: what becomes of each when a mirror is taken over. Pure.

Each is refused by its name, because without it the copy would differ. A transform that a flow of mm2py can do is a row
in ``REFUSED_TYPES`` less and a branch in ``accounted_transforms`` more.

Counterpart: org.apache.kafka.connect.transforms of Kafka Connect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from mm2py.takeover.account import AccountedSetting, nothing, refused

_PREFIXES: Final = ("transforms", "predicates")
_RENAMES: Final = (
    "it gives copies other names, which a flow of mm2py does not do yet",
    "Take the names of replication.policy.class, or leave the transform out: --without transforms.",
)
_CHANGES: Final = (
    "it changes or drops records, and records are copied as bytes",
    "Do that with mm2py backfill or in a consumer, or leave the transform out: --without transforms.",
)
REFUSED_TYPES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "org.apache.kafka.connect.transforms.RegexRouter": _RENAMES,
        "org.apache.kafka.connect.transforms.TimestampRouter": _RENAMES,
    }
)
"""By type: why it is refused, and the way out. All other types change records."""


def is_of_transforms(name: str) -> bool:
    """Return whether a setting belongs to transforms or predicates."""
    return name in _PREFIXES or name.startswith(tuple(f"{prefix}." for prefix in _PREFIXES))


def accounted_transforms(
    settings: Sequence[tuple[str, str]], place_of: Callable[[str], tuple[str, str]]
) -> list[AccountedSetting]:
    """Return what becomes of the transforms of a connector; those that its list does not name mean nothing."""
    values = dict(settings)
    found: list[AccountedSetting] = []
    for prefix in _PREFIXES:
        named = [name.strip() for name in values.get(prefix, "").split(",") if name.strip()]
        for name in values:
            if name == prefix:
                if not named:
                    found.append(nothing(*place_of(name), "it names none"))
                    continue
                types = [values.get(f"{prefix}.{one}.type", "") for one in named]
                whys = [REFUSED_TYPES.get(one.strip(), _CHANGES) for one in types]
                why, remedy = _CHANGES if _CHANGES in whys else whys[0]
                listed = ", ".join(
                    f"{one} ({kind.rpartition('.')[2] or 'without a type'})"
                    for one, kind in zip(named, types, strict=True)
                )
                found.append(refused(*place_of(name), f"{listed}: {why}", remedy))
            elif name.startswith(f"{prefix}."):
                is_named = name.split(".")[1] in named
                found.append(nothing(*place_of(name), f"see {prefix}" if is_named else f"{prefix} does not name it"))
    return found
