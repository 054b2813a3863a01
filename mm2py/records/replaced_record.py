"""A record of which each version replaces exactly the one that its writer had read. Pure.

Kafka has no compare-and-set. So a version names the version that its writer had read (``based_on``). It counts only if
the named version is the one that counts at this place in the log. All readers of the whole log agree on that. But the
topic is compacted, and a reader may begin with a version that lost. So the version that counts is written again after
the lost ones, and names them (``over``): from there on all readers agree again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from mm2py.errors import Mm2Error
from mm2py.records.author import plain
from mm2py.records.operator_request import MalformedRequest

LOST_MOST: Final = 100
TEXT_MOST: Final = 300


class Version(Protocol):
    """One version of the record."""

    @property
    def write_id(self) -> str:
        """Unique for each version. A version that is written again keeps it."""
        ...

    @property
    def based_on(self) -> str:
        """The write_id that its writer had read; empty if there was none."""
        ...

    @property
    def over(self) -> tuple[str, ...]:
        """The write_ids of lost versions before it. If a reader takes one of these for the version that counts, this
        one replaces it."""
        ...


T = TypeVar("T", bound=Version)


class VersionTooNew(Mm2Error):
    """A newer mm2py has written the record in a way that this one does not know, and must not ignore."""


def follows(version: Version, current: Version | None) -> bool:
    """Whether a version replaces ``current``, the one that counts so far."""
    return current is None or current.write_id in {version.based_on, version.write_id, *version.over}


def text_in(fields: Mapping[str, Any], name: str, default: str = "") -> str:
    """Return a text without characters that could control a terminal. Raises: MalformedRequest, it is none."""
    text = fields.get(name, default)
    if not isinstance(text, str):
        raise MalformedRequest(f"{name} is no text")
    return plain(text, TEXT_MOST)


def over_in(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the write_ids that a version names as lost. Raises: MalformedRequest."""
    over = fields.get("over", [])
    if not isinstance(over, list) or not all(isinstance(one, str) for one in over):
        raise MalformedRequest("over is no list of texts")
    return tuple(over[-LOST_MOST:])


class ReplacedRecords(Generic[T]):
    """The version that counts after the versions read so far, in the order of the log."""

    def __init__(self, decode: Callable[[bytes], T]) -> None:
        """``decode`` raises MalformedRequest or VersionTooNew."""
        self.current: T | None = None
        """The version that counts."""
        self.offset = -1
        """Where in the topic it was read last."""
        self.too_new: VersionTooNew | None = None
        """Set while the last record is one of a newer mm2py that must not be ignored."""
        self._decode = decode
        self._lost: deque[str] = deque(maxlen=LOST_MOST)
        """The write_ids of lost versions that no later one names."""
        self.reads = 0
        """How many versions were read."""
        self._read: deque[str] = deque(maxlen=LOST_MOST)

    def take(self, value: bytes | None, offset: int = -1) -> None:
        """Add the next record. Raises: MalformedRequest; then the record changes nothing."""
        self.too_new = None
        if value is None:  # an operator has deleted it: there is none
            self.current, self.offset = None, -1
            self._lost.clear()
            return
        try:
            found = self._decode(value)
        except VersionTooNew as error:
            self.too_new = error
            return
        self._read.append(found.write_id)
        self.reads += 1
        if follows(found, self.current):
            self.current, self.offset = found, offset
            self._lost = deque((one for one in self._lost if one not in found.over), maxlen=LOST_MOST)
        else:
            self._lost.append(found.write_id)

    def has(self, write_id: str, since: int = 0) -> bool:
        """Whether a version was read after the first ``since``, even if it does not count."""
        newer = self.reads - since
        return newer > 0 and write_id in list(self._read)[-newer:]

    @property
    def is_covered(self) -> bool:
        """Whether the log has a lost version that a reader of the compacted log may take for the one that counts."""
        return self.current is not None and bool(self._lost)

    def put_back(self) -> T:
        """Return the version that counts in the form to write again if ``is_covered``."""
        assert self.current is not None  # noqa: S101
        return self._with(self.current, over=tuple(self._lost))

    def next(self, version: T) -> T:
        """Return a version in the form to write so that it replaces the one that counts."""
        based_on = "" if self.current is None else self.current.write_id
        return self._with(version, based_on=based_on, over=tuple(self._lost))

    @staticmethod
    def _with(version: T, **links: Any) -> T:
        return cast("T", replace(cast("Any", version), **links))
