"""Shuts members that were evicted from the positions: the leader's part of taking their shares over.

Once the producers of a dead member can change no position any more, its shares may begin elsewhere; their new owners
fence each remote partition by itself, with the epoch that was raised here. Connect trusts in members to stop when the
group goes on without them.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers
from mm2py.kafka.producer.fencing import EarlierProducer, NotFenceable
from mm2py.kafka.retry import Backoff
from mm2py.records.control_record import Writer
from mm2py.replication.recovery import proven_fence

SIDE_BY_SIDE: Final = 16
"""So many producers are shut out at once: each takes some round trips, and who fenced itself often leaves dozens."""
PROOF_S: Final = 6.0
"""How long markers are waited for at first before all is looked at anew; each time twice as long."""
PROOF_MOST_S: Final = 300.0
SAID_AFTER_S: Final = 3.0
SAID_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a dead member's producers."""

    epochs: Mapping[int, int]
    """The fence epoch of each, by producer id."""
    unfenced: Mapping[int, str]
    """Why some could not be shut out."""


class DeadWriters:
    """Shuts producers out of the internal topics of their flows."""

    def __init__(
        self,
        brokers: Brokers,
        topics_of: Callable[[Flow], Collection[str]],
        *,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """``topics_of`` returns the internal topics of a flow in which somebody dead must change nothing."""
        self._brokers = brokers
        self._topics_of = topics_of
        self._clock = clock
        self._rng = rng
        self._log = log
        self._producers: dict[int, EarlierProducer] = {}
        """Kept over attempts: an epoch that was raised need not be raised again."""

    async def shut_out(self, writers: Collection[Writer], told: Mapping[int, int]) -> Outcome:
        """Shut producers out; returns when that is proven for all that can be, however long it takes.

        Args:
            told: by producer id, to what epoch another leader has raised it already.
        Cancelling loses nothing: it can be begun anew by whoever leads then.
        """
        epochs: dict[int, int] = {}
        unfenced: dict[int, str] = {}
        waiting = iter(sorted(writers, key=lambda writer: writer.producer_id))

        async def take_turns() -> None:
            for writer in waiting:
                try:
                    epochs[writer.producer_id] = await self._until_shut_out(writer, told.get(writer.producer_id))
                except NotFenceable as error:
                    unfenced[writer.producer_id] = str(error)
                    self._log.warning(
                        "member.unfenced",
                        producer_id=writer.producer_id,
                        flow=str(writer.flow),
                        why=str(error),
                        effect="if that process still runs, its positions may replace those of its successors",
                    )

        async with asyncio.TaskGroup() as tasks:
            for number in range(min(SIDE_BY_SIDE, len(writers))):
                tasks.create_task(take_turns(), name=f"shutting out a dead member {number}")
        for producer_id in (*epochs, *unfenced):
            self._producers.pop(producer_id, None)
        return Outcome(epochs, unfenced)

    async def _until_shut_out(self, writer: Writer, told: int | None) -> int:
        """Ask again until it succeeds. Raises: NotFenceable."""
        producer = self._producers.setdefault(
            writer.producer_id,
            EarlierProducer(self._brokers, writer.transactional_id, writer.producer_id, writer.epoch, rng=self._rng),
        )
        if told is not None:
            producer.was_taken_over(told)
        backoff = Backoff(self._rng, first_s=0.05, most_s=5.0)
        say_at_s, patience_s = self._clock.monotonic() + SAID_AFTER_S, PROOF_S
        while True:
            crash: dict[str, str] = {}
            try:
                async with asyncio.timeout(patience_s):
                    topics = await self._find(writer.flow)
                    return await proven_fence.shut_out(
                        self._brokers, producer, topics, clock=self._clock, rng=self._rng
                    )
            except NotFenceable:
                raise
            except TimeoutError:
                why = "its markers have not come; it takes READ and WRITE on the topics of positions and status"
                patience_s = min(PROOF_MOST_S, 2 * patience_s)
            except Mm2Error as error:
                why = str(error)
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                why = f"{type(error).__name__}: {error}"
                crash = {
                    "at": f"{where.name}:{where.lineno}",
                    "remedy": "This is a defect in mm2py; please report it with this line.",
                }
            if self._clock.monotonic() >= say_at_s or (crash and not backoff.attempts):
                say_at_s = self._clock.monotonic() + SAID_EVERY_S
                effect = "what it owned waits for that"
                self._log.warning(
                    "member.fencing",
                    producer_id=writer.producer_id,
                    flow=str(writer.flow),
                    why=why,
                    effect=effect,
                    **crash,
                )
            await asyncio.sleep(backoff.next_s())

    async def _find(self, flow: Flow) -> list[TopicMetadata]:
        """Return those of a flow's internal topics that are there; nobody can write to others.

        Raises:
            BrokerRefused: one of them has a partition without a leader, or may not be seen.
        """
        names = sorted(self._topics_of(flow))
        found = (await fetch_metadata(self._brokers, names)).topics
        topics = []
        for name in names:
            topic = found.get(name)
            if topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                continue
            leaderless = any(part.leader is None for part in topic.partitions.values())
            code = topic.error_code or (LEADER_NOT_AVAILABLE if leaderless else 0)
            if code:
                raise BrokerRefused(f"Finding the leaders of {name}", code)
            topics.append(topic)
        return topics
