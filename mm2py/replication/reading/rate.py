"""``bytes.per.second.max``: how long a flow must wait before it reads on. Pure."""

from __future__ import annotations


class RateLimit:
    """A token bucket that may run into debt: what was read is known only afterwards, the next read then waits."""

    def __init__(self, bytes_per_second: int | None, *, burst_s: float = 1.0) -> None:
        self._rate = bytes_per_second
        self._burst_s = burst_s
        self._free: float = (bytes_per_second or 0) * burst_s
        self._seen_at_s: float | None = None

    def change(self, bytes_per_second: int | None, now_s: float) -> None:
        """Go on at another rate; what was saved up stays within what that one allows."""
        self._refill(now_s)
        if self._rate is None:
            self._free, self._seen_at_s = (bytes_per_second or 0) * self._burst_s, now_s
        self._rate = bytes_per_second
        self._free = min(self._free, (bytes_per_second or 0) * self._burst_s)

    def spend(self, size: int, now_s: float) -> None:
        """Count ``size`` bytes as read."""
        if self._rate is not None:
            self._refill(now_s)
            self._free -= size

    def wait_s(self, now_s: float) -> float:
        """Return how long to wait until something may be read again; 0 if it may be now."""
        if self._rate is None:
            return 0.0
        self._refill(now_s)
        return max(0.0, -self._free / self._rate)

    def allowance(self, now_s: float) -> int | None:
        """Return how much one read should ask for at most; None without a limit."""
        if self._rate is None:
            return None
        self._refill(now_s)
        return max(1, int(self._rate * self._burst_s))

    def _refill(self, now_s: float) -> None:
        if self._rate is None:
            return
        if self._seen_at_s is not None:
            self._free = min(self._rate * self._burst_s, self._free + (now_s - self._seen_at_s) * self._rate)
        self._seen_at_s = now_s
