"""What a test has the proxy do to frames: actions, and rules that say which frames meet them and count how often.

A rule lives in two threads: the proxy's fires it, the test's waits for it and ends it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.cluster.kafka_frames import Frame
from tests.cluster.running import PATIENCE, wait_until

DEADLINE_S: Final = 20.0 * PATIENCE


@dataclass(frozen=True, slots=True)
class Pass:
    """Nothing: it is counted and kept."""


@dataclass(frozen=True, slots=True)
class Hold:
    """It waits until the rule is released, whether or not the client waits with it, and so does all behind it.

    With ``alone`` what is behind it overtakes it, which no TCP connection would do.
    """

    alone: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """It vanishes; the connection stays."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Only the first bytes of it go on, the four of its length counted. Then the connection ends, or, with
    ``then_silence``, nothing more comes on it in this direction."""

    keep_bytes: int
    then_silence: bool = False


@dataclass(frozen=True, slots=True)
class Repeat:
    """A request goes on, and once more on a connection of the proxy's own; ``Rule.answers`` gets the second reply."""


@dataclass(frozen=True, slots=True)
class Alter:
    """It is changed on the way."""

    change: Callable[[Frame], Frame]


@dataclass(frozen=True, slots=True)
class Drip:
    """It goes on byte by byte."""

    every_s: float


@dataclass(frozen=True, slots=True)
class Reset:
    """It vanishes, and both sides of the connection are reset."""


Action = Pass | Hold | Drop | Cut | Repeat | Alter | Drip | Reset


@dataclass(slots=True)
class Strike:
    """One time that a rule fired.

    Attributes:
        took_s: until the frame had gone on or was given up; None before.
        reply: what the broker answered, if it was a request that went on.
    """

    frame: Frame
    at_s: float
    took_s: float | None = None
    reply: Frame | None = None


@dataclass(slots=True, eq=False)
class Rule:
    """Which frames meet which action, and how often it happened. Made by ``KafkaProxy.rule``, and used from there."""

    action: Action
    wants: Callable[[Frame], bool]
    skip: int
    times: int | None
    loop: asyncio.AbstractEventLoop
    strikes: list[Strike] = field(default_factory=list)
    answers: list[Frame] = field(default_factory=list)
    seen: int = 0
    is_active: bool = True
    changed: threading.Condition = field(default_factory=threading.Condition)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def fired(self) -> int:
        return len(self.strikes)

    @property
    def frames(self) -> list[Frame]:
        """What it fired on."""
        return [strike.frame for strike in list(self.strikes)]

    def wait_until(self, condition: Callable[[], bool], what: str, *, deadline_s: float = DEADLINE_S) -> None:
        """Wait until something about this rule is true; AssertionError when it never is."""

        def is_so() -> bool:
            with self.changed:
                return self.changed.wait_for(condition, 0.1)

        try:
            wait_until(is_so, what, deadline_s=deadline_s)
        except AssertionError as error:
            error.add_note(f"fired {self.fired}")
            raise

    def wait_until_fired(self, times: int = 1, *, deadline_s: float = DEADLINE_S) -> None:
        """Wait until it has fired so often."""
        self.wait_until(lambda: self.fired >= times, f"the rule fires {times} times", deadline_s=deadline_s)

    def wait_for_replies(self, *, deadline_s: float = DEADLINE_S) -> list[Frame]:
        """Wait until the broker has answered all requests on which it fired, and return the replies."""
        self.wait_until(
            lambda: all(strike.reply is not None for strike in self.strikes),
            "the broker has answered",
            deadline_s=deadline_s,
        )
        return [strike.reply for strike in self.strikes if strike.reply is not None]

    def wait_until_over(self, strikes: int = 1, *, deadline_s: float = DEADLINE_S) -> None:
        """Wait until it has done with so many frames."""
        self.wait_until(
            lambda: sum(strike.took_s is not None for strike in self.strikes) >= strikes,
            f"the rule is through with {strikes} frames",
            deadline_s=deadline_s,
        )

    def end(self) -> None:
        """Let it fire no more."""
        self.is_active = False

    def release(self) -> None:
        """Let go of what it holds, and let it fire no more."""
        self.end()
        self.loop.call_soon_threadsafe(self.released.set)

    def take(self, frame: Frame) -> Strike | None:
        """Return the strike if the rule fires on this frame."""
        if not self.is_active or not self.wants(frame):
            return None
        self.seen += 1
        if self.seen <= self.skip or (self.times is not None and self.seen > self.skip + self.times):
            return None
        strike = Strike(frame, time.monotonic())
        with self.changed:
            self.strikes.append(strike)
            self.changed.notify_all()
        return strike

    def note_end(self, strike: Strike) -> None:
        """It is done with a frame."""
        with self.changed:
            strike.took_s = time.monotonic() - strike.at_s
            self.changed.notify_all()

    def note_reply(self, strike: Strike, reply: Frame) -> None:
        """The broker has answered a request on which it fired."""
        with self.changed:
            strike.reply = reply
            self.changed.notify_all()

    def note_answer(self, answer: Frame) -> None:
        """The broker has answered a repeat."""
        with self.changed:
            self.answers.append(answer)
            self.changed.notify_all()
