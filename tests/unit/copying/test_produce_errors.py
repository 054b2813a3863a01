"""Every answer that a target may give to a batch: what the copier does, and whether it reckons with a stored batch."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from kio.schema.errors import ErrorCode

from mm2py.copying.copier import Copier
from mm2py.copying.events import Acked, Need, OperatorNotice, ProduceRefused, Reconciled, TargetWhole, Tick
from mm2py.copying.in_flight import Sending
from mm2py.copying.partition_errors import (
    BLOCKED_PAUSE_S,
    DENIED_PAUSE_S,
    LIMITS_PAUSE_S,
    PRODUCE_ERRORS,
    RESUME_PAUSES_S,
    ProduceError,
    ProduceReaction,
    Stored,
    produce_error,
)
from mm2py.copying.positions import Position
from mm2py.copying.states import Reconciling, Stopped, Storing, Waiting
from mm2py.kafka.error_codes import INVALID_TIMESTAMP, name_of
from mm2py.kafka.port import ProducerIdentity
from tests.unit.copying.test_copier import NONE_COVERED, batch, batches, copying, fetched, send_all

ROWS: Final = [pytest.param(code, *row, id=name_of(code)) for code, row in PRODUCE_ERRORS.items()]
ALL: Final = [int(code) for code in ErrorCode if code is not ErrorCode.none]
WRITER: Final = ProducerIdentity(7, 1, "mm2py-test")


def one_on_its_way(retained_after_ms: int = -1) -> tuple[Copier, Sending]:
    """Return a copier of which the first batch is stored and the second is under way."""
    copier = copying()
    copier.handle(fetched(copier, batches(0, 2)))
    copier.handle(Acked(send_all(copier)[0].token, 0, 0.0))
    (second,) = send_all(copier, retained_after_ms)
    return copier, second


def refused(copier: Copier, sending: Sending, code: int) -> tuple[list[Need], list[str]]:
    """Let the target refuse a batch; return what the copier asks for, and what it reports."""
    effects = copier.handle(ProduceRefused(sending.token, code, None, 0.0))
    return [each for each in effects if isinstance(each, Need)], [
        each.event for each in effects if isinstance(each, OperatorNotice)
    ]


NEEDS: Final = {
    ProduceReaction.RESEND: ([], []),
    ProduceReaction.REFRESH: ([Need.TARGET_END, Need.METADATA], []),
    ProduceReaction.DENIED: ([], ["target.denied"]),
    ProduceReaction.NEW_INCARNATION: ([Need.NEW_INCARNATION], []),
    ProduceReaction.RECONCILE: ([Need.RECONCILE], []),
    ProduceReaction.LIMITS: ([Need.LIMITS], []),
    ProduceReaction.FIND_RECORD: ([], []),
    ProduceReaction.TIMESTAMP_LIMITS: ([Need.TIMESTAMP_LIMITS], []),
    ProduceReaction.BLOCK: ([], ["target.refuses"]),
}
PAUSES_S: Final = {
    ProduceReaction.DENIED: DENIED_PAUSE_S,
    ProduceReaction.BLOCK: BLOCKED_PAUSE_S,
    ProduceReaction.TIMESTAMP_LIMITS: LIMITS_PAUSE_S,
}
FOR_GOOD: Final = {ProduceReaction.NEW_INCARNATION, ProduceReaction.RECONCILE}
"""Nothing is sent again under the old epoch."""


@pytest.mark.parametrize(("code", "reaction", "stored"), ROWS)
def test_each_answer_has_its_reaction(code: int, reaction: ProduceReaction, stored: Stored) -> None:
    copier, second = one_on_its_way()
    is_late = code == INVALID_TIMESTAMP  # the remote topic may get the limits of its upstream topic, and takes it then
    assert refused(copier, second, code) == (([Need.TIMESTAMP_LIMITS], []) if is_late else NEEDS[reaction])
    assert type(copier.state) is (Reconciling if reaction in FOR_GOOD else Waiting)
    pause_s = LIMITS_PAUSE_S if is_late else PAUSES_S.get(reaction, RESUME_PAUSES_S[0])
    assert copier.resume_at_s == (None if reaction in FOR_GOOD else pause_s)


@pytest.mark.parametrize(("code", "reaction", "stored"), ROWS)
def test_a_batch_that_is_sent_again_keeps_its_sequence_and_after_a_fence_sequences_start_at_0(
    code: int, reaction: ProduceReaction, stored: Stored
) -> None:
    copier, second = one_on_its_way()
    refused(copier, second, code)
    if reaction in FOR_GOOD:
        copier.handle(Tick(1e6))
        assert not copier.wants_fetch
        copier.handle(Reconciled(WRITER, Position(10, 0, 10)))
        assert (type(copier.state), copier.position.sequence) == (Storing, 0)
        return
    copier.handle(TargetWhole(copier.end_checks))
    copier.handle(Tick(1e6))
    copier.handle(fetched(copier, [batch(10, 10)]))
    (again,) = send_all(copier)
    assert (again.batch.first_offset, again.sequence, again.identity) == (10, second.sequence, second.identity)


@pytest.mark.parametrize(("code", "reaction", "stored"), ROWS)
def test_what_may_be_stored_and_would_not_be_known_again_is_looked_for_first(
    code: int, reaction: ProduceReaction, stored: Stored
) -> None:
    """C1: records of long ago are forgotten as soon as they are stored; sent again they might stand there twice."""
    copier, second = one_on_its_way(NONE_COVERED)
    refused(copier, second, code)
    if reaction not in FOR_GOOD:
        assert copier.handle(Tick(1e6)) == (() if stored is Stored.NO else [Need.RECONCILE])


@pytest.mark.parametrize("code", [3, 6, 7, 20, 56], ids=name_of)
def test_a_leader_that_may_have_stored_the_batch_is_not_believed_to_have_refused_it(code: int) -> None:
    """A leader gives these answers also after it has appended the batch. They are not taken from the table."""
    copier, second = one_on_its_way(NONE_COVERED)
    refused(copier, second, code)
    assert copier.handle(Tick(1e6)) == [Need.RECONCILE]


@pytest.mark.parametrize(("code", "reaction", "stored"), ROWS)
def test_what_was_surely_refused_may_be_cut_otherwise(code: int, reaction: ProduceReaction, stored: Stored) -> None:
    copier, second = one_on_its_way()
    refused(copier, second, code)
    copier.handle(Tick(1e6))
    if reaction not in FOR_GOOD:
        assert bool(copier.in_flight.sent_before) is (stored is not Stored.NO)


@pytest.mark.parametrize(("code", "reaction", "stored"), ROWS)
def test_a_batch_stored_behind_one_that_was_surely_refused_leaves_a_hole(
    code: int, reaction: ProduceReaction, stored: Stored
) -> None:
    """H2: the broker has lost what it knew of us."""
    copier = copying()
    copier.handle(fetched(copier, batches(0, 3)))
    copier.handle(Acked(send_all(copier)[0].token, 0, 0.0))
    second, third = send_all(copier)
    refused(copier, second, code)
    copier.handle(Acked(third.token, 10, 0.0))
    leaves_hole = stored is Stored.NO and reaction not in FOR_GOOD
    otherwise = Reconciling if reaction in FOR_GOOD else Waiting
    assert type(copier.state) is (Stopped if leaves_hole else otherwise)


@pytest.mark.parametrize("code", ALL)
def test_a_code_that_is_not_in_the_table_leaves_the_outcome_unknown(code: int) -> None:
    error = produce_error(code)
    if code not in PRODUCE_ERRORS:
        assert error.stored is Stored.PERHAPS
        wanted = {ProduceReaction.RESEND, ProduceReaction.REFRESH, ProduceReaction.DENIED, ProduceReaction.BLOCK}
        assert error.reaction in wanted
    copier, second = one_on_its_way()
    refused(copier, second, code)
    assert type(copier.state) is (Reconciling if error.reaction in FOR_GOOD else Waiting)
    assert copier.position.source_offset == 10


@pytest.mark.parametrize("code", [-2, 999, 32767])
def test_a_code_of_the_future_waits_for_an_operator(code: int) -> None:
    assert produce_error(code) == ProduceError(ProduceReaction.BLOCK, Stored.PERHAPS)


def test_nothing_that_kafka_calls_retriable_waits_for_an_operator() -> None:
    blocked = {int(code) for code in ErrorCode if produce_error(int(code)).reaction is ProduceReaction.BLOCK}
    assert not {int(code) for code in ErrorCode if code.retriable} & blocked


def test_operators_find_every_row_in_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs" / "internals" / "target-answers.md").read_text()
    rows = {
        int(cells[2]): cells[4]
        for line in text.splitlines()
        if len(cells := [cell.strip() for cell in line.split("|")]) == 6 and cells[2].lstrip("-").isdigit()
    }
    assert rows == {code: row.stored.value for code, row in PRODUCE_ERRORS.items()}
