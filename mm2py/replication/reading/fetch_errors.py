"""What a source may answer to a read of a partition, and what follows from it. Pure.

Answers to ``FetchCollector.handleInitializeErrors`` of Kafka's Java consumer, which MM2 leaves it to.
"""

from __future__ import annotations

from typing import NamedTuple

from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE, TOPIC_CHANGED, name_of
from mm2py.kafka.retry import BLOCKED_PAUSE_S, DENIED_PAUSE_S, Reaction, reaction_to
from mm2py.replication.copying.events import Need


class FetchError(NamedTuple):
    """Why a partition pauses, and what is to be looked up meanwhile."""

    text: str
    need: Need | None = None
    pause_s: float | None = None
    """None: as after any failure."""
    report: str | None = None
    """Under which event operators are told."""
    blocks: bool = False
    """Only an operator can help."""


def fetch_error(code: int, fetch_offset: int) -> FetchError:
    """Return what follows from an error code that a read from ``fetch_offset`` on got."""
    what = f"{name_of(code)} ({code})"
    if code == OFFSET_OUT_OF_RANGE:
        return FetchError(f"source offset {fetch_offset} is out of range", Need.OFFSETS)
    if code in TOPIC_CHANGED:
        return FetchError(f"the source topic is gone or was made anew ({what})", Need.METADATA)
    match reaction_to(code):
        case Reaction.RETRY:
            return FetchError(f"the source answered {what}")
        case Reaction.REFRESH:
            return FetchError(f"the source answered {what}", Need.METADATA)
        case Reaction.DENIED:
            text = f"mm2py may not read the source topic ({what})"
            return FetchError(text, pause_s=DENIED_PAUSE_S, report="source.denied")
        case Reaction.FAIL:
            text = f"the source answers {what}"
            return FetchError(text, pause_s=BLOCKED_PAUSE_S, report="source.refuses", blocks=True)
