"""The table of settings: what a row says.

A row is written once, in ``keys.py``, ``groups.py``, ``rest.py``, ``recovery_keys.py`` or ``security/keys.py``. From
it come how a text is read, the field of the typed settings, ``mm2.properties.example`` and ``docs/settings.md``
(``pages.py``), what REST shows of it, and whether it changes in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Generic, TypeVar

from mm2py.config.flow_part import FlowPart
from mm2py.config.kinds import Kind, java_trim, string

T = TypeVar("T")


class Status(Enum):
    WORKS = "does what MirrorMaker 2 documents"
    SUPERSEDED = "accepted; mm2py does this its own way, and needs no value"
    NOT_YET = "accepted; does nothing yet, and is named at start"
    REFUSED = "its flow is not started, because ignoring it would change the copy"


class Reader(Enum):
    """Who reads a setting, which says where it is written."""

    FILE = auto()
    FAMILY = auto()
    """All names with this prefix."""
    CONNECTOR = auto()
    FLOW_ONLY = auto()
    WORKER = auto()
    CONSUMER = auto()
    PRODUCER = auto()
    ADMIN = auto()
    SECURITY = auto()
    """All connections."""
    CLUSTER_FAMILY = auto()
    """The same for a cluster."""
    FLOW_FAMILY = auto()
    """The same for a flow."""
    OWN_TOP = auto()
    OWN_CLUSTER = auto()
    OWN_FLOW = auto()


Readers = tuple[Reader, ...]
BY_FILE: Final = (Reader.FILE,)
BY_FAMILY: Final = (Reader.FAMILY,)
BY_CLUSTER_FAMILY: Final = (Reader.CLUSTER_FAMILY,)
BY_FLOW_FAMILY: Final = (Reader.FLOW_FAMILY,)
BY_CONNECTOR: Final = (Reader.CONNECTOR,)
BY_FLOW: Final = (Reader.FLOW_ONLY,)
BY_WORKER: Final = (Reader.WORKER,)
BY_CONSUMER: Final = (Reader.CONSUMER,)
BY_PRODUCER: Final = (Reader.PRODUCER,)
BY_RECORD_CLIENTS: Final = (Reader.CONSUMER, Reader.PRODUCER)
BY_CLIENTS: Final = (Reader.CONSUMER, Reader.PRODUCER, Reader.ADMIN)
BY_ALL_BUT_ADMIN: Final = (Reader.WORKER, Reader.CONSUMER, Reader.PRODUCER)
BY_SECURITY: Final = (Reader.SECURITY,)
AT_TOP: Final = (Reader.OWN_TOP,)
AT_FLOW: Final = (Reader.OWN_FLOW,)
AT_TOP_AND_FLOW: Final = (Reader.OWN_TOP, Reader.OWN_FLOW)
AT_TOP_AND_TARGET: Final = (Reader.OWN_TOP, Reader.OWN_CLUSTER)
AT_EVERY_LEVEL: Final = (Reader.OWN_TOP, Reader.OWN_CLUSTER, Reader.OWN_FLOW)


def never(value: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Key(Generic[T]):
    """One setting: how its text is read, what it is without one, and what it does.

    ``agrees`` is true for values with which mm2py already does what is asked, so that no warning is needed; ``refuses``
    for values of a working key that do not work yet. ``note`` says why, or what to do instead.
    """

    name: str
    kind: Kind[T]
    default: T
    status: Status = Status.WORKS
    note: str = ""
    agrees: Callable[[str], bool] = never
    refuses: Callable[[str], bool] = never
    readers: Readers = ()
    parts: tuple[FlowPart, ...] = ()
    """The parts of a running flow that a change concerns; none: all its tasks, if it is a setting of a flow."""
    field: str = ""
    """The field of ``FlowSettings`` that the value alone decides; in s if it ends in ``_s`` and the name in ``.ms``."""
    text: str = ""
    """What it does, its unit and its limits."""

    @property
    def is_family(self) -> bool:
        """Whether it stands for all names that begin with its own."""
        return not {Reader.FAMILY, Reader.CLUSTER_FAMILY, Reader.FLOW_FAMILY}.isdisjoint(self.readers)

    def typed(self, value: T) -> Any:
        """Return the value of ``field``."""
        is_in_ms = self.name.endswith(".ms") and self.field.endswith("_s")
        return value / 1000 if is_in_ms else value  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class ExampleBlock:
    """Lines of ``mm2.properties.example`` under one text, which is empty if they belong to the lines above.

    A block without lines adds a row whose lines are in another block.
    """

    text: str
    lines: tuple[str, ...]
    key: Key[Any] | None = None


class Section:
    """Rows that belong together, in the order in which the example and the page have them."""

    def __init__(self, title: str, intro: str = "") -> None:
        self.title = title
        self.intro = intro
        self.blocks: list[ExampleBlock] = []

    @property
    def rows(self) -> list[Key[Any]]:
        return [block.key for block in self.blocks if block.key is not None]

    def row(  # noqa: PLR0913  (a row of a table: each has a name)
        self,
        name: str,
        kind: Kind[T],
        default: T,
        *,
        readers: Readers,
        parts: tuple[FlowPart, ...] = (),
        field: str = "",
        text: str = "",
        at: str = "",
        lines: tuple[str, ...] = (),
        note: str = "",
        refuses: Callable[[str], bool] = never,
    ) -> Key[T]:
        """Add a setting that works.

        Args:
            text: what it does; empty: the text of the block above is about both.
            at: the prefix with which the example shows its default.
            lines: what the example shows instead, for example if there is no default.
        """
        key = Key(
            name,
            kind,
            default,
            note=note,
            refuses=refuses,
            readers=readers,
            parts=parts,
            field=field,
            text=text or next(block.text for block in reversed(self.blocks) if block.text),
        )
        self.blocks.append(ExampleBlock(text, lines or (f"#{at}{name} = {shown_default(default)}",), key))
        return key

    def example(self, text: str, *lines: str) -> None:
        """Add lines to the example that show rows of other blocks once more."""
        self.blocks.append(ExampleBlock(text, lines))

    def add(self, key: Key[Any]) -> None:
        """Add a setting whose lines ``example`` has given."""
        self.blocks.append(ExampleBlock(key.text, (), key))


def shown_default(default: Any) -> str:
    """Return a default as a file has it."""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return ", ".join(map(str, default)).replace("\\", "\\\\")
    return str(default)


# --- tables, and rows of what does not work ---------------------------------------------------------------------------

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


def not_yet(names: str, agrees: Callable[[str], bool] = never) -> list[Key[Any]]:
    return [Key(name, string, None, Status.NOT_YET, agrees=agrees) for name in names.split()]


def superseded(names: str, note: str, agrees: Callable[[str], bool] = never) -> list[Key[Any]]:
    return [Key(name, string, None, Status.SUPERSEDED, note, agrees) for name in names.split()]


def refused(names: str, note: str, agrees: Callable[[str], bool]) -> list[Key[Any]]:
    return [Key(name, string, None, Status.REFUSED, note, agrees) for name in names.split()]
