"""The transactional ids of mm2py: by them a later process finds which producers it has to fence. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

PREFIX = "mm2py-"
_FORM = r"mm2py-{group}-(?P<process>[0-9a-f]{{8,32}})-(?P<life>[0-9]+)(\.(?P<number>[0-9]+))?-(?P<flow>.+)"


class TransactionalId(NamedTuple):
    """One transactional id of one incarnation of a flow."""

    group: str
    process: str
    """Hexadecimal, new for each process."""
    life: int
    """The attempt: grows each time the flow is started again in this process."""
    flow: str
    number: int = 0
    """0 is the id that an incarnation begins with; partitions that it fences against itself go on under the next."""

    def __str__(self) -> str:
        number = f".{self.number}" if self.number else ""
        return f"{PREFIX}{self.group}-{self.process}-{self.life}{number}-{self.flow}"

    def at(self, number: int) -> str:
        """Return an id of this incarnation as the target knows it."""
        return str(self._replace(number=number))

    @property
    def first(self) -> TransactionalId:
        """The id that this incarnation began with."""
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
