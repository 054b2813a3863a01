"""The transactional ids of mm2py: by them a younger process finds whom it has to shut out. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

PREFIX = "mm2py-"
_FORM = r"mm2py-{group}-(?P<process>[0-9a-f]{{8,32}})-(?P<life>[0-9]+)(\.(?P<number>[0-9]+))?-(?P<flow>.+)"


class TransactionalId(NamedTuple):
    """One of the ids of a life of a flow in one process."""

    group: str
    process: str
    """Hexadecimal, new for each process."""
    life: int
    """Grows each time the flow begins anew in this process."""
    flow: str
    number: int = 0
    """0 is the one that a life begins with; partitions that it has to fence against itself go on under the next."""

    def __str__(self) -> str:
        number = f".{self.number}" if self.number else ""
        return f"{PREFIX}{self.group}-{self.process}-{self.life}{number}-{self.flow}"

    def at(self, number: int) -> str:
        """Return an id of this life as the target knows it."""
        return str(self._replace(number=number))

    @property
    def first(self) -> TransactionalId:
        """The id that this life began with: by its record the life's age is judged."""
        return self._replace(number=0)


def is_another(text: str | None, own: TransactionalId) -> bool:
    """Whether an id is one of mm2py, and of another group or flow than ``own``."""
    if text is None or not text.startswith(PREFIX):
        return False
    found = parse(text, own.group)
    return found is None or found.flow != own.flow


def parse(text: str, group: str) -> TransactionalId | None:
    """Return what an id says, None if it is not one of mm2py in ``group``."""
    found = re.fullmatch(_FORM.format(group=re.escape(group)), text, re.DOTALL)
    if found is None:
        return None
    return TransactionalId(group, found["process"], int(found["life"]), found["flow"], int(found["number"] or 0))
