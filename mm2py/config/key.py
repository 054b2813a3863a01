"""What is known of one setting, and how tables of settings are written down; the settings are in ``keys.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from mm2py.config.kinds import Kind, java_trim

T = TypeVar("T")


class Status(Enum):
    WORKS = "does what MirrorMaker 2 documents"
    SUPERSEDED = "accepted; mm2py does this its own way, and needs no value"
    NOT_YET = "accepted; does nothing yet, and is named at start"
    REFUSED = "its flow is not started, because ignoring it would change the copy"


def never(value: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Key(Generic[T]):
    """One setting: how its text is read, what it is without one, and what it does.

    ``agrees`` tells the values with which mm2py already does what is asked, so that there is nothing to say;
    ``refuses`` the values of a working key that do not work yet. ``note`` says why, or the way out.
    """

    name: str
    kind: Kind[T]
    default: T
    status: Status = Status.WORKS
    note: str = ""
    agrees: Callable[[str], bool] = never
    refuses: Callable[[str], bool] = never


Table = Mapping[str, Key[Any]]


def is_one_of(*values: str) -> Callable[[str], bool]:
    wanted = {value.lower() for value in values}
    return lambda value: java_trim(value).lower() in wanted


def is_blank(value: str) -> bool:
    return not java_trim(value)


def table_of(*parts: Key[Any] | Iterable[Key[Any]]) -> dict[str, Key[Any]]:
    keys = [key for part in parts for key in ([part] if isinstance(part, Key) else part)]
    table = {key.name: key for key in keys}
    assert len(table) == len(keys), "a setting stands twice in its table"  # noqa: S101
    return table


def not_yet(kind: Kind[Any], names: str, agrees: Callable[[str], bool] = never) -> list[Key[Any]]:
    return [Key(name, kind, None, Status.NOT_YET, agrees=agrees) for name in names.split()]


def superseded(kind: Kind[Any], names: str, note: str, agrees: Callable[[str], bool] = never) -> list[Key[Any]]:
    return [Key(name, kind, None, Status.SUPERSEDED, note, agrees) for name in names.split()]


def refused(kind: Kind[Any], names: str, note: str, agrees: Callable[[str], bool]) -> list[Key[Any]]:
    return [Key(name, kind, None, Status.REFUSED, note, agrees) for name in names.split()]
