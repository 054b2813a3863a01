"""Whether a flow is ready for a cutover and for a failover, what would be lost, and what stands in the way. Pure.

Both answers rest on the verdict and the safe time of ``mm2py status`` (``mm2py/status/verdict.py``), on the questions
of ``mm2py check`` for the flow that leads back, and on the recovery journal. An answer is never better than what is
known: ``yes`` means that everything was asked and nothing stands in the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from mm2py.checks.results import CheckResult, CheckState
from mm2py.dr.fence.record import FenceRecord
from mm2py.dr.journal import JournalEntry, standing_entry
from mm2py.dr.states import ENDED, MAY_HAVE_SWITCHED, TABLE, RecoveryEvent, RecoveryState, RecoveryVerb
from mm2py.flow import Flow
from mm2py.moments import ago, time_text
from mm2py.status.consumer_groups import ConsumerGroupReport
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_WAITS
from mm2py.status.return_flow import return_flow
from mm2py.status.verdict import FlowVerdict, Readiness

NAMED_MOST: Final = 5
"""How many groups or topics a sentence names."""
SAME_DAY_MS: Final = 12 * 60 * 60 * 1000
NOT_OF_THE_WAY_BACK: Final = frozenset({"MM0602"})
"""Checks that mean nothing for the flow back: its remote topics are the originals, and hold records."""


class ReadyFor(StrEnum):
    """Whether something could be done now."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "not known"


class WayBackState(StrEnum):
    """What the file says of the flow that leads back."""

    THERE = "there"
    """It runs, or can be started."""
    MISSING = "missing"
    REFUSED = "refused"


class ObstacleKind(StrEnum):
    """What stands in the way, in a word that keeps its meaning."""

    SOURCE_AWAY = "source-away"
    TARGET_AWAY = "target-away"
    NOT_RUNNING = "not-running"
    NOT_COPIED = "not-copied"
    BEHIND = "behind"
    NOT_KNOWN = "not-known"
    GROUPS = "groups"
    FENCED = "fenced"
    NO_WAY_BACK = "no-way-back"
    WAY_BACK_CHECKS = "way-back-checks"
    NO_WORKER_AT_SOURCE = "no-worker-at-source"
    UNFINISHED = "unfinished"
    RETURN_FLOW = "return-flow"
    JOURNAL = "journal"


@dataclass(frozen=True, slots=True)
class RecoveryObstacle:
    """One thing that stands in the way."""

    kind: ObstacleKind
    """What it is, in a word."""
    text: str
    """What it is, in a sentence."""
    way_out: str
    """What an operator can do."""
    of_cutover: bool = True
    """It stands in the way of a cutover."""
    of_failover: bool = True
    """It stands in the way of a failover."""
    is_doubt: bool = False
    """It is not known whether it really does."""


@dataclass(frozen=True, slots=True)
class RecoveryStanding:
    """What the journal says of the pair of clusters."""

    run: str
    """The last run; empty: there was none."""
    verb: str
    """What it is for."""
    flow: str
    """Its flow."""
    state: str
    """How far it has come."""
    at_ms: int | None
    """When it came that far."""


NO_STANDING: Final = RecoveryStanding("", "", "", "", None)


@dataclass(frozen=True, slots=True)
class ReadinessFacts:
    """What both answers follow from."""

    flow: Flow
    at_ms: int
    """By the clock of the machine that asks."""
    source_away: str = ""
    """Why the source does not answer; empty: it does."""
    target_away: str = ""
    verdict: FlowVerdict | None = None
    """None: nothing is known of the flow."""
    lag: int | None = None
    is_lag_partial: bool = False
    lag_as_of_ms: int | None = None
    groups: Sequence[ConsumerGroupReport] | None = None
    """None: the flow emits no checkpoints, or see ``groups_unread``."""
    groups_unread: str = ""
    """Why nothing is known of the groups; with ``groups``: why the target alone tells of them."""
    fences_there: Sequence[FenceRecord] = ()
    """Fences of the target's own producers that are up."""
    fences_unread: str = ""
    """Why these are not known."""
    way_back: WayBackState = WayBackState.MISSING
    way_back_refused: str = ""
    """Why the file's flow back must not run."""
    way_back_checks: Sequence[CheckResult] = ()
    worker_at_source: bool | None = None
    """A live worker serves the source as a target; None: not known."""
    worker_at_source_why: str = ""
    journal: Sequence[JournalEntry] = ()
    """The entries of the journals, as far as they agree."""
    journal_wrong: str = ""
    """Why the journals cannot be used."""
    is_journal_unread: bool = False
    """Because a cluster does not tell: they may be as they should."""


@dataclass(frozen=True, slots=True)
class RecoveryReadiness:
    """Whether a flow is ready, and what a failover would lose."""

    flow: Flow
    at_ms: int
    cutover: ReadyFor
    failover: ReadyFor
    text: str
    """Both answers, a line each."""
    lost_s: float | None
    lost_records: int | None
    is_lost_at_least: bool
    safe_at_ms: int | None
    standing: RecoveryStanding
    obstacles: tuple[RecoveryObstacle, ...]
    is_whole: bool
    """Both clusters answered."""

    @property
    def exit_code(self) -> int:
        """The exit code of ``mm2py dr check``."""
        if not self.is_whole:
            return EXIT_FAILED
        return EXIT_DONE if self.cutover is self.failover is ReadyFor.YES else EXIT_WAITS


def readiness_of(facts: ReadinessFacts) -> RecoveryReadiness:
    """Return both answers, with everything that stands in the way."""
    obstacles = tuple(_obstacles(facts))
    verdict = facts.verdict
    cutover = _prepared([one for one in obstacles if one.of_cutover])
    failover = _prepared([one for one in obstacles if one.of_failover])
    found = RecoveryReadiness(
        flow=facts.flow,
        at_ms=facts.at_ms,
        cutover=cutover,
        failover=failover,
        text="",
        lost_s=None if verdict is None else verdict.behind_s,
        lost_records=facts.lag,
        is_lost_at_least=facts.is_lag_partial or bool(facts.source_away),
        safe_at_ms=None if verdict is None else verdict.safe_at_ms,
        standing=standing_of(facts.journal),
        obstacles=obstacles,
        is_whole=not (facts.source_away or facts.target_away),
    )
    lines = f"Ready for cutover: {cutover}.\nReady for failover: {failover}{_loss(found)}."
    return replace(found, text=lines)


def target_away(flow: Flow, at_ms: int, source_away: str, target_away: str) -> RecoveryReadiness:
    """Return what can be said if the target does not answer: nothing is known."""
    return readiness_of(ReadinessFacts(flow, at_ms, source_away, target_away))


def standing_of(journal: Sequence[JournalEntry]) -> RecoveryStanding:
    """Return how far the last run has come."""
    last = standing_entry(journal)
    if last is None:
        return NO_STANDING
    return RecoveryStanding(last.run, str(last.verb), str(last.flow), str(last.state), last.at_ms)


def _prepared(obstacles: Sequence[RecoveryObstacle]) -> ReadyFor:
    if not obstacles:
        return ReadyFor.YES
    return ReadyFor.UNKNOWN if all(one.is_doubt for one in obstacles) else ReadyFor.NO


def _loss(found: RecoveryReadiness) -> str:
    """Return what a failover would lose, as far as it is known."""
    if found.lost_s is None or found.safe_at_ms is None:
        return "; what would be lost is not known"
    least = "at least " if found.is_lost_at_least else ""
    records = found.lost_records
    is_told = records is not None and (records or not least)  # "at least 0" would say nothing
    counted = "" if not is_told else f" ({least}{records:,} record{'' if records == 1 else 's'})"
    safe = f"safe time {moment_text(found.safe_at_ms, found.at_ms)}"
    return f", {found.lost_s:,.1f} s{counted} would be lost; {safe}"


def moment_text(at_ms: int, now_ms: int) -> str:
    """Return a time in UTC to the tenth of a second; with the date if it is not of today."""
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return "?"
    time = f"{moment:%H:%M:%S}.{at_ms % 1000 // 100} UTC"
    return time if abs(now_ms - at_ms) < SAME_DAY_MS else f"{moment:%Y-%m-%d} {time}"


# What stands in the way


def _obstacles(facts: ReadinessFacts) -> Iterator[RecoveryObstacle]:
    flow = facts.flow
    if facts.target_away:
        text = f"{flow.target} does not answer: {facts.target_away.rstrip('.')}"
        yield RecoveryObstacle(ObstacleKind.TARGET_AWAY, text, f"Make {flow.target} answer.", is_doubt=True)
    if facts.source_away:
        text = f"{flow.source} does not answer: {facts.source_away.rstrip('.')}"
        way_out = f"Make {flow.source} answer. If it is lost: fail over."
        yield RecoveryObstacle(ObstacleKind.SOURCE_AWAY, text, way_out, of_failover=False)
    if facts.target_away:
        return
    yield from _journal(facts)
    yield from _copy(facts)
    yield from _groups(facts)
    yield from _fences(facts)
    if not facts.source_away:
        yield from _way_back(facts)


def _journal(facts: ReadinessFacts) -> Iterator[RecoveryObstacle]:
    if facts.journal_wrong:
        is_doubt = facts.is_journal_unread
        way_out = "Nothing is switched by guess: settle this first (docs/recovery.md)."
        way_out = "Grant what is missing, and ask again." if is_doubt else way_out
        yield RecoveryObstacle(ObstacleKind.JOURNAL, facts.journal_wrong, way_out, is_doubt=is_doubt)
        return
    last = standing_entry(facts.journal)
    if last is None:
        return
    since = f"since {ago(max(0, facts.at_ms - last.at_ms))}"
    told = f"The {last.verb} of {last.flow} is {last.state} {since}"
    is_same = last.flow == facts.flow
    if last.state in ENDED:
        if last.state is RecoveryState.COMPLETE and is_same:
            text = f"{told}: producers were moved to {facts.flow.target} already"
            way_out = f"Ask for the way back: mm2py dr check FILE '{last.flow.target}->{last.flow.source}'."
            yield RecoveryObstacle(ObstacleKind.UNFINISHED, text, way_out)
        return
    may_fail_over = any(
        row.state is last.state and row.event is RecoveryEvent.FAILOVER_ASKED and row.turns is not is_same
        for row in TABLE
    )
    yield RecoveryObstacle(
        ObstacleKind.UNFINISHED,
        told,
        way_on(last, facts.at_ms),
        of_failover=not may_fail_over,
    )
    yield from _return_flow(facts, last)


def _return_flow(facts: ReadinessFacts, last: JournalEntry) -> Iterator[RecoveryObstacle]:
    """Say that nothing keeps the cluster exact that producers have left, while a run can be undone."""
    back = return_flow(facts.flow, last, facts.verdict)
    if back is not None and back.dead:
        yield RecoveryObstacle(
            ObstacleKind.RETURN_FLOW,
            f"{back.flow}: {back.dead}",
            "Start, resume or mend it: mm2py status FILE says which.",
            is_doubt=facts.verdict is None or facts.verdict.readiness is Readiness.UNKNOWN,
        )
    of_other = last.state is RecoveryState.REVERSED and last.flow == facts.flow
    if of_other and facts.worker_at_source is False:
        flow = facts.flow
        yield RecoveryObstacle(
            ObstacleKind.RETURN_FLOW,
            f"{flow.target}->{flow.source} must copy while the {last.verb} of {flow} can be undone, and no live worker"
            f" runs it: what is written on {flow.target} is not on {flow.source}",
            f"Start one: mm2py FILE --clusters {flow.source}.",
        )


def way_on(last: JournalEntry, now_ms: int) -> str:
    """Return what an operator can do with a run that has not ended."""
    flow = f"FILE '{last.flow}'"
    if last.state is RecoveryState.REVERSED:
        over_ms = last.undo_ends_ms
        if over_ms is not None and now_ms >= over_ms:
            return (
                f"It can be undone no more since {time_text(over_ms)}. mm2py dr complete {flow} keeps it; the way back"
                f" is then mm2py dr cutover FILE '{last.flow.target}->{last.flow.source}'."
            )
        until = "" if over_ms is None else f" until {time_text(over_ms)}"
        return f"mm2py dr rollback {flow} undoes it{until}, mm2py dr complete {flow} keeps it."
    reinstates = f"mm2py dr reinstate {flow}"
    if last.state is RecoveryState.FAILING_OVER:
        return f"mm2py dr failover {flow} goes on; then {reinstates} when {last.flow.source} answers."
    if last.state is RecoveryState.FAILED_OVER:
        return f"{reinstates} when {last.flow.source} answers."
    if last.verb is RecoveryVerb.FAILOVER and last.state in MAY_HAVE_SWITCHED:
        return f"{reinstates} goes on."
    if last.verb is RecoveryVerb.ROLLBACK:  # it is named by the flow that it leads back to
        goes_on = f"mm2py dr rollback FILE '{last.flow.target}->{last.flow.source}' goes on"
        takes_back = "" if last.state in MAY_HAVE_SWITCHED else f", mm2py dr unfence {flow} takes it back"
        return f"{goes_on}{takes_back}."
    if last.state in MAY_HAVE_SWITCHED:
        return f"mm2py dr {last.verb} {flow} goes on, mm2py dr rollback {flow} undoes it."
    return f"mm2py dr {last.verb} {flow} goes on, mm2py dr unfence {flow} takes it back."


def _copy(facts: ReadinessFacts) -> Iterator[RecoveryObstacle]:
    verdict, flow = facts.verdict, facts.flow
    if verdict is None:
        yield RecoveryObstacle(
            ObstacleKind.NOT_KNOWN, f"Nothing is known of {flow}", "See mm2py status FILE.", is_doubt=True
        )
        return
    told = verdict.text.removeprefix(f"{flow}: ")
    match verdict.readiness:
        case Readiness.SAFE:
            pass
        case Readiness.BEHIND:
            if not facts.source_away:
                way_out = f"Wait until {verdict.oldest or 'it'} has caught up; mm2py status FILE says what limits it."
                yield RecoveryObstacle(ObstacleKind.BEHIND, _sentence(told), way_out, of_failover=False)
        case Readiness.INCOMPLETE:
            way_out = f"mm2py why FILE '{flow}' --topic NAME says what decides it; accept, resume or leave out."
            yield RecoveryObstacle(ObstacleKind.NOT_COPIED, _sentence(told), way_out)
        case Readiness.NOT_COPIED:
            yield RecoveryObstacle(
                ObstacleKind.NOT_RUNNING, _sentence(told), "Start, resume or enable it: mm2py status FILE says which."
            )
        case Readiness.UNKNOWN:
            yield RecoveryObstacle(
                ObstacleKind.NOT_KNOWN, _sentence(told), "Ask again, or see mm2py status FILE.", is_doubt=True
            )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _groups(facts: ReadinessFacts) -> Iterator[RecoveryObstacle]:
    look = f"mm2py groups FILE '{facts.flow}' says where each goes on."
    if facts.groups_unread and not (facts.source_away and facts.groups is not None):
        is_unknown = facts.groups is None
        text = f"Groups are not known: {facts.groups_unread.rstrip('.')}"
        yield RecoveryObstacle(ObstacleKind.GROUPS, text, look, of_failover=is_unknown, is_doubt=True)
    groups, target = facts.groups or (), facts.flow.target
    waiting = [f"{one.group} ({one.why.rstrip('.')})" for one in groups if not one.ready]
    if waiting:
        plural = "group is" if len(groups) == 1 else "groups are"
        text = f"{len(waiting)} of {len(groups)} {plural} not ready to go on on {target}: {_named(waiting)}"
        yield RecoveryObstacle(ObstacleKind.GROUPS, text, look)
    # By default group offsets are not synced. A group can then go on exactly, and nothing on the target says so to its
    # consumers. Once the source is lost, mm2py groups --move cannot commit it any more.
    bare = [
        one.group for one in groups if one.ready and any(part.committed_on_target is None for part in one.partitions)
    ]
    if bare:
        text = (
            f"Nothing is committed on {target} for {_named(bare)}: consumers that do not ask where they go on would"
            " begin there by auto.offset.reset"
        )
        way_out = f"Set sync.group.offsets.enabled = true; or let consumers ask (docs/client.md). {look}"
        yield RecoveryObstacle(ObstacleKind.GROUPS, text, way_out, of_cutover=False, is_doubt=True)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MOST} more" if len(names) > NAMED_MOST else ""
    return f"{', '.join(names[:NAMED_MOST])}{more}"


def _fences(facts: ReadinessFacts) -> Iterator[RecoveryObstacle]:
    """The story: a month ago producers went from B back to A, and B's fence was forgotten. After a failover they could
    not write to B."""
    target = facts.flow.target
    for record in facts.fences_there:
        since = f"since {ago(max(0, facts.at_ms - record.at_ms))}"
        text = f"Producers are fenced on {target} {since}, by {record.who_and_why}: they could not write there"
        hook = " --hook-fence CMD" if record.hook else ""
        way_out = f"Before producers start on {target}: mm2py dr unfence FILE '{record.flow}'{hook}."
        yield RecoveryObstacle(ObstacleKind.FENCED, text, way_out)
    if facts.fences_unread:
        text = f"Whether producers are fenced on {target} is not known: {facts.fences_unread.rstrip('.')}"
        way_out = f"mm2py needs READ on mm2-dr-fences.internal of {target}."
        yield RecoveryObstacle(ObstacleKind.FENCED, text, way_out, is_doubt=True)


def _way_back(facts: ReadinessFacts) -> Iterator[RecoveryObstacle]:
    flow = facts.flow
    back = Flow(flow.target, flow.source)

    def of_cutover(kind: ObstacleKind, text: str, way_out: str, *, is_doubt: bool = False) -> RecoveryObstacle:
        return RecoveryObstacle(kind, text, way_out, of_failover=False, is_doubt=is_doubt)

    if facts.way_back is WayBackState.MISSING:
        text = f"The file has no {back}: after a cutover nothing would keep {flow.source} exact"
        yield of_cutover(ObstacleKind.NO_WAY_BACK, text, f"Add {back} to the file, with topics and groups as {flow}.")
        return
    if facts.way_back is WayBackState.REFUSED:
        text = f"{back} must not run: {facts.way_back_refused.rstrip('.')}"
        yield of_cutover(ObstacleKind.NO_WAY_BACK, text, "Correct the file.")
        return
    failed = [
        one for one in facts.way_back_checks if one.state is CheckState.FAILED and one.code not in NOT_OF_THE_WAY_BACK
    ]
    for one in failed:
        text = f"{back} would not run ({one.code}): {one.sentence.rstrip('.')}"
        yield of_cutover(ObstacleKind.WAY_BACK_CHECKS, text, one.hint or f"See docs/checks/{one.code}.md.")
    if facts.worker_at_source is not True:
        why = f": {facts.worker_at_source_why.rstrip('.')}" if facts.worker_at_source_why else ""
        text = f"No live worker serves {flow.source} as a target{why}"
        way_out = f"Start one: mm2py FILE --clusters {flow.source}."
        is_doubt = facts.worker_at_source is None
        yield of_cutover(ObstacleKind.NO_WORKER_AT_SOURCE, text, way_out, is_doubt=is_doubt)


# As people read it


def readiness_text(found: RecoveryReadiness) -> str:
    """Return what ``mm2py dr check`` prints."""
    lines = [*found.text.split("\n")]
    standing = found.standing
    if standing.run and standing.at_ms is not None:
        lines.append(f"Last run: {standing.verb} of {standing.flow}, {standing.state}, {time_text(standing.at_ms)}.")
    for heading, ones in (
        ("In the way of both:", [one for one in found.obstacles if one.of_cutover and one.of_failover]),
        ("In the way of a cutover:", [one for one in found.obstacles if one.of_cutover and not one.of_failover]),
        ("In the way of a failover:", [one for one in found.obstacles if one.of_failover and not one.of_cutover]),
    ):
        if ones:
            lines += ["", heading]
        for one in ones:
            lines += [f"  {'? ' if one.is_doubt else ''}{one.text.rstrip('.')}. [{one.kind}]", f"      {one.way_out}"]
    return "".join(f"{line}\n" for line in lines)
