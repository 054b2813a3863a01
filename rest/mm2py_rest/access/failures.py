"""Failed logins, counted by address: the first few are logged, and then each hundredth. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

TOLD: Final = 6
FORGOTTEN_S: Final = 300.0
ADDRESSES_MOST: Final = 1024
"""If there are more, the address that failed longest ago is forgotten."""


class Failures:
    """Counts failures."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """Number of failures and time of the last one by address, the latest at the end."""

    def failed(self, network: str, now_s: float) -> int:
        """Count a failure of an address (``network_of``); returns the number of failures in a row."""
        count, at_s = self._counts.pop(network, (0, now_s))
        count = 1 if now_s - at_s >= FORGOTTEN_S else count + 1
        self._counts[network] = count, now_s
        if len(self._counts) > ADDRESSES_MOST:
            self._counts.popitem(last=False)
        return count


def is_told(count: int) -> bool:
    """Whether this failure is logged."""
    return count <= TOLD or count % 100 == 0
