"""A page of metrics as Prometheus reads it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

from prometheus_client.parser import text_string_to_metric_families

from mm2py.metrics.worker_numbers import WorkerSnapshot, assembled
from mm2py.status.return_flow import ReturnFlow
from mm2py.worker.herder import Herder
from mm2py.worker.snapshot import snapshot_parts
from mm2py_rest.metrics.page import render


class Page:
    """A rendered page, as Prometheus reads it."""

    def __init__(
        self, snapshot: WorkerSnapshot, *, partitions_max: int = 10_000, return_flows: Sequence[ReturnFlow] = ()
    ) -> None:
        crossed = pickle.loads(pickle.dumps(snapshot))  # noqa: S301  (our own)
        self.text = render(crossed, partitions_max=partitions_max, return_flows=return_flows).decode()
        self.families = list(text_string_to_metric_families(self.text))
        self.samples = [sample for family in self.families for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """Return the value of the only series with these labels; it may have others."""
        found = [one.value for one in self.samples if one.name == name and labels.items() <= one.labels.items()]
        assert len(found) == 1, (name, labels, found)
        return found[0]

    def labels(self, name: str) -> list[dict[str, str]]:
        return [one.labels for one in self.samples if one.name == name]


def page_of(herder: Herder) -> Page:
    """Return the page of a worker."""
    return Page(assembled(snapshot_parts(herder, checkpoints_max=10_000)))
