"""What is counted in one worker, in a registry of Prometheus. It is not served yet."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from mm2py.connector import Flow


class Metrics:
    """The registry of one process, and its instruments."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._gaps = Counter(
            "mm2py_gaps",
            "Gaps met since this process began, one for each partition.",
            ["flow", "topic", "kind"],
            registry=self.registry,
        )
        self._stalled = Gauge(
            "mm2py_stalled_partitions",
            "Partitions of which records wait and none has been acknowledged for stall.timeout.ms.",
            ["flow"],
            registry=self.registry,
        )

    def count_gap(self, flow: Flow, topic: str, kind: str) -> None:
        self._gaps.labels(str(flow), topic, kind).inc()

    def set_stalled(self, flow: Flow, partitions: int) -> None:
        self._stalled.labels(str(flow)).set(partitions)

    def gaps(self, flow: Flow, topic: str, kind: str) -> int:
        """Return how many gaps of a kind were met in a topic."""
        labels = {"flow": str(flow), "topic": topic, "kind": kind}
        return int(self.registry.get_sample_value("mm2py_gaps_total", labels) or 0)

    def stalled(self, flow: Flow) -> int:
        return int(self.registry.get_sample_value("mm2py_stalled_partitions", {"flow": str(flow)}) or 0)
