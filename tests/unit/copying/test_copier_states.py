"""The transitions of a copier: what the code allows is what the page shows, and a walk takes each of them."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from mm2py.copying import copier as copier_module
from mm2py.copying import states as copier_states
from mm2py.copying.copier import Copier
from mm2py.copying.events import (
    Acked,
    CopySettings,
    Diverged,
    Drain,
    DrainGivenUp,
    Event,
    Fetched,
    FetchRefused,
    GapFound,
    LimitsFound,
    LookupWaits,
    OffsetsFound,
    PauseChanged,
    PositionStored,
    ProduceLost,
    ProduceRefused,
    Quarantined,
    Reconciled,
    RestartAsked,
    SettingsChanged,
    SourceRewritten,
    TargetLed,
    TargetLost,
    TargetShort,
    TargetWhole,
    Tick,
    TooOldToResend,
    UnexpectedMet,
)
from mm2py.copying.gaps import NO_GAPS
from mm2py.copying.in_flight import Sending
from mm2py.copying.planning.steps import Dropped, Fault, Outgoing, Plan, Step
from mm2py.copying.positions import Position
from mm2py.copying.states import (
    AllAnswered,
    AnswerLost,
    BatchStored,
    Change,
    Copying,
    Drained,
    Draining,
    DrainStarted,
    Ending,
    Failed,
    GapMet,
    GapsReported,
    HoleMet,
    LookupStarted,
    LostTrack,
    PauseCut,
    PauseEnded,
    Reconciling,
    RecordKept,
    RecordsLeftOut,
    ResultKept,
    State,
    Stopped,
    Storing,
    UndeclaredTransition,
    Waiting,
    next_state,
)
from mm2py.kafka.port import ProducerIdentity
from mm2py.records.gap_record import Done, GapKind

PAGE: Final = Path(__file__).parents[3] / "docs" / "internals" / "copier-states.md"
WRITER: Final = ProducerIdentity(7, 0, "mm2py-test")
STATES: Final[list[State]] = [
    Reconciling(),
    Storing(),
    Copying(),
    Waiting(resume_at_s=1.0),
    Stopped(),
    Draining(),
    Drained(),
]
CHANGES: Final[list[Change]] = [
    PositionStored(WRITER),
    Reconciled(WRITER, Position(0)),
    LookupWaits("a transaction is undecided"),
    Failed(1.0, "no answer"),
    LostTrack("no resend can tell"),
    PauseEnded(),
    RecordKept(1.0),
    PauseCut(1.0),
    RecordsLeftOut(),
    BatchStored(),
    ResultKept(Reconciled(WRITER, Position(0))),
    GapMet(GapFound(GapKind.FOREIGN, None, None, Done.STOPPED, "others write", 0), Position(0)),
    HoleMet("a batch is missing"),
    LookupStarted(),
    GapsReported(NO_GAPS),
    AnswerLost(),
    DrainStarted(is_idle=True),
    DrainStarted(is_idle=False),
    AllAnswered(),
]
Row = tuple[str, str, str]
"""A state, what happens, and the state that follows."""


def name_of(value: object) -> str:
    return type(value).__name__


def declared() -> set[Row]:
    """Return all transitions that the code allows."""
    rows: set[Row] = set()
    for state in STATES:
        for change in CHANGES:
            try:
                rows.add((name_of(state), name_of(change), name_of(next_state(state, change))))
            except UndeclaredTransition:
                continue
    return rows


def cells(line: str) -> list[str]:
    return [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]


def test_each_state_and_each_change_is_looked_at() -> None:
    kinds = {kind for kind in vars(copier_states).values() if isinstance(kind, type) and issubclass(kind, State)}
    assert {type(state) for state in STATES} == kinds - {State, Ending}
    assert {type(change) for change in CHANGES} == set(Change.__args__)


def test_the_page_has_each_transition_and_no_other() -> None:
    text = PAGE.read_text()
    table = text[text.index("| state | what happens | next state |") :].splitlines()
    shown: set[Row] = set()
    for line in table[2:]:
        if not line.startswith("|"):
            break
        state, change, following, _ = cells(line)
        shown |= {(state, change, one.strip(" `")) for one in following.split(",")}
    assert shown == declared()


def test_the_diagram_has_each_way_from_one_state_to_another_and_no_other() -> None:
    shown = set(re.findall(r"^ +(\w+) --> (\w+)$", PAGE.read_text(), re.MULTILINE))
    assert shown == {(state, following) for state, _, following in declared() if state != following}


# A walk


class Lease:
    read_at_s = 0.0

    def hold(self, extra_bytes: int, holders: int = 1) -> None: ...
    def release(self, extra_bytes: int) -> None: ...


class Walk:
    """One copier to which everything happens that can happen to it, in any order that a shell may bring about."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now_s = 0.0
        self.sent: list[Sending] = []
        self.token = 0
        lookup = rng.choice([None, None, "it is looked up"])
        settings = CopySettings(1 << 20, quarantines=rng.random() < 0.5, stops_when_expired=rng.random() < 0.5)
        self.copier = Copier("t-0", Position(10, target_offset=rng.choice([None, 10])), WRITER, settings, lookup=lookup)

    def step(self) -> None:
        copier = self.copier
        while self.rng.random() < 0.9 and (sending := copier.next_batch(1, 5_000 if self.rng.random() < 0.02 else 0)):
            self.sent.append(sending)
        self.now_s += self.rng.choice([0.0, 0.1, 40.0])
        copier.handle(self.event())
        assert copier.position.source_offset >= 0

    def event(self) -> Event:
        copier, rng = self.copier, self.rng
        if self.sent and rng.random() < 0.4:
            return self.answer(self.sent.pop(0 if rng.random() < 0.8 else rng.randrange(len(self.sent))))
        if rng.random() < 0.9:
            return self.likely()
        at = copier.position.source_offset
        target = copier.position.target_offset or 0
        found = Position(at + rng.randint(0, 3), target_offset=target + rng.randint(0, 5))
        return rng.choice(
            [
                FetchRefused(rng.choice([1, 29, 6]), self.now_s),
                OffsetsFound(max(0, at + rng.choice([-5, 5])), at + rng.choice([-1, 20]), self.now_s),
                Diverged(3, max(0, at - 2)),
                TooOldToResend(self.now_s),
                PositionStored(copier.identity),
                Reconciled(ProducerIdentity(copier.identity.producer_id + 1, 0, "mm2py-test"), found),
                LookupWaits("a transaction is undecided"),
                TargetLed(rng.randint(1, 3)),
                TargetShort(),
                TargetLost(target, max(0, target - 1)),
                UnexpectedMet("others write", is_known=rng.random() < 0.5),
                SourceRewritten(max(0, at - 2), at),
                Quarantined(at, self.now_s),
                LimitsFound(),
                SettingsChanged(CopySettings(1 << 20, quarantines=rng.random() < 0.5)),
                RestartAsked(self.now_s),
                PauseChanged(rng.random() < 0.4),
                Drain(),
                DrainGivenUp(),
            ]
        )

    def likely(self) -> Event:
        """Return what lets a copier get on."""
        copier = self.copier
        match copier.state:
            case Waiting() if copier.search.found is not None:
                return Quarantined(copier.search.found.offset, self.now_s)
            case Storing():
                return PositionStored(copier.identity)
            case Copying() if copier.is_end_unverified:
                return TargetWhole(copier.end_checks)
            case Copying():
                return self.read()
            case Draining() | Stopped():
                return self.rng.choice([Tick(self.now_s), Diverged(3, 5), DrainGivenUp(), Drain()])
            case _:
                return Tick(self.now_s)

    def read(self) -> Fetched:
        rng, at, steps, fault = self.rng, self.copier.fetch_offset, list[Step](), None
        for _ in range(rng.randint(0, 3)):
            count = 1 + at % 2  # each batch comes again as it was, as long as it is read from its start
            is_marker = at % 11 == 0
            step = (
                Dropped(at + 1, 1, "control") if is_marker else Outgoing(at, at + count, count, 1_000, 0, bytearray(10))
            )
            steps.append(step)
            at = step.next_offset
        if rng.random() < 0.1:
            kind = rng.choice(["crc mismatch", "too large"])
            fault = Fault(kind, at, at + 1, "it cannot be copied")  # type: ignore[arg-type]
        return Fetched(Plan(steps, at, fault), Lease(), self.copier.fetch_offset, at + 5, self.now_s)

    def answer(self, sending: Sending) -> Event:
        rng = self.rng
        dice = rng.random()
        if dice < 0.7:
            at = (self.copier.real_position.target_offset or 0) + (rng.choice([2, -1]) if rng.random() < 0.05 else 0)
            return Acked(sending.token, at if rng.random() < 0.97 else -1, self.now_s)
        if dice < 0.8:
            return ProduceLost(sending.token, "reset", self.now_s)
        return ProduceRefused(
            sending.token, rng.choice([6, 7, 10, 19, 20, 29, 45, 45, 47, 87, 87, 999]), None, self.now_s
        )


def test_a_walk_takes_each_transition(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: Counter[Row] = Counter()

    def noted(state: State, change: Change) -> State:
        following = next_state(state, change)
        taken[name_of(state), name_of(change), name_of(following)] += 1
        return following

    monkeypatch.setattr(copier_module, "next_state", noted)
    for seed in range(4_000):
        walk = Walk(random.Random(seed))
        for _ in range(80):
            walk.step()
    assert set(taken) == declared()
