"""What a member offers to those who act in its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from mm2py.records.control_record import ControlRecord, MemberId, Share
from mm2py.worker.membership import View


class Voice(Protocol):
    """A member, as ``member.Member``."""

    id: MemberId
    view: View

    @property
    def takes_part(self) -> bool:
        """Whether the group knows it, and something may be begun in its name."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether it is no longer a member: nothing is its own any more."""
        ...

    def measure(self, bytes_per_s: Mapping[Share, float]) -> None:
        """Tell what shares of this member carry just now."""
        ...

    async def say(self, records: Sequence[ControlRecord]) -> None:
        """Append records, and return when they are part of ``view``.

        Raises:
            IncarnationEnded: it is over.
        """
        ...
