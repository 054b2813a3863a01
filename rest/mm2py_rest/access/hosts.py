"""Refuses requests that a browser was tricked into: for another host, or from another site's page. Pure.

The story: evil.example serves a page, then changes its DNS name to 127.0.0.1. For the browser of an operator the worker
is now a part of that site. Its requests still say ``Host: evil.example``. An address cannot be made to
point elsewhere, so any address is accepted.
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
    """Return whether the page that sends a browser's request is this worker's own."""
    scheme, separator, rest = origin.partition("://")
    return bool(separator) and scheme in ("http", "https") and rest.lower() == host.lower()
