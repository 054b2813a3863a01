"""By which names a worker may be called, and from which pages: what a browser is tricked into is refused. Pure.

The story: a page of evil.example lets its own name point to 127.0.0.1. For the browser of an operator the worker is now
a part of that page. Its requests still say ``Host: evil.example``. An address cannot be made to
point elsewhere, so any address will do.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

_HOST = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([0-9a-zA-Z._-]+))(?::\d{1,5})?")


def is_own_host(host: str, names: Collection[str]) -> bool:
    """Return whether a ``Host`` header means this worker.

    Args:
        names: its names, in lower case.
    """
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    name = (match[1] or match[2]).lower().removesuffix(".")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in names or name == "localhost"
    return True


def is_own_page(origin: str, host: str) -> bool:
    """Return whether the page that lets a browser ask is one of this worker's own."""
    scheme, separator, rest = origin.partition("://")
    return bool(separator) and scheme in ("http", "https") and rest.lower() == host.lower()
