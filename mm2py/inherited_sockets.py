"""Sockets that one process opens and a process started by it serves, such as a worker's sockets for REST."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

BACKLOG: Final = 256
"""How many callers may wait at a socket before the process behind it accepts them."""


def sockets_text(sockets: Sequence[tuple[int, int]]) -> str:
    """Return numbers of listeners and descriptors as a command line has them."""
    return ",".join(f"{place}:{descriptor}" for place, descriptor in sockets)


def read_sockets(text: str) -> list[tuple[int, int]]:
    """Read what ``sockets_text`` wrote. Raises: ValueError."""
    pairs = [one.split(":") for one in text.split(",") if one]
    return [(int(place), int(descriptor)) for place, descriptor in pairs]
