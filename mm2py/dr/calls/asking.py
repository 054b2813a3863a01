"""One call of a verb: who asks for it, what it would do, and what came of it.

A verb shows its plan to ``decide``, which says whether it is carried out: a command asks at a terminal, REST compares
the plan with the one that was confirmed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from mm2py.clock import Clock
from mm2py.config.configuration import SettingsFile
from mm2py.errors import Mm2Error
from mm2py.records.author import Author

FORMAT: Final = 1
"""The version of the object for programs. Within one version fields may be added; none changes its meaning."""
HASH_CHARS: Final = 16


class RecoveryRefused(Mm2Error):
    """A call is not carried out. Nothing was changed by it."""


@dataclass(frozen=True, slots=True)
class RecoveryAsked:
    """Who asks, and how it is told what happens."""

    file: SettingsFile
    """With all of its flows, whatever a worker was started with."""
    flow: str
    author: Author
    command: str
    """How the records of clusters name the call, as ``mm2py dr cutover``."""
    say: Callable[[str], None]
    """Is told what happens, a line each."""
    progress: Callable[[str], None]
    """Is told what is waited for at the moment; empty: nothing any more."""
    clock: Clock
    rng: Random = field(repr=False)


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What a call would do."""

    lines: Sequence[str]
    """For people."""
    body: Mapping[str, Any]
    """For programs."""
    decided: Mapping[str, Any]
    """What has to be the same when it is confirmed: no position, and nothing else that moves by itself."""
    question: str
    code: int | None = None
    """The exit code if nothing is to be done, or if it is refused; None: it may begin."""
    blocked: str = ""
    """Why it is not carried out although it can be shown; empty: it may be."""
    goes_on: bool = False
    """It goes on with what was confirmed and begun already."""

    @property
    def hash(self) -> str:
        """By which the plan is confirmed."""
        text = json.dumps(self.decided, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:HASH_CHARS]


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What came of a call."""

    code: int
    """The exit code of the command."""
    body: Mapping[str, Any]
    """For programs."""
    text: str = ""
    """In a sentence, if the last line that was told does not say it."""


Decide = Callable[[RecoveryPlan], Awaitable[int | None]]
"""Shows a plan. Returns the exit code if it is not carried out; None if it is, or if ``RecoveryPlan.code`` says what
comes of it."""


async def decided_on(plan: RecoveryPlan, decide: Decide) -> int | None:
    """Return the exit code of a call that is not carried out; None: it is."""
    answer = await decide(plan)
    return answer if answer is not None else plan.code
