"""Changes over REST of what is not in the copy of a flow: a gap is accepted, records are taken out of quarantine.

The same as ``mm2py gaps FILE accept`` and ``mm2py replay FILE``, for one partition and for few records: a request must
not take long. MirrorMaker 2 has nothing like it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.copying.gap_commands import GapCommands, gaps_to_accept
from mm2py.copying.gap_log import READ_AGAIN_S
from mm2py.copying.replay import (
    Appended,
    QuarantineSurvey,
    ReplaySelection,
    append,
    order_lost,
    partitions_stopped,
    survey,
)
from mm2py.flow_clusters import Connected
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.write_gate import gated_alone
from mm2py.records.gap_record import Command, CommandAnswer
from mm2py.secret import shown_name
from mm2py.topics.names import quarantine

ACCEPT_MOST_S: Final = 20.0
ANSWER_MOST_S: Final = 10.0
"""How long a worker may take to carry a command out; a later answer is not waited for."""
SURVEY_MOST_S: Final = 20.0
APPEND_MOST_S: Final = 30.0
REPLAY_MOST: Final = 200
"""How many records a request may append. Each takes two requests to the target, one after the other."""


class NothingLost(Exception):
    """There is no such gap, or no such record in quarantine."""


class LossRefused(Exception):
    """It may not be done, or not now: the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class LossOutcome:
    """What came of a request. ``text`` says it in words."""

    is_done: bool
    """False: nothing has answered yet, or not all was done."""
    text: str


class LossChanges:
    """Accepts gaps of one flow and replays its quarantine, one request after the other. Connects at the first one."""

    def __init__(self, connect: Callable[[], Connected], *, clock: Clock, rng: random.Random) -> None:
        """``connect`` connects to the target."""
        self._connect = connect
        self._clock = clock
        self._rng = rng
        self._changing = asyncio.Lock()

    async def accept(self, settings: FlowSettings, topic: str, partition: int, position: int | None) -> LossOutcome:
        """Let a partition continue that a gap has stopped, and wait a little for the answer of its worker.

        Args:
            settings: those with which the workers run the flow.
            position: that of the gap that the operator has seen; None: of whichever has stopped it now.
        Raises:
            NothingLost: no gap of it waits for an operator.
            LossRefused: another gap than that does, or the partition has moved on.
            TimeoutError: the target does not answer; KafkaError: it refuses.
        """
        flow, name = settings.flow, f"{shown_name(topic)}-{partition}"
        async with self._changing:
            commands = GapCommands(
                self._connect(),
                settings.status_topic,
                group=settings.group,
                request_timeout_s=settings.target_request_timeout_s,
                clock=self._clock,
                rng=self._rng,
            )
            async with asyncio.timeout(ACCEPT_MOST_S):
                found = gaps_to_accept(await commands.gaps(), topic, partition)
                if not found:
                    raise NothingLost(f"No gap of {name} waits for an operator.")
                if position not in {None, found[0].position}:
                    what = (
                        f"the gap of {name} that waits now is the one at position {found[0].position}, not {position}"
                    )
                    raise LossRefused(f"Nothing was accepted: {what}. Look at it first.")
                (command,) = await commands.accept(found)
            try:
                async with asyncio.timeout(ANSWER_MOST_S):
                    answer = await _answer_to(command, commands)
            except (TimeoutError, KafkaError) as error:
                late = f"no worker answered within {ANSWER_MOST_S:g} s"
                if isinstance(error, KafkaError):
                    late = f"whether it was carried out cannot be read ({error.what.rstrip('.')})"
                return LossOutcome(False, f"{late}: it is still being carried out, or will be once {flow} runs.")
        if not answer.carried_out:
            raise LossRefused(f"{name} was not accepted: {answer.text}")
        return LossOutcome(True, f"{name} was accepted: {answer.text}")

    async def replay(self, settings: FlowSettings, selection: ReplaySelection, *, stop_partitions: bool) -> LossOutcome:
        """Append records in quarantine to the end of their remote topic.

        Args:
            settings: as of ``accept``.
            stop_partitions: append even if the flow then stops its partitions.
        Raises:
            NothingLost: there are none, or all were appended before.
            LossRefused: they are too many, or the flow would stop their partitions.
            NowhereToReplay: the remote topic, or its partition, is not there.
            TimeoutError, KafkaError: as ``accept``.
        Cancelling, or a crash, may leave one record appended and not marked: the next request appends it again.
        """
        topic = quarantine(settings.flow.source).name
        async with self._changing:
            target = self._connect()
            async with asyncio.timeout(SURVEY_MOST_S):
                found = await survey(target, topic, selection, settings.remote_topic(selection.topic))
            _check(settings, found, stop_partitions=stop_partitions)
            try:
                async with asyncio.timeout(APPEND_MOST_S):
                    done = await append(
                        gated_alone(target, self._clock), topic, found, clock=self._clock, rng=self._rng
                    )
            except TimeoutError:
                raise LossRefused(
                    f"The target was too slow: after {APPEND_MOST_S:g} s not all of {len(found.waiting)} record(s)"
                    f" were appended. Those that were are marked in {topic}, but for the last one, perhaps: if you ask"
                    " again, the others are appended, and that one is repeated."
                ) from None
        return LossOutcome(not done.refused, _told(found, done, topic))


async def _answer_to(command: Command, commands: GapCommands) -> CommandAnswer:
    while True:
        found = (await commands.answers([command])).get(command.command_id)
        if found is not None:
            return found
        await asyncio.sleep(READ_AGAIN_S)


def _check(settings: FlowSettings, found: QuarantineSurvey, *, stop_partitions: bool) -> None:
    """Raises: NothingLost, LossRefused."""
    what = shown_name(found.selection.topic)
    if not found.origins:
        raise NothingLost(f"{quarantine(settings.flow.source).name} holds nothing of that kind of {what}.")
    if not found.waiting:
        raise NothingLost(f"All {len(found.origins)} record(s) were appended to {found.remote} before.")
    if len(found.waiting) > REPLAY_MOST:
        way = f"mm2py replay FILE '{settings.flow}:{what}' --append"
        raise LossRefused(
            f"{len(found.waiting)} records wait, and a request appends {REPLAY_MOST} at most. Name a partition, or use"
            f" the command: {way}"
        )
    if settings.exactly_once == "enabled" and not stop_partitions:
        raise LossRefused(
            f"Nothing was appended. {order_lost(found, settings.flow.target)}"
            f" {partitions_stopped(found, settings.flow)} Say stop_partitions to append all the same."
        )


def _told(found: QuarantineSurvey, done: Appended, topic: str) -> str:
    told = f"{done.records} record(s) were appended to {found.remote}, and marked in {topic}."
    return " ".join([told, *(f"{found.remote} still refuses {refusal}." for refusal in done.refused)])
