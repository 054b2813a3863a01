"""Brokers to which only requests are sent that change nothing: a check must not change what it looks at."""

from __future__ import annotations

from typing import Any

from kio.static.protocol import Payload

from mm2py.kafka.messages import CreateTopicsRequest, FindCoordinatorRequest
from mm2py.kafka.port import BrokerId, Brokers, FetchRequest, ProduceRequest
from mm2py.kafka.write_gate import READS


class OnlyReads:
    """The ``Brokers`` port without requests that change anything.

    Looking for a coordinator is refused, too: a broker then creates Kafka's own topic of groups or of transactions, if
    it is missing. Creating topics is allowed if it only validates.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def send(
        self, broker: BrokerId, request: FetchRequest | ProduceRequest | Payload, *, channel: str = "control"
    ) -> Any:
        """See ``Brokers.send``. Raises: TypeError, the request might change something."""
        validates = isinstance(request, CreateTopicsRequest) and request.validate_only
        if isinstance(request, FindCoordinatorRequest) or not (validates or isinstance(request, READS)):
            raise TypeError(f"a check sends no {type(request).__name__}: it changes nothing")
        return await self._brokers.send(broker, request, channel=channel)

    def round_trip_s(self, broker: BrokerId) -> float | None:
        """See ``Brokers.round_trip_s``."""
        return self._brokers.round_trip_s(broker)

    def close_channel(self, broker: BrokerId, channel: str) -> None:
        """See ``Brokers.close_channel``."""
        self._brokers.close_channel(broker, channel)
