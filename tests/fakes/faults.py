"""The faults between mm2py and the broker model, with their probabilities; none by default."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from mm2py.records.batch import CRC_AT

LENGTH_AT, LENGTH_END = 8, 12
"""Place of a batch's length, which says how many bytes follow it."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities are per request (or per partition of a request), times in seconds."""

    delay: float = 0.0
    """A request or a reply takes ``delay_s`` longer."""
    delay_s: tuple[float, float] = (0.05, 2.0)
    drop_request: float = 0.0
    """The connection goes silent before the request arrives: neither this request nor a later one is carried out."""
    drop_reply: float = 0.0
    """The connection goes silent after the request arrived: it and later ones are carried out, but not answered."""
    reset: float = 0.0
    """The connection breaks: everything in flight on it fails, and may have been carried out or not."""
    duplicate_produce: float = 0.0
    """A produce request arrives a second time, ``duplicate_s`` later, after later requests."""
    duplicate_s: tuple[float, float] = (0.0, 5.0)
    produce_error: float = 0.0
    """A partition of a produce request is answered with one of ``produce_errors``."""
    produce_errors: tuple[tuple[ErrorCode, float], ...] = (
        (ErrorCode.not_enough_replicas, 0.0),
        (ErrorCode.not_enough_replicas_after_append, 1.0),
        (ErrorCode.request_timed_out, 0.5),
        (ErrorCode.kafka_storage_error, 0.0),
        (ErrorCode.not_leader_or_follower, 0.0),
    )
    """Each with the probability that the batch was stored nonetheless."""
    produce_errors_in: tuple[str, ...] = ()
    """Only partitions of these topics are affected; all if empty."""
    fetch_error: float = 0.0
    """A partition of a fetch request is answered with one of ``fetch_errors``."""
    fetch_errors: tuple[ErrorCode, ...] = (ErrorCode.kafka_storage_error, ErrorCode.not_leader_or_follower)
    flip_bit: float = 0.0
    """One bit of the records in a fetch reply is flipped, of those that a checksum covers."""
    throttle: float = 0.0
    """The broker is silent on the connection for ``throttle_s`` after the reply, as with a quota."""
    throttle_s: tuple[float, float] = (0.01, 1.0)
    leader_move_every_s: float | None = None
    """Mean time between two moves of some partition's leader to another replica."""
    broker_stop_every_s: float | None = None
    """Mean time between two stops of some broker, cleanly or killed; one at a time."""
    broker_down_s: tuple[float, float] = (0.2, 20.0)
    broker_kill_share: float = 0.5
    leaders_of: tuple[str, ...] = ()
    """Only these topics' leaders move; all if empty."""


class FaultSource:
    """Draws faults from its own generator and counts them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.faults = Faults()
        self.counts: Counter[str] = Counter()

    def strikes(self, kind: str, probability: float) -> bool:
        if probability <= 0.0 or self.rng.random() >= probability:
            return False
        self.counts[kind] += 1
        return True

    def extra_delay_s(self) -> float:
        return self.rng.uniform(*self.faults.delay_s) if self.strikes("delay", self.faults.delay) else 0.0

    def produce_error(self, topic: str) -> tuple[ErrorCode, bool] | None:
        only = self.faults.produce_errors_in
        if (only and topic not in only) or not self.strikes("produce_error", self.faults.produce_error):
            return None
        code, stored_share = self.rng.choice(self.faults.produce_errors)
        stored = self.rng.random() < stored_share
        self.counts[f"produce_error {code.name}{' stored' if stored else ''}"] += 1
        return code, stored

    def fetch_error(self) -> ErrorCode | None:
        if not self.strikes("fetch_error", self.faults.fetch_error):
            return None
        return self.rng.choice(self.faults.fetch_errors)

    def flip_bit(self, records: memoryview) -> None:
        """Flip a bit of a checksum, or of the bytes it covers. No client can detect an error in the other bytes."""
        covered: list[int] = []
        at = 0
        while at + CRC_AT < len(records):
            end = at + LENGTH_END + int.from_bytes(records[at + LENGTH_AT : at + LENGTH_END], "big")
            covered += range(at + CRC_AT, min(end, len(records)))
            at = end
        if covered:
            records[self.rng.choice(covered)] ^= 1 << self.rng.randrange(8)
