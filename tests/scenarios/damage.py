"""Damages the reply of a cluster to one read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from mm2py.kafka.port import BrokerId, Brokers, FetchRequest
from mm2py.records.batch import read_header, split
from tests.fakes.near_brokers import NearBrokers

Spoil = Callable[[bytearray], bool]
"""Change the records of one partition in a reply; return whether they were changed."""


class Spoiler:
    """Stands between a worker and a cluster, and damages one read of ``topic`` on ``channel``."""

    def __init__(self, channel: str, topic: str, spoil: Spoil, *, times: int = 1) -> None:
        self.struck = 0
        self._channel = channel
        self._topic = topic
        self._spoil = spoil
        self._times = times

    def __call__(self, cluster: object) -> Brokers:
        return cast("Brokers", _Spoiled(self, cluster))

    def changed(self, request: object, reply: Any, channel: str) -> Any:
        if channel != self._channel or not isinstance(request, FetchRequest) or self.struck >= self._times:
            return reply
        parts = []
        for part in reply.partitions:
            data = bytearray(part.records)
            if part.topic == self._topic and self.struck < self._times and self._spoil(data):
                self.struck += 1
            parts.append(part._replace(records=memoryview(bytes(data))))
        return replace(reply, partitions=parts)


class _Spoiled(NearBrokers):
    def __init__(self, spoiler: Spoiler, cluster: object) -> None:
        self._spoiler = spoiler
        self._cluster: Any = cluster

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        reply = await self._cluster.send(broker, request, channel=channel)
        return self._spoiler.changed(request, reply, channel)


def flip(number: int, bit: int) -> Spoil:
    """Return a damage that flips one bit of one batch. Batches are counted over the whole read, or from its end."""

    def spoil(records: bytearray) -> bool:
        starts = starts_of(records)
        if not starts:
            return False
        records[starts[number % len(starts)] + bit // 8] ^= 1 << bit % 8
        return True

    return spoil


def flip_holder_of(offset: int, bit: int) -> Spoil:
    """Return a damage that flips one bit of the batch which holds a record."""

    def spoil(records: bytearray) -> bool:
        for start in starts_of(records):
            header = read_header(records, start)
            if header.base_offset <= offset < header.next_offset:
                records[start + bit // 8] ^= 1 << bit % 8
                return True
        return False

    return spoil


def starts_of(records: bytearray) -> list[int]:
    starts, at = [], 0
    for batch in split(memoryview(bytes(records))):
        starts.append(at)
        at += len(batch)
    return starts
