"""Base of fakes of ``Brokers`` that have no distance and keep their connections."""

from __future__ import annotations

from mm2py.kafka.port import BrokerId


class NearBrokers:
    """Brokers that are read over one connection. A base for fakes that only ``send``."""

    def round_trip_s(self, broker: BrokerId) -> float | None:
        del broker
        return None

    def close_channel(self, broker: BrokerId, channel: str) -> None: ...
