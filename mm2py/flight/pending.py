"""What a worker has to write to the flight recorder: changes, not samples, within a budget of bytes. Pure.

The story: a source with 10,000 topics is away, and each of them gets another reason every few seconds. Copying must not
pay for that, and the topic must not fill up. So of each topic only the last change waits, log lines beyond a limit are
dropped, and what was lost is counted and told: of that time a reader then knows nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mm2py.records.flight_record import (
    TEXT_MOST,
    AllWritten,
    CausesChanged,
    ChangesLost,
    FlightEvent,
    LineLogged,
    RecordedAnew,
    encode_flight,
)
from mm2py.records.standstill import CAUSES_MOST, Cause, cut_cause

BYTES_PER_S: Final = 8 * 1024
"""How many bytes a worker writes for a flow in the long run: 700 MB a day at the very most."""
BURST_BYTES: Final = 1 << 20
LINES_MOST: Final = 500
"""How many log lines wait at most."""
ANEW_MS: Final = 3_600_000
"""How often all that is not copied is written anew: a reader goes back only so far."""
MARK_MS: Final = 10_000
"""How often it is written that nothing waits: a recorder that cannot write is not one that has nothing to write."""
_NOT_TEXT: Final = frozenset({"event", "flow", "topic", "partition", "level", "timestamp", "exc_info"})


class FlightPending:
    """The changes of one attempt of a flow that are not written yet."""

    def __init__(self, member: str) -> None:
        """``member``: the worker's id in its group."""
        self._member = member
        self._anew: RecordedAnew | None = None
        self._begun_at_ms: int | None = None
        """When all was last written anew."""
        self._shown: dict[str, list[tuple[str, str]]] = {}
        """What was noted last, by topic and in short."""
        self._causes: dict[str, CausesChanged] = {}
        self._lines: deque[LineLogged] = deque()
        self._lost_changes = self._lost_lines = 0
        self._lost_since_ms = 0
        self._marked_at_ms: int | None = None
        self._budget = float(BURST_BYTES)
        self._filled_at_ms: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no change waits to be written."""
        return not (self._anew or self._causes or self._lines or self._lost_changes or self._lost_lines)

    def show(self, causes: Mapping[str, Sequence[Cause]], now_ms: int) -> None:
        """Note why topics are not copied now; called every second.

        A change of words alone is no change: an error's text may differ at each attempt.

        Args:
            causes: all that is not copied, by source topic; the empty name means the flow.
        """
        if self._begun_at_ms is None or now_ms - self._begun_at_ms >= ANEW_MS:
            self._anew = RecordedAnew(now_ms, self._member, is_start=self._begun_at_ms is None)
            self._begun_at_ms = now_ms
            for unwritten in self._causes.values():
                self._lose(unwritten)
            self._shown, self._causes = {}, {}
        if not (causes or self._shown):
            return
        for topic in [topic for topic in self._shown if topic not in causes]:
            self._change(topic, (), now_ms)
            del self._shown[topic]
        for topic, found in causes.items():
            in_short = _in_short(found[:CAUSES_MOST])
            if self._shown.get(topic) != in_short:
                self._shown[topic] = in_short
                self._change(topic, tuple(map(cut_cause, found[:CAUSES_MOST])), now_ms)

    def _change(self, topic: str, causes: tuple[Cause, ...], now_ms: int) -> None:
        if (before := self._causes.pop(topic, None)) is not None:
            self._lose(before)
        self._causes[topic] = CausesChanged(now_ms, self._member, topic, causes)

    def line(self, level: str, fields: Mapping[str, Any], now_ms: int) -> None:
        """Note a line of the log.

        Args:
            fields: of the line, the event's name among them.
        """
        if len(self._lines) >= LINES_MOST:
            self._lose(self._lines.popleft())
        partition = fields.get("partition")
        text = " ".join(f"{key}={value}" for key, value in fields.items() if key not in _NOT_TEXT)
        self._lines.append(
            LineLogged(
                now_ms,
                self._member,
                level,
                str(fields.get("event", "")),
                str(fields.get("topic", "")),
                partition if type(partition) is int and partition >= 0 else None,
                text[:TEXT_MOST],
            )
        )

    def _lose(self, event: CausesChanged | LineLogged) -> None:
        is_first = not (self._lost_changes or self._lost_lines)
        self._lost_since_ms = event.at_ms if is_first else min(self._lost_since_ms, event.at_ms)
        if isinstance(event, CausesChanged):
            self._lost_changes += 1
        else:
            self._lost_lines += 1

    def take(self, now_ms: int) -> list[tuple[int, bytes]]:
        """Return the records to write now, with their times, as far as the budget goes; the oldest come first.

        Every ten seconds, if nothing is left then, the last record says so. What is returned does not wait any more: a
        caller that cannot write it keeps it.
        """
        if self._filled_at_ms is not None:
            gained = max(0, now_ms - self._filled_at_ms) / 1000 * BYTES_PER_S
            self._budget = min(float(BURST_BYTES), self._budget + gained)
        self._filled_at_ms = now_ms
        taken: list[tuple[int, bytes]] = []
        for event in [*self._in_order(now_ms)]:
            if self._budget <= 0:
                break
            value = encode_flight(event)
            self._budget -= len(value)
            taken.append((event.at_ms, value))
            self._forget(event)
        is_due = self._marked_at_ms is None or now_ms - self._marked_at_ms >= MARK_MS
        if is_due and self._begun_at_ms is not None and self.is_empty:
            self._marked_at_ms = now_ms
            value = encode_flight(AllWritten(now_ms, self._member))
            self._budget -= len(value)
            taken.append((now_ms, value))
        return taken

    def _in_order(self, now_ms: int) -> Iterator[FlightEvent]:
        if self._anew is not None:
            yield self._anew
        if self._lost_changes or self._lost_lines:
            yield ChangesLost(now_ms, self._member, self._lost_changes, self._lost_lines, self._lost_since_ms)
        changes: list[CausesChanged | LineLogged] = [*self._causes.values(), *self._lines]
        yield from sorted(changes, key=lambda one: one.at_ms)

    def _forget(self, event: FlightEvent) -> None:
        match event:
            case RecordedAnew():
                self._anew = None
            case ChangesLost():
                self._lost_changes = self._lost_lines = 0
            case CausesChanged():
                del self._causes[event.topic]
            case LineLogged():
                self._lines.remove(event)


def _in_short(causes: Sequence[Cause]) -> list[tuple[str, str]]:
    return [(one.reason, one.partitions) for one in causes]
