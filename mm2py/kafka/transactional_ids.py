"""The transactional ids of mm2py: by them a younger process finds whom it has to shut out. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

PREFIX = "mm2py-"
_FORM = r"mm2py-{group}-(?P<process>[0-9a-f]{{8,32}})-(?P<life>[0-9]+)-(?P<flow>.+)"


class TransactionalId(NamedTuple):
    """One life of a flow in one process."""

    group: str
    process: str
    """Hexadecimal, new for each process."""
    life: int
    """Grows each time the flow begins anew in this process."""
    flow: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.group}-{self.process}-{self.life}-{self.flow}"


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
    return TransactionalId(group, found["process"], int(found["life"]), found["flow"])
