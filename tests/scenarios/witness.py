"""Remembers what two logs have held, so that a copy can be judged after retention and compaction."""

from __future__ import annotations

from mm2py.copying.positions import read_positions
from mm2py.kafka.cluster import fetch_metadata
from mm2py.records.source_offset import StoredPosition
from tests.fakes.broker.record_batch import StoredRecord
from tests.scenarios.world import World


class Witness:
    """Remembers the records of one topic and its copy. Each record has its own header ``id``.

    Call ``look`` before anything is removed from a log.
    """

    def __init__(self, world: World, topic: str) -> None:
        self._world = world
        self.topic = topic
        self.remote = f"A.{topic}"
        self.source: dict[int, dict[int, StoredRecord]] = {}
        self.target: dict[int, dict[int, StoredRecord]] = {}

    def look(self) -> None:
        world = self._world
        for seen, cluster, name in (
            (self.source, world.source, self.topic),
            (self.target, world.target, self.remote),
        ):
            if name in cluster.topics:
                for number in range(len(cluster.topics[name].partitions)):
                    found = seen.setdefault(number, {})
                    found |= {record.offset: record for record in cluster.records(name, number)}

    def compact_source(self) -> None:
        self.look()
        self._world.source.compact(self.topic)

    def compact_target(self) -> None:
        self.look()
        if self.remote in self._world.target.topics:
            self._world.target.compact(self.remote)

    def expire_target(self) -> None:
        self.look()
        if self.remote in self._world.target.topics:
            self._world.target.expire(self.remote)

    def findings(self, *, foreign: bool = False, timestamps: bool = True) -> list[str]:
        """Return all faults: each record that the source still has must be copied, once, unchanged and in order.

        Args:
            foreign: records that the source never had are skipped.
            timestamps: False where the target sets its own.
        """
        self.look()
        world, wrong = self._world, list[str]()
        for number, source in self.source.items():
            where = {_id(record): record for record in source.values()}
            last, copied = -1, set[int]()
            for at, record in sorted(self.target.get(number, {}).items()):
                origin = where.get(_id(record))
                if origin is None:
                    if not foreign:
                        wrong.append(f"{self.topic}-{number}: target offset {at} is not of the source")
                    continue
                if origin.offset in copied:
                    wrong.append(f"{self.topic}-{number}: source offset {origin.offset} comes again at {at}")
                elif origin.offset < last:
                    wrong.append(f"{self.topic}-{number}: source offset {origin.offset} comes late at {at}")
                if _content(origin, timestamps) != _content(record, timestamps):
                    wrong.append(f"{self.topic}-{number}: source offset {origin.offset} was changed")
                last = max(last, origin.offset)
                copied.add(origin.offset)
            wanted = world.source.records(self.topic, number, committed=world.settings.read_committed)
            missing = [record.offset for record in wanted if record.offset not in copied]
            if missing:
                wrong.append(f"{self.topic}-{number}: source offsets {missing[:9]} ({len(missing)}) are not there")
        return wrong


def _id(record: StoredRecord) -> bytes | None:
    return next((value for name, value in record.headers if name == "id"), None)


def _content(record: StoredRecord, timestamps: bool) -> object:
    return record.key, record.value, record.headers, record.timestamp_ms if timestamps else None


async def stored_positions(world: World) -> dict[tuple[str, int], StoredPosition]:
    """Return the positions with which the next incarnation would start."""
    name = world.settings.offsets_topic
    topic = (await fetch_metadata(world.target, [name])).topics[name]
    positions, _ = await read_positions(world.target, topic, "A")
    return positions
