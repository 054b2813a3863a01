"""A cluster that many tests share: if it does not start in time, it is started once more.

All tests behind a session fixture that has failed fail as well, and say nothing about what they test.
"""

from __future__ import annotations

from deploy.local.errors import ServerNotReady
from deploy.local.kafka import KafkaCluster


class SharedCluster(KafkaCluster):
    """A ``KafkaCluster`` for fixtures of a session or a module."""

    def start(self) -> None:
        try:
            super().start()
        except ServerNotReady as late:
            print(f"{self.name} is started once more:\n{late}")
            super().start()
