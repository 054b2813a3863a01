"""Starts an attempt of a flow: checks conditions in order, until no other process can change the flow's positions.

Internal topics are created, previous producers are fenced, and only then the positions are read.

Counterpart: what Connect's worker and DistributedHerder do before MirrorSourceConnector starts. Without exactly-once
support they trust that a rebalance has stopped the previous tasks.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from mm2py.config.internal_topics import ledgers_topic, positions_topic
from mm2py.copying.positions import read_positions
from mm2py.errors import FirstErrorGroup
from mm2py.kafka.cluster import ClusterMetadata, fetch_metadata
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import ProducerIdentity
from mm2py.kafka.producer import transactions
from mm2py.records.source_offset import StoredPosition
from mm2py.shared_settings.running_mm2 import refuse_running_mm2
from mm2py.topics.names import ledger_topic
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.first_answer import FirstAnswers
from mm2py_connectors.source.recovery.previous_producers import PreviousProducers
from mm2py_connectors.source.refusals import (
    ExactlyOnceImpossible,
    TableUnusable,
    refuse_wrong_source,
)
from mm2py_connectors.source.stored_gaps import StoredGaps

T = TypeVar("T")

PATIENCE_S: Final = 15.0
"""How long a flow waits for the status topic, and for the coordinators' lists of transactional ids, before it starts
without them. Partitions of a dead broker have another leader by then."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What an attempt knows when it may copy."""

    source_id: str | None
    target_id: str | None
    identity: ProducerIdentity
    """The first identity that it writes under."""
    previous: PreviousProducers
    offsets_partitions: int
    ledger_partitions: int
    make_ledger: Callable[[], Awaitable[int]]
    """Creates the ledger topic if it is missing; returns how many partitions it has."""
    positions: dict[tuple[str, int], StoredPosition]
    """The stored positions, by source partition; no other process can change them any more."""
    fence_unknown: Callable[[], Awaitable[object]]
    """Fences producers of positions that the group does not know, before the flow coordinator lists partitions."""


class Preparation:
    """Prepares one attempt of a flow."""

    def __init__(self, context: FlowContext, gaps: StoredGaps) -> None:
        self._context = context
        self._flow = context.flow
        self._brokers = context.target.brokers
        self._ownership = context.ownership
        self._incarnation = context.incarnation
        self._gaps = gaps
        self._log = context.log

    async def run(self) -> Prepared:
        """Wait until the flow may copy. Cancelling loses nothing: the next attempt does all of it again.

        Raises:
            FlowRefused, Mm2IsRunning: the flow must not run; the error names the way out.
            Mm2Error: this attempt cannot continue; another one may succeed.
        """
        context, settings, target = self._context, self._context.settings, self._brokers
        answers = FirstAnswers(
            self._flow,
            self._ownership,
            context.state.show_waiting,
            clock=context.clock,
            rng=context.rng,
            log=self._log,
        )
        source_id, target_id = await answers.of_both(context.source, context.target)
        refuse_wrong_source(self._flow, settings.group, source_id, target_id, there=self._ownership.source_cluster)
        await context.until_answered(
            lambda: refuse_running_mm2(settings, target, self._log), "looking for a live MirrorMaker 2"
        )
        async with FirstErrorGroup() as tasks:
            offsets = tasks.create_task(self._make_offsets(), name="offsets topic")
            ledger = tasks.create_task(self._make_ledger(), name="ledger topic")
        await self._with_patience(self._gaps.open, "opening the status topic", _status_why(settings.status_topic))
        identity = await self._incarnation.start()
        unfenced = self._incarnation.degraded or self._ownership.known_producers.unfenced
        if unfenced and context.must_be_exactly_once:
            raise ExactlyOnceImpossible(self._flow, unfenced)
        previous = PreviousProducers(context)
        positions = await self._fence_previous(previous)
        return Prepared(
            source_id=source_id,
            target_id=target_id,
            identity=identity,
            previous=previous,
            offsets_partitions=offsets.result(),
            ledger_partitions=ledger.result(),
            make_ledger=self._make_ledger,
            positions=positions,
            fence_unknown=functools.partial(self._fence_previous, previous),
        )

    async def _make_offsets(self) -> int:
        context, wanted = self._context, positions_topic(self._context.settings)
        return await context.until_answered(
            lambda: context.make_table(wanted, keeps="positions"), "creating the offsets topic"
        )

    async def _make_ledger(self) -> int:
        context, wanted = self._context, ledgers_topic(self._context.settings)
        return await context.until_answered(
            lambda: context.make_table(wanted, keeps="the ledger of offsets"), "creating the ledger topic"
        )

    async def _fence_previous(self, previous: PreviousProducers) -> dict[tuple[str, int], StoredPosition]:
        """Fence the producers that may still write, and return the positions, which they cannot change any more."""
        listed = await self._with_patience(
            functools.partial(self._list_transactions, previous),
            "asking coordinators for previous producers",
            "a coordinator has not listed its transactional ids yet",
        )
        if listed is None:
            previous.unfenced = (
                f"a coordinator did not list its transactional ids within {PATIENCE_S:g} s, so a previous process that"
                " has left no position may still write"
            )
            self._log.warning("producers.not_listed", why=previous.unfenced, effect="the flow is at-least-once")
        return await self._context.until_answered(
            lambda: self._fence_and_read(previous, listed), "fencing previous producers and reading positions"
        )

    async def _list_transactions(self, previous: PreviousProducers) -> dict[str, int]:
        """Return the producer ids that coordinators know, by transactional id, and tell ``previous`` about them."""
        listed: dict[str, int] = {}
        for broker in (await fetch_metadata(self._brokers, [])).brokers:
            for one in await transactions.list_transactions(self._brokers, broker):
                listed[one.transactional_id] = one.producer_id
        previous.learn_listed(listed)
        return listed

    async def _fence_and_read(
        self, previous: PreviousProducers, listed: Mapping[str, int] | None
    ) -> dict[tuple[str, int], StoredPosition]:
        positions, metadata = await self._read_positions()
        if listed is not None:
            await previous.find_expired(positions.values(), listed)
        previous.learn(positions.values())
        for name in (ledger_topic(self._flow.source), self._context.settings.offsets_topic):
            fenced = await previous.fence_in(metadata.topics[name])
        if fenced:
            positions, _ = await self._read_positions()
            previous.learn(positions.values())
        return positions

    async def _with_patience(self, ask: Callable[[], Coroutine[Any, Any, T]], what: str, why: str) -> T | None:
        """Wait for an answer, at most ``PATIENCE_S`` unless the flow must be exactly-once. Returns None without one."""
        context, must = self._context, self._context.must_be_exactly_once
        try:
            async with asyncio.timeout(None if must else PATIENCE_S):
                return await context.accompany(context.until_answered(ask, what), what, why)
        except TimeoutError:
            return None
        except (BrokerRefused, TableUnusable) as error:
            if must:
                raise ExactlyOnceImpossible(self._flow, str(error)) from error
            return None

    async def _read_positions(self) -> tuple[dict[tuple[str, int], StoredPosition], ClusterMetadata]:
        name = self._context.settings.offsets_topic
        metadata = await fetch_metadata(self._brokers, [name, ledger_topic(self._flow.source)])
        positions, malformed = await read_positions(self._brokers, metadata.topics[name], self._flow.source)
        if malformed:
            self._log.warning("positions.malformed", topic=name, records=len(malformed), first=malformed[0])
        return positions, metadata


def _status_why(topic: str) -> str:
    return (
        f"{topic} has not been read yet; it takes READ and WRITE on it, and as many replicas in sync as its"
        " min.insync.replicas wants"
    )
