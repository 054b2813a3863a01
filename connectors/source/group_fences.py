"""The fences that the group's leader has put up in a flow's offsets topic: the flow's head keeps them up.

The story: w1 is put out, the leader L shuts it out of the positions, and leaves. An unclean election loses the markers.
Nobody who still runs has put them up; w1 wakes, and its old positions replace those of its successors. Answers to
nothing in MirrorMaker 2. How a fence is kept up says ``fences.py``.
"""

from __future__ import annotations

import random

from connectors.source.fences import Fences
from mm2py.kafka.fencing import EarlierProducer
from mm2py.kafka.port import Brokers
from mm2py.worker.ownership import Ownership


class GroupFences:
    """Of one life of a flow."""

    def __init__(
        self,
        target: Brokers,
        topic: str,
        partitions: int,
        *,
        ownership: Ownership,
        fences: Fences,
        rng: random.Random,
    ) -> None:
        """``topic`` is the one in which the flow's positions are."""
        self._target = target
        self._keys = [(topic, number) for number in range(partitions)]
        self._ownership = ownership
        self._fences = fences
        self._rng = rng
        self._noted: dict[int, int] = {}
        """Fence epochs, by producer id."""

    def look(self) -> bool:
        """Take in what the leader has fenced since; returns whether there was anything."""
        fates = self._ownership.fates
        new = [one for one in fates.fenced if self._noted.get(one.producer_id) != fates.fence_epochs[one.producer_id]]
        for one in new:
            epoch = self._noted[one.producer_id] = fates.fence_epochs[one.producer_id]
            producer = EarlierProducer(self._target, one.transactional_id, one.producer_id, one.epoch, rng=self._rng)
            producer.was_taken_over(epoch)
            for key in self._keys:
                self._fences.note(key, producer, epoch, leader_epoch=None)
        return bool(new)
