"""The page that Prometheus reads, from the snapshot of a worker. Pure.

MirrorMaker 2 leaves this to an exporter in its JVM. Here the process that serves REST makes the page, so it may take
long: a page of 10,000 partitions has 180,000 lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from mm2py.metrics.worker_numbers import WorkerSnapshot
from mm2py.status.return_flow import ReturnFlow
from mm2py_rest.metrics import mirror_maker, own
from mm2py_rest.metrics.metric import AnyMetric, Summary
from mm2py_rest.metrics.values import Values, values_of

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
METRICS: Final[Sequence[AnyMetric]] = (*mirror_maker.METRICS, *own.METRICS)
"""All metrics of a page, in its order. A metric without series has only its description there."""


class _MetricsPage(Collector):
    def __init__(self, values: Values) -> None:
        self._values = values

    def collect(self) -> Iterable[Metric]:
        for metric in METRICS:
            yield _family(metric, self._values)


def render(snapshot: WorkerSnapshot, *, partitions_max: int, return_flows: Iterable[ReturnFlow] = ()) -> bytes:
    """Return the page in Prometheus's text format; its type is ``CONTENT_TYPE``.

    Args:
        partitions_max: how many partitions have series of their own; the others are summed for each topic.
        return_flows: the flows that must copy while a cutover can be undone, by what the clusters say.
    """
    registry = CollectorRegistry()
    values = values_of(snapshot, partitions_max=partitions_max)._replace(return_flows=tuple(return_flows))
    registry.register(_MetricsPage(values))
    return generate_latest(registry)


def _family(metric: AnyMetric, values: Values) -> Metric:
    if isinstance(metric, Summary):
        summary = SummaryMetricFamily(metric.name, metric.help, labels=metric.labels)
        for sums in metric.read(values):
            summary.add_metric(sums.labels, count_value=sums.values, sum_value=sums.total)
        return summary
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, number in metric.read(values):
        if number is not None:
            family.add_metric(labels, float(number))
    return family
