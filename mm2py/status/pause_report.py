"""The report on what operators have paused of a flow, topic by topic. Pure.

Connect knows only paused connectors: ``connector_report.py`` has those.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mm2py.flow import Flow
from mm2py.moments import time_text
from mm2py.records.pause_record import Pauses, TopicPause
from mm2py.status.not_copied import resume_remedy


@dataclass(frozen=True, slots=True)
class PauseReport:
    """A topic, or one partition of it, that an operator has paused: nothing of it is read."""

    topic: str
    """Its name on the source."""
    partition: int | None
    """None: all its partitions, also those that are added later."""
    by: str
    """Who has paused it, in words."""
    user: str
    """The login name of that user; over REST the name in the users' file. Empty: not known."""
    reason: str
    """The reason that the user gave; empty: none."""
    at_ms: int | None
    """When, by the clock of the machine that stored it; None: not known."""
    text: str
    """The same in words, with the command that resumes it."""

    @property
    def name(self) -> str:
        """What is paused: ``orders`` or ``orders-3``."""
        return self.topic if self.partition is None else f"{self.topic}-{self.partition}"


def pause_reports(flow: Flow, pauses: Pauses) -> tuple[PauseReport, ...]:
    """Return all that is paused of a flow, by topic and partition."""
    return tuple(_reports(flow, pauses.all()))


def _reports(flow: Flow, pauses: Iterable[TopicPause]) -> Iterable[PauseReport]:
    for one in pauses:
        since = "" if one.at_ms is None else f" since {time_text(one.at_ms)}"
        remedy = resume_remedy(flow, one.topic, "" if one.partition is None else str(one.partition))
        text = f"paused{since} by {one.who_and_why}. {remedy}"
        yield PauseReport(one.topic, one.partition, one.by, one.author.user, one.author.reason, one.at_ms, text)
