"""Ends transactions that are open on fenced topics: aborts them, as ``kafka-transactions.sh`` does.

A transaction that its coordinator knows is aborted by asking for a new epoch of its transactional id: that covers all
its partitions, also of other topics. One that no coordinator knows (a hanging one) gets the marker of its end written
directly into the partition.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mm2py.dr.fence.facts import SeenTransaction
from mm2py.dr.fence.stillness import BegunTransaction
from mm2py.kafka import admin
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import CONCURRENT_TRANSACTIONS, LEADER_NOT_AVAILABLE, NO_COORDINATOR, name_of
from mm2py.kafka.errors import Backoff, BrokerRefused
from mm2py.kafka.port import Brokers
from mm2py.kafka.producer import transactions

ATTEMPTS_MOST: Final = 30


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """How one open transaction is ended."""

    transactional_id: str
    """Empty: no coordinator knows it, so the marker is written directly."""
    parts: tuple[BegunTransaction, ...]

    def __str__(self) -> str:
        places = ", ".join(f"{one.topic}-{one.partition}" for one in self.parts)
        how = f"transactional id {self.transactional_id}" if self.transactional_id else "a marker, for it hangs"
        return f"producer id {self.parts[0].producer_id} in {places}: {how}"


def plan_ends(found: Iterable[BegunTransaction], known: Sequence[SeenTransaction]) -> list[TransactionEnd]:
    """Return how open transactions are ended. Pure.

    A transactional id ends what is open in a partition only if the partition is in its present transaction.
    """
    by_id: dict[str, list[BegunTransaction]] = {}
    hanging: list[TransactionEnd] = []
    for one in sorted(found):
        owner = next(
            (
                seen.transactional_id
                for seen in known
                if seen.producer_id == one.producer_id and (one.topic, one.partition) in seen.partitions
            ),
            "",
        )
        if owner:
            by_id.setdefault(owner, []).append(one)
        else:
            hanging.append(TransactionEnd("", (one,)))
    return [*(TransactionEnd(name, tuple(parts)) for name, parts in sorted(by_id.items())), *hanging]


async def end_transactions(brokers: Brokers, ends: Iterable[TransactionEnd], *, rng: random.Random) -> list[str]:
    """End transactions, and return what could not be ended, each a sentence. The verification shows the rest."""
    failed: list[str] = []
    for end in ends:
        try:
            if end.transactional_id:
                await _by_coordinator(brokers, end.transactional_id, rng)
            else:
                await _by_marker(brokers, end.parts[0])
        except BrokerRefused as error:
            failed.append(f"The transaction of {end} was not ended: {error.what} {_remedy(end)}")
    return failed


def _remedy(end: TransactionEnd) -> str:
    if end.transactional_id:
        return (
            f"Grant mm2py WRITE on transactional id {end.transactional_id}, or wait: its coordinator aborts it after"
            " transaction.timeout.ms."
        )
    return "Grant mm2py ALTER on the cluster, or end it with kafka-transactions.sh abort."


async def _by_coordinator(brokers: Brokers, transactional_id: str, rng: random.Random) -> None:
    backoff = Backoff(rng, most_s=1.0)
    for _ in range(ATTEMPTS_MOST):
        coordinator = await admin.find_coordinator(brokers, transactional_id, transactions=True)
        try:
            await admin.init_producer_id(brokers, coordinator, transactional_id)
        except BrokerRefused as error:
            if error.code != CONCURRENT_TRANSACTIONS and error.code not in NO_COORDINATOR:
                raise
            await asyncio.sleep(backoff.next_s())
        else:
            return
    raise BrokerRefused(f"A new epoch of {transactional_id}", CONCURRENT_TRANSACTIONS)


async def _by_marker(brokers: Brokers, one: BegunTransaction) -> None:
    key = (one.topic, one.partition)
    leader = (await fetch_metadata(brokers, [one.topic])).leader_of(*key)
    if leader is None:
        raise BrokerRefused(f"Finding the leader of {one.topic}-{one.partition}", LEADER_NOT_AVAILABLE)
    codes: Mapping[tuple[str, int], int] = await transactions.write_txn_markers(
        brokers,
        leader,
        one.producer_id,
        one.epoch,
        [key],
        coordinator_epoch=max(one.coordinator_epoch, 0),
    )
    if codes[key]:
        raise BrokerRefused(f"Writing the marker ({name_of(codes[key])})", codes[key])
