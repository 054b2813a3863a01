"""What workers of a scenario have stored of topics that they do not copy, as any reader finds it."""

from __future__ import annotations

from mm2py.records.gap_record import decode
from mm2py.records.standstill import Cause, Standstill
from tests.fakes.broker.broker_model import ClusterModel

STATUS = "mm2-status.A.internal"


def standstills(target: ClusterModel, status: str = STATUS) -> list[Standstill]:
    """Return the records of the status topic."""
    table: dict[bytes, Standstill] = {}
    for number in range(len(target.topics[status].partitions) if status in target.topics else 0):
        for record in target.records(status, number):
            table.pop(record.key or b"", None)
            if record.value is not None and isinstance(found := decode(record.key or b"", record.value), Standstill):
                table[record.key or b""] = found
    return list(table.values())


def causes(target: ClusterModel) -> dict[str, list[Cause]]:
    """Return what all workers say, by topic."""
    found: dict[str, list[Cause]] = {}
    for one in standstills(target):
        found.setdefault(one.topic, []).extend(one.causes)
    return found


def reasons(target: ClusterModel) -> dict[str, list[str]]:
    """Return the reasons alone."""
    return {topic: [cause.reason for cause in of_it] for topic, of_it in causes(target).items()}
