"""How far a copied partition was at one moment. Two of these tell how its lag moves. Pure."""

from __future__ import annotations

from typing import NamedTuple


class LagSeen(NamedTuple):
    """One observation of a partition."""

    at_ms: int
    """When, by the clock of the machine that looked."""
    end: int
    """The end of the source log."""
    position: int
    """The next source offset to be copied; at most ``end``."""
    newest_ms: int | None = None
    """The newest timestamp of what was copied last; None: not known."""

    @property
    def records(self) -> int:
        """How many records wait."""
        return self.end - self.position

    @property
    def text(self) -> str:
        """The same in a line, for a stored position."""
        return ",".join("" if one is None else str(one) for one in self)

    @classmethod
    def of(cls, text: str | None) -> LagSeen | None:
        """Return what ``text`` says; None if it says nothing that this mm2py can read: a position counts without it.

        A later mm2py may have added numbers at the end.
        """
        try:
            at_ms, end, position, newest_ms = (text or "").split(",")[:4]
            return cls(int(at_ms), int(end), int(position), int(newest_ms) if newest_ms else None)
        except ValueError:
            return None
