"""Nothing is sent while the target may have lost what it acknowledged (M4)."""

from __future__ import annotations

import pytest

from mm2py.copying.copier import Copier
from mm2py.copying.events import (
    Acked,
    CopySettings,
    Fetched,
    GapFound,
    Need,
    PositionStored,
    ProduceLost,
    ProduceRefused,
    Reconciled,
    TargetLed,
    TargetLost,
    TargetShort,
    TargetWhole,
    Tick,
)
from mm2py.copying.in_flight import Sending
from mm2py.copying.planning.steps import Outgoing, Plan
from mm2py.copying.positions import Position
from mm2py.copying.states import Stopped
from mm2py.kafka.port import ProducerIdentity
from mm2py.records.gap_record import GapKind

IDENTITY = ProducerIdentity(7, 0, "mm2py-test")


class _Lease:
    read_at_s = 0.0

    def hold(self, extra_bytes: int, holders: int = 1) -> None: ...
    def release(self, extra_bytes: int) -> None: ...


def read(copier: Copier, count: int) -> None:
    at = copier.fetch_offset
    steps = [Outgoing(at + n, at + n + 1, 1, 1_000, 0, bytearray(10)) for n in range(count)]
    copier.handle(Fetched(Plan([*steps], at + count), _Lease(), at, at + count, 0.0))


def send(copier: Copier) -> list[Sending]:
    sent = []
    while sending := copier.next_batch(1, -1):
        sent.append(sending)
    return sent


def copying(acknowledged: int = 1) -> Copier:
    """A copier that has got so many records acknowledged, under leader epoch 4 of the target, and has more to send."""
    copier = Copier("t-0", Position(0), IDENTITY, CopySettings(1 << 20))
    copier.handle(TargetLed(4))
    copier.handle(PositionStored(IDENTITY))
    read(copier, acknowledged)
    for at in range(acknowledged):
        copier.handle(Acked(copier.next_batch(1, -1).token, at, 0.0))  # type: ignore[union-attr]
    read(copier, 3)
    return copier


def test_behind_another_leader_epoch_nothing_is_sent_until_the_end_was_seen() -> None:
    copier = copying()
    assert copier.handle(TargetLed(4)) == ()
    assert copier.handle(TargetLed(5)) == [Need.TARGET_END]
    assert send(copier) == []
    copier.handle(TargetWhole(copier.end_checks))
    assert len(send(copier)) == 3


def test_where_nothing_was_acknowledged_there_is_nothing_to_lose() -> None:
    copier = copying(0)
    assert copier.handle(TargetLed(5)) == ()
    assert len(send(copier)) == 1, "the first travels alone"


def test_an_end_seen_before_the_last_check_was_due_does_not_settle_that_check() -> None:
    copier = copying()
    copier.handle(TargetLed(5))
    asked = copier.end_checks
    copier.handle(TargetLed(6))
    copier.handle(TargetWhole(asked))
    assert send(copier) == []
    copier.handle(TargetWhole(copier.end_checks))
    assert len(send(copier)) == 3


@pytest.mark.parametrize("event", ["lost", 6, 3, 56, 100])
def test_a_leader_that_did_not_answer_or_leads_no_longer_may_come_back_with_less(event: str | int) -> None:
    copier = copying()
    sending = send(copier)[0]
    answer = ProduceLost(sending.token, "reset", 0.0) if event == "lost" else None
    effects = copier.handle(answer or ProduceRefused(sending.token, int(event), None, 0.0))
    assert set(effects) == {Need.TARGET_END, Need.METADATA}


@pytest.mark.parametrize("code", [7, 19, 20, 89])
def test_a_leader_that_only_asks_for_patience_is_believed(code: int) -> None:
    copier = copying()
    assert copier.handle(ProduceRefused(send(copier)[0].token, code, None, 0.0)) == []
    assert not copier.is_end_unverified


def test_an_end_that_is_too_low_stops_the_partition_with_a_gap() -> None:
    copier = copying(2)
    copier.handle(TargetShort())
    assert send(copier) == [], "nothing while it is looked at once more"
    (gap,) = copier.handle(TargetLost(2, 1))
    assert isinstance(gap, GapFound) and gap.kind is GapKind.TARGET_TRUNCATED
    assert type(copier.state) is Stopped
    assert send(copier) == []


def test_a_check_of_the_target_that_is_due_during_a_reconciliation_is_made_after_it() -> None:
    copier = copying()
    copier.handle(ProduceRefused(send(copier)[0].token, 45, None, 0.0))
    copier.handle(TargetLed(5))
    assert copier.vouched_offset is None, "the position is about to change"
    for sending in range(3, 5):
        copier.handle(ProduceRefused(sending, 45, None, 0.0))
    newer = ProducerIdentity(7, 1, None)
    effects = copier.handle(Reconciled(newer, Position(2, target_offset=3)))
    assert Need.TARGET_END in effects
    copier.handle(PositionStored(newer))
    read(copier, 2)
    assert copier.vouched_offset == 3
    assert send(copier) == []
    copier.handle(TargetWhole(copier.end_checks))
    copier.handle(Tick(1e6))
    assert len(send(copier)) == 1
