"""Failed attempts to get in, by address: the sixth within a while has to wait, and each further one longer. Pure."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final

FREE: Final = 5
"""So many failures cost nothing: people mistype."""
WAIT_MOST_S: Final = 60.0
FORGOTTEN_S: Final = 300.0
ADDRESSES_MOST: Final = 1024
"""Beyond that the one that failed longest ago is forgotten."""


class Failures:
    """Counts failures."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """Failures and the time of the last one, the latest at the end."""

    def wait_s(self, address: str, now_s: float) -> float:
        """Return how long an address still has to wait; 0: not at all."""
        count, at_s = self._counts.get(network_of(address), (0, now_s))
        if count <= FREE or now_s - at_s >= FORGOTTEN_S:
            return 0.0
        return float(max(0.0, at_s + min(2.0 ** (count - FREE - 1), WAIT_MOST_S) - now_s))

    def failed(self, address: str, now_s: float) -> int:
        """Take a failure; returns the number of those in a row."""
        network = network_of(address)
        count, at_s = self._counts.pop(network, (0, now_s))
        count = 1 if now_s - at_s >= FORGOTTEN_S else count + 1
        self._counts[network] = count, now_s
        if len(self._counts) > ADDRESSES_MOST:
            self._counts.popitem(last=False)
        return count


def network_of(address: str) -> str:
    """Return what one party has of addresses: an IPv4 address, or a /64 of IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped) if mapped is not None else str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))
    return str(found)
