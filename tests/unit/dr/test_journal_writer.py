"""One process writes the recovery journal: it shuts the previous one out, and stores where an entry has to be."""

from __future__ import annotations

import random
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from mm2py.dr.journal import JournalOpening, JournalRecord, RunRefused
from mm2py.dr.journal_writer import ClusterNeeded, JournalNotStored, JournalTakenOver, JournalWriter, KeptJournal
from mm2py.dr.runner import PreparedRun, RecoveryGoal, RecoveryRunner, RecoveryStopped, first_event
from mm2py.dr.states import ACTS_WITHIN_S, LATE_S, RecoveryEvent, RecoveryFacts, RecoveryState
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias, Flow
from mm2py.records.author import Author

E, S = RecoveryEvent, RecoveryState
A, B = ClusterAlias("A"), ClusterAlias("B")
FLOW = Flow(A, B)
ENDS = {"orders-0": 10}


class SetTime:
    """A clock that the test sets."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def boottime(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)


@dataclass
class Kept:
    """The journals of both clusters."""

    records: dict[ClusterAlias, list[JournalRecord]] = field(default_factory=lambda: {A: [], B: []})
    epochs: dict[ClusterAlias, int] = field(default_factory=lambda: {A: 0, B: 0})
    written: dict[ClusterAlias, int] = field(default_factory=lambda: {A: 0, B: 0})


class Store:
    """Journals in lists, by the rules of producer epochs."""

    def __init__(self, kept: Kept, *clusters: ClusterAlias) -> None:
        self.clusters: Sequence[ClusterAlias] = clusters or (A, B)
        self.silent: set[ClusterAlias] = set()
        self.before_opening = lambda: None
        self._kept = kept
        self._epochs: dict[ClusterAlias, int] = {}

    async def begin(self, alias: ClusterAlias) -> None:
        self._kept.epochs[alias] += 1
        self._epochs[alias] = self._kept.epochs[alias]

    async def read(self, alias: ClusterAlias) -> KeptJournal:
        return KeptJournal(tuple(self._kept.records[alias]), f"id-{alias}", str(alias))

    async def write(self, alias: ClusterAlias, records: Sequence[JournalRecord], *, is_optional: bool = False) -> None:
        if alias in self.silent:
            raise JournalNotStored(f"{alias} is silent.", remedy="")
        if isinstance(records[0], JournalOpening):
            self.before_opening()
        if self._epochs[alias] < self._kept.written[alias]:
            raise JournalTakenOver
        self._kept.written[alias] = self._epochs[alias]
        self._kept.records[alias] += records


def done(work: Coroutine[Any, Any, Any]) -> Any:
    """Run what waits for nothing."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("it waits")


def opened(kept: Kept, *clusters: ClusterAlias, store: Store | None = None, clock: SetTime | None = None) -> Any:
    store = store or Store(kept, *clusters)
    clock = clock or SetTime()
    return done(JournalWriter.open(store, author=Author("ann"), clock=clock, rng=random.Random(len(kept.records[A]))))


def test_the_second_process_shuts_the_first_one_out_and_goes_on_where_it_was() -> None:
    kept = Kept()
    first = opened(kept)
    done(first.append(E.CUTOVER_ASKED, FLOW, topics=["orders"]))
    second = opened(kept)
    assert (second.term, second.standing.state, second.waits_s) == (2, S.FENCING, LATE_S)
    with pytest.raises(JournalTakenOver):
        done(first.append(E.FENCE_SET, FLOW))
    done(second.append(E.RESTARTED, FLOW))
    assert [one.number for one in opened(kept).entries] == [0, 1]


def test_a_late_opening_with_a_higher_term_makes_the_term_higher() -> None:
    """Found by the simulation: what the failover had stored was taken for late records, and forgotten."""
    kept = Kept()
    store = Store(kept, B)

    def late() -> None:
        store.before_opening = lambda: None
        kept.records[B].append(JournalOpening(7, 0))

    store.before_opening = late
    writer = opened(kept, store=store)
    assert writer.term == 8
    done(writer.append(E.FAILOVER_ASKED, FLOW))
    assert [one.state for one in opened(kept).entries] == [S.CUTTING_OFF]


def test_an_entry_needs_both_clusters_but_for_a_failover_and_for_taking_back() -> None:
    kept = Kept()
    done(opened(kept).append(E.CUTOVER_ASKED, FLOW))
    on_source = opened(kept, A)
    with pytest.raises(ClusterNeeded, match="B does not answer, and Fenced counts only when it has stored it"):
        done(on_source.append(E.FENCE_SET, FLOW))
    on_target = opened(kept, B)
    with pytest.raises(ClusterNeeded, match="A does not answer, and TakingBack"):
        done(on_target.append(E.TAKE_BACK_ASKED, FLOW))
    done(on_target.append(E.FAILOVER_ASKED, FLOW))
    assert opened(kept).standing.state is S.CUTTING_OFF
    assert [one.mark for one in opened(kept, A).entries] == [one.mark for one in opened(kept, B).entries]


def test_a_cluster_that_falls_silent_does_not_hold_up_what_counts_without_it() -> None:
    kept = Kept()
    store = Store(kept)
    writer = opened(kept, store=store)
    done(writer.append(E.CUTOVER_ASKED, FLOW))
    store.silent.add(B)
    with pytest.raises(JournalNotStored):
        done(writer.append(E.FENCE_SET, FLOW))
    again = Store(kept)
    writer = opened(kept, store=again)
    again.silent.add(B)
    done(writer.append(E.TAKE_BACK_ASKED, FLOW))
    done(writer.append(E.ALL_REMOVED, FLOW))
    assert opened(kept).standing.state is S.TAKEN_BACK


def test_a_process_acts_only_shortly_after_its_entry() -> None:
    clock = SetTime()
    writer = opened(Kept(), clock=clock)
    assert not writer.may_act
    done(writer.append(E.CUTOVER_ASKED, FLOW))
    assert writer.may_act
    clock.now_s += ACTS_WITHIN_S
    assert not writer.may_act


# The runner


class Actions:
    """Does nothing, and notes what it was told; one step fails."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.did: list[str] = []
        self.facts = RecoveryFacts(ENDS, ENDS, ENDS, {"billing": ENDS})

    async def _do(self, name: str) -> RecoveryFacts:
        self.did.append(name)
        if name == self.failing:
            raise Mm2Error(f"{name} failed.", remedy="Try again.")
        return self.facts

    async def prepare(self, goal: RecoveryGoal, flow: Flow, last: object) -> PreparedRun:
        await self._do("prepare")
        return PreparedRun(["orders"], {"acls": []})

    async def set_fence(self, entry: object) -> None:
        await self._do("set_fence")

    async def verify_fence(self, entry: object) -> RecoveryFacts:
        return await self._do("verify_fence")

    async def drain(self, entry: object, ends: RecoveryFacts) -> RecoveryFacts:
        assert ends.source_ends == ENDS
        return await self._do("drain")

    async def finish_groups(self, entry: object) -> RecoveryFacts:
        return await self._do("finish_groups")

    async def confirm_switch(self, entry: object) -> RecoveryFacts:
        return await self._do("confirm_switch")

    async def run_hook(self, entry: object) -> None:
        await self._do("run_hook")

    async def turn_flow_round(self, entry: object) -> None:
        await self._do("turn_flow_round")

    async def free_producers(self, entry: object) -> None:
        await self._do("free_producers")

    async def take_back(self, entry: object, kept: Sequence[Any]) -> None:
        assert list(kept) == [{"acls": []}]
        await self._do("take_back")

    async def cut_off_writers(self, entry: object) -> RecoveryFacts:
        return await self._do("cut_off_writers")

    async def place_groups(self, entry: object) -> RecoveryFacts:
        return await self._do("place_groups")

    async def hold_flow_back(self, entry: object) -> None:
        await self._do("hold_flow_back")

    async def settle_extras(self, entry: object) -> RecoveryFacts:
        return await self._do("settle_extras")

    async def sleep(self, seconds: float) -> None:
        if seconds:
            self.did.append(f"sleep {seconds:g}")


CUTOVER = ["prepare", "set_fence", "verify_fence", "drain", "finish_groups", "confirm_switch", "run_hook"]


def ran(kept: Kept, actions: Actions, goal: RecoveryGoal, flow: Flow = FLOW) -> RecoveryState:
    found: RecoveryState = done(RecoveryRunner(opened(kept), actions).run(goal, flow))
    return found


def test_a_cutover_a_rollback_and_a_cutover_again() -> None:
    kept, actions = Kept(), Actions()
    for goal in (RecoveryGoal.CUTOVER, RecoveryGoal.ROLLBACK):
        assert ran(kept, actions, goal) is S.REVERSED
    assert actions.did == [*CUTOVER, "turn_flow_round", "free_producers"] * 2
    assert ran(kept, actions, RecoveryGoal.COMPLETE, Flow(B, A)) is S.COMPLETE
    assert ran(kept, Actions(), RecoveryGoal.CUTOVER) is S.REVERSED


@pytest.mark.parametrize("step", CUTOVER[1:-1])
def test_a_step_that_fails_before_the_hook_takes_everything_back(step: str) -> None:
    kept, actions = Kept(), Actions(failing=step)
    assert ran(kept, actions, RecoveryGoal.CUTOVER) is S.TAKEN_BACK
    assert actions.did[-2:] == [step, "take_back"]
    assert f"{step} failed" in opened(kept).entries[-2].text


def test_an_end_that_moved_before_the_hook_takes_everything_back() -> None:
    class Moving(Actions):
        async def confirm_switch(self, entry: object) -> RecoveryFacts:
            await self._do("confirm_switch")
            return RecoveryFacts({"orders-0": 11})

    kept, actions = Kept(), Moving()
    assert ran(kept, actions, RecoveryGoal.CUTOVER) is S.TAKEN_BACK
    assert "run_hook" not in actions.did
    assert "orders-0 ends now at 11" in opened(kept).entries[-2].text


def test_a_hook_that_fails_takes_nothing_back_and_runs_again_or_is_undone() -> None:
    kept = Kept()
    with pytest.raises(RecoveryStopped, match="stays Switching: run_hook failed"):
        ran(kept, Actions(failing="run_hook"), RecoveryGoal.CUTOVER)
    again = Actions()
    assert ran(kept, again, RecoveryGoal.CUTOVER) is S.REVERSED
    assert again.did == ["sleep 30", "confirm_switch", "run_hook", "turn_flow_round", "free_producers"]

    kept = Kept()
    with pytest.raises(RecoveryStopped):
        ran(kept, Actions(failing="run_hook"), RecoveryGoal.CUTOVER)
    undone = Actions()
    assert ran(kept, undone, RecoveryGoal.ROLLBACK) is S.REVERSED
    assert undone.did[:5] == ["sleep 30", "prepare", "turn_flow_round", "free_producers", "prepare"]
    assert opened(kept).standing.flow == Flow(B, A)


def test_a_hook_that_was_left_as_it_is_cannot_be_completed() -> None:
    kept = Kept()
    with pytest.raises(RecoveryStopped):
        ran(kept, Actions(failing="run_hook"), RecoveryGoal.CUTOVER)
    writer = opened(kept)
    for event in (E.UNDO_ASKED, E.FLOW_REVERSED, E.PRODUCERS_FREE):
        done(writer.append(event, FLOW))
    with pytest.raises(RunRefused, match="The switch hook of this run has not succeeded"):
        done(writer.append(E.COMPLETE_ASKED, FLOW))


def test_a_hook_that_would_run_long_after_its_entry_does_not_run() -> None:
    class Slow(Actions):
        async def cut_off_writers(self, entry: object) -> RecoveryFacts:
            found = await self._do("cut_off_writers")
            clock.now_s += ACTS_WITHIN_S
            return found

    kept, clock = Kept(), SetTime()
    with pytest.raises(RecoveryStopped):
        ran(kept, Actions(failing="run_hook"), RecoveryGoal.FAILOVER)
    slow = Slow()
    with pytest.raises(RecoveryStopped, match="The step came too late after its entry"):
        done(RecoveryRunner(opened(kept, clock=clock), slow).run(RecoveryGoal.FAILOVER, FLOW))
    assert slow.did == ["sleep 30", "cut_off_writers"]


def test_a_precondition_that_does_not_hold_stores_nothing() -> None:
    kept = Kept()
    with pytest.raises(Mm2Error, match="prepare failed"):
        ran(kept, Actions(failing="prepare"), RecoveryGoal.CUTOVER)
    assert opened(kept).entries == ()


def test_what_was_verified_is_verified_again_by_the_next_process() -> None:
    kept = Kept()
    writer = opened(kept)
    for event in (E.CUTOVER_ASKED, E.FENCE_SET):
        done(writer.append(event, FLOW, kept={"acls": []}))
    done(writer.append(E.FENCE_HOLDS, FLOW, seen=RecoveryFacts(ENDS)))
    done(writer.append(E.ALL_COPIED, FLOW, seen=RecoveryFacts(copied_to=ENDS)))
    actions = Actions()
    assert ran(kept, actions, RecoveryGoal.CUTOVER) is S.REVERSED
    assert actions.did[:3] == ["sleep 30", "verify_fence", "drain"]


def test_a_failover_goes_on_without_the_source_and_its_return_is_settled() -> None:
    kept, actions = Kept(), Actions()
    assert done(RecoveryRunner(opened(kept, B), actions).run(RecoveryGoal.FAILOVER, FLOW)) is S.FAILED_OVER
    assert kept.records[A] == []
    wanted = ["prepare", "cut_off_writers", "place_groups", "confirm_switch", "run_hook", "free_producers"]
    assert actions.did == wanted
    back = Actions()
    assert ran(kept, back, RecoveryGoal.REINSTATE) is S.COMPLETE
    assert back.did == ["prepare", "hold_flow_back", "set_fence", "verify_fence", "settle_extras", "turn_flow_round"]
    assert ran(kept, Actions(), RecoveryGoal.CUTOVER, Flow(B, A)) is S.REVERSED


def test_a_failover_in_the_reverse_window_is_one_of_the_cluster_that_has_the_producers() -> None:
    kept = Kept()
    ran(kept, Actions(), RecoveryGoal.CUTOVER)
    with pytest.raises(RunRefused, match="Name 'B->A' to failover"):
        ran(kept, Actions(), RecoveryGoal.FAILOVER)
    assert ran(kept, Actions(), RecoveryGoal.FAILOVER, Flow(B, A)) is S.FAILED_OVER


def test_goals_that_are_reached_do_nothing_and_those_without_a_run_are_refused() -> None:
    kept = Kept()
    for goal in (RecoveryGoal.ROLLBACK, RecoveryGoal.COMPLETE, RecoveryGoal.REINSTATE, RecoveryGoal.UNFENCE):
        with pytest.raises(RunRefused, match=f"There is no run of A->B to {goal}"):
            ran(kept, Actions(), goal)
    ran(kept, Actions(), RecoveryGoal.CUTOVER)
    assert first_event(RecoveryGoal.CUTOVER, FLOW, opened(kept).standing) is None
    idle = Actions()
    assert ran(kept, idle, RecoveryGoal.CUTOVER) is S.REVERSED
    assert idle.did == []


def test_a_cutover_against_one_that_stands_names_both_ways_out() -> None:
    kept = Kept()
    ran(kept, Actions(), RecoveryGoal.CUTOVER)
    with pytest.raises(RunRefused, match=r"dr rollback FILE 'A->B'.*complete it first"):
        first_event(RecoveryGoal.CUTOVER, Flow(B, A), opened(kept).standing)


def test_each_entry_is_told_when_it_counts() -> None:
    kept, told = Kept(), list[RecoveryState]()
    writer = opened(kept)
    writer.tell = lambda entry: told.append(entry.state)
    done(RecoveryRunner(writer, Actions()).run(RecoveryGoal.CUTOVER, FLOW))
    assert told == [one.state for one in writer.entries]
    assert told[0] is S.FENCING and told[-1] is S.REVERSED


@pytest.mark.parametrize("step", ["cut_off_writers", "place_groups", "confirm_switch"])
def test_a_step_of_a_failover_that_fails_leaves_it_where_it_is_while_the_source_is_away(step: str) -> None:
    kept, failing = Kept(), Actions(failing=step)
    with pytest.raises(RecoveryStopped, match=f"{step} failed.*Call the same verb again"):
        done(RecoveryRunner(opened(kept, B), failing).run(RecoveryGoal.FAILOVER, FLOW))
    assert "take_back" not in failing.did
    again = Actions()
    assert done(RecoveryRunner(opened(kept, B), again).run(RecoveryGoal.FAILOVER, FLOW)) is S.FAILED_OVER


def test_the_last_entry_of_a_failover_tells_all_that_is_known_of_it() -> None:
    kept, actions = Kept(), Actions()
    actions.facts = RecoveryFacts({}, ENDS, ENDS, {"billing": ENDS}, {"orders-0": 3})
    done(RecoveryRunner(opened(kept, B), actions).run(RecoveryGoal.FAILOVER, FLOW))
    (found,) = [one for one in opened(kept, B).entries if one.event is E.HOOK_DONE]
    assert (found.state, found.facts) == (S.FAILED_OVER, actions.facts)
