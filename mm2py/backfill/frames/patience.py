"""How long one step of a write waits for a cluster, and repeats its request meanwhile.

No operator watches a task: it fails after a minute, and Spark runs it again or ends the job.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from mm2py.kafka.errors import Backoff, KafkaError

T = TypeVar("T")

PATIENCE_S: Final = 60.0
"""How long a coordinator or a leader may be unavailable."""


class RetryPatience:
    """Pauses between attempts, until a minute is over."""

    def __init__(self) -> None:
        self._backoff = Backoff(random.Random(), first_s=0.02, most_s=1.0)  # noqa: S311
        self._until_s = asyncio.get_running_loop().time() + PATIENCE_S

    async def wait(self, error: KafkaError) -> None:
        """Wait a little. Raises ``error`` if that would not help, or a minute is over."""
        if not error.retriable or asyncio.get_running_loop().time() > self._until_s:
            raise error
        await asyncio.sleep(self._backoff.next_s())


async def answered(ask: Callable[[], Awaitable[T]]) -> T:
    """Repeat a request until it is answered. Raises: KafkaError, as ``RetryPatience.wait``."""
    patience = RetryPatience()
    while True:
        try:
            return await ask()
        except KafkaError as error:
            await patience.wait(error)
