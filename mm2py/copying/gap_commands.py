"""Operators' commands that let stopped partitions continue: written to the status topic of a flow, and answered there.

A command names the position of an open gap. The worker that runs the flow carries it out, unless the partition has
moved on since the gap was listed. ``mm2py gaps FILE accept`` and REST give them. MirrorMaker 2 has nothing like it.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable

from mm2py.clock import Clock
from mm2py.copying.gap_log import GapLog, GapTable
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.port import Brokers
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.kafka.write_gate import gated_alone
from mm2py.records.gap_record import Command, CommandAnswer, Gap


def gaps_to_accept(gaps: Iterable[Gap], topic: str, partition: int | None = None) -> list[Gap]:
    """Return the gaps that commands must name: of each stopped partition the latest open one.

    Args:
        partition: only this one; None: all of the topic.
    """
    latest: dict[int, Gap] = {}
    for gap in sorted(gaps, key=lambda gap: gap.at_ms):
        if gap.is_open and gap.topic == topic and partition in {None, gap.partition}:
            latest[gap.partition] = gap
    return [latest[number] for number in sorted(latest)]


class GapCommands:
    """Reads the gaps of one flow, writes commands, and reads the answers."""

    def __init__(
        self, brokers: Brokers, topic: str, *, group: str, request_timeout_s: float, clock: Clock, rng: random.Random
    ) -> None:
        """``brokers`` are those of the target, ``topic`` is the status topic, ``group`` the group of the workers."""
        self._brokers = brokers
        self._table = GapTable(brokers, topic)
        self._group = group
        self._request_timeout_s = request_timeout_s
        self._clock = clock
        self._rng = rng

    async def gaps(self) -> list[Gap]:
        """Read on, as long as the target takes, and return all gaps. Raises: KafkaError, it refuses."""
        await self._table.read_patiently()
        return self._table.gaps()

    async def accept(self, gaps: Iterable[Gap]) -> list[Command]:
        """Write a command for each of these gaps, which are open. Return when the target has them.

        Raises: as ``TopicWriter.write``.
        Cancelling does not undo commands that were written: they are still carried out.
        """
        now_ms = self._clock.wall_ms()
        commands = [Command(uuid.uuid4().hex[:16], gap.topic, gap.partition, gap.position, now_ms) for gap in gaps]
        await (await self._log()).put(commands)
        return commands

    async def answers(self, commands: Iterable[Command]) -> dict[str, CommandAnswer]:
        """Read on, and return the answers that are there, by the id of the command. Raises: as ``gaps``."""
        await self._table.read_patiently()
        found = {command.command_id: self._table.answer_to(command) for command in commands}
        return {command_id: answer for command_id, answer in found.items() if answer is not None}

    async def _log(self) -> GapLog:
        """Return a log that writes under a producer of its own."""
        brokers = gated_alone(self._brokers, self._clock)
        transactional_id = f"mm2py-{self._group}-gaps-{uuid.uuid4().hex[:12]}"
        incarnation = Incarnation(
            brokers,
            lambda _: transactional_id,
            clock=self._clock,
            rng=self._rng,
            report=lambda _: None,
            waiting=lambda _: None,
        )
        await incarnation.start()
        topic = self._table.topic
        writer = TopicWriter(brokers, topic, incarnation, rng=self._rng, timeout_ms=int(self._request_timeout_s * 500))
        return GapLog(brokers, topic, self._table.partitions, writer, self._clock)
