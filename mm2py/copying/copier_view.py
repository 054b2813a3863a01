"""What a copier shows to others: its state, its position, and whether it wants to read or send. Pure.

Nothing here changes anything; ``Copier`` does.
"""

from __future__ import annotations

import re

from mm2py.copying.events import CopySettings
from mm2py.copying.gaps import PoisonSearch
from mm2py.copying.in_flight import InFlightBatches
from mm2py.copying.planning.steps import Fault, Tally
from mm2py.copying.positions import Position
from mm2py.copying.states import (
    Copying,
    Ending,
    Reconciling,
    State,
    Storing,
    Waiting,
    gaps_of,
)
from mm2py.kafka.port import ProducerIdentity
from mm2py.offsets.runs import NewRuns

_NUMBERS = re.compile(r"(?<=offset )\d+|\d+(?= bytes)")


class CopierView:
    """The copying of one partition, as others see it."""

    def __init__(
        self,
        name: str,
        position: Position,
        identity: ProducerIdentity,
        settings: CopySettings,
        *,
        lookup: str | None = None,
    ) -> None:
        """Make a copier that waits for its position to be stored.

        Args:
            lookup: why the shell must look up what others have written behind ``position`` (see ``Reconciled``), in
                words for the operator. None: nothing was written behind it.
        """
        self.name = name
        self.position = position._replace(sequence=0)
        self.identity = identity
        self.settings = settings
        self.state: State = Storing() if lookup is None else Reconciling(cause=lookup, owns_position=False)
        self.fetch_offset = position.source_offset
        self.fetched_epoch = position.source_leader_epoch
        self.end_offset: int | None = None
        self.target_leader_epoch: int | None = None
        self.end_checks = 0
        """How often there was a reason to check if the target still holds what it acknowledged: another leader epoch
        (docs/broker-facts.md#m4), a missing answer, an answer that it leads no longer."""
        self.tally = Tally()
        self.new_runs = NewRuns()
        """What the target has acknowledged since the shell last took it."""
        self.refused_bytes = 0
        """Size of the batch that the target last refused as too large, until ``LimitsFound``."""
        self.search = PoisonSearch(quarantines=settings.quarantines)
        self.in_flight = InFlightBatches(name, ready_max_bytes=settings.ready_max_bytes)
        self._end_checked = 0
        """The highest value of ``end_checks`` for which the target held everything."""
        self._failures = 0
        self._fault: Fault | None = None
        self._damaged_reads = 0
        """How often in a row the batch at the position came damaged."""

    @property
    def reason(self) -> str:
        """Why it waits or has stopped, or why it waited last; empty once a batch was stored again."""
        return self.state.cause

    @property
    def owns_position(self) -> bool:
        """Its stored position may be replaced. Until it is reconciled, that names the previous producer."""
        state = self.state
        return state.owns_position if isinstance(state, (Reconciling, Ending)) else True

    @property
    def has_untold_gaps(self) -> bool:
        """It has stopped at a gap and does not know yet where it stands. Its stored position stays."""
        return bool(gaps_of(self.state).met)

    @property
    def may_store_position(self) -> bool:
        """Its position may be stored."""
        return type(self.state) is Copying or (self.owns_position and not self.has_untold_gaps)

    @property
    def is_end_unverified(self) -> bool:
        """The target may have lost what it acknowledged, so nothing is sent. See ``Need.TARGET_END``."""
        return self.end_checks != self._end_checked

    @property
    def is_unsettled(self) -> bool:
        """A batch behind the position may be stored, or arrive later. A successor must fence its producer."""
        state, in_flight = self.state, self.in_flight
        unknown = isinstance(state, Reconciling)
        if isinstance(state, Ending):
            unknown = state.awaits_lookup or state.outcome_unknown
        behind = in_flight.unanswered > 0 or self.position.source_offset < in_flight.maybe_sent_until
        return self.owns_position and (behind or unknown)

    @property
    def awaits_lookup(self) -> bool:
        """What is stored is being looked up."""
        state = self.state
        return state.awaits_lookup if isinstance(state, Ending) else isinstance(state, Reconciling)

    @property
    def wants_fetch(self) -> bool:
        """A read may bring more, and there is room for it."""
        if type(self.state) is not Copying or self._fault is not None:
            return False
        return self.in_flight.wants_more(is_at_end=self.is_at_end)

    @property
    def is_at_end(self) -> bool:
        """Everything that was there at the last read has been read, so the next read waits for more."""
        return self.end_offset is not None and self.fetch_offset >= self.end_offset

    @property
    def is_blocked(self) -> bool:
        """It waits for an operator. The target's limits are looked up before it tries again."""
        return isinstance(self.state, Waiting) and self.state.is_blocked

    @property
    def resume_at_s(self) -> float | None:
        """When a ``Tick`` ends the pause; None while none is due."""
        state = self.state
        return state.resume_at_s if isinstance(state, Waiting) and not self.in_flight.unanswered else None

    @property
    def vouched_offset(self) -> int | None:
        """The target offset up to which the target must hold the copy; None while that is unknown or irrelevant."""
        return self.position.target_offset if isinstance(self.state, (Storing, Copying, Waiting)) else None

    @property
    def real_position(self) -> Position:
        """The position with the real target offset, less what the target has lost; see ``Gaps``."""
        return gaps_of(self.state).as_it_is(self.position)

    @property
    def kind_of_reason(self) -> str:
        """The reason without numbers, so that partitions with the same problem are reported together."""
        return _NUMBERS.sub("...", self.reason)

    @property
    def is_failing(self) -> bool:
        """It has failed, and nothing has succeeded since."""
        return self._failures > 0

    def lag(self) -> int | None:
        """Source offsets between the position and the readable end; None before the first read."""
        return None if self.end_offset is None else max(0, self.end_offset - self.position.source_offset)

    def is_too_old_to_resend(self, retained_after_ms: int) -> bool:
        """Whether ``next_batch`` returns none because the batch is too old to be sent again: see ``TooOldToResend``."""
        may_send = type(self.state) is Copying and not self.is_end_unverified
        return may_send and self.in_flight.is_too_old_to_resend(retained_after_ms)
